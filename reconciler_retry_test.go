// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// failOnce starts a Reconciler whose item fails at once and then succeeds.
func failOnce(t *testing.T, q *reconcile.Queue[string], journal *journal, hold bool) *running {
	runs := 0
	run := launch(t, &reconcile.Reconciler[string]{
		Queue: q,
		Reconcile: func(context.Context, string) error {
			if runs++; runs == 1 {
				journal.note("fails")
				return errBoom
			}
			journal.note("succeeds")
			return nil
		},
		Retry:       minutes,
		HoldRetries: hold,
		Logger:      unlogged(),
	})
	q.Enqueue("a")
	time.Sleep(10 * time.Second)
	return run
}

func TestReconcilerRetryGivesWayToAnEventNotToAPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, journal := reconcile.NewQueue[string](), newJournal()
		run := failOnce(t, q, journal, false)
		q.Offer("a")
		time.Sleep(10 * time.Second)
		journal.mustBe(t, "0s fails")
		q.Enqueue("a")
		time.Sleep(time.Hour)
		journal.mustBe(t, "0s fails", "20s succeeds")
		run.end()
	})
}

func TestReconcilerHoldRetriesHoldsAgainstEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, journal := reconcile.NewQueue[string](), newJournal()
		run := failOnce(t, q, journal, true)
		q.Offer("a")
		q.Enqueue("a")
		q.EnqueueAfter("a", time.Second)
		q.EnqueueWithin("a", time.Second)
		time.Sleep(time.Hour)
		journal.mustBe(t, "0s fails", "1m0s succeeds")
		run.end()
	})
}

func TestReconcilerHoldRetriesGivesWayToEnqueueNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, journal := reconcile.NewQueue[string](), newJournal()
		run := failOnce(t, q, journal, true)
		q.EnqueueNow("a")
		time.Sleep(time.Hour)
		journal.mustBe(t, "0s fails", "10s succeeds")
		run.end()
	})
}

func TestReconcilerCountsFailuresThoughTheItemIsEnqueuedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var results resultBook[string]
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(context.Context, string) error {
				time.Sleep(time.Second)
				return errBoom
			},
			Retry:    minutes,
			OnResult: results.add,
			Logger:   unlogged(),
		})
		for range 4 {
			q.Enqueue("a") // at first, and then while it waits for its retry
			time.Sleep(500 * time.Millisecond)
			q.Enqueue("a") // in flight
			time.Sleep(10 * time.Second)
		}
		synctest.Wait()
		for i, r := range results.all() {
			if r.Failures != i+1 {
				t.Errorf("result %d counts %d failures, want %d", i, r.Failures, i+1)
			}
		}
		if got := results.last(t).Failures; got != 8 {
			t.Errorf("%d failures in a row, want 8", got)
		}
		if s := q.State("a"); s.Failures != 8 || s.Err != errBoom {
			t.Errorf("State(a) = %+v, want 8 failures", s)
		}
		run.end()
	})
}

func TestReconcilerRetryNilMeansDefaultRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var results resultBook[string]
		run := launch(t, &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(context.Context, string) error { return errBoom },
			OnResult:  results.add,
			Logger:    unlogged(),
		})
		q.Enqueue("a")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		full := time.Second
		for i, r := range results.all() {
			if r.Outcome != reconcile.Retrying || !within(r.Next, full/2, full) {
				t.Errorf("failure %d: %s in %v, want retrying in (%v, %v]", i+1, r.Outcome, r.Next, full/2, full)
			}
			full = min(2*full, 5*time.Minute)
		}
		if n := len(results.all()); n < 2*12+7 {
			t.Errorf("%d runs in two hours, want at least one in five minutes", n)
		}
		run.end()
	})
}
