// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestStateSince(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		start := time.Now()
		at := func(d time.Duration) time.Time { return start.Add(d) }
		const sec = time.Second

		q.Enqueue("x")
		time.Sleep(sec) // 1
		q.Enqueue("x")
		q.EnqueueNow("x")
		wantState(t, q, "x", reconcile.State{Phase: reconcile.Ready, Since: at(0)})
		mustTakeAll(t, q, "x")
		time.Sleep(sec) // 2
		q.EnqueueAfter("x", 10*sec)
		wantState(t, q, "x", reconcile.State{Phase: reconcile.InFlight, Since: at(1 * sec), Again: true})
		time.Sleep(sec) // 3
		q.Done("x")
		wantState(t, q, "x", reconcile.State{Phase: reconcile.Waiting, Since: at(3 * sec), Due: at(12 * sec), Hold: true})
		time.Sleep(11 * sec) // 14: ready since it was due
		wantState(t, q, "x", reconcile.State{Phase: reconcile.Ready, Since: at(12 * sec)})
		mustTakeAll(t, q, "x")
		wantState(t, q, "x", reconcile.State{Phase: reconcile.InFlight, Since: at(14 * sec)})
		q.EnqueueWithin("x", sec)
		time.Sleep(5 * sec) // 19: due at 15, given back now
		q.Done("x")
		wantState(t, q, "x", reconcile.State{Phase: reconcile.Ready, Since: at(19 * sec)})
		mustTakeAll(t, q, "x")
		q.Requeue("x", reconcile.Wait{Delay: 20 * sec})
		time.Sleep(sec) // 20
		q.EnqueueWithin("x", 10*sec)
		wantState(t, q, "x", reconcile.State{Phase: reconcile.Waiting, Since: at(19 * sec), Due: at(30 * sec)})
		q.EnqueueAfter("x", 10*sec) // kind alone
		wantState(t, q, "x", reconcile.State{Phase: reconcile.Waiting, Since: at(19 * sec), Due: at(30 * sec), Hold: true})
		time.Sleep(sec) // 21
		q.EnqueueNow("x")
		wantState(t, q, "x", reconcile.State{Phase: reconcile.Ready, Since: at(21 * sec)})

		q.EnqueueWithin("y", 20*sec)
		time.Sleep(sec) // 22
		q.Enqueue("y")
		wantState(t, q, "y", reconcile.State{Phase: reconcile.Ready, Since: at(22 * sec)})
		mustTakeAll(t, q, "x", "y")
		q.Requeue("y", reconcile.Wait{})
		time.Sleep(sec) // 23
		wantState(t, q, "y", reconcile.State{Phase: reconcile.Ready, Since: at(22 * sec)})
		q.Done("x")
		wantState(t, q, "x", reconcile.State{})
	})
}

func TestFailuresInARow(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		start := time.Now()
		e1, e2 := errors.New("first"), errors.New("second")
		q.Enqueue("x")
		mustTakeAll(t, q, "x")
		q.Requeue("x", reconcile.Wait{Delay: time.Hour, Err: e1})
		waiting := reconcile.State{Phase: reconcile.Waiting, Since: start, Due: start.Add(time.Hour), Failures: 1, Err: e1}
		wantState(t, q, "x", waiting)
		q.Offer("x")
		wantState(t, q, "x", waiting)
		q.Enqueue("x") // keeps the count: ready, then in flight
		wantState(t, q, "x", reconcile.State{Phase: reconcile.Ready, Since: start, Failures: 1, Err: e1})
		mustTakeAll(t, q, "x")
		q.Enqueue("x")
		q.Remove("x") // of the next run only: keeps it too
		wantState(t, q, "x", reconcile.State{Phase: reconcile.InFlight, Since: start, Failures: 1, Err: e1})
		q.Requeue("x", reconcile.Wait{Err: e2, Hold: true})
		wantState(t, q, "x", reconcile.State{Phase: reconcile.Ready, Since: start, Failures: 2, Err: e2})
		mustTakeAll(t, q, "x")

		q.Requeue("x", reconcile.Wait{Delay: time.Hour, Hold: true}) // planned: no failure
		wantState(t, q, "x", reconcile.State{Phase: reconcile.Waiting, Since: start, Due: start.Add(time.Hour), Hold: true})
		q.EnqueueNow("x")
		mustTakeAll(t, q, "x")
		q.Requeue("x", reconcile.Wait{Err: e1})
		mustTakeAll(t, q, "x")
		q.Enqueue("x")
		q.Done("x") // resets although the item has a next run
		wantState(t, q, "x", reconcile.State{Phase: reconcile.Ready, Since: start})
		mustTakeAll(t, q, "x")

		q.Requeue("x", reconcile.Wait{Err: e1})
		mustTakeAll(t, q, "x")
		wantState(t, q, "x", reconcile.State{Phase: reconcile.InFlight, Since: start, Failures: 1, Err: e1})
		q.Done("x")
		q.Enqueue("x")
		wantState(t, q, "x", reconcile.State{Phase: reconcile.Ready, Since: start})
	})
}

// An item that is gone has no failures when it comes again.
func TestFailuresGoWithTheEntry(t *testing.T) {
	for name, forget := range map[string]func(t *testing.T, q *reconcile.Queue[string]){
		"Remove": func(_ *testing.T, q *reconcile.Queue[string]) { q.Remove("x") },
		"Done": func(t *testing.T, q *reconcile.Queue[string]) {
			q.EnqueueNow("x")
			mustTakeAll(t, q, "x")
			q.Done("x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				start := time.Now()
				q.Enqueue("x")
				mustTakeAll(t, q, "x")
				for range 3 {
					q.Requeue("x", reconcile.Wait{Err: errors.New("no")})
					mustTakeAll(t, q, "x")
				}
				q.Requeue("x", reconcile.Wait{Delay: time.Hour, Err: errors.New("no")})
				forget(t, q)
				wantState(t, q, "x", reconcile.State{})
				q.Enqueue("x")
				wantState(t, q, "x", reconcile.State{Phase: reconcile.Ready, Since: start})
			})
		})
	}
}

func TestAllIsInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.EnqueueAfter("due 3", 3*time.Hour)
		q.EnqueueAfter("ready 2", 90*time.Minute)
		q.EnqueueWithin("due 2, first", 2*time.Hour)
		q.EnqueueAfter("due 2, second", 2*time.Hour)
		q.Enqueue("flying")
		q.Enqueue("flying too")
		mustTakeAll(t, q, "flying", "flying too")
		q.Enqueue("flying")
		q.EnqueueAfter("flying too", time.Hour)
		time.Sleep(90 * time.Minute)
		q.Enqueue("ready 3")
		q.Enqueue("removed")
		q.Done("flying")
		q.Remove("removed")

		var got []string
		for item, s := range q.All() {
			got = append(got, fmt.Sprintf("%s: %v", item, s.Phase))
			if s != q.State(item) {
				t.Errorf("All says of %q %+v, State %+v", item, s, q.State(item))
			}
		}
		want := []string{
			"flying too: in flight", "ready 2: ready", "ready 3: ready", "flying: ready",
			"due 2, first: waiting", "due 2, second: waiting", "due 3: waiting",
		}
		if !slices.Equal(got, want) {
			t.Errorf("All:\n got %q\nwant %q", got, want)
		}
	})
}

// The loop sees the queue as it was when the loop began, and may change it.
func TestAllIsASnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		for _, item := range []string{"a", "b", "c"} {
			q.Enqueue(item)
		}
		all := q.All()
		var got []string
		for item := range all {
			got = append(got, item)
			q.Remove("c")
			q.Enqueue("d" + item)
		}
		if want := []string{"a", "b", "c"}; !slices.Equal(got, want) {
			t.Errorf("All: %v, want %v", got, want)
		}
		for item := range all {
			if item != "a" {
				t.Errorf("All for the second time begins with %q", item)
			}
			break // leaves nothing locked
		}
		mustTakeAll(t, q, "a", "b", "da", "db", "dc")
	})
}

// Each accepted verb counts once: as new work, or folded into work known.
func TestStatsCountEachVerbOnce(t *testing.T) {
	verbs := map[string]func(q *reconcile.Queue[string]){
		"Offer":         func(q *reconcile.Queue[string]) { q.Offer("x") },
		"Enqueue":       func(q *reconcile.Queue[string]) { q.Enqueue("x") },
		"EnqueueAfter":  func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Hour) },
		"EnqueueWithin": func(q *reconcile.Queue[string]) { q.EnqueueWithin("x", time.Hour) },
		"EnqueueNow":    func(q *reconcile.Queue[string]) { q.EnqueueNow("x") },
	}
	entries := map[string]func(t *testing.T, q *reconcile.Queue[string]){
		"none":   func(*testing.T, *reconcile.Queue[string]) {},
		"ready":  func(_ *testing.T, q *reconcile.Queue[string]) { q.Enqueue("x") },
		"within": func(_ *testing.T, q *reconcile.Queue[string]) { q.EnqueueWithin("x", 2*time.Hour) },
		"held":   func(_ *testing.T, q *reconcile.Queue[string]) { q.EnqueueAfter("x", 2*time.Hour) },
		"in flight": func(t *testing.T, q *reconcile.Queue[string]) {
			q.Enqueue("x")
			mustTakeAll(t, q, "x")
		},
		"in flight, ready next": func(t *testing.T, q *reconcile.Queue[string]) {
			q.Enqueue("x")
			mustTakeAll(t, q, "x")
			q.Enqueue("x")
		},
	}
	for verb, do := range verbs {
		for entry, setup := range entries {
			t.Run(verb+"/"+entry, func(t *testing.T) {
				inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
					setup(t, q)
					want := q.Stats()
					isNew := entry == "none" || entry == "in flight" && verb != "Offer"
					if isNew {
						want.Enqueued++
					} else {
						want.Coalesced++
					}
					do(q)
					got := q.Stats()
					if got.Enqueued != want.Enqueued || got.Coalesced != want.Coalesced || got.Taken != want.Taken || got.Requeued != 0 {
						t.Errorf("Stats: %+v, want the counters of %+v", got, want)
					}
					q.Close()
					q.Remove("x")
					want = q.Stats()
					do(q)
					if got := q.Stats(); got != want {
						t.Errorf("Stats after Close and the verb: %+v, want %+v", got, want)
					}
				})
			})
		}
	}
}

func TestStatsCountRequeuesThatTookEffect(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Requeue("x", reconcile.Wait{}) // unknown
		q.Enqueue("x")
		q.Requeue("x", reconcile.Wait{}) // not in flight
		if got := q.Stats(); got != (reconcile.Stats{Ready: 1, Enqueued: 1}) {
			t.Errorf("Stats after stray Requeues: %+v", got)
		}
		mustTakeAll(t, q, "x")
		q.Requeue("x", reconcile.Wait{Delay: time.Hour})
		q.EnqueueNow("x")
		mustTakeAll(t, q, "x")
		q.Done("x")
		q.Enqueue("y")
		mustTakeAll(t, q, "y")
		q.Close()
		q.RequeueAfter("y", time.Hour) // dropped, but given back
		want := reconcile.Stats{Enqueued: 2, Coalesced: 1, Taken: 3, Requeued: 2}
		if got := q.Stats(); got != want {
			t.Errorf("Stats: %+v, want %+v", got, want)
		}
	})
}

// A consumer that is handed an item while it waits counts as one that took it.
func TestStatsCountItemsHandedToWaiters(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		waiting := startDequeue(t.Context(), q)
		q.Enqueue("x")
		synctest.Wait()
		if d := mustReturn(t, waiting); d.item != "x" || d.err != nil {
			t.Fatalf("Dequeue: %q, %v", d.item, d.err)
		}
		want := reconcile.Stats{InFlight: 1, Enqueued: 1, Taken: 1}
		if got := q.Stats(); got != want {
			t.Errorf("Stats: %+v, want %+v", got, want)
		}
	})
}
