// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// Timers fire late on a busy machine. What is due counts as ready all the same,
// and goes before what becomes ready later. In the background waits "seen".
func TestLateTimerKeepsDueTimes(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		do   func(t *testing.T, q *reconcile.Queue[string])
		want string // what can be taken then
	}{
		"nothing": {func(*testing.T, *reconcile.Queue[string]) {}, "due due2 seen"},
		"State": {func(t *testing.T, q *reconcile.Queue[string]) {
			if s, want := q.State("due2"), time.Now().Add(-time.Second); s.Phase != reconcile.PhaseReady || !s.Since.Equal(want) {
				t.Errorf("State(due2) = %+v, want it ready since %v", s, want)
			}
		}, "due due2 seen"},
		"Enqueue of another":         {func(_ *testing.T, q *reconcile.Queue[string]) { q.Enqueue("new") }, "due due2 new seen"},
		"Enqueue of the second":      {func(_ *testing.T, q *reconcile.Queue[string]) { q.Enqueue("due2") }, "due due2 seen"},
		"EnqueueNow of the second":   {func(_ *testing.T, q *reconcile.Queue[string]) { q.EnqueueNow("due2") }, "due due2 seen"},
		"EnqueueAfter of the second": {func(_ *testing.T, q *reconcile.Queue[string]) { q.EnqueueAfter("due2", time.Hour) }, "due due2 seen"},
		"Enqueue of what was offered": {func(_ *testing.T, q *reconcile.Queue[string]) {
			q.Enqueue("seen")
			q.Enqueue("new")
		}, "due due2 seen new"},
		"Done, with a next run": {func(_ *testing.T, q *reconcile.Queue[string]) { q.Enqueue("taken"); q.Done("taken") }, "due due2 taken seen"},
		"Requeue":               {func(_ *testing.T, q *reconcile.Queue[string]) { q.Requeue("taken", reconcile.RequeueOptions{}) }, "due due2 seen taken"},
		"EnqueueNow as the next run of an item in flight falls due": {func(_ *testing.T, q *reconcile.Queue[string]) {
			q.EnqueueNow("taken, due")
			q.RequeueAfter("taken, due", time.Hour)
		}, "due due2 taken, due seen"},
		"Close": {func(_ *testing.T, q *reconcile.Queue[string]) { q.Close() }, "due due2 seen"},
		"a worker that gives back one item and takes the next": {func(t *testing.T, q *reconcile.Queue[string]) {
			if next, err := reconcile.DoneAndTake(ctx, q, "taken"); next != "due" || err != nil {
				t.Errorf("took %q, %v, want due", next, err)
			}
		}, "due2 seen taken"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				q.Background = 8
				for _, item := range []string{"taken", "taken, due"} {
					q.Enqueue(item)
					if _, err := q.Dequeue(ctx); err != nil {
						t.Fatal(err)
					}
				}
				q.Offer("seen")
				q.EnqueueAfter("due", time.Second)
				q.EnqueueWithin("due2", time.Second+1)
				q.EnqueueAfter("taken, due", time.Second+1)
				reconcile.StopTimer(q) // late: it does not fire at all
				time.Sleep(2*time.Second + 1)
				c.do(t, q)
				for got := ""; got != c.want; got += " " {
					ctx, cancel := context.WithTimeout(ctx, time.Second)
					item, err := q.Dequeue(ctx)
					cancel()
					if got += item; err != nil || !strings.HasPrefix(c.want, got) {
						t.Fatalf("took %q, Dequeue() = %v, want %q", got, err, c.want)
					}
					if got == c.want {
						break
					}
				}
				if err := reconcile.Check(q); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Whoever notices that items are due, since the timer is late, wakes the
// consumers that wait: the timer may not come any more.
func TestLateTimerWakesAllConsumers(t *testing.T) {
	idle := func(q *reconcile.Queue[string]) {
		go func() { _ = q.WaitIdle(context.Background()) }()
		synctest.Wait()
	}
	nothing := func(*reconcile.Queue[string]) {}
	for name, c := range map[string]struct {
		before, do func(q *reconcile.Queue[string])
	}{
		"State":                  {nothing, func(q *reconcile.Queue[string]) { q.State("a") }},
		"Stats":                  {nothing, func(q *reconcile.Queue[string]) { q.Stats() }},
		"All":                    {nothing, func(q *reconcile.Queue[string]) { q.All()(func(string, reconcile.State) bool { return false }) }},
		"EnqueueWithin":          {nothing, func(q *reconcile.Queue[string]) { q.EnqueueWithin("later", time.Hour) }},
		"Enqueue":                {nothing, func(q *reconcile.Queue[string]) { q.Enqueue("a") }},
		"Requeue":                {nothing, func(q *reconcile.Queue[string]) { q.RequeueAfter("taken", time.Hour) }},
		"WaitIdle":               {nothing, idle},
		"Done, another in Idle":  {idle, func(q *reconcile.Queue[string]) { q.Done("taken") }},
		"Offer, another in Idle": {idle, func(q *reconcile.Queue[string]) { q.Offer("taken") }},
		"Close":                  {nothing, func(q *reconcile.Queue[string]) { q.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				q.Enqueue("taken")
				if _, err := q.Dequeue(t.Context()); err != nil {
					t.Fatal(err)
				}
				took := make(chan string, 2)
				for range 2 {
					go func() {
						item, _ := q.Dequeue(t.Context())
						took <- item
						q.Done(item)
					}()
				}
				c.before(q)
				synctest.Wait()
				q.EnqueueAfter("a", time.Second)
				q.EnqueueAfter("b", time.Second)
				reconcile.StopTimer(q) // late: it does not fire at all
				time.Sleep(2 * time.Second)
				c.do(q)
				synctest.Wait()
				got := []string{}
				for len(took) > 0 {
					got = append(got, <-took)
				}
				if slices.Sort(got); !slices.Equal(got, []string{"a", "b"}) {
					t.Errorf("two consumers that waited took %q, want a and b", got)
				}
				q.Done("taken")
				q.Close() // for WaitIdle
			})
		})
	}
}

// No call makes more than promoteMax items ready. The order is the same as if it
// did, whatever comes before the rest is ready too.
func TestOrderIsKeptWhenMoreAreDueThanOneCallPromotes(t *testing.T) {
	const n = 3*reconcile.PromoteMax + 10
	for name, after := range map[string]func(i int) time.Duration{
		"one after the other": func(i int) time.Duration { return time.Second + time.Duration(i) },
		"all at once":         func(int) time.Duration { return time.Second + n },
	} {
		for event, do := range map[string]func(q *reconcile.Queue[int]) (want []int){ // of those that are behind the others
			"none":             func(*reconcile.Queue[int]) []int { return nil },
			"Enqueue":          func(q *reconcile.Queue[int]) []int { q.Enqueue(n - 5); return nil },
			"EnqueueNow":       func(q *reconcile.Queue[int]) []int { q.EnqueueNow(n - 5); return nil },
			"EnqueueWithin":    func(q *reconcile.Queue[int]) []int { q.EnqueueWithin(n-5, time.Hour); return nil },
			"Enqueue of a new": func(q *reconcile.Queue[int]) []int { q.Enqueue(n); q.EnqueueNow(n + 1); return []int{n, n + 1} },
			"Requeue": func(q *reconcile.Queue[int]) []int {
				q.Requeue(-1, reconcile.RequeueOptions{})
				q.Enqueue(n)
				return []int{-1, n}
			},
			"Done, with a next run": func(q *reconcile.Queue[int]) []int {
				q.Enqueue(-1)
				q.Done(-1)
				return []int{-1}
			},
			"Requeue with a delay": func(q *reconcile.Queue[int]) []int {
				q.Requeue(-1, reconcile.RequeueOptions{Delay: time.Hour})
				q.EnqueueAfter(n, time.Hour)
				return nil
			},
			"Close": func(q *reconcile.Queue[int]) []int { q.Close(); return nil },
		} {
			t.Run(name+", "+event, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := reconcile.NewQueue[int]()
					q.Enqueue(-1)
					if _, err := q.Dequeue(t.Context()); err != nil {
						t.Fatal(err)
					}
					for i := range n {
						q.EnqueueWithin(i, after(i))
					}
					reconcile.StopTimer(q) // late: it does not fire at all
					time.Sleep(time.Second + n)
					if got := q.Len(); got > reconcile.PromoteMax {
						t.Errorf("Len() = %d, want at most %d made ready by a call", got, reconcile.PromoteMax)
					}
					behind := do(q)
					for i := range n + len(behind) {
						want := i
						if i >= n {
							want = behind[i-n]
						}
						item, err := q.Dequeue(t.Context())
						if item != want || err != nil {
							t.Fatalf("Dequeue %d: %d, %v, want %d", i, item, err, want)
						}
					}
					if got := q.Len(); got > 0 {
						t.Errorf("%d more items are ready, want none", got)
					}
					if err := reconcile.Check(q); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// An item that was due before others, and is given back to run again while they are left
// to be promoted, still runs before them.
func TestRequeuedItemThatWasDueEarlierGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3 * reconcile.PromoteMax
		q := reconcile.NewQueue[int]()
		q.Enqueue(-1)
		if _, err := q.Dequeue(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if i == n-5 {
				q.EnqueueWithin(-1, time.Second+time.Duration(i))
			}
			q.EnqueueWithin(i, time.Second+time.Duration(i))
		}
		reconcile.StopTimer(q) // late: it does not fire at all
		time.Sleep(time.Second + n)
		q.Requeue(-1, reconcile.RequeueOptions{})
		for i := range n {
			if i == n-5 {
				if item, err := q.Dequeue(t.Context()); item != -1 || err != nil {
					t.Fatalf("Dequeue %d: %d, %v, want the one that was given back", i, item, err)
				}
			}
			if item, err := q.Dequeue(t.Context()); item != i || err != nil {
				t.Fatalf("Dequeue %d: %d, %v", i, item, err)
			}
		}
	})
}

// The timer does not run for nothing: it stops with the last item that waits.
func TestTimerStopsWithTheLastDelay(t *testing.T) {
	for name, end := range map[string]func(*reconcile.Queue[string]){
		"Remove":     func(q *reconcile.Queue[string]) { q.Remove("a") },
		"EnqueueNow": func(q *reconcile.Queue[string]) { q.EnqueueNow("a") },
		"Close":      func(q *reconcile.Queue[string]) { q.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				q.EnqueueAfter("a", time.Hour)
				end(q)
				if reconcile.StopTimer(q) {
					t.Errorf("after %s the timer still runs", name)
				}
			})
		})
	}
}

// The base of the clock is the time at which the queue was made: one that is moved
// back loses its monotonic reading on a machine that boots in 1970, and all delays end
// when the time of day is set.
func TestClockOfTheQueueIsMonotonic(t *testing.T) {
	before := time.Now()
	base := reconcile.BaseOf(reconcile.NewQueue[string]())
	if base.Before(before) || time.Since(base) < 0 || !strings.Contains(base.String(), " m=") {
		t.Errorf("the base is %v, want a time after %v with a monotonic reading", base, before)
	}
}
