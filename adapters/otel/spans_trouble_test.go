// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

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
