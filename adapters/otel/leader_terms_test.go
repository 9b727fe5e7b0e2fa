// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/reconkernel/reconcile"
	oteladapter "github.com/reconkernel/reconcile/adapters/otel"
	"github.com/reconkernel/reconcile/supervise"
)

// TestInstrumentedTerms has three terms of a leader, each with a Reconciler and a queue
// of its own, and one Telemetry: a term has the workers and the items of its own.
func TestInstrumentedTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		telemetry := &oteladapter.Telemetry[int]{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
		for term := 1; term <= 3; term++ {
			queue := reconcile.NewQueue[int]()
			var results atomic.Int32
			r := &reconcile.Reconciler[int]{
				Name: "buckets", Queue: queue, Workers: 2,
				Reconcile: func(context.Context, int) error { return nil },
				OnResult:  func(reconcile.Result[int]) { results.Add(1) },
			}
			var group supervise.Group
			group.Add("runs", telemetry.Instrumented(r))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- group.Run(ctx) }()
			for i := range 10 * term {
				queue.Enqueue(i)
			}
			synctest.Wait()
			values := collect(t, reader)
			for series, want := range map[string]string{
				"reconcile.worker.max{messaging.destination.name=buckets}":    "2",
				"reconcile.item.enqueued{messaging.destination.name=buckets}": []string{"10", "30", "60"}[term-1],
			} {
				if values[series] != want {
					t.Errorf("term %d: %s is %q, want %s", term, series, values[series], want)
				}
			}
			cancel()
			if err := <-ended; err != nil || int(results.Load()) != 10*term {
				t.Errorf("term %d: %v, %d results, want %d", term, err, results.Load(), 10*term)
			}
		}
		if err := telemetry.Instrumented(nil).Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("without a Reconciler: %v, want a terminal error", err)
		}
	})
}

// TestInstrumentedShortTerm has terms that end before the metrics are collected, and that
// are restarted: what they counted is there, once, for each reader.
func TestInstrumentedShortTerm(t *testing.T) {
	first, second := sdkmetric.NewManualReader(), sdkmetric.NewManualReader()
	telemetry := &oteladapter.Telemetry[int]{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(first), sdkmetric.WithReader(second))}
	for range 2 {
		queue := reconcile.NewQueue[int]()
		for i := range 5 {
			queue.Enqueue(i)
		}
		queue.Close()
		r := &reconcile.Reconciler[int]{Name: "r", Queue: queue, Reconcile: func(context.Context, int) error {
			collect(t, second) // what is collected meanwhile is not counted again
			return nil
		}}
		runner := telemetry.Instrumented(r)
		for range 2 {
			if err := runner.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, reader := range []*sdkmetric.ManualReader{first, second, first} {
		for _, name := range []string{"enqueued", "taken"} {
			series := "reconcile.item." + name + "{messaging.destination.name=r}"
			if got := collect(t, reader)[series]; got != "10" {
				t.Errorf("%s is %q, want 10", series, got)
			}
		}
	}
}

// A withoutAttrs is a log handler that panics when a Reconciler adds its name.
type withoutAttrs struct{ slog.Handler }

func (withoutAttrs) WithAttrs([]slog.Attr) slog.Handler { panic("no attributes") }

// TestInstrumentedRunThatPanics has a term that ends with a panic of Run. The next one has
// its own spans and metrics.
func TestInstrumentedRunThatPanics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	telemetry := &oteladapter.Telemetry[int]{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
	bad := &reconcile.Reconciler[int]{
		Name: "bad", Queue: reconcile.NewQueue[int](), Logger: slog.New(withoutAttrs{slog.DiscardHandler}),
		Reconcile: func(context.Context, int) error { return nil },
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Run does not panic")
			}
		}()
		_ = telemetry.Instrumented(bad).Run(t.Context())
	}()
	for series, value := range collect(t, reader) {
		if !strings.HasPrefix(series, "reconcile.item.") || value != "0" {
			t.Errorf("after the term there is %s %s", series, value)
		}
	}
	queue := reconcile.NewQueue[int]()
	queue.Close()
	good := &reconcile.Reconciler[int]{Name: "good", Queue: queue, Reconcile: func(context.Context, int) error { return nil }}
	if err := telemetry.Instrumented(good).Run(t.Context()); err != nil {
		t.Errorf("the next term: %v", err)
	}
}
