// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestUntilChangedStop(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		wantOutcome(t, oneRun(t, q, reconcile.Reconciler[string]{}, func(ctx context.Context) error {
			changed, stop := reconcile.UntilChanged(ctx)
			wantCause(t, changed, nil)
			stop()
			wantCause(t, changed, context.Canceled)
			wantCause(t, ctx, nil)
			if n := reconcile.Watchers(q); n != 0 {
				t.Errorf("%d watchers are left after stop", n)
			}
			q.Enqueue("x")
			wantCause(t, changed, context.Canceled)
			stop()
			return errBoom // after the part that could be cut short: a failure
		}), reconcile.Retrying)
	})
}

// stop after the end changes nothing, and does not undo it.
func TestUntilChangedStopAfterTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		wantOutcome(t, oneRun(t, q, reconcile.Reconciler[string]{}, func(ctx context.Context) error {
			changed, stop := reconcile.UntilChanged(ctx)
			q.Enqueue("x") // by the run itself: that is an event, too
			wantCause(t, changed, reconcile.ErrChanged)
			stop()
			stop()
			wantCause(t, changed, reconcile.ErrChanged)
			return errBoom
		}), reconcile.Requeued)
	})
}

// A context that ended for another reason does not end again: what the run
// returns is judged by that.
func TestUntilChangedThatEndedOtherwise(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		wantOutcome(t, oneRun(t, q, reconcile.Reconciler[string]{}, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			changed, stop := reconcile.UntilChanged(ctx)
			defer stop()
			<-changed.Done()
			q.Enqueue("x")
			wantCause(t, changed, context.DeadlineExceeded)
			return changed.Err()
		}), reconcile.Retrying)
	})
}

func TestUntilChangedAndTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		event   time.Duration
		cause   error
		outcome reconcile.Outcome
	}{
		"an event first":    {time.Minute, reconcile.ErrChanged, reconcile.Requeued},
		"the timeout first": {3 * time.Minute, reconcile.ErrTimeout, reconcile.Retrying},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				wantOutcome(t, oneRun(t, q, reconcile.Reconciler[string]{Timeout: 2 * time.Minute}, func(ctx context.Context) error {
					changed, stop := reconcile.UntilChanged(ctx)
					defer stop()
					time.AfterFunc(c.event, func() { q.Enqueue("x") })
					time.Sleep(5 * time.Minute) // both have come
					wantCause(t, changed, c.cause)
					return errBoom
				}), c.outcome)
			})
		})
	}
}

// A shutdown aborts the run, whatever else happened to it.
func TestUntilChangedAndShutdown(t *testing.T) {
	for name, c := range map[string]struct {
		grace        time.Duration
		event, close time.Duration
		cause        error
		outcome      reconcile.Outcome
	}{
		"at once":                       {0, 0, time.Minute, errEnd, reconcile.Aborted},
		"after an event":                {0, time.Second, time.Minute, reconcile.ErrChanged, reconcile.Aborted},
		"before an event":               {0, 2 * time.Minute, time.Minute, errEnd, reconcile.Aborted},
		"with a grace that is not over": {time.Hour, 0, time.Minute, nil, reconcile.Aborted},
		"an event in the grace":         {time.Hour, 2 * time.Minute, time.Minute, reconcile.ErrChanged, reconcile.Aborted},
		"a grace that is over":          {time.Minute, 3 * time.Minute, time.Minute, errEnd, reconcile.Aborted},
	} {
		for _, grouped := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
					var results resultBook[string]
					r := reconcile.Runner(&reconcile.Reconciler[string]{
						Queue: q, Grace: c.grace, OnResult: results.add, Logger: unlogged(),
						Reconcile: func(ctx context.Context, _ string) error {
							changed, stop := reconcile.UntilChanged(ctx)
							defer stop()
							time.Sleep(5 * time.Minute)
							cause := c.cause
							if grouped && cause == errEnd {
								cause = context.Cause(ctx)
								if cause == nil {
									t.Error("the context of the run has not ended")
								}
							}
							wantCause(t, changed, cause)
							return errBoom
						},
					})
					if grouped {
						g := &reconcile.Group{Logger: unlogged()}
						g.Add("loop", r)
						r = g
					}
					run := launch(t, r)
					q.Enqueue("x")
					if c.event > 0 {
						time.AfterFunc(c.event, func() { q.Enqueue("x") })
					}
					time.Sleep(c.close)
					run.end()
					wantOutcome(t, results.only(t), c.outcome)
					wantPhase(t, q, "x", reconcile.Ready)
					if n := reconcile.Watchers(q); n != 0 {
						t.Errorf("%d watchers are left", n)
					}
				})
			})
		}
	}
}

// However a run ends, its contexts end with it, and not by what comes later.
func TestUntilChangedEndsWithItsRun(t *testing.T) {
	for name, end := range map[string]func() error{
		"nil":    func() error { return nil },
		"error":  func() error { return errBoom },
		"after":  func() error { return reconcile.RequeueAfter(time.Hour) },
		"within": func() error { return reconcile.RequeueWithin(time.Hour) },
		"now":    func() error { return reconcile.RequeueWithin(0) },
		"gone":   func() error { return reconcile.Terminal(errBoom) },
		"panic":  func() error { panic("no disk") },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		for _, closed := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
					var first, again context.Context
					var old context.Context // of the run that is over
					var results resultBook[string]
					run := launch(t, &reconcile.Reconciler[string]{
						Queue: q, OnResult: results.add, Logger: unlogged(), Retry: minutes,
						Reconcile: func(ctx context.Context, item string) error {
							if item != "x" {
								return nil
							}
							if first == nil {
								old = ctx
								first, _ = reconcile.UntilChanged(ctx)
								time.Sleep(time.Minute)
								return end()
							}
							again, _ = reconcile.UntilChanged(old)
							wantCause(t, again, context.Canceled)
							if n := reconcile.Watchers(q); n != 0 {
								t.Errorf("%d watchers of a run that is over", n)
							}
							q.Enqueue("x")
							q.Remove("x")
							return nil
						},
					})
					q.Enqueue("x")
					synctest.Wait()
					wantCause(t, first, nil)
					if closed {
						q.Close()
					}
					time.Sleep(time.Minute)
					synctest.Wait()
					wantCause(t, first, context.Canceled)
					q.EnqueueNow("x")
					wantCause(t, first, context.Canceled)
					synctest.Wait()
					if n := reconcile.Watchers(q); n != 0 {
						t.Errorf("%d watchers are left", n)
					}
					if again == nil && !closed {
						t.Error("there was no second run")
					}
					run.end()
				})
			})
		}
	}
}

// An item that somebody gave back who did not have it is not this run's any more,
// and what happens to it then is the next run's to hear.
func TestUntilChangedOfAnItemGivenBackBySomebodyElse(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		var changed [2]context.Context
		var results resultBook[string]
		runs := 0
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Workers: 2, OnResult: results.add, Logger: unlogged(), Retry: minutes,
			Reconcile: func(ctx context.Context, _ string) error {
				n := runs
				if runs++; n > 1 {
					return nil // the retry of the second
				}
				var stop context.CancelFunc
				changed[n], stop = reconcile.UntilChanged(ctx)
				defer stop()
				for range 2 - n {
					time.Sleep(time.Hour)
					if n == 0 { // the second run is in flight, and then it is over
						late, stop := reconcile.UntilChanged(ctx)
						wantCause(t, late, context.Canceled)
						stop()
					}
				}
				return errBoom
			},
		})
		q.Enqueue("x")
		synctest.Wait()
		q.Done("x")
		wantCause(t, changed[0], context.Canceled)
		time.Sleep(30 * time.Minute)
		q.Enqueue("x")
		synctest.Wait()
		wantCause(t, changed[1], nil)
		time.Sleep(45 * time.Minute)
		q.Enqueue("x")
		wantCause(t, changed[0], context.Canceled)
		wantCause(t, changed[1], reconcile.ErrChanged)
		q.Remove("x") // so that the outcome cannot be Requeued
		mustAgree(t, q)
		time.Sleep(3 * time.Hour)
		run.end()
		for _, r := range results.all() {
			if r.Outcome == reconcile.Requeued {
				t.Errorf("%+v", r)
			}
		}
	})
}

// The record of an item that was given back by somebody else may be that of
// another one by now, and the count of takes is a short one.
func TestUntilChangedOfAnotherItemInTheSamePlace(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		oneRun(t, q, reconcile.Reconciler[string]{}, func(ctx context.Context) error {
			q.Done("x")
			for range 1<<15 - 1 {
				q.Enqueue("y")
				mustTake(t, q)
				q.Done("y")
			}
			q.Enqueue("y")
			mustTake(t, q)
			changed, stop := reconcile.UntilChanged(ctx)
			defer stop()
			wantCause(t, changed, context.Canceled)
			q.Done("y")
			return nil
		})
	})
}

// If the next run was cancelled again, the run is a failure as ever: there is
// nothing else that would bring the item back.
func TestRunThatEndedEarlyForAnItemThatWasRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		then    func(q *reconcile.Queue[string])
		outcome reconcile.Outcome
	}{
		"Remove":               {func(*reconcile.Queue[string]) {}, reconcile.Retrying},
		"Remove, EnqueueAfter": {func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", 30*time.Minute) }, reconcile.Retrying},
		"Remove, Enqueue":      {func(q *reconcile.Queue[string]) { q.Enqueue("x") }, reconcile.Requeued},
		"Remove, EnqueueNow":   {func(q *reconcile.Queue[string]) { q.EnqueueNow("x") }, reconcile.Requeued},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				wantOutcome(t, oneRun(t, q, reconcile.Reconciler[string]{}, func(ctx context.Context) error {
					changed, stop := reconcile.UntilChanged(ctx)
					defer stop()
					q.Enqueue("x")
					<-changed.Done()
					q.Remove("x")
					c.then(q)
					return context.Cause(changed)
				}), c.outcome)
			})
		})
	}
}

// A next run that is due is there, also if the timer is late.
func TestRunThatEndedEarlyAndIsDue(t *testing.T) {
	for range 50 {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			wantOutcome(t, oneRun(t, q, reconcile.Reconciler[string]{}, func(ctx context.Context) error {
				changed, stop := reconcile.UntilChanged(ctx)
				defer stop()
				q.Enqueue("x")
				q.Remove("x")
				q.EnqueueAfter("x", time.Minute)
				time.Sleep(time.Minute)
				return context.Cause(changed)
			}), reconcile.Requeued)
		})
	}
}

// An event in the very instant in which the run ends is either in time to end
// it, or is followed by a run of its own; never neither.
func TestUntilChangedWithTheEventAsTheRunEnds(t *testing.T) {
	for range 200 {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			var changed context.Context
			var results resultBook[string]
			run := launch(t, &reconcile.Reconciler[string]{
				Queue: q, OnResult: results.add, Logger: unlogged(), Retry: reconcile.NoRetry,
				Reconcile: func(ctx context.Context, _ string) error {
					if changed != nil {
						return nil
					}
					changed, _ = reconcile.UntilChanged(ctx)
					time.Sleep(time.Minute)
					return errBoom
				},
			})
			q.Enqueue("x")
			synctest.Wait()
			time.AfterFunc(time.Minute, func() { q.Enqueue("x") })
			time.Sleep(time.Minute)
			synctest.Wait()
			all := results.all()
			if len(all) != 2 {
				t.Fatalf("%d results, want that of the run and that of the event: %+v", len(all), all)
			}
			cause := context.Cause(changed)
			if all[0].Outcome == reconcile.Requeued && cause != reconcile.ErrChanged || cause == nil {
				t.Errorf("the run %s, and its context ended with %v", all[0].Outcome, cause)
			}
			run.end()
		})
	}
}
