// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

// TestHas has every way to be known, and not to be.
func TestHas(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("in flight")
		q.Enqueue("settled")
		q.Enqueue("done")
		mustTakeAll(t, q, "in flight", "settled", "done")
		q.Requeue("settled", reconcile.Wait{Delay: time.Hour, Settled: true})
		q.Done("done")
		q.EnqueueAfter("in flight", time.Hour)
		q.Enqueue("ready")
		q.EnqueueWithin("waiting", time.Hour)
		q.Enqueue("removed")
		q.Remove("removed")
		for item, want := range map[string]string{
			"in flight": "in flight", "settled": "waiting", "ready": "ready", "waiting": "waiting",
			"done": "idle", "removed": "idle", "unknown": "idle",
		} {
			if got := q.State(item).Phase.String(); got != want {
				t.Errorf("State(%q).Phase: %s, want %s", item, got, want)
			}
			if got := q.Has(item); got != (want != "idle") {
				t.Errorf("Has(%q): %t, though it is %s", item, got, want)
			}
		}
		wantStats(t, q, reconcile.Stats{Ready: 1, Waiting: 2, InFlight: 1, Settled: 1, Again: 1, Enqueued: 7, Taken: 3, Requeued: 1})
	})
}

// Each step gives an item in flight back, and says how often it has failed then.
func TestFailuresInARow(t *testing.T) {
	type queue = reconcile.Queue[string]
	e1, e2, wrapped := errors.New("first"), errors.New("second"), fmt.Errorf("wrapped: %w", reconcile.ErrAborted)
	inBubble(t, func(t *testing.T, q *queue) {
		for i, step := range []struct {
			back     func(q *queue)
			failures int
			err      error
		}{
			{func(q *queue) { q.Requeue("x", reconcile.Wait{Delay: time.Hour, Err: e1}) }, 1, e1},
			{func(q *queue) { q.Requeue("x", reconcile.Wait{Err: e2, Hold: true}) }, 2, e2},
			{func(q *queue) { q.Requeue("x", reconcile.Wait{Err: reconcile.ErrAborted}) }, 2, e2},
			{func(q *queue) {
				q.Requeue("x", reconcile.Wait{Delay: time.Hour, Hold: true, Settled: true, Err: reconcile.ErrAborted})
			}, 2, e2},
			{func(q *queue) { q.Requeue("x", reconcile.Wait{Err: wrapped}) }, 3, wrapped}, // only as it is
			{func(q *queue) { q.RequeueAfter("x", time.Hour) }, 0, nil},                   // a plan: no failure
			{func(q *queue) { q.Requeue("x", reconcile.Wait{Err: reconcile.ErrAborted}) }, 0, nil},
			{func(q *queue) { q.Requeue("x", reconcile.Wait{Delay: time.Hour, Settled: true, Err: e1}) }, 1, e1},
			{func(q *queue) { q.Enqueue("x"); q.Done("x") }, 0, nil}, // though it has a next run
			{func(q *queue) { q.Requeue("x", reconcile.Wait{Err: e1}) }, 1, e1},
			{func(q *queue) { q.Requeue("x", reconcile.Wait{Delay: time.Hour, Settled: true}) }, 0, nil},
			{func(q *queue) { q.Requeue("x", reconcile.Wait{Err: e1}) }, 1, e1},
			{func(q *queue) { q.Done("x"); q.Enqueue("x") }, 0, nil}, // gone, and there again
			{func(q *queue) { q.Requeue("x", reconcile.Wait{Err: e1}) }, 1, e1},
			{func(q *queue) { q.Requeue("x", reconcile.Wait{Err: e1}); q.Remove("x"); q.Enqueue("x") }, 0, nil},
		} {
			want := func(when string) {
				if s := q.State("x"); s.Failures != step.failures || s.Err != step.err {
					t.Errorf("step %d, %s: %d failures, the last is %v, want %d and %v", i, when, s.Failures, s.Err, step.failures, step.err)
				}
			}
			q.EnqueueNow("x") // changes nothing, as what follows
			mustTakeAll(t, q, "x")
			step.back(q)
			want("given back")
			q.Offer("x")
			q.EnqueueNow("x")
			mustTakeAll(t, q, "x")
			want("in flight")
			q.Enqueue("x")
			q.Remove("x")
			want("in flight, its next run removed")
			q.Requeue("x", reconcile.Wait{Err: reconcile.ErrAborted})
			want("aborted")
		}
	})
}

func TestAllIsInOrder(t *testing.T) {
	inBackground(t, 2, func(t *testing.T, q *reconcile.Queue[string]) {
		q.EnqueueAfter("due 3", 3*time.Hour)
		q.EnqueueAfter("ready 1", 90*time.Minute)
		q.EnqueueWithin("due 2, first", 2*time.Hour)
		q.EnqueueAfter("due 2, second", 2*time.Hour)
		q.Enqueue("flying")
		q.Enqueue("flying too")
		mustTakeAll(t, q, "flying", "flying too")
		q.Enqueue("flying")
		q.EnqueueAfter("flying too", time.Hour)
		q.Offer("seen")
		time.Sleep(90 * time.Minute)
		q.Enqueue("ready 2")
		q.Enqueue("removed")
		q.Requeue("flying", reconcile.Wait{Err: errBoom})
		q.Remove("removed")

		var got []string
		for item, s := range q.All() {
			got = append(got, fmt.Sprintf("%s: %v", item, s.Phase))
			wantState(t, q, item, s)
		}
		want := []string{
			"flying too: in flight", "ready 1: ready", "seen: ready", "ready 2: ready", "flying: ready",
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
		for item := range all { // for the second time
			got = append(got, item)
			break // leaves nothing locked
		}
		if want := "a b c a"; strings.Join(got, " ") != want {
			t.Errorf("All: %q, want %q", got, want)
		}
		mustTakeAll(t, q, "a", "b", "da", "db", "dc")
	})
}
