// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A run with an hour of grace ends when the lease is lost, also in an orderly stop, and
// takes its grace when it is not.
func TestHeld(t *testing.T) {
	const ttl = 30 * time.Second // renewed each 7.5 s, lost 20 s after the last renewal
	for name, c := range map[string]struct {
		broken, stopped time.Duration // 0 for never
		want            time.Duration
	}{
		"lost":            {broken: 21 * time.Second, want: 35 * time.Second},
		"lost as it ends": {broken: 21 * time.Second, stopped: 25 * time.Second, want: 35 * time.Second},
		"stopped":         {stopped: 25 * time.Second, want: 25*time.Second + time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				kv := &bucket{ttl: ttl, created: begin}
				if c.broken > 0 {
					kv.broken = begin.Add(c.broken)
				}
				q := reconcile.NewQueue[string]()
				q.Enqueue("x")
				var results []reconcile.Result[string]
				var ended time.Duration
				r := &reconcile.Reconciler[string]{
					Queue: Held(q), Grace: time.Hour,
					Reconcile: func(ctx context.Context, _ string) error {
						<-ctx.Done()
						ended = time.Since(begin)
						return context.Cause(ctx)
					},
					OnResult: func(r reconcile.Result[string]) { results = append(results, r) },
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				over := make(chan error, 1)
				go func() { over <- Elect(kv, "leader", r).Run(ctx) }()
				time.Sleep(cmp.Or(c.stopped, time.Minute))
				stop()
				if err := <-over; err != nil {
					t.Errorf("Run: %v", err)
				}
				if ended != c.want {
					t.Errorf("the run ended after %v, want %v", ended, c.want)
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

// Outside of Elect, a queue that is Held is as it was.
func TestHeldElsewhere(t *testing.T) {
	q := reconcile.NewQueue[string]()
	q.Enqueue("x")
	h := Held(q)
	if item, err := h.Dequeue(t.Context()); item != "x" || err != nil {
		t.Fatalf("Dequeue: %q, %v", item, err)
	}
	if ctx := h.(reconcile.Leaser[string]).Lease(t.Context(), "x"); ctx != t.Context() {
		t.Errorf("Lease: %v, want the context that it was given", ctx)
	}
	h.Done("x")
	if s := h.(interface{ Stats() reconcile.Stats }).Stats(); s != q.Stats() || q.Has("x") {
		t.Errorf("Stats: %+v, and x is there: %t", s, q.Has("x"))
	}
}
