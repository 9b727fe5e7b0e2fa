// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/reconkernel/reconcile"
)

func TestGateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Max: 2}
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 5},
			"a@2s", "b@3s", "c@10s", "d@10s", "e@10s", "f@10s", "g@10s", "h@10s")
		synctest.Wait()
		if diff := cmp.Diff(reconcile.GateStats{Limit: 2, InFlight: 2, Waiting: 1}, g.Stats()); diff != "" {
			t.Errorf("Stats (-want +got):\n%s", diff)
		}
		time.Sleep(10 * time.Second)
		l.mustHold(t, "0s a@2s", "0s b@3s", "2s c@10s", "3s d@10s")
		l.end()
		mustBeIdle(t, g)
	})
}

// SetLimit is the number of workers, changed while they work.
func TestGateSetLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(reconcile.Gate)
		g.SetLimit(1)
		var items []string
		for i := range 9 {
			items = append(items, strconv.Itoa(i)+"@10s")
		}
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 6}, items...)
		at := func(d time.Duration, limit, inFlight int) {
			t.Helper()
			time.Sleep(d)
			g.SetLimit(limit)
			synctest.Wait()
			if s := g.Stats(); s.Limit != limit || s.InFlight != inFlight {
				t.Errorf("after SetLimit(%d): Stats = %+v, want %d in flight", limit, s, inFlight)
			}
			if err := reconcile.CheckGate(g); err != nil {
				t.Error(err)
			}
		}
		at(1*time.Second, 3, 3) // 1 and 2 start at once
		at(1*time.Second, 1, 3) // 0 to 2 go on until 10s and 11s
		at(7*time.Second, 2, 3)
		at(3*time.Second, 9, 6) // 12s: 3 and 4 since 11s
		time.Sleep(20 * time.Second)
		l.mustHold(t, "0s 0@10s", "1s 1@10s", "1s 2@10s", "11s 3@10s", "11s 4@10s",
			"12s 5@10s", "12s 6@10s", "12s 7@10s", "12s 8@10s")
		l.end()
		mustBeIdle(t, g)
	})
}

func TestGateSetLimitStaysWithinMinAndMax(t *testing.T) {
	for _, c := range []struct{ low, high, set, want int }{
		{0, 0, 0, 1},
		{0, 0, -5, 1},
		{0, 0, 7, 7},
		{3, 5, 2, 3},
		{3, 5, 4, 4},
		{3, 5, 6, 5},
		{3, 0, 100, 100},
		{0, 5, 0, 1},
	} {
		g := &reconcile.Gate{Min: c.low, Max: c.high}
		if got := g.Stats().Limit; got != c.high {
			t.Errorf("Min %d, Max %d: the limit is %d at first, want Max", c.low, c.high, got)
		}
		g.SetLimit(c.set)
		if got := g.Stats().Limit; got != c.want {
			t.Errorf("Min %d, Max %d: the limit is %d after SetLimit(%d), want %d", c.low, c.high, got, c.set, c.want)
		}
	}
}

// The limit is kept for the next Run, but not beyond bounds that were changed.
func TestGateLimitMeetsNewBounds(t *testing.T) {
	g := new(reconcile.Gate)
	g.SetLimit(9)
	for _, c := range []struct{ low, high, want int }{{0, 0, 9}, {0, 8, 8}, {2, 9, 8}, {10, 20, 10}} {
		g.Min, g.Max = c.low, c.high
		q := reconcile.NewQueue[string]()
		q.Close()
		if err := (&reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, Gate: g}).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := g.Stats().Limit; got != c.want {
			t.Errorf("Min %d, Max %d: the limit is %d, want %d", c.low, c.high, got, c.want)
		}
	}
}

// A worker waits for an item when the limit falls. It takes the next, and runs it
// when there is a place again.
func TestGateLimitFallsWhileAWorkerWaits(t *testing.T) {
	for _, d := range dequeuers {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &reconcile.Gate{Max: 3}
				q := reconcile.NewQueue[string]()
				l := launchGated(t, reconcile.Reconciler[string]{Queue: d.of(q), Gate: g, Workers: 3})
				q.Enqueue("a@10s")
				time.Sleep(time.Second)
				g.SetLimit(1)
				q.Enqueue("b")
				q.Enqueue("c")
				synctest.Wait()
				if b, c := q.State("b").Phase, q.State("c").Phase; b != reconcile.InFlight || c != reconcile.Ready {
					t.Errorf("b is %v and c %v, want one of them in hand", b, c)
				}
				if s := g.Stats(); s.InFlight != 1 || s.Waiting != 1 {
					t.Errorf("Stats = %+v, want 1 in flight and 1 waiting", s)
				}
				time.Sleep(time.Hour)
				l.mustBe(t, "0s a@10s", "10s b", "10s c")
				for _, r := range l.results.all() {
					if want := 9 * time.Second; r.Item == "b" && (r.Waited != want || r.Duration != 0) {
						t.Errorf("b waited %v and took %v, want %v and 0s", r.Waited, r.Duration, want)
					}
				}
				l.end()
				mustBeIdle(t, g)
			})
		})
	}
}

// Which results add to the limit, and which halve it.
func TestGateLimitAfterEachOutcome(t *testing.T) {
	for item, want := range map[string]int{
		"a": 6, "a=plan": 6, "a=fail": 5, "a=refuse": 5, "a=panic": 5, "a@1h": 5, "a=busy": 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			g := &reconcile.Gate{Slow: busy}
			g.SetLimit(5)
			others := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 4}, "1@9h", "2@9h", "3@9h", "4@9h")
			synctest.Wait()
			for range 5 { // alone in taking the last place
				if item == "a=busy" {
					others.end()
				}
				l := launchGated(t, reconcile.Reconciler[string]{Gate: g}, item)
				synctest.Wait()
				l.end()
			}
			if got := g.Stats().Limit; got != want {
				t.Errorf("the limit is %d after five of %s, want %d", got, item, want)
			}
			others.end()
			mustBeIdle(t, g)
		})
	}
}

// A run that ends early because its item was enqueued again says nothing of the
// far side.
func TestGateLimitAfterAnOutdatedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Slow: busy}
		g.SetLimit(1)
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		var limits []int
		runs := 0
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Gate: g, Logger: unlogged(),
			Reconcile: func(ctx context.Context, item string) error {
				if runs++; runs > 3 {
					return nil
				}
				ctx, stop := reconcile.UntilChanged(ctx)
				defer stop()
				q.Enqueue(item)
				<-ctx.Done()
				return context.Cause(ctx)
			},
			OnResult: func(reconcile.Result[string]) { limits = append(limits, g.Stats().Limit) },
		})
		synctest.Wait()
		run.end()
		if got := fmt.Sprint(limits); got != "[1 1 1 2]" {
			t.Errorf("limits after three outdated runs and a good one: %v, want [1 1 1 2]", got)
		}
	})
}

// A far side can do so many at once, and answers 429 to the others.
func TestGateLimitSettlesOnWhatTheFarSideCanDo(t *testing.T) {
	for _, c := range []struct{ capacity, low, high, from, to int }{
		// By itself it goes between 4 and 9. But who ends in the same instant as
		// a refusal, and has left by then, is up to the scheduler.
		{8, 0, 0, 2, 16},
		{8, 0, 6, 6, 6}, // never in the way of the far side
		{8, 6, 0, 6, 16},
		{1, 0, 0, 1, 2},
		{20, 0, 0, 5, 17}, // as many as there are workers, and one more
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &reconcile.Gate{Min: c.low, Max: c.high, Slow: busy}
				q := reconcile.NewQueue[int]()
				for i := range 1000 {
					q.Enqueue(i)
				}
				far := make(chan bool, c.capacity)
				seen := make(map[int]bool)
				served, begin := 0, time.Now()
				r := &reconcile.Reconciler[int]{
					Queue: q, Gate: g, Workers: 16, Logger: unlogged(),
					Reconcile: func(_ context.Context, i int) error {
						select {
						case far <- true:
						default:
							time.Sleep(time.Millisecond) // it takes a while to refuse
							return fmt.Errorf("ask: %w", errBusy)
						}
						time.Sleep(100*time.Millisecond + time.Duration(i%7)*time.Millisecond)
						<-far
						return reconcile.RequeueAfter(0)
					},
					Retry: func(error, int) (time.Duration, bool) { return time.Second, true },
				}
				var results resultBook[int]
				r.OnResult = results.add
				run := launch(t, r)
				for range 600 {
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					if err := reconcile.CheckGate(g); err != nil {
						t.Fatal(err)
					}
					if time.Since(begin) > 30*time.Second {
						seen[g.Stats().Limit] = true
					}
				}
				for _, r := range results.all() {
					if r.Outcome == reconcile.Requeued {
						served++
					}
				}
				for limit := range seen {
					if limit != 0 && (limit < c.from || limit > c.to) {
						t.Errorf("the limit was %d, want %d to %d: %v", limit, c.from, c.to, seen)
					}
				}
				// Without a limit, most of what is asked is refused; with one of
				// half the capacity, half of the capacity is used at least.
				if most := 60 * min(c.capacity, 16) * 1000 / 103; served < most*6/10 {
					t.Errorf("%d served in a minute, want most of %d", served, most)
				}
				run.end()
				mustBeIdle(t, g)
			})
		})
	}
}
