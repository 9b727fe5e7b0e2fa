// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/reconkernel/reconcile"
	oteladapter "github.com/reconkernel/reconcile/adapters/otel"
)

// A bomb is an error, and an item, that panics when it is looked at.
type bomb struct{}

func (bomb) Error() string { panic("boom") }

func (bomb) String() string { panic("boom") }

func (bomb) ErrorType() string { panic("boom") }

// TestSpanOfAnItemThatPanics has an item that panics when it is printed.
func TestSpanOfAnItemThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[bomb]()
		ran := 0
		s := start(t, &reconcile.Reconciler[bomb]{
			Name: "bombs", Queue: q,
			Reconcile: func(context.Context, bomb) error { ran++; return nil },
		})
		q.Enqueue(bomb{})
		synctest.Wait()
		s.end()
		if runs := s.runs(); ran != 1 || len(runs) != 1 || !strings.Contains(text(runs[0].Attributes), "reconcile.item=%!v(PANIC=") {
			t.Errorf("%d runs, spans %v", ran, runs)
		}
	})
}

// A mine panics with itself when it is printed, which fmt does not survive.
type mine int

func (m mine) Error() string { panic(m) }

// TestSpanOfAPanicThatPanics has an item and an error whose methods panic with a value that
// panics too. Each run takes place, and its span ends.
func TestSpanOfAPanicThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[mine]()
		ran, results := 0, 0
		s := start(t, &reconcile.Reconciler[mine]{
			Name: "mines", Queue: q, Retry: reconcile.NoRetry,
			Reconcile: func(_ context.Context, m mine) error {
				ran++
				return m
			},
			OnResult: func(reconcile.Result[mine]) { results++ },
		})
		q.Enqueue(1)
		synctest.Wait()
		s.end()
		runs := s.runs()
		if ran != 1 || results != 1 || len(runs) != 1 {
			t.Fatalf("%d runs, %d results, spans %v; want one of each", ran, results, runs)
		}
		const unknown = "%!v(PANIC=oteladapter_test.mine)"
		if got := text(runs[0].Attributes); !strings.Contains(got, "reconcile.item="+unknown) || runs[0].Status.Description != unknown {
			t.Errorf("status %+v, attributes %s; want an item and a status %s", runs[0].Status, got, unknown)
		}
	})
}

// TestSpanEndsWithoutOnResult has a policy that panics, so that the Reconciler does not call
// OnResult. The span of such a run ends with a run two minutes later, or with Close.
func TestSpanEndsWithoutOnResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[int]()
		ran, early := 0, 0 // the second of these more than two minutes ago
		began := time.Now()
		s := start(t, &reconcile.Reconciler[int]{
			Name: "disks", Queue: q,
			Retry: func(error, int) (time.Duration, bool) { panic("no policy") },
			Reconcile: func(_ context.Context, item int) error {
				if ran++; time.Since(began) < 58*time.Minute {
					early++
				}
				if item == 0 {
					return nil
				}
				time.Sleep(time.Duration(item) * time.Millisecond) // not at the same time as the others
				return errBroken
			},
		})
		for i := range 10 {
			q.Enqueue(i)
		}
		time.Sleep(time.Hour + time.Millisecond)
		q.Enqueue(0)
		synctest.Wait()
		if n := len(s.runs()); n < early || early < 100 {
			t.Errorf("%d spans have ended, of %d runs more than two minutes ago", n, early)
		}
		s.end()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		runs := s.runs()
		if len(runs) != ran {
			t.Errorf("%d spans have ended, of %d runs", len(runs), ran)
		}
		for _, run := range runs {
			// A failed run says how long it took, and not how it ended.
			want := "reconcile.outcome=succeeded"
			if took := run.EndTime.Sub(run.StartTime); took > 0 {
				want = fmt.Sprintf("reconcile.item=%d", took.Milliseconds())
			}
			if got := text(run.Attributes); !strings.HasSuffix(strings.TrimSuffix(got, " reconcile.waited=0"), want) {
				t.Errorf("attributes %s, want at the end %s", got, want)
			}
		}
	})
}

// TestTextIsUTF8 has a name, items and errors that are no UTF-8. OTLP has no such strings: an
// exporter drops all spans, or metrics, that it sends together with one.
func TestTextIsUTF8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		reader := sdkmetric.NewManualReader()
		exported := tracetest.NewInMemoryExporter()
		telemetry := &oteladapter.Telemetry[string]{
			TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported)),
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		}
		ends := map[string]func(error) error{
			"failed\xff":    func(err error) error { return err },
			"planned\xff":   func(err error) error { return errors.Join(err, reconcile.RequeueAfter(time.Hour)) },
			"panicked\xff":  func(err error) error { panic(err) },
			"rechecked\xff": func(err error) error { return fmt.Errorf("%v: %w", err, reconcile.RecheckWithin(time.Hour)) },
		}
		r := &reconcile.Reconciler[string]{
			Name: "disks\xff", Queue: q, Retry: reconcile.NoRetry, Logger: quiet,
			Reconcile: func(_ context.Context, item string) error { return ends[item](kind("quota\xff")) },
		}
		if err := telemetry.Instrument(r); err != nil {
			t.Fatal(err)
		}
		for item := range ends {
			q.Enqueue(item)
		}
		end := background(t, r.Run)
		synctest.Wait()
		series := collect(t, reader)
		end()
		texts := slices.Collect(maps.Keys(series))
		for _, span := range exported.GetSpans() {
			texts = append(texts, span.Name, span.Status.Description, text(span.Attributes))
			for _, event := range span.Events {
				texts = append(texts, event.Name, text(event.Attributes))
			}
		}
		for _, text := range texts {
			if !utf8.ValidString(text) {
				t.Errorf("%q is no UTF-8", text)
			}
		}
		if all := strings.Join(texts, " "); !strings.Contains(all, "reconcile.item=failed\ufffd") || !strings.Contains(all, "error.type=quota\ufffd") {
			t.Errorf("an item and an error lack U+FFFD in %q", texts)
		}
	})
}

// TestTextIsCut has a long item, and errors of several megabytes, such as a page of HTML in
// each. A full batch of such spans, which has 512, fits into the 4 MiB that a server of gRPC
// accepts.
func TestTextIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("äöü", 1<<20)
		q := reconcile.NewQueue[string]()
		s := start(t, &reconcile.Reconciler[string]{
			Name: "disks", Queue: q, Retry: reconcile.NoRetry,
			Reconcile: func(_ context.Context, item string) error {
				err := errors.New(long)
				if item == "planned" {
					return fmt.Errorf("%w: %w", err, reconcile.RequeueAfter(time.Hour))
				}
				return err
			},
		})
		q.Enqueue(long)
		q.Enqueue("planned")
		synctest.Wait()
		s.end()
		for _, span := range s.runs() {
			size := len(span.Status.Description) + len(text(span.Attributes))
			for _, event := range span.Events {
				size += len(text(event.Attributes))
			}
			if all := span.Status.Description + text(span.Attributes); size > 8<<10 || !utf8.ValidString(all) || !strings.Contains(all, "…") {
				t.Errorf("a span has %d bytes of text: %.100q", size, all)
			}
		}
	})
}

// A hangingExporter takes for ever.
type hangingExporter struct{ release chan struct{} }

func (e hangingExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	<-e.release
	return nil
}

func (e hangingExporter) Shutdown(context.Context) error { return nil }

// TestHangingBackEndBlocksNoWorker has a back end that does not answer, behind the batches that
// programs use: no worker may wait for it.
func TestHangingBackEndBlocksNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(hangingExporter{release}))
		defer func() {
			close(release)
			if err := provider.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		q := reconcile.NewQueue[int]()
		const items = 10_000 // more than a batch processor keeps
		ran := 0
		r := &reconcile.Reconciler[int]{
			Name: "disks", Queue: q, Logger: quiet,
			Reconcile: func(context.Context, int) error { ran++; return nil },
		}
		telemetry := &oteladapter.Telemetry[int]{TracerProvider: provider}
		if err := telemetry.Instrument(r); err != nil {
			t.Fatal(err)
		}
		for i := range items {
			q.Enqueue(i)
		}
		began := time.Now()
		end := background(t, r.Run)
		synctest.Wait()
		if ran != items || time.Since(began) != 0 {
			t.Errorf("%d runs in %v, want %d at once", ran, time.Since(began), items)
		}
		end()
	})
}
