// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// CheckGate returns an error if the gate breaks one of the rules that stand at
// its mutex.
func CheckGate(g *Gate) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	limit, now, waiting := g.most(), g.now(), len(g.hands)+len(g.doors)
	at := int64(0)
	if waiting > 0 && g.place() {
		at = g.due()
	}
	switch {
	case g.running < 0, g.shut != (limit > 0 && g.running >= limit):
		return fmt.Errorf("%d runs of %d, and shut is %v", g.running, limit, g.shut)
	case g.moved && (limit < max(1, g.Min) || g.Max > 0 && limit > g.Max):
		return fmt.Errorf("the limit is %d, not from %d to %d", limit, g.Min, g.Max)
	case waiting > 0 && g.open(now):
		return fmt.Errorf("%d wait, though the gate is open", waiting)
	case g.armed != at:
		return fmt.Errorf("%d wait at %d, and the timer is armed for %d, want %d", waiting, now, g.armed, at)
	case g.woken != nil:
		return fmt.Errorf("a turn was left untold")
	}
	for _, t := range append(g.hands[:len(g.hands):len(g.hands)], g.doors...) {
		if !t.waiting || len(t.wake) > 0 {
			return fmt.Errorf("a turn in a list says waiting=%v, told=%v", t.waiting, len(t.wake) > 0)
		}
	}
	return nil
}

// Each step is a letter and a number: + lets in so many runs, in order; so many
// of the first end well by w, fail by f, or were aborted by a; the first is slow
// by s; = sets the limit; b0 is another Run that begins. The number behind a colon
// is the limit then.
func TestGateLimitAdapts(t *testing.T) {
	for _, c := range []struct {
		name      string
		low, high int
		steps     string
	}{
		{"nothing moves it without a slow result", 0, 0, "+8:0 w8:0 +8:0 f8:0"},
		{"half of those in flight", 0, 0, "+8:0 s1:4"},
		{"half of an odd number", 0, 0, "+7:0 s1:3"},
		{"half of one", 0, 0, "+1:0 s1:1"},
		{"half, but not below Min", 3, 0, "+4:0 s1:3"},
		{"half of those in flight, not of the limit", 0, 40, "+8:40 s1:4"},
		{"half, but it does not rise", 0, 0, "+10:0 =2:2 s1:2"},
		{"half, but it does not rise at all", 0, 40, "+10:40 =5:5 s1:5"},
		{"only once for those in flight", 0, 0, "+9:0 s1:4 s1:4 s1:4 w6:4 +4:4 s1:2"},
		{"those in flight say nothing good either", 0, 0, "+8:0 s1:4 w7:4 +4:4 w4:4 +4:4 w4:4 +4:4 w4:4 +4:4 w3:4 w1:5"},
		{"each limit's worth adds one", 0, 0, "+8:0 =2:2 w8:2 +2:2 w1:2 +1:2 w1:2 +1:2 w1:3 +2:3 w1:3 +1:3 w1:3 +1:3 w1:3 +1:3 w1:4"},
		{"but not if it is not in the way", 0, 0, "=4:4 +3:4 w3:4 +3:4 w3:4 +3:4 w3:4 +3:4 w3:4"},
		{"only those count that took the last place", 0, 0, "=3:3 +3:3 w3:3 +3:3 w3:3 +3:3 w2:3 w1:4"},
		{"failures and aborted runs do not count", 0, 0, "=1:1 +1:1 f1:1 +1:1 a1:1 +1:1 f1:1 +1:1 w1:2"},
		{"a slow result starts the count anew", 0, 0, "=2:2 +2:2 w1:2 +1:2 w1:2 +1:2 s1:1 w1:1 +1:1 w1:2"},
		{"SetLimit starts the count anew", 0, 0, "=2:2 +2:2 w2:2 =2:2 +2:2 w2:2 +2:2 w2:3"},
		{"a Run that begins does not", 0, 0, "=2:2 +2:2 b0:2 w1:2 +1:2 b0:2 w1:2 +1:2 b0:2 w1:3 b0:3"},
		{"up to Max and no further", 0, 2, "=1:1 +1:1 w1:2 +2:2 w2:2 +2:2 w2:2 +2:2 w2:2 s0:2"},
		{"down and up again", 0, 3, "+3:3 s1:1 w2:1 +1:1 w1:2 +2:2 w1:2 +1:2 w1:2 +1:2 w1:3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := &Gate{Min: c.low, Max: c.high}
			if err := g.begin(); err != nil {
				t.Fatal(err)
			}
			var runs []pass
			halved := uint64(0)
			for step := range strings.FieldsSeq(c.steps) {
				var verb byte
				var n, want int
				if _, err := fmt.Sscanf(step, "%c%d:%d", &verb, &n, &want); err != nil {
					t.Fatal(step, err)
				}
				if verb == '=' {
					g.SetLimit(n)
					n = 0
				}
				if verb == 'b' {
					if err := g.begin(); err != nil {
						t.Fatal(err)
					}
				}
				for range n {
					var one turn
					switch verb {
					case '+':
						if !g.try(&one) {
							t.Fatalf("%s: a run is not let in: %+v", step, g.Stats())
						}
						runs = append(runs, one.pass)
						continue
					case 'w':
						g.leave(runs[0], foundWell)
					case 's':
						fresh := runs[0].number > g.epoch
						g.leave(runs[0], foundSlow)
						if fresh {
							halved++
						}
					default:
						g.leave(runs[0], foundNothing)
					}
					runs = runs[1:]
				}
				if s := g.Stats(); s.Limit != want || s.InFlight != len(runs) || s.Halved != halved {
					t.Fatalf("%s: Stats = %+v, want %d in flight and %d halved", step, s, len(runs), halved)
				}
				if err := CheckGate(g); err != nil {
					t.Fatal(step, err)
				}
			}
		})
	}
}

// A run is let in later than it could, because a timer or a goroutine is late.
// Its token is that of the instant when it could, so the next is not late too. If
// all that was paused, one run more is not made up for.
func TestGateBudgetDoesNotDrift(t *testing.T) {
	for late, next := range map[time.Duration]time.Duration{
		300 * time.Millisecond: 700 * time.Millisecond,
		time.Second - 1:        1,
		time.Second:            time.Second,
		time.Hour:              time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			g := &Gate{Every: time.Second}
			if err := g.begin(); err != nil {
				t.Fatal(err)
			}
			var due time.Duration // of the next token
			for begin := time.Now(); time.Since(begin) < max(time.Minute, 10*late); {
				time.Sleep(due)
				if due > 0 {
					time.Sleep(late)
				}
				if !g.try(new(turn)) { // which waits since the beginning
					t.Fatalf("%v after the beginning there is no token", time.Since(begin))
				}
				if g.try(new(turn)) {
					t.Fatalf("%v after the beginning there are two", time.Since(begin))
				}
				want := next
				if due == 0 {
					want = time.Second
				}
				if due = g.Stats().Next; due != want {
					t.Fatalf("%v after the beginning, late by %v, the next token is due in %v, want %v", time.Since(begin), late, due, want)
				}
			}
		})
	}
}

// lateSource is a Queue whose workers come to run some time after they took an item.
type lateSource struct {
	*Queue[int]
	late time.Duration
}

func (s lateSource) first(ctx context.Context, g *grant[int]) error {
	defer time.Sleep(s.late)
	return s.Queue.first(ctx, g)
}

// At the door it is so as well: each run is late, and none later than the first.
func TestGateBudgetDoesNotDriftAtTheDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue[int]()
		for i := range 5 {
			q.Enqueue(i)
		}
		q.Close()
		begin := time.Now()
		var starts []time.Duration
		l, err := newLoop(&Reconciler[int]{
			Queue: q, Gate: &Gate{Every: time.Second},
			Reconcile: func(context.Context, int) error { starts = append(starts, time.Since(begin)); return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		l.source = lateSource{q, 300 * time.Millisecond}
		if err := l.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, at := range starts {
			if want := time.Duration(i)*time.Second + 300*time.Millisecond; at != want {
				t.Errorf("run %d starts at %v, want %v", i, at, want)
			}
		}
		if len(starts) != 5 {
			t.Errorf("%d runs, want 5", len(starts))
		}
	})
}

// Who comes as the token of another one is due, whose timer is late, does not pass
// the line.
func TestGateLineIsNotPassed(t *testing.T) {
	for range 50 { // in some of them the timer is late
		synctest.Test(t, func(t *testing.T) {
			g := &Gate{Every: time.Second}
			if err := g.begin(); err != nil {
				t.Fatal(err)
			}
			g.try(new(turn))
			first := &turn{wake: make(chan struct{}, 1)}
			go g.wait(&g.hands, first, nil, nil)
			time.Sleep(time.Second)
			if g.see() || g.try(new(turn)) {
				t.Error("let in before the one that waits with an item in hand")
			}
			time.Sleep(time.Minute) // until that one is let in
		})
	}
}

// The instant at which a run could start is that at which the limit let it, if
// that was in the way, and else the limit does not matter.
func TestGateBudgetHeedsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{Every: time.Second}
		if err := g.begin(); err != nil {
			t.Fatal(err)
		}
		g.SetLimit(2)
		begin := time.Now()
		at := func(d time.Duration, want bool) pass {
			t.Helper()
			time.Sleep(time.Until(begin.Add(d)))
			one := new(turn)
			if got := g.try(one); got != want {
				t.Errorf("at %v, try = %v, want %v", d, got, want)
			}
			return one.pass
		}
		first := at(0, true)
		time.Sleep(1200 * time.Millisecond)
		g.leave(first, foundNothing) // there was another place
		at(1300*time.Millisecond, true)
		at(1999*time.Millisecond, false)
		second := at(2*time.Second, true) // and not 2.3s
		time.Sleep(1500 * time.Millisecond)
		g.leave(second, foundNothing) // the limit was in the way until 3.5s
		at(3700*time.Millisecond, true)
		g.SetLimit(9)
		at(4499*time.Millisecond, false)
		at(4500*time.Millisecond, true)
	})
}

// The turn of an item in hand comes as it is given up. Nothing of it stays.
func TestGateTurnComesTooLate(t *testing.T) {
	g := &Gate{Every: time.Hour, Max: 1}
	if err := g.begin(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	close(over)
	one := &turn{wake: make(chan struct{}, 1)}
	for range 50 { // as the two ends of a select are chosen from by chance
		for _, c := range []struct{ done, lost chan struct{} }{{over, nil}, {nil, over}} {
			if g.enter(one, c.done, c.lost, nil) {
				t.Fatal("the turn was taken")
			}
			if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Next != 0 || len(one.wake) != 0 {
				t.Fatalf("after a turn that was given up, Stats = %+v, and the next was told: %v", s, len(one.wake) != 0)
			}
			if err := CheckGate(g); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// While nobody waits, no timer runs.
func TestGateTimerStopsWithTheLastThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{Every: time.Hour, Max: 2}
		if err := g.begin(); err != nil {
			t.Fatal(err)
		}
		first := new(turn)
		g.try(first)
		armed := func(want bool) {
			t.Helper()
			synctest.Wait()
			if err := CheckGate(g); err != nil {
				t.Error(err)
			}
			if g.timer == nil && !want {
				return
			}
			if got := g.timer.Stop(); got != want { // and is not set again
				t.Errorf("a timer runs: %v, want %v", got, want)
			}
			if want {
				g.timer.Reset(time.Duration(g.armed - g.now()))
			}
		}
		armed(false)
		wait := func(list *[]*turn) (end func()) {
			done, ended := make(chan struct{}), make(chan struct{})
			one := &turn{wake: make(chan struct{}, 1)}
			go func() {
				defer close(ended)
				if g.wait(list, one, done, nil) {
					t.Error("let in, though there is no token")
				}
			}()
			synctest.Wait()
			return func() { close(done); <-ended }
		}
		endDoor, endHand := wait(&g.doors), wait(&g.hands)
		armed(true)
		endDoor()
		armed(true)
		g.SetLimit(1) // it is in the way now
		armed(false)
		g.SetLimit(2)
		armed(true)
		endHand()
		armed(false)
		g.leave(first.pass, foundNothing)
	})
}

// A gate that many loops used keeps nothing of those that have ended.
func TestGateForgetsWhoWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &Gate{Max: 1}
		if err := g.begin(); err != nil {
			t.Fatal(err)
		}
		var first turn
		if !g.try(&first) {
			t.Fatal("the first run is not let in")
		}
		for range 5 {
			go g.wait(&g.doors, &turn{wake: make(chan struct{}, 1)}, nil, nil)
		}
		synctest.Wait()
		g.leave(first.pass, foundNothing)
		synctest.Wait()
		for i, kept := range g.doors[:cap(g.doors)] {
			if kept != nil {
				t.Errorf("the place of door %d still holds a turn", i)
			}
		}
	})
}
