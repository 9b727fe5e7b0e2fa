// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var runKinds = map[string]runKind{
	"none": runNone, "ready": runReady, "offered": runOffered, "now": runNow,
	"within": runWithin, "settled": runSettled, "held": runHeld,
}

// parseRun reads a nextRun such as "held 2".
func parseRun(t *testing.T, text string) (r nextRun) {
	t.Helper()
	name, due, _ := strings.Cut(text, " ")
	kind, ok := runKinds[name]
	if due != "" {
		fmt.Sscan(due, &r.due)
	}
	if r.kind = kind; !ok || kind.delayed() != (r.due > 0) {
		t.Fatalf("%q is no next run", text)
	}
	return r
}

// TestRules has every pair that can meet. A row is the next run of an item, a
// column what is asked for or what the verdict is. "-" is the row unchanged.
func TestRules(t *testing.T) {
	for name, c := range map[string]struct {
		rule  func(old, other nextRun) nextRun
		table string
	}{
		"asked": {asked, `
			          | ready | now | within 1 | within 2 | within 3 | held 1 | held 2 | held 3
			none      | ready | now | within 1 | within 2 | within 3 | held 1 | held 2 | held 3
			ready     | -     | now | -        | -        | -        | -      | -      | -
			offered   | ready | now | -        | -        | -        | -      | -      | -
			now       | -     | -   | -        | -        | -        | -      | -      | -
			within 2  | ready | now | within 1 | -        | -        | held 1 | held 2 | -
			settled 2 | ready | now | within 1 | within 2 | within 2 | held 1 | held 2 | within 2
			held 2    | -     | now | -        | -        | -        | -      | -      | -`},
		"judged": {judged, `
			          | none | ready | within 1 | within 2 | within 3 | settled 1 | settled 2 | settled 3 | held 1 | held 2 | held 3
			none      | -    | ready | within 1 | within 2 | within 3 | settled 1 | settled 2 | settled 3 | held 1 | held 2 | held 3
			ready     | -    | -     | -        | -        | -        | -         | -         | -         | held 1 | held 2 | held 3
			now       | -    | -     | -        | -        | -        | -         | -         | -         | -      | -      | -
			within 2  | -    | ready | within 1 | -        | -        | within 1  | -         | -         | held 1 | held 2 | held 3
			held 2    | -    | ready | within 1 | -        | -        | within 1  | -         | -         | held 1 | held 2 | held 3`},
	} {
		lines := strings.Split(strings.TrimSpace(c.table), "\n")
		heads := strings.Split(lines[0], "|")[1:]
		for _, line := range lines[1:] {
			cells := strings.Split(line, "|")
			old := parseRun(t, strings.TrimSpace(cells[0]))
			for i, head := range heads {
				other, want := parseRun(t, strings.TrimSpace(head)), old
				if cell := strings.TrimSpace(cells[1+i]); cell != "-" {
					want = parseRun(t, cell)
				}
				if got := c.rule(old, other); got != want {
					t.Errorf("%s(%v, %v) = %v, want %v", name, old, other, got, want)
				}
			}
		}
	}
}

func TestNextRunOfAWait(t *testing.T) {
	no := errors.New("no")
	for _, c := range []struct {
		w    Wait
		want nextRun // at 100
	}{
		{Wait{}, nextRun{kind: runReady}},
		{Wait{Delay: -1}, nextRun{kind: runReady}},
		{Wait{Hold: true}, nextRun{kind: runReady}},
		{Wait{Settled: true}, nextRun{kind: runReady}},
		{Wait{Delay: 5}, nextRun{runWithin, 105}},
		{Wait{Delay: 5, Err: no}, nextRun{runWithin, 105}},
		{Wait{Delay: 5, Hold: true}, nextRun{runHeld, 105}},
		{Wait{Delay: 5, Hold: true, Settled: true}, nextRun{runHeld, 105}},
		{Wait{Delay: 5, Settled: true}, nextRun{runSettled, 105}},
		{Wait{Delay: 5, Settled: true, Err: no}, nextRun{runWithin, 105}},
		{Wait{Delay: math.MaxInt64}, nextRun{runWithin, math.MaxInt64 - 1}}, // not beyond the end of time
	} {
		if got := c.w.nextRun(100); got != c.want {
			t.Errorf("%+v.nextRun(100) = %v, want %v", c.w, got, c.want)
		}
	}
}

// late makes the timer of a queue late: it does not fire at all.
func late[T comparable](q *Queue[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer.Stop()
}

// Timers fire late on a busy machine. What is due counts as ready all the same,
// and goes before what becomes ready later. In the background waits "seen".
func TestLateTimerDoesNotShow(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		do   func(t *testing.T, q *Queue[string])
		want string // what can be taken then
	}{
		"nothing": {func(*testing.T, *Queue[string]) {}, "due due2 seen"},
		"State": {func(t *testing.T, q *Queue[string]) {
			if s, want := q.State("due2"), time.Now().Add(-time.Second); s.Phase != Ready || !s.Since.Equal(want) {
				t.Errorf("State(due2) = %+v, want it ready since %v", s, want)
			}
		}, "due due2 seen"},
		"Enqueue of another":         {func(_ *testing.T, q *Queue[string]) { q.Enqueue("new") }, "due due2 new seen"},
		"Enqueue of the second":      {func(_ *testing.T, q *Queue[string]) { q.Enqueue("due2") }, "due due2 seen"},
		"EnqueueNow of the second":   {func(_ *testing.T, q *Queue[string]) { q.EnqueueNow("due2") }, "due due2 seen"},
		"EnqueueAfter of the second": {func(_ *testing.T, q *Queue[string]) { q.EnqueueAfter("due2", time.Hour) }, "due due2 seen"},
		"Enqueue of what was offered": {func(_ *testing.T, q *Queue[string]) {
			q.Enqueue("seen")
			q.Enqueue("new")
		}, "due due2 seen new"},
		"Done, with a next run": {func(_ *testing.T, q *Queue[string]) { q.Enqueue("taken"); q.Done("taken") }, "due due2 taken seen"},
		"Requeue":               {func(_ *testing.T, q *Queue[string]) { q.Requeue("taken", Wait{}) }, "due due2 taken seen"},
		"EnqueueNow as the next run of an item in flight falls due": {func(_ *testing.T, q *Queue[string]) {
			q.EnqueueNow("taken, due")
			q.RequeueAfter("taken, due", time.Hour)
		}, "due due2 taken, due seen"},
		"Close": {func(_ *testing.T, q *Queue[string]) { q.Close() }, "due due2 seen"},
		"a worker that gives back one item and takes the next": {func(t *testing.T, q *Queue[string]) {
			k := taken[string]{item: "taken"}
			if err := q.exchange(ctx, &k, &verdict{}, q.now()); err != nil || k.item != "due" {
				t.Errorf("exchange() = %q, %v, want due", k.item, err)
			}
		}, "due2 taken seen"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue[string]()
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
				late(q)
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
				if err := Check(q); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Whoever notices that items are due, since the timer is late, wakes the
// consumers that wait: the timer may not come any more.
func TestLateTimerLetsNobodySleep(t *testing.T) {
	idle := func(q *Queue[string]) {
		go func() { _ = q.WaitIdle(context.Background()) }()
		synctest.Wait()
	}
	nothing := func(*Queue[string]) {}
	for name, c := range map[string]struct{ before, do func(q *Queue[string]) }{
		"State":                  {nothing, func(q *Queue[string]) { q.State("a") }},
		"Stats":                  {nothing, func(q *Queue[string]) { q.Stats() }},
		"All":                    {nothing, func(q *Queue[string]) { q.All()(func(string, State) bool { return false }) }},
		"EnqueueWithin":          {nothing, func(q *Queue[string]) { q.EnqueueWithin("later", time.Hour) }},
		"Enqueue":                {nothing, func(q *Queue[string]) { q.Enqueue("a") }},
		"Requeue":                {nothing, func(q *Queue[string]) { q.RequeueAfter("taken", time.Hour) }},
		"WaitIdle":               {nothing, idle},
		"Done, another in Idle":  {idle, func(q *Queue[string]) { q.Done("taken") }},
		"Offer, another in Idle": {idle, func(q *Queue[string]) { q.Offer("taken") }},
		"Close":                  {nothing, func(q *Queue[string]) { q.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue[string]()
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
				late(q)
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
func TestMoreAreDueThanOneCallPromotes(t *testing.T) {
	const n = 3*promoteMax + 10
	for name, after := range map[string]func(i int) time.Duration{
		"one after the other": func(i int) time.Duration { return time.Second + time.Duration(i) },
		"all at once":         func(int) time.Duration { return time.Second + n },
	} {
		for event, do := range map[string]func(q *Queue[int]) (want []int){ // of those that are behind the others
			"none":             func(*Queue[int]) []int { return nil },
			"Enqueue":          func(q *Queue[int]) []int { q.Enqueue(n - 5); return nil },
			"EnqueueNow":       func(q *Queue[int]) []int { q.EnqueueNow(n - 5); return nil },
			"EnqueueWithin":    func(q *Queue[int]) []int { q.EnqueueWithin(n-5, time.Hour); return nil },
			"Enqueue of a new": func(q *Queue[int]) []int { q.Enqueue(n); q.EnqueueNow(n + 1); return []int{n, n + 1} },
			"Requeue":          func(q *Queue[int]) []int { q.Requeue(-1, Wait{}); q.Enqueue(n); return []int{-1, n} },
			"Done, with a next run": func(q *Queue[int]) []int {
				q.Enqueue(-1)
				q.Done(-1)
				return []int{-1}
			},
			"Close": func(q *Queue[int]) []int { q.Close(); return nil },
		} {
			t.Run(name+", "+event, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := NewQueue[int]()
					q.Enqueue(-1)
					if _, err := q.Dequeue(t.Context()); err != nil {
						t.Fatal(err)
					}
					for i := range n {
						q.EnqueueWithin(i, after(i))
					}
					late(q)
					time.Sleep(time.Second + n)
					if got := q.Len(); got > promoteMax {
						t.Errorf("Len() = %d, want at most %d made ready by a call", got, promoteMax)
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
					if err := Check(q); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// The timer does not run for nothing: it stops with the last item that waits.
func TestTimerStopsWithTheLastDelay(t *testing.T) {
	for name, end := range map[string]func(*Queue[string]){
		"Remove":     func(q *Queue[string]) { q.Remove("a") },
		"EnqueueNow": func(q *Queue[string]) { q.EnqueueNow("a") },
		"Close":      func(q *Queue[string]) { q.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue[string]()
				q.EnqueueAfter("a", time.Hour)
				end(q)
				if q.timer.Stop() {
					t.Errorf("after %s the timer still runs", name)
				}
			})
		})
	}
}
