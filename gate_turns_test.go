// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// shared launches a loop for each name, which share a gate. Its journal has the
// name of each run.
func shared(t *testing.T, g *reconcile.Gate, workers int, takes func() time.Duration, names ...string) (*journal, map[string]*reconcile.Queue[int], func()) {
	t.Helper()
	d := newJournal()
	queues := make(map[string]*reconcile.Queue[int])
	var runs []*running
	for _, name := range names {
		q := reconcile.NewQueue[int]()
		queues[name] = q
		runs = append(runs, launch(t, &reconcile.Reconciler[int]{
			Queue: q, Gate: g, Workers: workers, Logger: unlogged(),
			Reconcile: func(context.Context, int) error {
				d.note("%s", name)
				time.Sleep(takes())
				return nil
			},
		}))
	}
	return d, queues, func() {
		t.Helper()
		for _, run := range runs {
			run.end()
		}
		mustBeIdle(t, g)
	}
}

// mustBeFair checks that no loop started a third run before each of the others
// had started one.
func (d *journal) mustBeFair(t *testing.T, from int, names ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, other := range names {
		since := make(map[string]int) // runs since the last of the other
		for i, line := range d.list[from:] {
			_, name, _ := strings.Cut(line, " ")
			if since[name]++; name == other {
				clear(since)
			} else if since[name] > 2 {
				t.Fatalf("turn %d is the third of %s, without one of %s:\n%s", i, name, other, strings.Join(d.list[from:], "\n"))
			}
		}
	}
}

func feedInts(q *reconcile.Queue[int], n int) {
	for i := range n {
		q.Enqueue(i)
	}
}

func TestGateSharedBudgetIsTakenByTurns(t *testing.T) {
	for _, workers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			g := &reconcile.Gate{Every: time.Second}
			quick := func() time.Duration { return time.Millisecond }
			d, queues, end := shared(t, g, workers, quick, "crowd", "one", "two")
			feedInts(queues["crowd"], 1000)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			before := d.len()
			if before != 11 {
				t.Fatalf("%d runs in 10s, want one each second: alone, a loop has all of the budget", before)
			}
			feedInts(queues["one"], 20)
			feedInts(queues["two"], 20)
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := d.len() - before; n != 60 {
				t.Errorf("%d runs in a minute, want 60", n)
			}
			d.mustBeFair(t, before+1, "crowd", "one", "two") // but for one item that was in hand
			end()
		})
	}
}

func TestGateSharedLimitIsTakenByTurns(t *testing.T) {
	var seed uint64
	defer tellSeed(t, &seed)
	for seed = range 20 {
		synctest.Test(t, func(t *testing.T) {
			g := &reconcile.Gate{Max: 3}
			r, mu := rand.New(rand.NewPCG(seed, 1)), sync.Mutex{}
			takes := func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(1 + r.IntN(1e9))
			}
			names := []string{"a", "b", "c", "d"}
			d, queues, end := shared(t, g, 5, takes, names...)
			for _, name := range names {
				feedInts(queues[name], 100)
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if d.len() < 100 {
				t.Errorf("%d runs, want more", d.len())
			}
			d.mustBeFair(t, g.Max, names...) // but for what began before all were fed
			for _, q := range queues {
				q.Close()
			}
			time.Sleep(time.Hour)
			if d.len() != 400 {
				t.Errorf("%d runs in the end, want 400", d.len())
			}
			end()
		})
	}
}

// Those with an item in hand are let in in the order in which they came; one that
// goes away leaves its turn to the next.
func TestGateTurnsAreFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(reconcile.Gate)
		var loops []*gated
		first := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "first@10s")
		for range 4 {
			loops = append(loops, launchGated(t, reconcile.Reconciler[string]{Gate: g}))
		}
		synctest.Wait()
		g.SetLimit(1)
		for i, l := range loops {
			l.q.Enqueue(fmt.Sprintf("%d@10s", i))
			synctest.Wait()
		}
		if s := g.Stats(); s.Waiting != 4 || s.InFlight != 1 {
			t.Errorf("Stats = %+v, want 4 waiting", s)
		}
		loops[1].end()
		time.Sleep(time.Minute)
		first.mustBe(t, "0s first@10s")
		loops[0].mustBe(t, "10s 0@10s")
		loops[1].mustBe(t)
		loops[2].mustBe(t, "20s 2@10s")
		loops[3].mustBe(t, "30s 3@10s")
		for _, l := range []*gated{first, loops[0], loops[2], loops[3]} {
			l.end()
		}
		mustBeIdle(t, g)
	})
}

// While somebody waits with an item in hand, nobody else takes one: it stays in its
// queue, where events are folded into it.
func TestGateDoorWaitsForThoseInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(reconcile.Gate)
		first := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "a@10s")
		inHand := launchGated(t, reconcile.Reconciler[string]{Gate: g})
		synctest.Wait()
		g.SetLimit(1)
		inHand.q.Enqueue("b@10s")
		synctest.Wait()
		behind := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "c")
		for _, until := range []time.Duration{5 * time.Second, 15 * time.Second} { // a runs, and then b
			time.Sleep(time.Until(first.begun.Add(until)))
			if s := behind.q.State("c"); s.Phase != reconcile.Ready {
				t.Errorf("State(c) = %+v after %v, want it ready", s, until)
			}
		}
		time.Sleep(time.Minute)
		first.mustBe(t, "0s a@10s")
		inHand.mustBe(t, "10s b@10s")
		behind.mustBe(t, "20s c")
		for _, l := range []*gated{first, inHand, behind} {
			l.end()
		}
		mustBeIdle(t, g)
	})
}

// One Reconciler, run several times at once: each Run has a door of its own.
func TestGateOfSeveralRunsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Every: time.Second, Burst: 2, Max: 3}
		q := reconcile.NewQueue[int]()
		feedInts(q, 10)
		d := newJournal()
		r := &reconcile.Reconciler[int]{
			Queue: q, Gate: g, Workers: 2, Logger: unlogged(),
			Reconcile: func(context.Context, int) error { d.note("run"); time.Sleep(5 * time.Second); return nil },
		}
		var runs []*running
		for range 4 {
			runs = append(runs, launch(t, r))
		}
		q.Close()
		for _, run := range runs {
			if err := run.wait(); err != nil {
				t.Error(err)
			}
		}
		d.mustBe(t, "0s run", "0s run", "1s run", "5s run", "5s run", "6s run", "10s run", "10s run", "11s run", "15s run")
		mustBeIdle(t, g)
	})
}
