// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// inBackground runs f in a bubble, with a queue of that Background.
func inBackground(t *testing.T, background int, f func(t *testing.T, q *reconcile.Queue[string])) {
	t.Helper()
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Background = background
		f(t, q)
	})
}

// Events go first, and one of each Background items taken is an observation. In
// each of the two, what became ready first is taken first.
func TestBackgroundHasItsShare(t *testing.T) {
	for background, want := range map[int]string{
		0: "o1 o2 o3 o4 e1 e2 e3 e4 e5 e6 e7",
		1: "o1 o2 o3 o4 e1 e2 e3 e4 e5 e6 e7",
		2: "e1 o1 e2 o2 e3 o3 e4 o4 e5 e6 e7",
		3: "e1 e2 o1 e3 e4 o2 e5 e6 o3 e7 o4",
		8: "e1 e2 e3 e4 e5 e6 e7 o1 o2 o3 o4",
	} {
		t.Run(fmt.Sprint(background), func(t *testing.T) {
			inBackground(t, background, func(t *testing.T, q *reconcile.Queue[string]) {
				for i := range 4 {
					q.Offer(fmt.Sprintf("o%d", i+1))
				}
				for i := range 7 {
					q.Enqueue(fmt.Sprintf("e%d", i+1))
				}
				var all []string
				for item := range q.All() {
					all = append(all, item)
				}
				if got := strings.Join(all, " "); got != want {
					t.Errorf("by All:\n got %s\nwant %s", got, want)
				}
				if n := q.Len(); n != 11 {
					t.Errorf("Len: %d, want 11", n)
				}
				mustTakeAll(t, q, strings.Fields(want)...)
			})
		})
	}
}

// Neither starves: an event never waits for more than one observation, and
// events without end let each observation through in its time.
func TestBackgroundStarvesNobody(t *testing.T) {
	const offered, background = 1000, 8
	inBackground(t, background, func(t *testing.T, q *reconcile.Queue[string]) {
		for i := range offered {
			q.Offer(fmt.Sprintf("o%d", i))
		}
		next := 0
		for take := range offered * background {
			q.Enqueue("e")
			want := "e"
			if take%background == background-1 {
				want = fmt.Sprintf("o%d", next)
				next++
			}
			item := mustTake(t, q)
			if item != want {
				t.Fatalf("take %d: %s, want %s", take, item, want)
			}
			q.Done(item)
		}
		mustTakeAll(t, q, "e")
	})
}

// What is in the background begins anew to count when it was empty: the first
// observation does not jump ahead.
func TestBackgroundCountsFromItsFirst(t *testing.T) {
	for name, empty := range map[string]func(t *testing.T, q *reconcile.Queue[string]){
		"removed":  func(_ *testing.T, q *reconcile.Queue[string]) { q.Remove("o") },
		"enqueued": func(t *testing.T, q *reconcile.Queue[string]) { q.Enqueue("o"); q.Remove("o") },
	} {
		t.Run(name, func(t *testing.T) {
			inBackground(t, 3, func(t *testing.T, q *reconcile.Queue[string]) {
				for _, e := range []string{"e1", "e2", "e3", "e4"} {
					q.Enqueue(e)
				}
				q.Offer("o")
				if one, two := mustTake(t, q), mustTake(t, q); one+two != "e1e2" { // o would be next
					t.Errorf("taken first: %s and %s, want e1 and e2", one, two)
				}
				empty(t, q)
				q.Offer("o")
				mustTakeAll(t, q, "e3", "e4", "o")
			})
		})
	}
}

// An event takes an item out of the background. It has been ready since it was
// offered.
func TestEventTakesAnItemOutOfTheBackground(t *testing.T) {
	for name, event := range map[string]func(q *reconcile.Queue[string]){
		"Enqueue":         func(q *reconcile.Queue[string]) { q.Enqueue("o2") },
		"EnqueueNow":      func(q *reconcile.Queue[string]) { q.EnqueueNow("o2") },
		"EnqueueAfter 0":  func(q *reconcile.Queue[string]) { q.EnqueueAfter("o2", 0) },
		"EnqueueWithin 0": func(q *reconcile.Queue[string]) { q.EnqueueWithin("o2", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			inBackground(t, 8, func(t *testing.T, q *reconcile.Queue[string]) {
				start := time.Now()
				for _, o := range []string{"o1", "o2", "o3"} {
					q.Offer(o)
				}
				time.Sleep(time.Second)
				q.Enqueue("e1")
				event(q)
				q.Enqueue("e2")
				wantState(t, q, "o2", reconcile.State{Phase: reconcile.Ready, Since: start})
				if s := q.Stats(); s.Enqueued != 5 || s.Coalesced != 1 {
					t.Errorf("Stats: %+v, want 5 enqueued and 1 coalesced", s)
				}
				mustTakeAll(t, q, "e1", "o2", "e2", "o1", "o3")
			})
		})
	}
}

func TestWhatKeepsAnItemInTheBackground(t *testing.T) {
	for name, verb := range map[string]func(q *reconcile.Queue[string]){
		"Offer":         func(q *reconcile.Queue[string]) { q.Offer("o") },
		"EnqueueAfter":  func(q *reconcile.Queue[string]) { q.EnqueueAfter("o", time.Hour) },
		"EnqueueWithin": func(q *reconcile.Queue[string]) { q.EnqueueWithin("o", time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			inBackground(t, 8, func(t *testing.T, q *reconcile.Queue[string]) {
				q.Offer("o")
				verb(q)
				q.Enqueue("e")
				mustTakeAll(t, q, "e", "o")
			})
		})
	}
}

// Only an Offer brings an item into the background: what it asks for itself
// has a time of its own.
func TestRetriesAreNotInTheBackground(t *testing.T) {
	inBackground(t, 8, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Offer("retried")
		mustTakeAll(t, q, "retried")
		q.Offer("o")
		q.Requeue("retried", reconcile.Wait{Delay: time.Second, Hold: true})
		time.Sleep(time.Second)
		mustTakeAll(t, q, "retried", "o")
		q.Requeue("retried", reconcile.Wait{})
		q.Done("o")
		q.Offer("o")
		q.Enqueue("e")
		mustTakeAll(t, q, "retried", "e", "o")
	})
}

// What is due as an event takes an item out of the background goes before it,
// also when the timer has not fired yet.
func TestDueGoesBeforeWhatLeavesTheBackground(t *testing.T) {
	inBackground(t, 8, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Offer("o")
		q.EnqueueAfter("due", time.Hour)
		time.Sleep(time.Hour)
		q.Enqueue("o")
		mustTakeAll(t, q, "due", "o")
	})
}

// A consumer that waits is handed what was offered at once; if its context has
// ended meanwhile, the item is in the background as if it had never been out.
func TestHandedBackToTheBackground(t *testing.T) {
	inBackground(t, 8, func(t *testing.T, q *reconcile.Queue[string]) {
		ctx, cancel := context.WithCancel(t.Context())
		first, second := startDequeue(ctx, q), startDequeue(ctx, q)
		mustWait(t, first)
		mustWait(t, second)
		start := time.Now()
		reconcile.InOneHold(q, func(add func(verb, item string)) {
			add("Offer", "o1")
			add("Offer", "o2")
			add("Offer", "o3")
			add("Enqueue", "e")
			cancel()
		})
		synctest.Wait()
		for _, c := range []<-chan dequeued[string]{first, second} {
			if d := mustReturn(t, c); d.err != context.Canceled {
				t.Errorf("Dequeue: %q, %v, want %v", d.item, d.err, context.Canceled)
			}
		}
		wantState(t, q, "o1", reconcile.State{Phase: reconcile.Ready, Since: start})
		mustAgree(t, q)
		q.Enqueue("o2") // is not one that was put back any more
		mustAgree(t, q)
		mustTakeAll(t, q, "e", "o2", "o1", "o3")
	})
}

// If there is an event meanwhile, it is not handed back to the background.
func TestHandedBackAfterAnEvent(t *testing.T) {
	for _, event := range []string{"Enqueue", "EnqueueNow"} {
		t.Run(event, func(t *testing.T) {
			inBackground(t, 8, func(t *testing.T, q *reconcile.Queue[string]) {
				ctx, cancel := context.WithCancel(t.Context())
				waiting := startDequeue(ctx, q)
				mustWait(t, waiting)
				reconcile.InOneHold(q, func(add func(verb, item string)) {
					add("Offer", "o1")
					add("Enqueue", "e")
					add(event, "o1")
					cancel()
				})
				if d := mustReturn(t, waiting); d.err != context.Canceled {
					t.Errorf("Dequeue: %q, %v, want %v", d.item, d.err, context.Canceled)
				}
				mustTakeAll(t, q, "o1", "e")
			})
		})
	}
}

func TestCloseLetsTheBackgroundBeTaken(t *testing.T) {
	inBackground(t, 2, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Offer("o1")
		q.Offer("o2")
		q.Enqueue("e")
		q.Close()
		q.Enqueue("o2") // ignored: it stays where it is
		mustTakeAll(t, q, "e", "o1", "o2")
		for _, item := range []string{"e", "o1", "o2"} {
			q.Done(item)
		}
		if _, err := q.Dequeue(t.Context()); err != reconcile.ErrClosed {
			t.Errorf("Dequeue: %v, want %v", err, reconcile.ErrClosed)
		}
	})
}

func TestNegativeBackground(t *testing.T) {
	q := reconcile.NewQueue[string]()
	q.Background = -1
	const want = "reconcile: Reconciler.Queue has a Background of -1, want 0 (which means none) or more"
	r := &reconcile.Reconciler[string]{Queue: q, Reconcile: nothing}
	if err := r.Run(t.Context()); err == nil || err.Error() != want {
		t.Errorf("Run: %v, want %s", err, want)
	}
	q.Offer("o") // as with none
	q.Enqueue("e")
	mustTakeAll(t, q, "o", "e")
}
