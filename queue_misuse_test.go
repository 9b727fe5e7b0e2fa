// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestZeroQueueSaysWhatIsMissing(t *testing.T) {
	var q reconcile.Queue[string]
	for name, call := range map[string]func(){
		"Enqueue": func() { q.Enqueue("a") },
		"Offer":   func() { q.Offer("a") },
		"Remove":  func() { q.Remove("a") },
		"Done":    func() { q.Done("a") },
		"Requeue": func() { q.Requeue("a", reconcile.Wait{}) },
		"Has":     func() { q.Has("a") },
		"State":   func() { q.State("a") },
		"Dequeue": func() { _, _ = q.Dequeue(t.Context()) },
		"Close":   func() { q.Close() },
		"Len":     func() { q.Len() },
		"Stats":   func() { q.Stats() },
		"All": func() {
			for range q.All() {
				t.Error("an item")
			}
		},
	} {
		func() { // one after the other: none leaves the queue locked
			defer func() {
				if got, _ := recover().(string); !strings.HasPrefix(got, "reconcile: ") || !strings.Contains(got, "NewQueue") {
					t.Errorf("%s of a zero Queue panics with %q, want one that names NewQueue", name, got)
				}
			}()
			call()
		}()
	}
	r := reconcile.Reconciler[string]{Queue: &q, Reconcile: func(context.Context, string) error { return nil }}
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Reconciler.Queue") {
		t.Errorf("Run with a zero Queue: %v, want an error that names Reconciler.Queue", err)
	}
	p := reconcile.Poller[string]{Queue: (*reconcile.Queue[string])(nil), GetItems: func(context.Context) ([]string, error) { return nil, nil }, Period: time.Hour}
	if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Poller.Queue") {
		t.Errorf("Run with a nil Queue: %v, want an error that names Poller.Queue", err)
	}
}

// rudeContext has a Done that does not return.
type rudeContext struct {
	context.Context
	leave func()
}

func (c rudeContext) Done() <-chan struct{} {
	c.leave()
	return nil
}

func TestContextThatPanicsInDoneTakesNothing(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("no") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				go func() {
					defer func() { _ = recover() }()
					_, _ = q.Dequeue(rudeContext{t.Context(), leave})
				}()
				synctest.Wait()
				q.Enqueue("a")
				wantPhase(t, q, "a", reconcile.Ready)
				mustTakeAll(t, q, "a")
			})
		})
	}
}

// Several items that come back from consumers whose context ended do so in the
// order in which they were taken.
func TestCancellationKeepsTheOrder(t *testing.T) {
	for range 100 {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			ctx, cancel := context.WithCancel(t.Context())
			var consumers []<-chan dequeued[string]
			for range 3 {
				consumers = append(consumers, startDequeue(ctx, q))
			}
			items := []string{"a", "b", "c", "d"}
			for _, item := range items {
				q.Enqueue(item)
			}
			cancel()
			for _, c := range consumers {
				if d := mustReturn(t, c); d.err == nil { // it was faster than cancel
					items = slices.DeleteFunc(items, func(item string) bool { return item == d.item })
				}
			}
			mustTakeAll(t, q, items...)
		})
	}
}

// An item that was given back by somebody who did not have it, and taken anew,
// is not taken from its new owner by the consumer that it was handed to first.
func TestStrayDoneAndCancellationLeaveTheItemToItsOwner(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		ctx, cancel := context.WithCancel(t.Context())
		startDequeue(ctx, q)
		q.Enqueue("a") // handed over, and most likely not seen yet
		cancel()
		q.Done("a")
		q.Enqueue("a")
		mustTakeAll(t, q, "a")
		synctest.Wait()
		wantPhase(t, q, "a", reconcile.InFlight)
	})
}

// An item that has no hash is refused by a panic, which leaves the queue as it
// was, and usable.
func TestItemWithoutHashIsRefused(t *testing.T) {
	q := reconcile.NewQueue[any]()
	q.Enqueue("a")
	mustTakeAll(t, q, any("a"))
	want := q.Stats()
	for name, call := range map[string]func(item any){
		"Enqueue": q.Enqueue,
		"Offer":   q.Offer,
		"Remove":  func(item any) { q.Remove(item) },
		"Has":     func(item any) { q.Has(item) },
		"State":   func(item any) { q.State(item) },
		"Done":    q.Done,
		"Requeue": func(item any) { q.Requeue(item, reconcile.Wait{}) },
	} {
		for _, item := range []any{[]string{"a"}, struct{ in any }{func() {}}, math.NaN()} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s(%v) did not panic", name, item)
					}
				}()
				call(item)
			}()
			if got := q.Stats(); got != want {
				t.Errorf("after %s(%v) Stats are %+v, want %+v", name, item, got, want)
			}
		}
	}
	q.Done("a")
	if q.Has("a") {
		t.Error("Done does nothing any more")
	}
}

// Items are given back in any order, also where another one is by now where the
// last one was taken, or nothing at all.
func TestGiveBackInAnyOrder(t *testing.T) {
	q := reconcile.NewQueue[int]()
	check := func(when string) {
		t.Helper()
		if err := reconcile.Check(q); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	const many = 50_000 // enough for memory to be given back on the way
	for _, order := range []string{"as taken", "the last one first"} {
		for i := range many {
			q.Enqueue(i)
		}
		for range many {
			mustTake(t, q)
		}
		for i := range many {
			if order == "the last one first" {
				i = many - 1 - i
			}
			q.Done(i)
			q.Done(i) // by somebody who does not have it
			if i%10_000 == 0 {
				check(order)
			}
		}
		q.Done(0)
		check(order)
		if got := q.Stats(); got.InFlight != 0 || got.Ready != 0 {
			t.Fatalf("%s: Stats are %+v, want nothing left", order, got)
		}
	}
	// The record of the last take is that of an item at rest, and then that of
	// another one in flight.
	q.Enqueue(1)
	mustTake(t, q)
	q.Done(1)
	q.Enqueue(2)
	q.Done(2)
	q.Done(1)
	if got := q.State(2).Phase; got != reconcile.Ready {
		t.Errorf("after a stray Done the item is %v, want ready", got)
	}
	mustTake(t, q)
	q.Done(1)
	if got := q.State(2).Phase; got != reconcile.InFlight {
		t.Errorf("after the Done of another item the item is %v, want in flight", got)
	}
	check("at the end")
}
