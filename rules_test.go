// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/lockstep"
	"github.com/reconkernel/reconcile/internal/model"
)

// The tests down to FuzzQueue check the queue against a slow, obvious model of it:
// every cell of the state table, and programs that nobody thought of. Those after it
// are about timers that are late, as on a busy machine.

// TestQueueTable runs every cell of internal/model/table.md, and once more for
// a queue without a Background.
func TestQueueTable(t *testing.T) {
	cells := model.Cells()
	if len(cells) == 0 {
		t.Fatal("no table")
	}
	for _, background := range []int{0, 8} {
		for _, c := range cells {
			if background == 0 {
				c.Entry = strings.ReplaceAll(c.Entry, "offered", "ready")
				c.Want = strings.ReplaceAll(c.Want, "offered", "ready")
			}
			t.Run(fmt.Sprintf("Background %d/%s", background, c.Name()), func(t *testing.T) {
				if got := standing(t, background, c.Setup); got != c.Entry {
					t.Fatalf("set up by %v: %q, want %q", c.Setup, got, c.Entry)
				}
				if got := standing(t, background, append(c.Setup, c.Op)); got != c.Want {
					t.Errorf("%v of %q: %q, want %q", c.Op, c.Entry, got, c.Want)
				}
			})
		}
	}
}

// standing carries the operations out on a new queue and says how "x" stands
// then, in the words of the table. What follows a run in flight shows when it
// is given back: with Done, and once more with a hold. That a ready item is in
// the background shows when an event overtakes it.
func standing(t *testing.T, background int, ops []model.Op[string]) (s string) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Background = background
		play(t, q, ops)
		if s = resting(q); s == "ready" {
			q.Enqueue("y")
			if first, err := q.Dequeue(t.Context()); first == "y" && err == nil {
				s = "offered"
			}
		}
		if s != "in flight" {
			return
		}
		again := q.State("x").Again
		q.Done("x")
		if next := resting(q); next != "none" {
			s = "in flight, " + next + " next"
		}
		if got := s != "in flight"; got != again {
			t.Errorf("State.Again: %t, but after Done it is %q", again, resting(q))
		}
	})
	if s != "in flight, ready next" {
		return s
	}
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Background = background
		play(t, q, ops)
		q.RequeueAfter("x", 1000*time.Hour)
		if resting(q) == "ready" {
			s = "in flight, now next"
		}
	})
	return s
}

// resting says how "x" stands, as far as State says.
func resting(q *reconcile.Queue[string]) string {
	s := q.State("x")
	kind := "within"
	switch {
	case s.Phase == reconcile.Idle:
		return "none"
	case s.Phase != reconcile.Waiting:
		return s.Phase.String()
	case s.Hold:
		kind = "held"
	case s.Settled:
		kind = "settled"
	}
	return fmt.Sprintf("%s %gh", kind, time.Until(s.Due).Hours())
}

// play carries operations out. A Dequeue that finds nothing waits for a while
// and is canceled.
func play(t *testing.T, q *reconcile.Queue[string], ops []model.Op[string]) {
	for i, o := range ops {
		if o.Verb == model.Close && i == len(ops)-1 {
			q.Enqueue("y") // for standing, which would come too late
		}
		if _, ok := o.Do(lockstep.On(q)); ok {
			continue
		}
		if o.Verb != model.Dequeue {
			t.Fatalf("the table has no %v", o)
		}
		ctx, cancel := context.WithCancel(t.Context())
		startDequeue(ctx, q) // what it takes shows in the state
		cancel()
		synctest.Wait()
	}
}

// TestQueueTable does not see whether a Dequeue that took nothing waits.
func TestQueueTableDequeueWaits(t *testing.T) {
	for _, c := range model.Cells() {
		if c.Op.Verb != model.Dequeue || c.Closed || c.Entry == "ready" || c.Entry == "offered" {
			continue
		}
		runQueue(t, c.Name(), func(t *testing.T, q *reconcile.Queue[string]) {
			play(t, q, c.Setup)
			ctx, cancel := context.WithCancel(t.Context())
			waiting := startDequeue(ctx, q)
			mustWait(t, waiting)
			cancel()
			if d := mustReturn(t, waiting); d.err != context.Canceled {
				t.Errorf("Dequeue: %q, %v, want %v", d.item, d.err, context.Canceled)
			}
		})
	}
}

// A program is a byte for the Background of a queue, then operations on it, two
// bytes each, so that a fuzzer can write one: the verb and the item, then what
// the verb needs.
type program []byte

// errModel is a failure: only ErrAborted itself aborts a run.
var errModel = fmt.Errorf("the run failed: %w", reconcile.ErrAborted)

// fuzzItems are few, so that the operations meet.
var fuzzItems = []string{"a", "b", "c", "d", "e"}

// fuzzDelays repeat and add up, so that runs fall due together; the others are
// the edges.
var fuzzDelays = []time.Duration{
	0, time.Hour, 2 * time.Hour, 3 * time.Hour, time.Hour, 2 * time.Hour, 5 * time.Hour, -time.Hour,
	1, time.Hour - 1, time.Hour + 1, 100 * time.Hour, 1 << 62, 3*time.Hour + 1, 4 * time.Hour, -1 << 63,
}

// fuzzVerbs has the frequent ones more than once.
var fuzzVerbs = [32]model.Verb{
	model.Offer, model.Enqueue, model.Enqueue, model.EnqueueAndWait, model.EnqueueAfter, model.EnqueueAfter, model.EnqueueAfter,
	model.EnqueueWithin, model.EnqueueWithin, model.EnqueueWithin, model.EnqueueNow, model.EnqueueNow, model.Remove,
	model.Done, model.Done, model.GiveUp, model.Requeue, model.Requeue, model.Requeue, model.Requeue, model.Requeue,
	model.Dequeue, model.Dequeue, model.Dequeue, model.Dequeue, model.Dequeue,
	model.Advance, model.Advance, model.Advance, model.Canceled, model.Cancel, model.Close,
}

// ops reads the program. Verbs take the low five bits of the first byte, the
// item what remains of it.
func (p program) ops() (ops []model.Op[string]) {
	for p = p[min(1, len(p)):]; len(p) >= 2; p = p[2:] {
		o := model.Op[string]{Verb: fuzzVerbs[p[0]%32], Item: fuzzItems[int(p[0]/32)%len(fuzzItems)], Nth: int(p[1])}
		switch o.Verb {
		case model.EnqueueAfter, model.EnqueueWithin, model.Requeue:
			o.Wait.Delay = fuzzDelays[p[1]%16]
		case model.Advance:
			o.Wait.Delay = max(0, fuzzDelays[p[1]%12])
			o.Nth = int(p[1] / 128)
		}
		if o.Verb == model.Requeue {
			o.Wait.Hold = p[1]&16 != 0
			o.Wait.Settled = p[1]&32 != 0
			o.Wait.Err = [4]error{nil, nil, errModel, model.ErrAborted}[p[1]>>6]
		}
		if o.Verb == model.GiveUp {
			o.Wait.Err = errModel
		}
		if o.Verb == model.Close && p[1]%4 != 0 { // most programs go on
			o.Verb = model.Enqueue
		}
		ops = append(ops, o)
	}
	return ops
}

// background is none for a half of all programs, and small for the others.
func (p program) background() int {
	if len(p) == 0 {
		return 0
	}
	return max(0, int(p[0]%8)-3)
}

// run carries the program out on a queue and on its model, which must agree
// on everything that can be seen after every step.
func (p program) run(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pair := lockstep.New(fuzzItems...)
		defer pair.Stop() // the consumers that wait when a step fails
		pair.SetBackground(p.background())
		pair.GiveUp = func(item string, err error) { reconcile.GiveUp(pair.Queue, item, err) }
		runs := watchedRuns{}
		defer runs.stop()
		pair.Check = func() error {
			if err := reconcile.Check(pair.Queue); err != nil {
				return err
			}
			return runs.compare(pair)
		}
		waiters := 0
		for _, o := range p.ops() {
			if o.Verb == model.Dequeue && waiters >= 4 {
				continue
			}
			if o.Verb == model.Advance && o.Nth == 1 {
				runs.race()
			}
			if err := pair.Step(o); err != nil {
				t.Fatal(err)
			}
			waiters = pair.Model.Waiters
		}
		if err := pair.End(); err != nil {
			t.Fatal(err)
		}
	})
}

// watchedRuns has a context of UntilChanged for each item in flight.
type watchedRuns map[string]*modelRun

type modelRun struct {
	take  int
	ctx   context.Context
	stop  context.CancelFunc
	ended bool // as the model says
	raced bool // the queue may have seen a next run fall due, or not
}

func (runs watchedRuns) race() {
	for _, r := range runs {
		r.raced = true
	}
}

// compare wants those contexts to have ended whose item has had a next run that
// is ready, and those whose item was given back.
func (runs watchedRuns) compare(pair *lockstep.Pair[string]) error {
	synctest.Wait() // the timer tells them after it has given up the lock
	for _, item := range fuzzItems {
		e, _ := pair.Model.Entry(item)
		ready := e.Next.Kind == model.Ready || e.Next.Kind == model.Sticky
		r := runs[item]
		if r != nil && (!e.InFlight || e.Take != r.take) {
			if cause := context.Cause(r.ctx); cause == nil || !r.raced && (cause == reconcile.ErrChanged) != r.ended {
				return fmt.Errorf("by UntilChanged(%s), after the run: %v, want one that ended for a change: %t", item, cause, r.ended)
			}
			r.stop()
			delete(runs, item)
			r = nil
		}
		if !e.InFlight {
			continue
		}
		if r == nil {
			r = &modelRun{take: e.Take}
			r.ctx, r.stop = reconcile.UntilChangedOf(context.Background(), pair.Queue, item)
			runs[item] = r
		}
		r.ended = r.ended || ready
		cause := context.Cause(r.ctx)
		if cause != nil && cause != reconcile.ErrChanged || (cause != nil) != r.ended && (!r.raced || ready) {
			return fmt.Errorf("by UntilChanged(%s): %v, want one that has ended: %t", item, cause, r.ended)
		}
	}
	return nil
}

func (runs watchedRuns) stop() {
	for _, r := range runs {
		r.stop()
	}
}

func randomProgram(seed uint64) program {
	r := rand.New(rand.NewPCG(seed, 0))
	p := make(program, 1+2*(20+r.IntN(400)))
	for i := range p {
		p[i] = byte(r.Uint32())
	}
	return p
}

func TestQueueAgreesWithItsModel(t *testing.T) {
	var seed uint64
	defer tellSeed(t, &seed)
	for seed = range 2000 {
		randomProgram(seed).run(t)
	}
}

// The comparison finds what it is there to find.
func TestModelWithAFaultDisagrees(t *testing.T) {
	for _, fault := range []model.Fault{model.DropInFlight, model.BreakHold, model.LIFO, model.Starve, model.StaySettled} {
		found := false
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) {
				pair := lockstep.New(fuzzItems...)
				defer pair.Stop()
				pair.GiveUp = func(item string, err error) { reconcile.GiveUp(pair.Queue, item, err) }
				pair.Model.Fault = fault
				pair.SetBackground(randomProgram(seed).background())
				for _, o := range randomProgram(seed).ops() {
					if o.Verb == model.Dequeue && pair.Model.Waiters >= 4 {
						continue
					}
					if pair.Step(o) != nil {
						found = true
						break
					}
				}
			})
		}
		if !found {
			t.Errorf("20 programs did not show fault %d", fault)
		}
	}
}

func FuzzQueue(f *testing.F) {
	for seed := range uint64(8) {
		f.Add([]byte(randomProgram(seed)[:41]))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		program(p[:min(len(p), 1000)]).run(t)
	})
}

// Timers fire late on a busy machine. What is due counts as ready all the same,
// and goes before what becomes ready later. In the background waits "seen".
func TestLateTimerDoesNotShow(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		do   func(t *testing.T, q *reconcile.Queue[string])
		want string // what can be taken then
	}{
		"nothing": {func(*testing.T, *reconcile.Queue[string]) {}, "due due2 seen"},
		"State": {func(t *testing.T, q *reconcile.Queue[string]) {
			if s, want := q.State("due2"), time.Now().Add(-time.Second); s.Phase != reconcile.Ready || !s.Since.Equal(want) {
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
		"Requeue":               {func(_ *testing.T, q *reconcile.Queue[string]) { q.Requeue("taken", reconcile.Wait{}) }, "due due2 taken seen"},
		"EnqueueNow as the next run of an item in flight falls due": {func(_ *testing.T, q *reconcile.Queue[string]) {
			q.EnqueueNow("taken, due")
			q.RequeueAfter("taken, due", time.Hour)
		}, "due due2 taken, due seen"},
		"Close": {func(_ *testing.T, q *reconcile.Queue[string]) { q.Close() }, "due due2 seen"},
		"a worker that gives back one item and takes the next": {func(t *testing.T, q *reconcile.Queue[string]) {
			if next, err := reconcile.DoneAndTake(ctx, q, "taken"); next != "due" || err != nil {
				t.Errorf("took %q, %v, want due", next, err)
			}
		}, "due2 taken seen"},
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
func TestLateTimerLetsNobodySleep(t *testing.T) {
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
func TestMoreAreDueThanOneCallPromotes(t *testing.T) {
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
				q.Requeue(-1, reconcile.Wait{})
				q.Enqueue(n)
				return []int{-1, n}
			},
			"Done, with a next run": func(q *reconcile.Queue[int]) []int {
				q.Enqueue(-1)
				q.Done(-1)
				return []int{-1}
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
					if err := reconcile.Check(q); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
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
