// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/reconkernel/reconcile"
)

// A watchedRun is the first run of "x": it calls UntilChanged, and goes on for
// an hour whatever becomes of its context.
type watchedRun struct {
	*running
	q       *reconcile.Queue[string]
	began   time.Time
	changed context.Context // of UntilChanged
	stop    context.CancelFunc
	endedAt time.Duration // after the run began, when changed ended; 0 if it has not
}

// startWatched starts a Reconciler whose first run watches its item.
func startWatched(t *testing.T, q *reconcile.Queue[string], r reconcile.Reconciler[string]) *watchedRun {
	t.Helper()
	return startWatchedAfter(t, q, r, func() {})
}

// startWatchedAfter calls before in the run, before UntilChanged.
func startWatchedAfter(t *testing.T, q *reconcile.Queue[string], r reconcile.Reconciler[string], before func()) *watchedRun {
	t.Helper()
	w := &watchedRun{q: q}
	r.Queue, r.Logger = q, unlogged()
	r.Reconcile = func(ctx context.Context, item string) error {
		if w.changed != nil || item != "x" {
			return nil
		}
		w.began = time.Now()
		before()
		w.changed, w.stop = reconcile.UntilChanged(ctx)
		over := time.After(time.Hour)
		select {
		case <-w.changed.Done():
			w.endedAt = max(1, time.Since(w.began))
			<-over
		case <-over:
		}
		return nil
	}
	w.running = launch(t, &r)
	q.Enqueue("x")
	synctest.Wait()
	return w
}

// events are all that can happen to an item in flight, and after which time a
// context of UntilChanged ends; 0 means that it goes on.
var events = []struct {
	name  string
	do    func(q *reconcile.Queue[string])
	after time.Duration
}{
	{"Enqueue", func(q *reconcile.Queue[string]) { q.Enqueue("x") }, 1},
	{"EnqueueNow", func(q *reconcile.Queue[string]) { q.EnqueueNow("x") }, 1},
	{"EnqueueAfter 0", func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", 0) }, 1},
	{"EnqueueWithin 0", func(q *reconcile.Queue[string]) { q.EnqueueWithin("x", 0) }, 1},
	{"two Enqueues", func(q *reconcile.Queue[string]) { q.Enqueue("x"); q.Enqueue("x") }, 1},

	{"EnqueueAfter", func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Minute) }, time.Minute},
	{"EnqueueWithin", func(q *reconcile.Queue[string]) { q.EnqueueWithin("x", time.Minute) }, time.Minute},
	{"a later EnqueueAfter", func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", 2*time.Hour) }, 0},
	{"a later EnqueueWithin", func(q *reconcile.Queue[string]) { q.EnqueueWithin("x", 2*time.Hour) }, 0},
	{"EnqueueAfter, Enqueue", func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Minute); q.Enqueue("x") }, time.Minute},
	{"EnqueueAfter, EnqueueNow", func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Minute); q.EnqueueNow("x") }, 1},
	{"EnqueueWithin, Enqueue", func(q *reconcile.Queue[string]) { q.EnqueueWithin("x", time.Minute); q.Enqueue("x") }, 1},
	{"EnqueueWithin, EnqueueNow", func(q *reconcile.Queue[string]) { q.EnqueueWithin("x", time.Minute); q.EnqueueNow("x") }, 1},
	{"EnqueueWithin twice", func(q *reconcile.Queue[string]) {
		q.EnqueueWithin("x", time.Minute)
		q.EnqueueWithin("x", time.Second)
	}, time.Second},
	{"EnqueueWithin, EnqueueAfter", func(q *reconcile.Queue[string]) {
		q.EnqueueWithin("x", time.Minute)
		q.EnqueueAfter("x", time.Second)
	}, time.Second},

	{"Offer", func(q *reconcile.Queue[string]) { q.Offer("x") }, 0},
	{"Enqueue of another item", func(q *reconcile.Queue[string]) { q.Enqueue("y") }, 0},
	{"Remove", func(q *reconcile.Queue[string]) { q.Remove("x") }, 0},
	{"Enqueue, Remove", func(q *reconcile.Queue[string]) { q.Enqueue("x"); q.Remove("x") }, 1},
	{"EnqueueAfter, Remove", func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Minute); q.Remove("x") }, 0},
	{"Close", func(q *reconcile.Queue[string]) { q.Close() }, 0},
	{"EnqueueAfter, Close", func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Minute); q.Close() }, 0},
	{"Close, Enqueue", func(q *reconcile.Queue[string]) { q.Close(); q.Enqueue("x") }, 0},
	{"looks", func(q *reconcile.Queue[string]) { q.State("x"); q.Len(); q.Has("x"); q.Stats() }, 0},
}

func TestUntilChangedEndsWithAReadyNextRun(t *testing.T) {
	for _, e := range events {
		t.Run(e.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				run := startWatched(t, q, reconcile.Reconciler[string]{})
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if err := run.changed.Err(); err != nil {
					t.Fatalf("the context ended before the event: %v", err)
				}
				e.do(q)
				mustAgree(t, q)
				time.Sleep(49 * time.Minute)
				synctest.Wait()
				want, cause := time.Duration(0), error(nil)
				if e.after != 0 {
					want, cause = 10*time.Second+e.after, reconcile.ErrChanged
					if e.after == 1 {
						want--
					}
				}
				if run.endedAt != want || context.Cause(run.changed) != cause {
					t.Errorf("ended after %v, cause %v, want %v, cause %v", run.endedAt, context.Cause(run.changed), want, cause)
				}
				run.end()
			})
		})
	}
}

// What happened before the call counts, if it left a next run that is ready.
func TestUntilChangedKnowsWhatWasBefore(t *testing.T) {
	for _, e := range events {
		t.Run(e.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				run := startWatchedAfter(t, q, reconcile.Reconciler[string]{}, func() { e.do(q) })
				time.Sleep(49 * time.Minute)
				synctest.Wait()
				want := e.after
				if e.name == "Enqueue, Remove" {
					want = 0 // the next run is gone
				}
				if run.endedAt != want {
					t.Errorf("ended after %v, want %v", run.endedAt, want)
				}
				if cause := context.Cause(run.changed); (cause == reconcile.ErrChanged) != (want != 0) {
					t.Errorf("cause %v", cause)
				}
				run.end()
			})
		})
	}
}

// A next run that is due is a ready one, also if the timer is late.
func TestUntilChangedSeesWhatIsDue(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("x")
		mustTake(t, q)
		q.EnqueueAfter("x", time.Minute)
		time.Sleep(time.Minute) // and the timer fires at this instant, perhaps later
		changed, stop := reconcile.UntilChangedOf(t.Context(), q, "x")
		defer stop()
		if cause := context.Cause(changed); cause != reconcile.ErrChanged {
			t.Errorf("cause %v, want %v", cause, reconcile.ErrChanged)
		}
	})
}

// errAsCaused stands for the error of the context that ended.
var errAsCaused = errors.New("the cause of the context")

// verdicts are what becomes of an item whose run ended early, by what the run
// returned.
var verdicts = []struct {
	name    string
	err     error
	end     func() // ends the run instead
	plan    bool
	outcome reconcile.Outcome
	fails   int           // failures after the run
	next    time.Duration // to the next run
	says    time.Duration // what the result says of that, if it is not so
	level   slog.Level
}{
	{name: "nil", outcome: reconcile.Succeeded, level: slog.LevelDebug},
	{name: "an error", err: errBoom, outcome: reconcile.Requeued, level: slog.LevelDebug},
	{name: "the cause", err: errAsCaused, outcome: reconcile.Requeued, level: slog.LevelDebug},
	{name: "the context's error", err: fmt.Errorf("copy: %w", context.Canceled), outcome: reconcile.Requeued, level: slog.LevelDebug},
	{name: "terminal", err: reconcile.Terminal(errBoom), outcome: reconcile.Requeued, level: slog.LevelDebug},
	{name: "a plan for now", plan: true, err: reconcile.RequeueWithin(0), outcome: reconcile.Requeued, level: slog.LevelDebug},
	{name: "a ceiling", plan: true, err: reconcile.RequeueWithin(time.Hour), outcome: reconcile.Requeued, says: time.Hour, level: slog.LevelDebug},
	{name: "a floor", plan: true, err: fmt.Errorf("429: %w", reconcile.RequeueAfter(time.Hour)), outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},
	{name: "panic", end: func() { panic("no disk") }, outcome: reconcile.Retrying, fails: 2, level: slog.LevelError},
	{name: "an error that panics", err: panickingError{}, outcome: reconcile.Requeued, level: slog.LevelDebug},
}

// A panickingError panics when it is looked at.
type panickingError struct{}

func (panickingError) Error() string { return "an error that panics" }
func (panickingError) As(any) bool   { panic("As") }

func TestRunThatEndedEarlyIsNoFailure(t *testing.T) {
	for _, v := range verdicts {
		for _, hold := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/HoldRetries=%t", v.name, hold), func(t *testing.T) {
				inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
					var results resultBook[string]
					var runs []time.Time
					book := newLogBook()
					run := launch(t, &reconcile.Reconciler[string]{
						Queue: q, HoldRetries: hold, Retry: minutes, OnResult: results.add, Logger: book.logger(),
						Reconcile: func(ctx context.Context, _ string) error {
							runs = append(runs, time.Now())
							switch len(runs) {
							case 1:
								return errBoom // so that there is a count of failures
							case 2:
								changed, stop := reconcile.UntilChanged(ctx)
								defer stop()
								<-changed.Done()
								book.clear()
								if v.end != nil {
									v.end()
								}
								if v.err == errAsCaused {
									return context.Cause(changed)
								}
								return v.err
							}
							return nil
						},
					})
					q.Enqueue("x")
					time.Sleep(time.Minute) // the retry of the first run
					time.Sleep(10 * time.Second)
					synctest.Wait()
					q.Enqueue("x")
					changed := time.Now()
					time.Sleep(3 * time.Hour)
					synctest.Wait()

					want := reconcile.Result[string]{Item: "x", Outcome: v.outcome, Next: v.next, Failures: v.fails, Duration: 10 * time.Second}
					next := v.next
					if v.says > 0 {
						want.Next = v.says
					}
					if v.outcome == reconcile.Retrying {
						want.Next = 2 * time.Minute
						if hold {
							next = 2 * time.Minute
						}
					}
					got := results.all()
					if len(got) != 3 || len(runs) != 3 {
						t.Fatalf("%d results of %d runs, want 3: %+v", len(got), len(runs), got)
					}
					if diff := cmp.Diff(want, got[1], cmpopts.IgnoreFields(want, "Err")); diff != "" {
						t.Errorf("result of the run that ended early (-want +got):\n%s", diff)
					}
					if (got[1].Err == nil) != (v.err == nil && v.end == nil) {
						t.Errorf("its error is %v", got[1].Err)
					}
					if d := runs[2].Sub(changed); d != next {
						t.Errorf("the next run started %v after the event, want %v", d, next)
					}
					for _, l := range book.from(slog.LevelDebug) {
						if l.Attrs["outcome"].String() != string(v.outcome) {
							continue // of the next run, or a complaint about the error
						}
						if l.Level != v.level {
							t.Errorf("log line %v, want level %v", l, v.level)
						}
						early := v.outcome == reconcile.Requeued && !v.plan
						if early != strings.Contains(l.Message, "ended early") {
							t.Errorf("log line %v", l)
						}
						break
					}
					if s := q.State("x"); s != (reconcile.State{}) {
						t.Errorf("State: %+v, want none", s)
					}
					run.end()
				})
			})
		}
	}
}

// The count of failures starts anew: what failed is outdated.
func TestRunThatEndedEarlyResetsTheFailures(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		runs := 0
		var results resultBook[string]
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Retry: minutes, OnResult: results.add, Logger: unlogged(),
			Reconcile: func(ctx context.Context, _ string) error {
				if runs++; runs == 3 {
					changed, stop := reconcile.UntilChanged(ctx)
					defer stop()
					<-changed.Done()
				}
				return errBoom
			},
		})
		q.Enqueue("x")
		time.Sleep(4 * time.Minute)
		synctest.Wait()
		q.Enqueue("x")
		synctest.Wait()
		var failures []int
		for _, r := range results.all() {
			failures = append(failures, r.Failures)
		}
		if diff := cmp.Diff([]int{1, 2, 0, 1}, failures); diff != "" {
			t.Errorf("failures (-want +got):\n%s", diff)
		}
		run.end()
	})
}
