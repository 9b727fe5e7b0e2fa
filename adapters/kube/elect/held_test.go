// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
	"github.com/reconkernel/reconcile/adapters/kube/internal/leasetest"
)

// TestHeld has a run with an hour of grace end when the lease is lost, and when
// it is not, take it.
func TestHeld(t *testing.T) {
	for name, test := range map[string]struct {
		client *leasetest.LeaseClient
		want   string
	}{
		"lost":    {nil, "run begins 0s, run ends 30s"}, // the last renewal at 20 s
		"stopped": {new(leasetest.LeaseClient), "run begins 0s, run ends 1h0m25s"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *field) {
				if test.client == nil {
					test.client = broken(21*time.Second, false)
				}
				q := reconcile.NewQueue[string]()
				q.Enqueue("x")
				var results []reconcile.Result[string]
				workers := &reconcile.Reconciler[string]{
					Queue: elect.Held(q), Logger: quiet, Grace: time.Hour,
					Reconcile: func(ctx context.Context, item string) error {
						f.note("run", "begins")
						<-ctx.Done()
						f.note("run", "ends")
						return context.Cause(ctx)
					},
					OnResult: func(r reconcile.Result[string]) { results = append(results, r) },
				}
				stop := f.run(elect.Elect(f.config("a", test.client), workers))
				time.Sleep(25 * time.Second)
				if name == "lost" {
					time.Sleep(time.Minute)
				}
				_ = stop() // after the lease is lost, an error
				if got := f.took(); got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
				if len(results) != 1 || results[0].Outcome != reconcile.OutcomeAborted {
					t.Errorf("results: %v, want one that is aborted", results)
				}
				if s := q.State("x"); s.Phase != reconcile.PhaseReady || s.Failures != 0 {
					t.Errorf("state: %+v, want ready, without failures", s)
				}
			})
		})
	}
}

// TestHeldChecksTheClock has a process go on after it was stopped for a while: what its
// queue hands out before the timer has said that the lease is over is given back, and
// a run that begins has a context that has ended.
func TestHeldChecksTheClock(t *testing.T) {
	for name, renewed := range map[string]time.Duration{"before": -time.Minute, "while it waits": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := elect.InTerm(t.Context(), elect.Config{Deadline: 10 * time.Second}, time.Now().Add(renewed))
				ctx, end := context.WithTimeoutCause(ctx, time.Hour, errors.New("the end"))
				defer end()
				q := reconcile.NewQueue[string]()
				q.EnqueueAfter("x", 10*time.Second)
				h := elect.Held(q)
				begin := time.Now()
				if item, err := h.Dequeue(ctx); err == nil || err.Error() != "the end" || time.Since(begin) != time.Hour {
					t.Errorf("Dequeue returned %q, %v after %v, want the end after an hour", item, err, time.Since(begin))
				}
				if got := q.State("x").Phase; got != reconcile.PhaseReady {
					t.Errorf("x is %v, want ready", got)
				}
				leased := h.(reconcile.Leaser[string]).Lease(elect.InTerm(t.Context(), elect.Config{Deadline: 10 * time.Second}, begin), "x")
				if err := context.Cause(leased); !errors.Is(err, reconcile.ErrLeaseLost) {
					t.Errorf("the context of a run ended with %v, want %v at once", err, reconcile.ErrLeaseLost)
				}
			})
		})
	}
}
