// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func nothing(context.Context, string) error { return nil }

func TestReconcilerRunNamesTheFieldThatIsWrong(t *testing.T) {
	q := reconcile.NewQueue[string]()
	for field, r := range map[string]*reconcile.Reconciler[string]{
		"Queue":     {Reconcile: nothing},
		"Reconcile": {Queue: q},
		"Workers":   {Queue: q, Reconcile: nothing, Workers: -1},
		"Timeout":   {Queue: q, Reconcile: nothing, Timeout: -time.Second},
		"Grace":     {Queue: q, Reconcile: nothing, Grace: -time.Second},
	} {
		err := r.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("Run with a wrong %s = %v, want an error that names it", field, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "reconcile: ") {
			t.Errorf("Run with a wrong %s = %q, want it to say who speaks", field, err)
		}
	}
}

func TestReconcilerRunReturnsAtOnceWhenCtxIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		book := newLogBook()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(context.Context, string) error { t.Error("an item was run"); return nil },
			Logger:    book.logger(),
		}
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run(done ctx) = %v, want nil", err)
		}
		if s := q.State("a"); s.Phase != reconcile.Ready {
			t.Errorf("State(a) = %+v, want it still ready", s)
		}
		if lines := book.from(slog.LevelDebug); len(lines) != 0 {
			t.Errorf("shutdown was not silent: %v", lines)
		}
	})
}

func TestReconcilerRunEndsWhenTheQueueIsClosedAndEmpty(t *testing.T) {
	for _, d := range dequeuers {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				journal := newJournal()
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: d.of(q),
					Reconcile: func(_ context.Context, item string) error {
						journal.note("%s begins", item)
						time.Sleep(time.Second)
						journal.note("%s ends", item)
						return nil
					},
					Workers: 2,
				})
				for _, item := range []string{"a", "b", "c"} {
					q.Enqueue(item)
				}
				q.EnqueueAfter("later", time.Millisecond)
				synctest.Wait()
				q.Enqueue("b") // again, while it is in flight
				q.Close()
				if err := run.wait(); err != nil {
					t.Errorf("Run = %v, want nil", err)
				}
				if took := time.Since(journal.begun); took != 2*time.Second {
					t.Errorf("Run took %v, want 2s: it waits for its runs, and returns then", took)
				}
				if len(journal.list) != 2*4 {
					t.Errorf("runs: %q, want a, b, c and b again", journal.list)
				}
			})
		})
	}
}

func TestReconcilerCanRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var results resultBook[string]
		r := &reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, OnResult: results.add}
		for i := range 3 {
			run := launch(t, r)
			q.Enqueue(fmt.Sprint("item ", i))
			synctest.Wait()
			if got := results.last(t).Item; got != fmt.Sprint("item ", i) {
				t.Errorf("call %d of Run ran %q", i+1, got)
			}
			run.end()
		}
	})
}

func TestReconcilersShareAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var mu sync.Mutex
		ran := make(map[string]int)
		r := &reconcile.Reconciler[string]{Queue: q, Reconcile: func(_ context.Context, item string) error {
			mu.Lock()
			defer mu.Unlock()
			ran[item]++
			return nil
		}}
		one, two := launch(t, r), launch(t, r) // also the same one twice
		want := make(map[string]int)
		for i := range 100 {
			want[fmt.Sprint(i)] = 1
			q.Enqueue(fmt.Sprint(i))
		}
		one.end()
		two.end()
		// What is left is left to the next.
		three := launch(t, r)
		synctest.Wait()
		three.end()
		if !maps.Equal(ran, want) {
			t.Errorf("runs by item = %v, want each once", ran)
		}
	})
}

// busiest runs n items of a second each, and reports the most at once.
func busiest(t *testing.T, r *reconcile.Reconciler[int], n int) (most int) {
	q := reconcile.NewQueue[int]()
	for i := range n {
		q.Enqueue(i)
	}
	q.Close()
	var mu sync.Mutex // guards now and most
	now := 0
	r.Queue = q
	r.Reconcile = func(context.Context, int) error {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		time.Sleep(time.Second)
		mu.Lock()
		now--
		mu.Unlock()
		return nil
	}
	began := time.Now()
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	workers := max(r.Workers, 1)
	if took, want := time.Since(began), time.Duration((n+workers-1)/workers)*time.Second; took != want {
		t.Errorf("%d items with Workers %d took %v, want %v", n, r.Workers, took, want)
	}
	return most
}

func TestReconcilerWorkersBoundWhatRunsAtOnce(t *testing.T) {
	for _, c := range []struct{ workers, items, want int }{
		{0, 3, 1}, {1, 3, 1}, {2, 7, 2}, {5, 12, 5}, {8, 3, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := busiest(t, &reconcile.Reconciler[int]{Workers: c.workers}, c.items); got != c.want {
				t.Errorf("Workers %d: %d items at once, want %d", c.workers, got, c.want)
			}
		})
	}
}

func TestReconcilerNeverRunsAnItemTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items, seed = 5, 7
		q := reconcile.NewQueue[int]()
		var running [items]atomic.Int32
		var lastEvent, lastRun [items]atomic.Int64 // by a clock of events
		var clock atomic.Int64
		drawn := randoms(seed, 100, items)
		r := &reconcile.Reconciler[int]{
			Queue: q,
			Reconcile: func(_ context.Context, i int) error {
				if running[i].Add(1) != 1 {
					t.Errorf("item %d runs twice at once", i)
				}
				lastRun[i].Store(clock.Add(1))
				time.Sleep(time.Duration(drawn[i].IntN(5)) * time.Millisecond)
				running[i].Add(-1)
				switch drawn[i].IntN(6) {
				case 0:
					return errBoom
				case 1:
					return reconcile.RequeueWithin(3 * time.Millisecond)
				case 2:
					panic("boom")
				}
				return nil
			},
			Workers: 4,
			Retry:   reconcile.Backoff(time.Millisecond, 4*time.Millisecond),
			Logger:  unlogged(),
		}
		run := launch(t, r)
		var feeders sync.WaitGroup
		for n := range 3 {
			feeders.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(n)))
				for range 500 {
					i := random.IntN(items)
					lastEvent[i].Store(clock.Add(1))
					q.Enqueue(i)
					time.Sleep(time.Duration(random.IntN(4)) * time.Millisecond)
				}
			})
		}
		feeders.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		for i := range items {
			if lastRun[i].Load() < lastEvent[i].Load() {
				t.Errorf("item %d: no run started after its last event", i)
			}
		}
		run.end()
	})
}
