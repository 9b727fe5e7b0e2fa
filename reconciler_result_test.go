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

// What was done before Enqueue, and in a run, is seen by the next run without
// any lock. The race detector would tell.
func TestReconcilerRunsOfAnItemHappenOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items, runs = 200, 5
		var world [items]int // one for each item, guarded by nothing
		q := reconcile.NewQueue[int]()
		run := launch(t, &reconcile.Reconciler[int]{
			Queue: q,
			Reconcile: func(_ context.Context, i int) error {
				if world[i]++; world[i] < i+runs {
					return reconcile.RequeueWithin(time.Duration(i % 3))
				}
				return nil
			},
			Workers: 4,
			Logger:  unlogged(),
		})
		for i := range items {
			go func() {
				world[i] = i
				q.Enqueue(i)
			}()
		}
		time.Sleep(time.Second)
		run.end()
		for i := range items {
			if world[i] != i+runs {
				t.Errorf("item %d ran %d times, want %d", i, world[i]-i, runs)
			}
		}
	})
}

func TestReconcilerResultTellsWaitedAndDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var results resultBook[string]
		took := map[string]time.Duration{"a": 5 * time.Second, "b": time.Millisecond, "c": 0, "due": 2 * time.Second, "again": time.Minute}
		r := &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(_ context.Context, item string) error { time.Sleep(took[item]); return nil },
			OnResult:  results.add,
		}
		q.Enqueue("a")
		time.Sleep(3 * time.Second) // nobody serves
		q.Enqueue("b")
		run := launch(t, r)
		q.EnqueueAfter("due", time.Second) // becomes ready while a runs
		time.Sleep(10 * time.Second)
		q.Enqueue("c") // taken at once
		synctest.Wait()
		q.EnqueueAfter("due", time.Hour) // waiting is not waiting for a worker
		time.Sleep(time.Hour + 2*time.Second)
		q.Enqueue("again")
		time.Sleep(time.Second)
		q.Enqueue("again") // while it runs: ready when given back
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []struct {
			item             string
			waited, duration time.Duration
		}{
			{"a", 3 * time.Second, 5 * time.Second},
			{"b", 5 * time.Second, time.Millisecond},
			{"due", 4*time.Second + time.Millisecond, 2 * time.Second},
			{"c", 0, 0},
			{"due", 0, 2 * time.Second},
			{"again", 0, time.Minute},
			{"again", 0, time.Minute},
		}
		all := results.all()
		if len(all) != len(want) {
			t.Fatalf("%d results, want %d: %+v", len(all), len(want), all)
		}
		for i, w := range want {
			if r := all[i]; r.Item != w.item || r.Waited != w.waited || r.Duration != w.duration {
				t.Errorf("result %d: %s waited %v, took %v; want %s, %v, %v", i, r.Item, r.Waited, r.Duration, w.item, w.waited, w.duration)
			}
		}
		run.end()
	})
}

// What OnResult and the Logger's handler take is no part of a run, but the next
// item waits for it.
func TestReconcilerResultLeavesOutTheTimeOfOnResultAndLog(t *testing.T) {
	for _, c := range []struct {
		level slog.Level
		each  time.Duration // for one item, with its run
	}{
		{slog.LevelError, 3 * time.Second},
		{slog.LevelDebug, 5 * time.Second}, // with the lines for start and outcome
	} {
		synctest.Test(t, func(t *testing.T) {
			q := reconcile.NewQueue[string]()
			var results resultBook[string]
			slow := writerFunc(func(line []byte) (int, error) { time.Sleep(time.Second); return len(line), nil })
			run := launch(t, &reconcile.Reconciler[string]{
				Queue:     q,
				Reconcile: func(context.Context, string) error { time.Sleep(2 * time.Second); return nil },
				OnResult: func(r reconcile.Result[string]) {
					results.add(r)
					time.Sleep(time.Second)
				},
				Logger: slog.New(slog.NewTextHandler(slow, &slog.HandlerOptions{Level: c.level})),
			})
			for _, item := range []string{"a", "b", "c"} {
				q.Enqueue(item)
			}
			time.Sleep(time.Minute)
			q.Enqueue("d")
			time.Sleep(time.Minute)
			synctest.Wait()
			for i, waited := range []time.Duration{0, c.each, 2 * c.each, 0} {
				if r := results.all()[i]; r.Waited != waited || r.Duration != 2*time.Second {
					t.Errorf("%s waited %v and took %v, want %v and 2s", r.Item, r.Waited, r.Duration, waited)
				}
			}
			run.end()
		})
	}
}

// An item waits from when it is given back, which a slow log puts off.
func TestReconcilerPlansCountFromWhenTheItemIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		slow := writerFunc(func(line []byte) (int, error) { time.Sleep(time.Second); return len(line), nil })
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(context.Context, string) error {
				time.Sleep(2 * time.Second)
				return reconcile.RequeueAfter(time.Hour)
			},
			Logger: slog.New(slog.NewTextHandler(slow, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		began := time.Now()
		q.Enqueue("a")
		time.Sleep(time.Minute)
		if s := q.State("a"); s.Since.Sub(began) != 4*time.Second || s.Due.Sub(s.Since) != time.Hour {
			t.Errorf("State(a) = %+v, want it to wait for an hour from 4s on", s)
		}
		run.end()
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A worker calls OnResult before it gives the item back. So the results of an
// item come in order, one at a time, and its state is still that of the run.
func TestReconcilerCallsOnResultBeforeTheItemIsGivenBack(t *testing.T) {
	for _, d := range dequeuers {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				journal := newJournal()
				runs := 0
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: d.of(q),
					Reconcile: func(context.Context, string) error {
						runs++
						journal.note("run %d", runs)
						return nil
					},
					OnResult: func(r reconcile.Result[string]) {
						if s := q.State(r.Item); s.Phase != reconcile.InFlight {
							t.Errorf("State in OnResult = %+v, want in flight", s)
						}
						journal.note("result begins")
						time.Sleep(time.Second)
						journal.note("result ends")
					},
					Workers: 3,
				})
				q.Enqueue("a")
				synctest.Wait()
				q.Enqueue("a") // during OnResult
				time.Sleep(time.Minute)
				journal.mustBe(t, "0s run 1", "0s result begins", "1s result ends", "1s run 2", "1s result begins", "2s result ends")
				run.end()
			})
		})
	}
}
