// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"math"
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

// EnqueueWithin and the verdicts count from the call, a promise made earlier
// stands where it was.
func TestDelaysCountFromTheCall(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		start := time.Now()
		q.EnqueueWithin("a", 3*time.Hour)
		time.Sleep(time.Hour)
		q.EnqueueWithin("a", 3*time.Hour) // would be later
		wantState(t, q, "a", reconcile.State{Phase: reconcile.Waiting, Since: start, Due: start.Add(3 * time.Hour)})
		q.EnqueueAfter("a", 2*time.Hour+1) // would be later
		wantState(t, q, "a", reconcile.State{Phase: reconcile.Waiting, Since: start, Due: start.Add(3 * time.Hour)})
		q.EnqueueWithin("a", 2*time.Hour-1)
		wantState(t, q, "a", reconcile.State{Phase: reconcile.Waiting, Since: start, Due: start.Add(3*time.Hour - 1)})
		q.EnqueueAfter("a", time.Hour)
		wantState(t, q, "a", reconcile.State{Phase: reconcile.Waiting, Since: start, Due: start.Add(2 * time.Hour), Hold: true})
		time.Sleep(time.Hour)
		synctest.Wait()
		mustTakeAll(t, q, "a")

		q.EnqueueAfter("a", time.Hour)
		time.Sleep(30 * time.Minute)
		q.Requeue("a", reconcile.Wait{Delay: 30*time.Minute + 1}) // would be later
		wantState(t, q, "a", reconcile.State{Phase: reconcile.Waiting, Since: start.Add(150 * time.Minute), Due: start.Add(3 * time.Hour), Hold: true})
	})
}

// "An event asks for now, a hold answers not yet, a ceiling answers by then."
func TestHoldIsAFloorAndCeilingACeiling(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		start := time.Now()
		q.Enqueue("held")
		q.Enqueue("within")
		mustTakeAll(t, q, "held", "within")
		q.RequeueAfter("held", time.Hour)
		q.Requeue("within", reconcile.Wait{Delay: time.Hour})
		time.Sleep(time.Minute)
		for range 3 {
			q.Enqueue("held")
			q.EnqueueAfter("held", time.Minute)
			q.EnqueueWithin("held", time.Minute)
			q.Offer("held")
			q.Offer("within")
		}
		if got := q.Len(); got != 0 {
			t.Fatalf("Len in the hold: %d", got)
		}
		q.Enqueue("within")
		mustTakeAll(t, q, "within")
		waiting := startDequeue(t.Context(), q)
		time.Sleep(time.Hour)
		if d := mustReturn(t, waiting); d.item != "held" || d.at != start.Add(time.Hour) {
			t.Errorf("Dequeue: %q after %v, want the held item after 1h", d.item, d.at.Sub(start))
		}
		if q.State("held").Again {
			t.Error("the events in the hold ask for one more run than the held one")
		}
	})
}

// A next run that falls due while the item is in flight is a ready one, and no
// more than that: a hold replaces it, EnqueueNow does not stick to it.
func TestNextRunFallsDueInFlight(t *testing.T) {
	for _, enqueue := range []func(*reconcile.Queue[string]){
		func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Hour) },
		func(q *reconcile.Queue[string]) { q.EnqueueWithin("x", time.Hour) },
	} {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			start := time.Now()
			inFlight := func() {
				q.Enqueue("x")
				mustTakeAll(t, q, "x")
				enqueue(q)
				time.Sleep(time.Hour)
				if s := q.State("x"); s.Phase != reconcile.InFlight || !s.Again {
					t.Errorf("State: %+v, want it in flight with a next run", s)
				}
				if got := q.Len(); got != 0 {
					t.Errorf("Len: %d, the item is in flight", got)
				}
			}
			inFlight()
			q.EnqueueAfter("x", time.Hour) // it is ready next
			q.Enqueue("y")
			q.Requeue("x", reconcile.Wait{Delay: 5 * time.Hour})
			wantState(t, q, "x", reconcile.State{Phase: reconcile.Ready, Since: start.Add(time.Hour)})
			mustTakeAll(t, q, "y", "x")
			q.Done("x")
			q.Done("y")

			inFlight()
			q.RequeueAfter("x", 5*time.Hour)
			wantState(t, q, "x", reconcile.State{
				Phase: reconcile.Waiting, Since: start.Add(2 * time.Hour), Due: start.Add(7 * time.Hour), Hold: true,
			})
			q.Remove("x")

			inFlight()
			q.Close() // what is ready next can still be taken
			q.Done("x")
			mustTakeAll(t, q, "x")
		})
	}
}

// It sticks too if it comes as the next run falls due, before the timer says so.
func TestEnqueueNowSticksAsTheNextRunFallsDue(t *testing.T) {
	for range 200 { // in this instant the timer and the test race
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			q.Enqueue("held")
			q.Enqueue("within")
			mustTakeAll(t, q, "held", "within")
			q.EnqueueAfter("held", time.Hour)
			q.EnqueueWithin("within", time.Hour)
			time.Sleep(time.Hour)
			q.EnqueueNow("held")
			q.EnqueueNow("within")
			q.RequeueAfter("held", time.Hour)
			q.RequeueAfter("within", time.Hour)
			mustTakeAll(t, q, "held", "within")
		})
	}
}

func TestEnqueueNowSticksUntilTheRunItAskedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.EnqueueNow("x")
		mustTakeAll(t, q, "x")
		q.RequeueAfter("x", time.Hour) // the run asked for was that one
		wantPhase(t, q, "x", reconcile.Waiting)

		q.EnqueueNow("x")
		mustTakeAll(t, q, "x")
		q.EnqueueNow("x")
		q.EnqueueAfter("x", time.Hour)
		q.EnqueueWithin("x", time.Hour)
		q.RequeueAfter("x", time.Hour)
		mustTakeAll(t, q, "x")
		q.RequeueAfter("x", time.Hour)
		wantPhase(t, q, "x", reconcile.Waiting)
		q.Remove("x")

		q.Enqueue("x")
		mustTakeAll(t, q, "x")
		q.EnqueueNow("x")
		if !q.Remove("x") {
			t.Error("Remove of a sticky next run: false")
		}
		q.Enqueue("x") // does not stick
		q.RequeueAfter("x", time.Hour)
		wantPhase(t, q, "x", reconcile.Waiting)
	})
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

// The far ends of time.Duration do not wrap round.
func TestExtremeDelays(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		time.Sleep(time.Hour) // so that now + the longest delay overflows
		q.EnqueueAfter("held", math.MaxInt64)
		q.EnqueueWithin("within", math.MaxInt64)
		q.EnqueueAfter("now", math.MinInt64)
		q.EnqueueWithin("now too", math.MinInt64)
		mustTakeAll(t, q, "now", "now too")
		q.RequeueAfter("now", math.MaxInt64)
		q.Requeue("now too", reconcile.Wait{Delay: math.MaxInt64})
		time.Sleep(100 * 365 * 24 * time.Hour)
		if got, want := q.Stats(), (reconcile.Stats{Waiting: 4, Enqueued: 4, Taken: 2, Requeued: 2}); got != want {
			t.Errorf("Stats after a hundred years: %+v, want %+v", got, want)
		}
		q.Enqueue("within")
		q.EnqueueWithin("now too", time.Hour)
		time.Sleep(time.Hour)
		mustTakeAll(t, q, "within", "now too")
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
