// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestQueueIsFIFO(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("a")
		q.Offer("b")
		q.EnqueueNow("c")
		q.EnqueueAfter("d", 0)
		q.Enqueue("a") // keeps its place
		q.EnqueueNow("b")
		mustTakeAll(t, q, "a", "b", "c", "d")
	})
}

func TestReadyNextGoesToTheTailWhenGivenBack(t *testing.T) {
	for name, giveBack := range map[string]func(q *reconcile.Queue[string]){
		"Done":      func(q *reconcile.Queue[string]) { q.Done("a") },
		"Requeue":   func(q *reconcile.Queue[string]) { q.Requeue("a", reconcile.Wait{}) },
		"Requeue 1": func(q *reconcile.Queue[string]) { q.Requeue("a", reconcile.Wait{Delay: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				q.Enqueue("a")
				mustTakeAll(t, q, "a")
				q.Enqueue("a")
				q.Enqueue("b")
				giveBack(q)
				q.Enqueue("c")
				mustTakeAll(t, q, "b", "a", "c")
			})
		})
	}
}

func TestDueJoinsAtTheTail(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.EnqueueAfter("held", time.Hour)
		q.EnqueueWithin("within", time.Hour)
		q.Enqueue("before")
		time.Sleep(time.Hour)
		q.Enqueue("after") // also when the timer has not fired yet
		mustTakeAll(t, q, "before", "held", "within", "after")
	})
}

func TestDueOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.EnqueueAfter("3", 3*time.Second)
		q.EnqueueWithin("1", 1*time.Second)
		q.EnqueueAfter("4", 4*time.Second)
		q.EnqueueAfter("2", 2*time.Second)
		time.Sleep(4 * time.Second)
		mustTakeAll(t, q, "1", "2", "3", "4")
	})
}

func TestDueTiesInOrderOfScheduling(t *testing.T) {
	const hour = time.Hour
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("taken, asked again")
		q.Enqueue("taken, given back")
		mustTakeAll(t, q, "taken, asked again", "taken, given back")

		q.EnqueueWithin("kind changed", 2*hour)
		q.EnqueueAfter("taken, asked again", 2*hour)
		q.EnqueueWithin("due changed", 3*hour)
		q.EnqueueAfter("plain", 2*hour)
		q.EnqueueAfter("kind changed", 2*hour)      // keeps its place
		q.EnqueueWithin("due changed", 2*hour)      // scheduled now
		q.RequeueAfter("taken, given back", 2*hour) // scheduled now
		q.EnqueueAfter("last", 2*hour)
		time.Sleep(hour)
		q.Done("taken, asked again") // keeps its place
		q.EnqueueAfter("later", hour)
		time.Sleep(hour)
		mustTakeAll(t, q, "kind changed", "taken, asked again", "plain", "due changed", "taken, given back", "last", "later")
	})
}

// The verdict names the time that the next run has already: no new scheduling.
func TestVerdictForTheSameTimeKeepsItsPlace(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("a")
		mustTakeAll(t, q, "a")
		q.EnqueueWithin("a", time.Hour)
		q.EnqueueAfter("b", time.Hour)
		q.RequeueAfter("a", time.Hour)
		if s := q.State("a"); !s.Hold {
			t.Errorf("State after the verdict: %+v, want a hold", s)
		}
		time.Sleep(time.Hour)
		mustTakeAll(t, q, "a", "b")
	})
}

// What is due counts as ready at that instant, with the timer or before it.
func TestDueIsReadyBeforeTheTimerFires(t *testing.T) {
	for range 100 { // in this instant the timer and the test race
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			start := time.Now()
			q.EnqueueAfter("a", time.Hour)
			q.EnqueueAfter("b", 2*time.Hour)
			time.Sleep(time.Hour - 1)
			if got := q.Len(); got != 0 {
				t.Errorf("Len 1 ns before the time: %d", got)
			}
			time.Sleep(time.Nanosecond)
			if got := q.Len(); got != 1 {
				t.Errorf("Len at the time: %d, want 1", got)
			}
			if got, want := q.Stats(), (reconcile.Stats{Ready: 1, Waiting: 1, Enqueued: 2}); got != want {
				t.Errorf("Stats at the time: %+v, want %+v", got, want)
			}
			wantState(t, q, "a", reconcile.State{Phase: reconcile.Ready, Since: start.Add(time.Hour)})
			time.Sleep(time.Hour)
			q.Enqueue("b") // is ready already
			if got, want := q.Stats(), (reconcile.Stats{Ready: 2, Enqueued: 2, Coalesced: 1}); got != want {
				t.Errorf("Stats at the second time: %+v, want %+v", got, want)
			}
			mustTakeAll(t, q, "a", "b")
		})
	}
}

// What is due goes before what an event makes ready in the same instant, also
// if the timer is late: the event may be about an item that waits.
func TestDueGoesBeforeWhatAnEventBringsForward(t *testing.T) {
	for name, event := range map[string]func(q *reconcile.Queue[string]){
		"Enqueue":     func(q *reconcile.Queue[string]) { q.Enqueue("b") },
		"EnqueueNow":  func(q *reconcile.Queue[string]) { q.EnqueueNow("b") },
		"a new item":  func(q *reconcile.Queue[string]) { q.Remove("b"); q.Offer("b") },
		"given back":  func(q *reconcile.Queue[string]) { q.Remove("b"); q.Requeue("b", reconcile.Wait{}) },
		"Done, again": func(q *reconcile.Queue[string]) { q.Remove("b"); q.Enqueue("b"); q.Done("b") },
	} {
		t.Run(name, func(t *testing.T) {
			for range 100 { // in this instant the timer and the test race
				inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
					if name == "given back" || name == "Done, again" {
						q.Enqueue("b")
						mustTakeAll(t, q, "b")
					}
					q.EnqueueAfter("a", time.Hour)
					q.EnqueueWithin("b", 5*time.Hour)
					time.Sleep(time.Hour)
					event(q)
					mustTakeAll(t, q, "a", "b")
				})
			}
		})
	}
}

func TestRemove(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		if q.Remove("x") {
			t.Error("Remove of an unknown item: true")
		}
		q.Enqueue("a")
		q.Enqueue("x")
		q.Enqueue("b")
		if !q.Remove("x") || q.Has("x") || q.Len() != 2 {
			t.Errorf("Remove of a ready item: still there, Len %d", q.Len())
		}
		q.Enqueue("x") // has lost its place
		if !q.Remove("a") {
			t.Error("Remove of the head: false")
		}
		mustTakeAll(t, q, "b", "x")

		if q.Remove("x") {
			t.Error("Remove of an item in flight without a next run: true")
		}
		wantPhase(t, q, "x", reconcile.InFlight)
		q.Enqueue("x")
		if !q.Remove("x") || q.State("x").Again {
			t.Error("Remove of the next run of an item in flight: still there")
		}
		q.Done("x")
		if q.Has("x") {
			t.Error("the canceled run came back")
		}

		q.EnqueueAfter("c", time.Hour)
		if !q.Remove("c") {
			t.Error("Remove of a waiting item: false")
		}
		time.Sleep(2 * time.Hour)
		mustTakeAll(t, q)
	})
}

// All waiters of one instant are served, in the order of the items.
func TestWaitersAreServedTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		start := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		var waiting []<-chan dequeued[string]
		for range 4 {
			waiting = append(waiting, startDequeue(ctx, q))
		}
		for _, item := range []string{"a", "b", "c"} {
			q.EnqueueAfter(item, time.Hour)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		cause := errors.New("enough")
		cancel(cause)
		got := map[string]int{}
		for _, w := range waiting {
			d := mustReturn(t, w)
			if d.at != start.Add(time.Hour) {
				t.Errorf("Dequeue: %q, %v after %v, want it after 1h", d.item, d.err, d.at.Sub(start))
			}
			if d.err == cause {
				d.item = "none"
			}
			got[d.item]++
		}
		for _, item := range []string{"a", "b", "c", "none"} {
			if got[item] != 1 {
				t.Errorf("taken: %v, want a, b and c once each and one consumer with none", got)
			}
		}
	})
}
