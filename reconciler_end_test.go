// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/reconkernel/reconcile"
)

// untilDone is a Reconcile that works until it is told to end.
func untilDone(ctx context.Context, _ string) error {
	<-ctx.Done()
	return fmt.Errorf("working: %w", ctx.Err())
}

func TestShutdownWithoutGraceEndsRunsAtOnceAndKeepsTheirItems(t *testing.T) {
	for _, d := range dequeuers {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				book := newLogBook()
				var results resultBook[string]
				var cause error
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: d.of(q),
					Reconcile: func(ctx context.Context, item string) error {
						err := untilDone(ctx, item)
						cause = context.Cause(ctx)
						return err
					},
					OnResult: results.add,
					Logger:   book.logger(),
				})
				q.Enqueue("a")
				q.Enqueue("b") // not taken, before or after
				time.Sleep(time.Minute)
				synctest.Wait()
				book.clear()
				run.end()
				if took := results.only(t).Duration; took != time.Minute {
					t.Errorf("run took %v, want 1m0s", took)
				}
				if cause != errEnd {
					t.Errorf("cause of the item's context is %v, want that of Run's context", cause)
				}
				want := reconcile.Result[string]{Item: "a", Outcome: reconcile.Aborted, Err: context.Canceled, Duration: time.Minute}
				if diff := cmp.Diff(want, results.only(t), cmpopts.EquateErrors()); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
				for _, item := range []string{"a", "b"} {
					if s := q.State(item); s.Phase != reconcile.Ready || s.Failures != 0 || s.Err != nil {
						t.Errorf("State(%s) = %+v, want ready and no failure", item, s)
					}
				}
				if lines := book.from(slog.LevelDebug); len(lines) != 0 {
					t.Errorf("shutdown was not silent: %v", lines)
				}
			})
		})
	}
}

func TestShutdownGraceLetsRunsGoOn(t *testing.T) {
	for _, c := range []struct {
		name    string
		ends    time.Duration // after ctx is done
		err     error
		outcome reconcile.Outcome
		phase   reconcile.Phase
	}{
		{"well", 4 * time.Second, nil, reconcile.Succeeded, reconcile.Idle},
		{"at once", 1, nil, reconcile.Succeeded, reconcile.Idle},
		{"planned", 4 * time.Second, reconcile.RequeueAfter(time.Hour), reconcile.Requeued, reconcile.Waiting},
		{"failing", 4 * time.Second, errBoom, reconcile.Aborted, reconcile.Ready},
		{"refused", 4 * time.Second, reconcile.Terminal(errBoom), reconcile.Aborted, reconcile.Ready},
		{"too late", 7 * time.Second, context.Canceled, reconcile.Aborted, reconcile.Ready},
		{"too late, but well", 7 * time.Second, nil, reconcile.Succeeded, reconcile.Idle},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				book := newLogBook()
				var results resultBook[string]
				const until = 10 * time.Second // when ctx is done
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: q,
					Reconcile: func(ctx context.Context, item string) error {
						if item == "b" {
							t.Error("an item was taken after ctx was done")
						}
						began := time.Now()
						time.Sleep(until + c.ends)
						if ended := ctx.Err() != nil; ended != (c.ends > 5*time.Second) {
							t.Errorf("%v after ctx was done the item's context has ended: %v", c.ends, ended)
						}
						if ctx.Err() != nil && context.Cause(ctx) != errEnd {
							t.Errorf("cause of the item's context is %v, want that of Run's", context.Cause(ctx))
						}
						if took := time.Since(began); took != until+c.ends {
							t.Errorf("run took %v", took)
						}
						return c.err
					},
					Grace:    5 * time.Second,
					Retry:    minutes,
					OnResult: results.add,
					Logger:   book.logger(),
				})
				q.Enqueue("a")
				q.Enqueue("b")
				time.Sleep(until)
				book.clear()
				cancelled := time.Now()
				run.end()
				if took := time.Since(cancelled); took != c.ends {
					t.Errorf("Run went on for %v, want %v: until its run ends", took, c.ends)
				}
				if r := results.only(t); r.Outcome != c.outcome || r.Err != c.err || r.Failures != 0 {
					t.Errorf("result = %+v, want %s", r, c.outcome)
				}
				if s := q.State("a"); s.Phase != c.phase || s.Failures != 0 {
					t.Errorf("State(a) = %+v, want %v", s, c.phase)
				}
				if lines := book.from(slog.LevelInfo); len(lines) != 0 && c.ends < 5*time.Second {
					t.Errorf("shutdown was not silent: %v", lines)
				}
			})
		})
	}
}

func TestShutdownGraceEndsContextsExactlyThen(t *testing.T) {
	for _, grace := range []time.Duration{0, time.Millisecond, time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			q := reconcile.NewQueue[string]()
			var results resultBook[string]
			run := launch(t, &reconcile.Reconciler[string]{
				Queue: q, Reconcile: untilDone, Grace: grace, Workers: 2, OnResult: results.add, Logger: unlogged(),
			})
			q.Enqueue("a")
			q.Enqueue("b")
			time.Sleep(time.Minute)
			began := time.Now()
			run.end()
			if took := time.Since(began); took != grace || len(results.all()) != 2 {
				t.Errorf("Grace %v: contexts ended after %v, results %+v", grace, took, results.all())
			}
		})
	}
}

// A lateContext tells those derived from it a second later that it has ended.
type lateContext struct{ context.Context }

func (c lateContext) Value(any) any { return nil } // not to be known as what it wraps

func (c lateContext) AfterFunc(f func()) func() bool {
	return context.AfterFunc(c.Context, func() {
		time.Sleep(time.Second)
		f()
	})
}

// The context that workers wait under is derived from that of Run, and so ends
// later than that of the runs.
func TestAbortedItemIsNotTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		var results resultBook[string]
		r := &reconcile.Reconciler[string]{
			Queue: q, OnResult: results.add, Logger: unlogged(),
			Reconcile: func(ctx context.Context, _ string) error {
				if len(results.all()) > 0 {
					t.Error("the item is taken again")
					time.Sleep(time.Hour)
				}
				<-ctx.Done()
				return ctx.Err()
			},
		}
		time.AfterFunc(time.Minute, cancel)
		defer time.Sleep(time.Hour) // until all have been told
		if err := r.Run(lateContext{ctx}); err != nil {
			t.Fatal(err)
		}
		if r := results.only(t); r.Outcome != reconcile.Aborted {
			t.Errorf("result = %+v, want it aborted", r)
		}
	})
}

// The failures of an item do not count anew because the service was restarted
// in the middle of a run.
func TestAbortedRunKeepsTheCountOfFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var results resultBook[string]
		r := &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: fails(2, func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}),
			Retry:    minutes,
			OnResult: results.add,
			Logger:   unlogged(),
		}
		run := launch(t, r)
		q.Enqueue("a")
		time.Sleep((1 + 2 + 1) * time.Minute)
		run.end()
		if got := results.last(t); got.Outcome != reconcile.Aborted || got.Failures != 2 || got.Next != 0 {
			t.Errorf("result = %+v, want aborted with the 2 failures from before", got)
		}
		s := q.State("a")
		if s.Phase != reconcile.Ready || s.Failures != 2 || s.Err == nil || s.Err.Error() != "failure 2" {
			t.Errorf("State(a) = %+v, want ready with the failures from before", s)
		}
		// The next Run goes on from there.
		r.Reconcile = func(context.Context, string) error { return errBoom }
		run = launch(t, r)
		synctest.Wait()
		if got := results.last(t); got.Outcome != reconcile.Retrying || got.Failures != 3 || got.Next != 3*time.Minute {
			t.Errorf("result = %+v, want failure 3", got)
		}
		run.end()
	})
}

func TestAbortedItemIsReadyWhateverWasPending(t *testing.T) {
	for name, pend := range map[string]func(q *reconcile.Queue[string]){
		"nothing": func(*reconcile.Queue[string]) {},
		"event":   func(q *reconcile.Queue[string]) { q.Enqueue("a") },
		"held":    func(q *reconcile.Queue[string]) { q.EnqueueAfter("a", 2*time.Hour) },
		"within":  func(q *reconcile.Queue[string]) { q.EnqueueWithin("a", 2*time.Hour) },
		"now":     func(q *reconcile.Queue[string]) { q.EnqueueNow("a") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				r := &reconcile.Reconciler[string]{Queue: q, Reconcile: untilDone, HoldRetries: true, Logger: unlogged()}
				run := launch(t, r)
				q.Enqueue("a")
				synctest.Wait()
				pend(q)
				run.end()
				if s := q.State("a"); s.Phase != reconcile.Ready || q.Len() != 1 {
					t.Errorf("State(a) = %+v, %d ready, want it ready once", s, q.Len())
				}
			})
		})
	}
}

// However the end of Run and the arrival of items fall together, each item has
// been run or is still in the queue.
func TestShutdownSwallowsNoItem(t *testing.T) {
	for _, d := range dequeuers {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rounds, each = 200, 5
				q := reconcile.NewQueue[string]()
				var results resultBook[string]
				r := &reconcile.Reconciler[string]{
					Queue:     d.of(q),
					Reconcile: func(ctx context.Context, _ string) error { return ctx.Err() },
					Workers:   3,
					OnResult:  results.add,
					Logger:    unlogged(),
				}
				for round := range rounds {
					run := launch(t, r)
					go func() {
						for i := range each {
							q.Enqueue(fmt.Sprint(round, " ", i))
						}
					}()
					run.end() // at the same time
				}
				synctest.Wait()
				succeeded := 0
				for _, r := range results.all() {
					if r.Outcome == reconcile.Succeeded {
						succeeded++
					}
				}
				if s := q.Stats(); s.InFlight != 0 || s.Waiting != 0 || succeeded+s.Ready != rounds*each {
					t.Errorf("%d runs succeeded and Stats = %+v, want %d items in all", succeeded, s, rounds*each)
				}
			})
		})
	}
}
