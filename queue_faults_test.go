// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// Each test here is named for a fault that an earlier queue had.

// intruder is a context that calls back whenever the queue asks it anything:
// in the windows between the queue's check and its wait, among others.
type intruder struct {
	context.Context
	during string // the method that calls back
	do     func()
}

func (c intruder) in(method string) {
	if c.during == method {
		c.do()
	}
}

func (c intruder) Done() <-chan struct{} {
	c.in("Done")
	return c.Context.Done()
}

func (c intruder) Err() error {
	c.in("Err")
	return c.Context.Err()
}

func (c intruder) Value(key any) any {
	c.in("Value")
	return c.Context.Value(key)
}

func (c intruder) Deadline() (time.Time, bool) {
	c.in("Deadline")
	return c.Context.Deadline()
}

func TestConsumerSleepsWhileAnItemIsQueued(t *testing.T) {
	for _, method := range []string{"Done", "Err", "Value", "Deadline"} {
		t.Run(method, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				var asked atomic.Int32
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				waiting := startDequeue[string](intruder{ctx, method, func() {
					if asked.Add(1) == 1 {
						q.Enqueue("x")
					}
				}}, q)
				if asked.Load() == 0 { // the queue does not use this method: no window
					q.Enqueue("x")
				}
				if d := mustReturn(t, waiting); d.item != "x" || d.err != nil {
					t.Errorf("Dequeue: %q, %v, want x", d.item, d.err)
				}
			})
		})
	}
}

// The same window, used by everything that a waiting consumer has to hear of.
func TestConsumerSleepsThroughAnEventOfItsContext(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(q *reconcile.Queue[string])
		want string
	}{
		"Offer":         {func(q *reconcile.Queue[string]) { q.Offer("x") }, "x <nil>"},
		"EnqueueNow":    {func(q *reconcile.Queue[string]) { q.EnqueueNow("held") }, "held <nil>"},
		"Done":          {func(q *reconcile.Queue[string]) { q.Done("again") }, "again <nil>"},
		"Requeue":       {func(q *reconcile.Queue[string]) { q.Requeue("taken", reconcile.Wait{}) }, "taken <nil>"},
		"Close":         {func(q *reconcile.Queue[string]) { q.Remove("again"); q.Close() }, " reconcile: queue closed"},
		"EnqueueAfter":  {func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", 1) }, "x <nil>"},
		"EnqueueWithin": {func(q *reconcile.Queue[string]) { q.EnqueueWithin("x", 1) }, "x <nil>"},
	} {
		for _, method := range []string{"Done", "Err", "Value"} {
			t.Run(name+" in "+method, func(t *testing.T) {
				inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
					q.Enqueue("again")
					q.Enqueue("taken")
					mustTakeAll(t, q, "again", "taken")
					q.Enqueue("again")
					q.EnqueueAfter("held", time.Hour)
					var asked atomic.Int32
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					waiting := startDequeue[string](intruder{ctx, method, func() {
						if asked.Add(1) == 1 {
							test.do(q)
						}
					}}, q)
					if asked.Load() == 0 {
						test.do(q)
					}
					time.Sleep(time.Nanosecond)
					d := mustReturn(t, waiting)
					if got := fmt.Sprint(d.item, " ", d.err); got != test.want {
						t.Errorf("Dequeue: %s, want %s", got, test.want)
					}
				})
			})
		}
	}
}

func TestTwoConsumersWokenForOneItem(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		first, second := startDequeue(t.Context(), q), startDequeue(t.Context(), q)
		for _, wake := range []func(){
			func() { q.Enqueue("x") },
			func() { q.EnqueueNow("x"); q.EnqueueNow("x") },
			func() { q.Done("x") },
		} {
			wake()
			synctest.Wait()
		}
		// x was taken, asked for again while in flight, and given back.
		got := []dequeued[string]{mustReturn(t, first), mustReturn(t, second)}
		if got[0].item != "x" || got[1].item != "x" {
			t.Errorf("Dequeue: %+v, want x twice, one after the other", got)
		}
		third := startDequeue(t.Context(), q)
		mustWait(t, third)
		q.Enqueue("y")
		fourth := startDequeue(t.Context(), q)
		if d := mustReturn(t, third); d.item != "y" {
			t.Errorf("Dequeue: %q, %v, want y", d.item, d.err)
		}
		mustWait(t, fourth)
		q.Close()
		mustReturn(t, fourth)
	})
}

func TestEventLostWhileInFlight(t *testing.T) {
	for name, event := range map[string]func(q *reconcile.Queue[string]){
		"Enqueue":       func(q *reconcile.Queue[string]) { q.Enqueue("x") },
		"EnqueueNow":    func(q *reconcile.Queue[string]) { q.EnqueueNow("x") },
		"EnqueueAfter":  func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Hour) },
		"EnqueueWithin": func(q *reconcile.Queue[string]) { q.EnqueueWithin("x", time.Hour) },
	} {
		for verdict, giveBack := range map[string]func(q *reconcile.Queue[string]){
			"Done":          func(q *reconcile.Queue[string]) { q.Done("x") },
			"Requeue":       func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.Wait{Delay: 2 * time.Hour}) },
			"Requeue, held": func(q *reconcile.Queue[string]) { q.RequeueAfter("x", time.Hour) },
			"failed": func(q *reconcile.Queue[string]) {
				q.Requeue("x", reconcile.Wait{Delay: time.Hour, Err: errors.New("no")})
			},
		} {
			t.Run(name+", "+verdict, func(t *testing.T) {
				inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
					q.Enqueue("x")
					mustTakeAll(t, q, "x")
					event(q)
					giveBack(q)
					time.Sleep(time.Hour)
					mustTakeAll(t, q, "x")
					q.Done("x")
					time.Sleep(24 * time.Hour)
					mustTakeAll(t, q) // and once only
				})
			})
		}
	}
}

// Whatever is given back twice, or was never taken, is left as it is.
func TestStrayOrSecondDoneAndRequeue(t *testing.T) {
	strays := map[string]func(q *reconcile.Queue[string]){
		"Done":         func(q *reconcile.Queue[string]) { q.Done("x") },
		"Requeue":      func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.Wait{Err: errors.New("no")}) },
		"Requeue 1h":   func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.Wait{Delay: time.Hour}) },
		"RequeueAfter": func(q *reconcile.Queue[string]) { q.RequeueAfter("x", time.Hour) },
	}
	backs := map[string]func(q *reconcile.Queue[string]){
		"never taken": func(*reconcile.Queue[string]) {},
		"taken, done": func(q *reconcile.Queue[string]) { q.Done("x") },
		"taken, done, asked for": func(q *reconcile.Queue[string]) {
			q.Done("x")
			q.Enqueue("x")
		},
		"taken, requeued": func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.Wait{}) },
		"taken, held":     func(q *reconcile.Queue[string]) { q.RequeueAfter("x", time.Hour) },
		"taken, within":   func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.Wait{Delay: time.Hour}) },
		"taken, removed": func(q *reconcile.Queue[string]) {
			q.Requeue("x", reconcile.Wait{})
			q.Remove("x")
		},
	}
	for back, giveBack := range backs {
		for name, stray := range strays {
			t.Run(name+" of an item "+back, func(t *testing.T) {
				inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
					q.Enqueue("x")
					if back != "never taken" {
						mustTakeAll(t, q, "x")
					}
					giveBack(q)
					want, stats := q.State("x"), q.Stats()
					stray(q)
					stray(q)
					wantState(t, q, "x", want)
					if got := q.Stats(); got != stats {
						t.Errorf("Stats: %+v, want %+v", got, stats)
					}
					time.Sleep(time.Hour)
					runs := 1
					if want == (reconcile.State{}) {
						runs = 0
					}
					if got := q.Len(); got != runs {
						t.Errorf("Len: %d, want %d", got, runs)
					}
				})
			})
		}
	}
	t.Run("in two hands", func(t *testing.T) {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			q.Enqueue("x")
			mustTakeAll(t, q, "x")
			q.Done("x")
			q.Done("x")
			q.Enqueue("x")
			first, second := startDequeue(t.Context(), q), startDequeue(t.Context(), q)
			mustReturn(t, first)
			mustWait(t, second)
			q.Enqueue("x")
			mustWait(t, second)
			q.Close()
			q.Done("x")
			mustReturn(t, second)
		})
	})
}

func TestDelayAndEventRunTheItemTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		start := time.Now()
		q.EnqueueAfter("held", time.Hour)
		q.Enqueue("held")
		q.EnqueueWithin("within", time.Hour)
		q.Enqueue("within")
		q.EnqueueAfter("now", time.Hour)
		q.EnqueueNow("now")
		q.Enqueue("flying")
		mustTakeAll(t, q, "within", "now", "flying")
		q.EnqueueAfter("flying", time.Hour)
		q.Enqueue("flying")
		q.Done("flying")
		q.Done("within")
		q.Done("now")

		runs := map[string]string{}
		for q.Stats() != (reconcile.Stats{Enqueued: 5, Coalesced: 4, Taken: 5}) {
			item, err := q.Dequeue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			runs[item] += fmt.Sprint(time.Since(start), " ")
			q.Done(item)
			if len(runs) > 5 || time.Since(start) > time.Hour {
				break
			}
		}
		if got, want := fmt.Sprint(runs), "map[flying:1h0m0s  held:1h0m0s ]"; got != want {
			t.Errorf("runs: %s, want %s", got, want)
		}
		time.Sleep(24 * time.Hour)
		if got, want := q.Stats(), (reconcile.Stats{Enqueued: 5, Coalesced: 4, Taken: 5}); got != want {
			t.Errorf("Stats: %+v, want %+v", got, want)
		}
	})
}

func TestDelayedItemsOutOfOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		q := reconcile.NewQueue[int]()
		const n = 1000
		for i := range n {
			q.EnqueueAfter(i*7919%n, time.Duration(i*7919%n)*time.Millisecond)
		}
		for i := range n / 10 { // holes in the order
			q.Remove(i * 10)
		}
		for i := range n {
			if i%10 == 0 {
				continue
			}
			item, err := q.Dequeue(t.Context())
			if want := time.Duration(i) * time.Millisecond; item != i || err != nil || time.Since(start) != want {
				t.Fatalf("Dequeue: %d, %v after %v, want %d after %v", item, err, time.Since(start), i, want)
			}
			q.Done(item)
		}
	})
}

func TestDelaySurvivesRemoveAndReuse(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		start := time.Now()
		q.EnqueueAfter("x", time.Hour)
		q.Remove("x")
		q.EnqueueAfter("y", 3*time.Hour) // may use what x left
		q.EnqueueAfter("x", 2*time.Hour)
		for _, want := range []struct {
			item string
			at   time.Duration
		}{{"x", 2 * time.Hour}, {"y", 3 * time.Hour}} {
			item, err := q.Dequeue(t.Context())
			if item != want.item || err != nil || time.Since(start) != want.at {
				t.Errorf("Dequeue: %q, %v after %v, want %q after %v", item, err, time.Since(start), want.item, want.at)
			}
		}
	})
}
