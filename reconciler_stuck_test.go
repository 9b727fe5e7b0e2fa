// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestTimeoutEndsTheContextOfARunWithACause(t *testing.T) {
	for _, d := range dequeuers {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				book := newLogBook()
				var results resultBook[string]
				var cause error
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: d.of(q),
					Reconcile: func(ctx context.Context, _ string) error {
						<-ctx.Done()
						cause = context.Cause(ctx)
						return ctx.Err()
					},
					Timeout:  10 * time.Second,
					Retry:    minutes,
					OnResult: results.add,
					Logger:   book.logger(),
				})
				q.Enqueue("a")
				time.Sleep(30 * time.Second)
				synctest.Wait()
				if cause != reconcile.ErrTimeout {
					t.Errorf("cause = %v, want %v", cause, reconcile.ErrTimeout)
				}
				r := results.only(t)
				if r.Outcome != reconcile.Retrying || r.Err != context.DeadlineExceeded || r.Failures != 1 || r.Duration != 10*time.Second {
					t.Errorf("result = %+v, want a failure after 10s", r)
				}
				book.onlyLine(t, slog.LevelInfo).mustSay(t, slog.LevelWarn, map[string]string{"item": "a"}, "deadline exceeded")
				run.end()
			})
		})
	}
}

func TestTimeoutZeroMeansNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		book := newLogBook()
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(ctx context.Context, _ string) error {
				if _, ok := ctx.Deadline(); ok {
					t.Error("the item's context has a deadline")
				}
				time.Sleep(1000 * time.Hour)
				return ctx.Err()
			},
			Logger: book.logger(),
		})
		q.Enqueue("a")
		time.Sleep(1001 * time.Hour)
		if q.Has("a") {
			t.Errorf("State(a) = %+v, want it done", q.State("a"))
		}
		if lines := book.from(slog.LevelInfo); len(lines) != 0 {
			t.Errorf("a long run was warned about: %v", lines)
		}
		run.end()
	})
}

func TestTimeoutCountsForEachRunAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var results resultBook[string]
		run := launch(t, &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(ctx context.Context, _ string) error { time.Sleep(9 * time.Second); return ctx.Err() },
			Timeout:   10 * time.Second,
			OnResult:  results.add,
			Logger:    unlogged(),
		})
		for _, item := range []string{"a", "b", "c"} {
			q.Enqueue(item)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, r := range results.all() {
			if r.Outcome != reconcile.Succeeded {
				t.Errorf("result = %+v, want succeeded", r)
			}
		}
		run.end()
	})
}

// The context of a run ends with the run, and so does its timer.
func TestTimeoutLeavesNothingBehindWhenTheRunEnds(t *testing.T) {
	for _, lease := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			plain := plainly(reconcile.NewQueue[string]())
			var q reconcile.Dequeuer[string] = plain
			if lease {
				q = leasing{plain, make(map[string]context.CancelCauseFunc)}
			}
			var of context.Context
			run := launch(t, &reconcile.Reconciler[string]{
				Queue:     q,
				Reconcile: func(ctx context.Context, _ string) error { of = ctx; return nil },
				Timeout:   time.Hour,
			})
			plain.q.Enqueue("a")
			synctest.Wait()
			if of.Err() != context.Canceled {
				t.Errorf("context of a run that has ended has error %v, want %v", of.Err(), context.Canceled)
			}
			began := time.Now()
			run.end()
			if took := time.Since(began); took != 0 {
				t.Errorf("Run returned %v after ctx was done, want at once", took)
			}
		})
	}
}

// warned checks the warnings about an item whose run began at one instant, was
// told to end at another, and did not end for a long time: the first comes at
// most so long after the context ended, the next ones each time the age of the
// run has doubled.
func warned(t *testing.T, book *logBook, item string, began, told time.Time, soon time.Duration, ended time.Time) {
	t.Helper()
	var ages []time.Duration
	for _, l := range book.from(slog.LevelWarn) {
		if l.Attrs["item"].String() != item {
			continue
		}
		l.mustSay(t, slog.LevelWarn, map[string]string{"reconciler": "buckets", "item": item})
		ages = append(ages, l.At.Sub(began))
	}
	if len(ages) == 0 {
		t.Fatalf("no warning about %s", item)
	}
	if first := began.Add(ages[0]).Sub(told); !within(first, 0, soon) {
		t.Errorf("first warning %v after the context ended, want at most %v", first, soon)
	}
	for i, age := range ages[1:] {
		if age != 2*ages[i] {
			t.Errorf("warnings at ages %v, want each at twice the age of the one before", ages)
			break
		}
	}
	if last := ages[len(ages)-1]; ended.Sub(began) > 2*last {
		t.Errorf("last warning at age %v, though the run went on until %v", last, ended.Sub(began))
	}
}

func TestRunThatIgnoresItsTimeoutIsWarnedAbout(t *testing.T) {
	for _, c := range []struct{ timeout, soon time.Duration }{
		{10 * time.Second, time.Second},
		{time.Hour, time.Second},
		{time.Second, time.Second},
		{100 * time.Millisecond, 100 * time.Millisecond},
		{time.Millisecond, time.Millisecond},
	} {
		for _, d := range dequeuers {
			t.Run(d.name+"/"+c.timeout.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := reconcile.NewQueue[string]()
					book := newLogBook()
					began := time.Now()
					lasts := 50 * c.timeout
					run := launch(t, &reconcile.Reconciler[string]{
						Queue: d.of(q),
						Reconcile: func(ctx context.Context, item string) error {
							if item == "stuck" {
								time.Sleep(lasts)
							}
							return nil
						},
						Name:    "buckets",
						Workers: 2,
						Timeout: c.timeout,
						Logger:  book.logger(),
					})
					q.Enqueue("stuck")
					q.Enqueue("quick")
					time.Sleep(lasts)
					synctest.Wait()
					warned(t, book, "stuck", began, began.Add(c.timeout), c.soon, began.Add(lasts))
					lines := len(book.from(slog.LevelWarn))
					time.Sleep(100 * lasts)
					if more := book.from(slog.LevelWarn)[lines:]; len(more) != 0 {
						t.Errorf("warnings after the run ended: %v", more)
					}
					for _, l := range book.from(slog.LevelWarn) {
						if l.Attrs["item"].String() != "stuck" {
							t.Errorf("warning about a run that ended in time: %v", l)
						}
					}
					run.end()
				})
			})
		}
	}
}

func TestTwoStuckRunsAreBothWarnedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		book := newLogBook()
		began := time.Now()
		run := launch(t, &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(context.Context, string) error { time.Sleep(time.Hour); return nil },
			Name:      "buckets",
			Workers:   2,
			Timeout:   10 * time.Second,
			Logger:    book.logger(),
		})
		q.Enqueue("one")
		time.Sleep(7 * time.Second)
		q.Enqueue("two")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for i, item := range []string{"one", "two"} {
			began := began.Add(time.Duration(i) * 7 * time.Second)
			warned(t, book, item, began, began.Add(10*time.Second), time.Second, began.Add(time.Hour))
		}
		run.end()
	})
}

func TestRunThatIgnoresShutdownIsWaitedForAndWarnedAbout(t *testing.T) {
	for _, grace := range []time.Duration{0, 3 * time.Second} {
		for _, err := range []error{nil, errBoom} {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				book := newLogBook()
				var results resultBook[string]
				began := time.Now()
				run := launch(t, &reconcile.Reconciler[string]{
					Queue:     q,
					Reconcile: func(context.Context, string) error { time.Sleep(time.Hour); return err },
					Name:      "buckets",
					Grace:     grace,
					OnResult:  results.add,
					Logger:    book.logger(),
				})
				q.Enqueue("stuck")
				time.Sleep(time.Second)
				run.end()
				if ended := time.Since(began); ended != time.Hour {
					t.Errorf("Run returned %v after the run began, want it to wait", ended)
				}
				warned(t, book, "stuck", began, began.Add(time.Second+grace), time.Second, began.Add(time.Hour))
				want := reconcile.Succeeded
				if err != nil {
					want = reconcile.Aborted
				}
				if r := results.only(t); r.Outcome != want {
					t.Errorf("result = %+v, want %s", r, want)
				}
			})
		}
	}
}

func TestRunThatEndsWhenToldIsNotWarnedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		book := newLogBook()
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Reconcile: untilDone, Timeout: time.Minute, Retry: reconcile.NoRetry, Logger: book.logger(),
		})
		q.Enqueue("a")
		time.Sleep(time.Hour)
		synctest.Wait()
		book.onlyLine(t, slog.LevelInfo).mustSay(t, slog.LevelError, nil) // it failed, and that is all
		q.Enqueue("b")
		time.Sleep(time.Second)
		book.clear()
		run.end()
		if lines := book.from(slog.LevelInfo); len(lines) != 0 {
			t.Errorf("shutdown was not silent: %v", lines)
		}
	})
}

func TestRunThatIgnoresALostLeaseIsWarnedAbout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := leasing{plainly(reconcile.NewQueue[string]()), make(map[string]context.CancelCauseFunc)}
		book := newLogBook()
		began := time.Now()
		run := launch(t, &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(context.Context, string) error { time.Sleep(time.Hour); return nil },
			Name:      "buckets",
			Logger:    book.logger(),
		})
		q.q.Enqueue("stuck")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		q.lose["stuck"](reconcile.ErrLeaseLost)
		time.Sleep(time.Hour)
		warned(t, book, "stuck", began, began.Add(5*time.Second), time.Second, began.Add(time.Hour))
		run.end()
	})
}

// A worker that served many runs keeps nothing of them: the timeout of one does
// not end another, however they interleave.
func TestTimeoutsOfManyRunsDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[int]()
		run := launch(t, &reconcile.Reconciler[int]{
			Queue: q,
			Reconcile: func(ctx context.Context, i int) error {
				began := time.Now()
				if i%3 == 0 {
					<-ctx.Done()
					if took := time.Since(began); took != time.Second || context.Cause(ctx) != reconcile.ErrTimeout {
						t.Errorf("context ended after %v by %v, want 1s by %v", took, context.Cause(ctx), reconcile.ErrTimeout)
					}
					return nil
				}
				time.Sleep(time.Duration(i%100) * 9 * time.Millisecond)
				if ctx.Err() != nil {
					t.Errorf("context of run %d ended after %v", i, time.Since(began))
				}
				return nil
			},
			Workers: 4,
			Timeout: time.Second,
			Logger:  unlogged(),
		})
		for i := range 500 {
			q.Enqueue(i)
		}
		time.Sleep(time.Hour)
		if n := q.Stats().InFlight + q.Len(); n != 0 {
			t.Errorf("%d items left", n)
		}
		run.end()
	})
}
