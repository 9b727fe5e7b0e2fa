// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/gate"

	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
	"github.com/reconkernel/reconcile/supervise"
)

// TestInstrumentedTerms has three terms of a leader, each with a Reconciler and a queue
// of the same name. The series are those of the term, and gone between terms; a gate of
// that name stays.
func TestInstrumentedTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c promadapter.Collector
		if err := c.AddGate("buckets", new(gate.Gate)); err != nil {
			t.Fatal(err)
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(&c)
		series := func(name string) (found bool, value float64) {
			t.Helper()
			all, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range all {
				if family.GetName() == name {
					return true, family.Metric[0].GetCounter().GetValue()
				}
			}
			return false, 0
		}
		for term := 1; term <= 3; term++ {
			queue, results := reconcile.NewQueue[int](), 0
			r := &reconcile.Reconciler[int]{
				Name: "buckets", Queue: queue, Logger: quiet,
				Reconcile: func(context.Context, int) error { return nil },
				OnResult:  func(reconcile.Result[int]) { results++; panic("the run counts all the same") },
			}
			var group supervise.Group
			group.Add("runs", promadapter.Instrumented(&c, r))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- group.Run(ctx) }()
			for i := range 10 * term {
				queue.Enqueue(i)
			}
			synctest.Wait()
			if runs := values(t, &c)[`reconcile_runs_total{controller="buckets",outcome="succeeded"}`]; runs != float64(10*term) || results != 10*term {
				t.Errorf("term %d: %v runs were counted, and there were %d results, want %d", term, runs, results, 10*term)
			}
			queue.Enqueue(-1) // after the last scrape of the term
			synctest.Wait()
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("term %d: %v", term, err)
			}
			if term == 2 {
				continue // the next term begins before a scrape
			}
			if _, adds := series("workqueue_adds_total"); adds != float64(10*term+1) {
				t.Errorf("term %d: after it %v items were added", term, adds)
			}
			if found, _ := series("workqueue_adds_total"); found {
				t.Errorf("the series of term %d are there after it", term)
			}
		}
		if found, _ := series("reconcile_gate_pauses_total"); !found {
			t.Error("the gate is gone")
		}
		if err := promadapter.Instrumented[int](&c, nil).Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("without a Reconciler: %v, want a terminal error", err)
		}
	})
}

// The counts of a queue that AddQueue has added stay when a Reconciler ends whose own
// queue has none.
func TestInstrumentedKeepsTheQueueOfAddQueue(t *testing.T) {
	var c promadapter.Collector
	q := reconcile.NewQueue[string]()
	if err := c.AddQueue("far", q); err != nil {
		t.Fatal(err)
	}
	r := &reconcile.Reconciler[string]{Name: "far", Queue: otherQueue{q}, Reconcile: func(context.Context, string) error { return nil }}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := promadapter.Instrumented(&c, r).Run(ctx); err != nil {
		t.Fatal(err)
	}
	if !c.Remove("far") {
		t.Error("the queue is gone")
	}
}
