// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

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
