// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/lockstep"
	"github.com/reconkernel/reconcile/internal/model"
)

// A program is a byte for the Background of a queue, then operations on it, two
// bytes each, so that a fuzzer can write one: the verb and the item, then what
// the verb needs.
type program []byte

var errModel = errors.New("the run failed")

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
	model.Offer, model.Enqueue, model.Enqueue, model.Enqueue, model.EnqueueAfter, model.EnqueueAfter, model.EnqueueAfter,
	model.EnqueueWithin, model.EnqueueWithin, model.EnqueueWithin, model.EnqueueNow, model.EnqueueNow, model.Remove,
	model.Done, model.Done, model.Done, model.Requeue, model.Requeue, model.Requeue, model.Requeue, model.Requeue,
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
			if p[1]&32 != 0 {
				o.Wait.Err = errModel
			}
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
	for _, fault := range []model.Fault{model.DropInFlight, model.BreakHold, model.LIFO, model.Starve} {
		found := false
		for seed := range uint64(20) {
			synctest.Test(t, func(t *testing.T) {
				pair := lockstep.New(fuzzItems...)
				defer pair.Stop()
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
