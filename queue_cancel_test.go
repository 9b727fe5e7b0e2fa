// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

// A context that ends in the very call that asks it.
func TestConsumerSleepsThoughItsContextEnded(t *testing.T) {
	for _, method := range []string{"Done", "Err", "Value"} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				var asked atomic.Int32
				ctx, cancel := context.WithCancel(t.Context())
				waiting := startDequeue[string](intruder{ctx, method, func() {
					asked.Add(1)
					cancel()
				}}, q)
				if asked.Load() == 0 {
					cancel()
				}
				if d := mustReturn(t, waiting); d.err != context.Canceled {
					t.Errorf("Dequeue: %q, %v, want %v", d.item, d.err, context.Canceled)
				}
				if got := q.Stats(); got != (reconcile.Stats{}) {
					t.Errorf("Stats: %+v", got)
				}
			})
		})
	}
}

// The consumer has not run since: it must not take what came with, or after,
// the end of its context, and what it leaves is as if never touched.
func TestCancellationSwallowsAnItem(t *testing.T) {
	for name, events := range map[string]func(q *reconcile.Queue[string], cancel func()){
		"canceled, then enqueued": func(q *reconcile.Queue[string], cancel func()) { cancel(); q.Enqueue("x") },
		"enqueued, then canceled": func(q *reconcile.Queue[string], cancel func()) { q.Enqueue("x"); cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			left := 0
			for range 200 {
				inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
					start := time.Now()
					ctx, cancel := context.WithCancel(t.Context())
					waiting := startDequeue(ctx, q)
					time.Sleep(time.Minute)
					events(q, cancel)
					q.Enqueue("y")
					d := mustReturn(t, waiting)
					if d.err == nil {
						if name == "canceled, then enqueued" {
							t.Errorf("Dequeue took %q with a context that ended before", d.item)
						}
						q.Done("x")
						mustTakeAll(t, q, "y")
						return
					}
					left++
					if d.item != "" || d.err != context.Canceled {
						t.Errorf("Dequeue: %q, %v", d.item, d.err)
					}
					wantState(t, q, "x", reconcile.State{Phase: reconcile.Ready, Since: start.Add(time.Minute)})
					if got, want := q.Stats(), (reconcile.Stats{Ready: 2, Enqueued: 2}); got != want {
						t.Errorf("Stats: %+v, want %+v", got, want)
					}
					mustTakeAll(t, q, "x", "y")
				})
			}
			if left == 0 {
				t.Error("the context never ended before the consumer had its item")
			}
		})
	}
}

// Another consumer, who waits too, gets what the canceled one leaves.
func TestCancellationPassesTheItemOn(t *testing.T) {
	for range 200 {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			ctx, cancel := context.WithCancel(t.Context())
			canceled := startDequeue(ctx, q)
			patient := startDequeue(t.Context(), q)
			q.Enqueue("x")
			cancel()
			a, b := mustReturn(t, canceled), dequeued[string]{}
			if a.err == nil {
				q.Enqueue("y")
				b = mustReturn(t, patient)
				if a.item != "x" || b.item != "y" {
					t.Errorf("Dequeue: %q and %q, want x and y", a.item, b.item)
				}
				return
			}
			if b = mustReturn(t, patient); b.item != "x" || b.err != nil {
				t.Errorf("Dequeue of the other consumer: %q, %v, want x", b.item, b.err)
			}
			if got, want := q.Stats(), (reconcile.Stats{InFlight: 1, Enqueued: 1, Taken: 1}); got != want {
				t.Errorf("Stats: %+v, want %+v", got, want)
			}
		})
	}
}

// A closed queue does not end before an item comes back from a consumer whose
// context had ended.
func TestCancellationSwallowsTheLastItemOfAClosedQueue(t *testing.T) {
	for range 200 {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			ctx, cancel := context.WithCancel(t.Context())
			canceled := startDequeue(ctx, q)
			q.Enqueue("x")
			q.Close()
			cancel()
			if a := mustReturn(t, canceled); a.err != nil {
				mustTakeAll(t, q, "x")
			}
			q.Done("x")
			mustEnd(t, q)
		})
	}
}

// Nor does it end while such a consumer has its item still, for a drain that
// ended then would leave the item behind.
func TestDrainEndsBeforeACanceledConsumerGivesBack(t *testing.T) {
	for _, drainers := range []string{"one that comes", "one that waits"} {
		t.Run(drainers, func(t *testing.T) {
			for range 200 {
				inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
					ctx, cancel := context.WithCancel(t.Context())
					canceled := startDequeue(ctx, q)
					var waiting <-chan dequeued[string]
					if drainers == "one that waits" {
						waiting = startDequeue(t.Context(), q)
					}
					q.Enqueue("x")
					cancel()
					q.Close()
					var d dequeued[string]
					if waiting != nil {
						d = mustReturn(t, waiting)
					} else {
						d.item, d.err = q.Dequeue(t.Context())
					}
					switch c := mustReturn(t, canceled); {
					case c.err == nil && (c.item != "x" || d.err != reconcile.ErrClosed):
						t.Errorf("the consumer took %q, the drainer %q, %v, want x and the end", c.item, d.item, d.err)
					case c.err != nil && (d.item != "x" || d.err != nil):
						t.Errorf("the consumer got %v, the drainer %q, %v, want x for the drainer; Len %d", c.err, d.item, d.err, q.Len())
					}
				})
			}
		})
	}
}
