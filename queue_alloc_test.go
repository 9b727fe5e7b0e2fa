// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

// Nothing on a hot path allocates once the queue has been in use.
func TestQueueAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	cause := errors.New("no")
	taken := func(q *reconcile.Queue[string], item string) {
		q.Enqueue(item)
		if got, err := q.Dequeue(ctx); got != item || err != nil {
			t.Fatalf("Dequeue: %q, %v, want %q", got, err, item)
		}
	}
	for name, path := range map[string]struct {
		setup, cycle func(q *reconcile.Queue[string])
	}{
		"Enqueue, Dequeue, Done": {
			func(*reconcile.Queue[string]) {},
			func(q *reconcile.Queue[string]) { taken(q, "x"); q.Done("x") },
		},
		"EnqueueNow, Dequeue, Done": {
			func(*reconcile.Queue[string]) {},
			func(q *reconcile.Queue[string]) {
				q.EnqueueNow("x")
				q.Dequeue(ctx)
				q.Done("x")
			},
		},
		"Enqueue of a queued item": {
			func(q *reconcile.Queue[string]) { q.Enqueue("x") },
			func(q *reconcile.Queue[string]) { q.Enqueue("x") },
		},
		"Enqueue of a held item": {
			func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Hour) },
			func(q *reconcile.Queue[string]) { q.Enqueue("x") },
		},
		"Offer of a known item": {
			func(q *reconcile.Queue[string]) { q.Enqueue("x") },
			func(q *reconcile.Queue[string]) { q.Offer("x") },
		},
		"Offer, Remove": {
			func(*reconcile.Queue[string]) {},
			func(q *reconcile.Queue[string]) { q.Offer("x"); q.Remove("x") },
		},
		"Enqueue in flight, Done, Dequeue": {
			func(q *reconcile.Queue[string]) { taken(q, "x") },
			func(q *reconcile.Queue[string]) { q.Enqueue("x"); q.Done("x"); q.Dequeue(ctx) },
		},
		"in the background and out of it": {
			func(q *reconcile.Queue[string]) { q.Background = 2; q.Offer("seen"); q.Offer("wanted") },
			func(q *reconcile.Queue[string]) {
				q.Enqueue("wanted")
				for range 2 {
					item, _ := q.Dequeue(ctx)
					q.Done(item)
					q.Offer(item)
				}
			},
		},
		"EnqueueAfter, due": {
			func(q *reconcile.Queue[string]) { q.EnqueueAfter("other", time.Hour) },
			func(q *reconcile.Queue[string]) {
				q.EnqueueAfter("x", time.Nanosecond)
				q.Dequeue(ctx)
				q.Done("x")
			},
		},
		"EnqueueAfter, Remove": {
			func(q *reconcile.Queue[string]) { q.EnqueueAfter("other", time.Hour) },
			func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Minute); q.Remove("x") },
		},
		"EnqueueWithin, Enqueue": {
			func(q *reconcile.Queue[string]) { q.EnqueueAfter("other", time.Hour) },
			func(q *reconcile.Queue[string]) {
				q.EnqueueWithin("x", time.Minute)
				q.Enqueue("x")
				q.Dequeue(ctx)
				q.Done("x")
			},
		},
		"Requeue at once": {
			func(q *reconcile.Queue[string]) { taken(q, "x") },
			func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.Wait{}); q.Dequeue(ctx) },
		},
		"Requeue, due": {
			func(q *reconcile.Queue[string]) { taken(q, "x") },
			func(q *reconcile.Queue[string]) { q.RequeueAfter("x", time.Nanosecond); q.Dequeue(ctx) },
		},
		"Requeue, brought forward": {
			func(q *reconcile.Queue[string]) { taken(q, "x") },
			func(q *reconcile.Queue[string]) {
				q.Requeue("x", reconcile.Wait{Delay: time.Hour})
				q.Enqueue("x")
				q.Dequeue(ctx)
			},
		},
		"failed again": {
			func(q *reconcile.Queue[string]) {
				taken(q, "x")
				q.Requeue("x", reconcile.Wait{Err: cause})
				q.Dequeue(ctx)
			},
			func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.Wait{Err: cause}); q.Dequeue(ctx) },
		},
		"State, Has, Len, Stats": {
			func(q *reconcile.Queue[string]) { q.Enqueue("x") },
			func(q *reconcile.Queue[string]) { q.State("x"); q.Has("x"); q.Len(); q.Stats() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := reconcile.NewQueue[string]()
			path.setup(q)
			wantNoAllocs(t, func() { path.cycle(q) })
		})
	}
}

// A waiting consumer is handed its item, and waits again, without allocation.
func TestHandOffAllocatesNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	q := reconcile.NewQueue[int]()
	ran, ended := make(chan int), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			item, err := q.Dequeue(ctx)
			if err != nil {
				return
			}
			q.Done(item)
			ran <- item
		}
	}()
	wantNoAllocs(t, func() {
		q.Enqueue(1)
		<-ran
		q.EnqueueAfter(2, time.Nanosecond)
		<-ran
	})
	cancel()
	<-ended
}

// A gate adds no allocation to a run, whether the run waits for it or not.
func TestGateAllocatesNothing(t *testing.T) {
	const items = 2000
	allocs := func(g *reconcile.Gate) float64 {
		return testing.AllocsPerRun(1, func() {
			q := reconcile.NewQueue[int]()
			for i := range items {
				q.Enqueue(i)
			}
			q.Close()
			r := &reconcile.Reconciler[int]{
				Queue: q, Gate: g, Workers: 4, Logger: unlogged(),
				Reconcile: func(context.Context, int) error { runtime.Gosched(); return nil }, // and others come to wait
			}
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
	without := allocs(nil)
	for name, g := range map[string]*reconcile.Gate{
		"open":   {},
		"limit":  {Max: 1, Slow: func(error, time.Duration) bool { return false }},
		"budget": {Every: time.Microsecond, Burst: 2},
	} {
		if got := allocs(g) - without; got > items/10 { // some are those of a Run, and the runtime's own
			t.Errorf("%s: %v allocations more in %d runs, want none", name, got, items)
		}
	}
}

// wantNoAllocs counts over many cycles in one go: an average would hide what
// comes now and then. The few that it allows are the runtime's own, when a
// timer fires and its goroutine is a new one.
func wantNoAllocs(t *testing.T, cycle func()) {
	t.Helper()
	if got := testing.AllocsPerRun(1, func() {
		for range 2000 {
			cycle()
		}
	}); got > 10 {
		t.Errorf("%v allocations in 2000 cycles, want none", got)
	}
}
