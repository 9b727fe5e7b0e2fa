// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/reconkernel/reconcile"
)

// heap is what is live after everything that can be collected was.
func heap() int64 {
	for range 3 { // pools and finalizers need more than one cycle
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A queue that held a million items and was drained holds no more than a
// megabyte over an empty one. Nor does it after smaller bursts of other kinds,
// which would keep several.
func TestMemoryIsKeptAfterABurst(t *testing.T) {
	const allowed = 1 << 20
	n := 60_000
	run := func(t *testing.T, q *reconcile.Queue[int]) {
		for q.Len() > 0 {
			item, err := q.Dequeue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			q.Done(item)
		}
	}
	few := []int{-1, -2, -3, -4, -5}
	for name, burst := range map[string]func(t *testing.T, q *reconcile.Queue[int]){
		"a million ready": func(t *testing.T, q *reconcile.Queue[int]) {
			for i := range 1_000_000 {
				q.Enqueue(i)
			}
			run(t, q)
		},
		"offered, a few enqueued then, three times": func(t *testing.T, q *reconcile.Queue[int]) {
			q.Background = 4
			for round := range 3 {
				for i := range n {
					q.Offer(i)
				}
				for i := range n {
					if i%5 == round {
						q.Enqueue(i)
					}
				}
				for range n {
					q.Done(mustTake(t, q))
				}
				mustAgree(t, q)
				if s := q.Stats(); s.Ready+s.InFlight != 0 {
					t.Errorf("Stats: %+v, want nothing left", s)
				}
			}
		},
		"in flight all at once": func(t *testing.T, q *reconcile.Queue[int]) {
			for i := range n {
				q.Enqueue(i)
			}
			for q.Len() > 0 {
				mustTake(t, q)
			}
			for i := range n {
				q.Done(i)
			}
		},
		"delayed, closed": func(_ *testing.T, q *reconcile.Queue[int]) {
			for i := range n {
				q.EnqueueAfter(i, time.Hour+time.Duration(i*7919%n))
			}
			q.Close()
		},
		"delayed, removed": func(_ *testing.T, q *reconcile.Queue[int]) {
			for i := range n {
				q.EnqueueAfter(i, time.Hour+time.Duration(i*7919%n))
			}
			for i := range n {
				q.Remove(i)
			}
		},
		"delayed, brought forward": func(t *testing.T, q *reconcile.Queue[int]) {
			for i := range n {
				q.EnqueueWithin(i, time.Hour+time.Duration(i*7919%n))
			}
			for i := range n {
				q.EnqueueNow(i)
			}
			run(t, q)
		},
		"failed": func(t *testing.T, q *reconcile.Queue[int]) {
			for i := range n {
				q.Enqueue(i)
			}
			err := errors.New("no")
			for i := range n {
				mustTake(t, q)
				q.Requeue(i, reconcile.Wait{Delay: time.Hour, Err: err})
			}
			for i := range n {
				q.Remove(i)
			}
		},
		"ready, a few stay ready": func(t *testing.T, q *reconcile.Queue[int]) {
			for i := range n {
				q.Enqueue(i)
				if i%(n/5) == n/10 {
					q.Enqueue(few[i/(n/5)])
				}
			}
			for range n {
				item := mustTake(t, q)
				q.Done(item)
				if item < 0 {
					q.Enqueue(item)
				}
			}
		},
		"ready, a few stay in flight": func(t *testing.T, q *reconcile.Queue[int]) {
			for i := range n {
				q.Enqueue(i)
				if i%(n/5) == n/10 {
					q.Enqueue(few[i/(n/5)])
				}
			}
			for q.Len() > 0 {
				if item := mustTake(t, q); item >= 0 {
					q.Done(item)
				}
			}
		},
		"delayed, a few stay": func(t *testing.T, q *reconcile.Queue[int]) {
			for i := range n {
				q.EnqueueAfter(i, time.Hour+time.Duration(i*7919%n))
				if i%(n/5) == n/10 {
					q.EnqueueAfter(few[i/(n/5)], time.Hour)
				}
			}
			for i := range n {
				q.Remove(i)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := reconcile.NewQueue[int]()
			before := heap()
			burst(t, q)
			if kept := heap() - before; kept > allowed {
				t.Errorf("%d bytes are kept after the burst, want at most %d", kept, allowed)
			}
			mustAgree(t, q)
			runtime.KeepAlive(q)
		})
	}
}

// A queue that goes with the burst and comes again does not grow with each.
func TestMemoryOfManyBursts(t *testing.T) {
	q := reconcile.NewQueue[int]()
	before := heap()
	next := 0
	for range 20 {
		for range 20_000 {
			q.EnqueueAfter(next, time.Nanosecond)
			next++
		}
		for range 20_000 {
			item, err := q.Dequeue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			q.Done(item)
		}
	}
	if kept := heap() - before; kept > 1<<20 {
		t.Errorf("%d bytes are kept after 20 bursts", kept)
	}
	runtime.KeepAlive(q)
}

// boxed is an item that reaches memory of its own.
type boxed struct {
	id  int
	box *[64]byte
}

// Once an item is gone nothing of the queue reaches it, although other items
// keep the queue in use.
func TestTakenItemsStayReachable(t *testing.T) {
	for name, path := range map[string]func(t *testing.T, q *reconcile.Queue[boxed], b boxed){
		"taken, done": func(t *testing.T, q *reconcile.Queue[boxed], b boxed) {
			q.Enqueue(b)
			mustTake(t, q)
			q.Done(b)
		},
		"handed to a waiter": func(t *testing.T, q *reconcile.Queue[boxed], b boxed) {
			waiting := startDequeue(t.Context(), q)
			q.Enqueue(b)
			mustReturn(t, waiting)
			q.Done(b)
		},
		"handed to a waiter that gave up": func(t *testing.T, q *reconcile.Queue[boxed], b boxed) {
			ctx, cancel := context.WithCancel(t.Context())
			waiting := startDequeue(ctx, q)
			q.Enqueue(b)
			cancel()
			mustReturn(t, waiting)
			q.Done(b)
			q.Remove(b)
		},
		"removed when ready": func(_ *testing.T, q *reconcile.Queue[boxed], b boxed) {
			q.Enqueue(b)
			q.Remove(b)
		},
		"removed when waiting": func(_ *testing.T, q *reconcile.Queue[boxed], b boxed) {
			q.EnqueueAfter(b, time.Hour)
			q.Remove(b)
		},
		"due": func(t *testing.T, q *reconcile.Queue[boxed], b boxed) {
			q.EnqueueAfter(b, time.Second)
			time.Sleep(time.Second)
			mustTake(t, q)
			q.Done(b)
		},
		"again in flight": func(t *testing.T, q *reconcile.Queue[boxed], b boxed) {
			q.Enqueue(b)
			mustTake(t, q)
			q.Enqueue(b)
			q.Done(b)
			mustTake(t, q)
			q.EnqueueAfter(b, time.Hour)
			q.Remove(b)
			q.Done(b)
		},
		"seen in All": func(_ *testing.T, q *reconcile.Queue[boxed], b boxed) {
			q.Enqueue(b)
			for item, s := range q.All() {
				_, _ = item, s
			}
			q.Remove(b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[boxed]()
				q.Enqueue(boxed{id: -1})
				q.EnqueueAfter(boxed{id: -2}, 1000*time.Hour)
				mustTake(t, q)
				var gone []weak.Pointer[[64]byte]
				for i := range 50 {
					b := boxed{i, new([64]byte)}
					gone = append(gone, weak.Make(b.box))
					path(t, q, b)
				}
				runtime.GC()
				runtime.GC()
				reachable := 0
				for _, w := range gone {
					if w.Value() != nil {
						reachable++
					}
				}
				if reachable > 1 { // the last one may be in a register or on the stack
					t.Errorf("%d of %d items are still reachable", reachable, len(gone))
				}
				if got := q.Stats(); got.Waiting != 1 || got.InFlight != 1 || got.Ready != 0 {
					t.Errorf("Stats: %+v, want one waiting and one in flight", got)
				}
			})
		})
	}
}

// An error that is no longer the last failure is not kept either.
func TestErrorsStayReachable(t *testing.T) {
	type failure struct{ error }
	for name, forget := range map[string]func(t *testing.T, q *reconcile.Queue[string]){
		"Done":       func(_ *testing.T, q *reconcile.Queue[string]) { q.Done("x") },
		"Requeue":    func(_ *testing.T, q *reconcile.Queue[string]) { q.Requeue("x", reconcile.Wait{}); q.Remove("x") },
		"next error": func(_ *testing.T, q *reconcile.Queue[string]) { q.Requeue("x", reconcile.Wait{Err: errors.New("no")}) },
		"Close":      func(_ *testing.T, q *reconcile.Queue[string]) { q.Requeue("x", reconcile.Wait{Delay: 1}); q.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				q.Enqueue("other")
				mustTakeAll(t, q, "other")
				q.Enqueue("x")
				mustTakeAll(t, q, "x")
				w := func() weak.Pointer[failure] {
					err := &failure{error: errors.New("no")}
					q.Requeue("x", reconcile.Wait{Err: err})
					return weak.Make(err)
				}()
				mustTakeAll(t, q, "x")
				forget(t, q)
				runtime.GC()
				runtime.GC()
				if w.Value() != nil {
					t.Error("the error is still reachable")
				}
			})
		})
	}
}
