// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package linearize records what many goroutines do with a queue at once, and
// looks for an order in which the model of the queue would have done the same.
//
// The goroutines run side by side, in a bubble: time stands still as they work
// and passes as all of them rest. So the history says exactly which runs were
// due when.
package linearize

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/lockstep"
	"github.com/reconkernel/reconcile/internal/model"
	"github.com/reconkernel/reconcile/verify/spec"
)

// Load is what goroutines do with a queue.
type Load struct {
	Goroutines int
	Consumers  int // of them; they do little but Dequeue and give back
	Items      int
	Calls      int // of each goroutine in each phase
	Phases     int // between them a second passes
	Cancel     bool
	Stats      bool // also ask for Len and Stats, which are about all items at once
	Close      bool // at the end, as the others work
	Background int  // of the queue; if it has one, Offers are frequent
	Settle     bool // most runs end well, with a look to come, and Offers are frequent
}

var (
	errRun    = errors.New("linearize: the run failed")
	errReason = errors.New("linearize: it is being made")
)

type recorder struct {
	Load
	q     *reconcile.Queue[string]
	clock atomic.Int64
	waits atomic.Int32 // EnqueueAndWaits so far

	canceled atomic.Int32 // Dequeues

	history [][]porcupine.Operation // of each goroutine
}

// A History is what came of a load.
type History struct {
	Operations []porcupine.Operation
	Start      time.Time // of the clock
	Canceled   int       // Dequeues
}

// Record runs the load once, in a bubble. The same seed makes the same calls;
// what becomes of them is the scheduler's.
func (l Load) Record(seed uint64) (h History) {
	r := &recorder{Load: l, q: reconcile.NewQueue[string](), history: make([][]porcupine.Operation, l.Goroutines+1)}
	r.q.Background = l.Background
	h.Start = time.Now()
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	gates := make([]chan struct{}, l.Phases)
	for i := range gates {
		gates[i] = make(chan struct{})
	}
	for g := range l.Goroutines {
		all.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(g)))
			for phase := range l.Phases {
				<-gates[phase]
				r.work(ctx, g, rnd)
				if l.Close && g == l.Consumers && phase == l.Phases-1 {
					r.do(g, spec.Call{Op: model.Op[string]{Verb: model.Close}})
				}
			}
		})
	}
	for i := range gates {
		close(gates[i])
		synctest.Wait()
		for item := range l.Items { // as all rest
			r.do(l.Goroutines, spec.Call{Op: model.Op[string]{Item: name(item)}, Look: spec.State})
		}
		r.record(l.Goroutines, spec.Call{Op: model.Op[string]{Verb: model.Advance, Options: model.RequeueOptions{Delay: time.Second}}}, func() (ret spec.Return) {
			time.Sleep(time.Second)
			return ret
		})
		synctest.Wait()
	}
	// A Dequeue that waits still is not in the history: nothing came of it.
	h.Operations = slices.Concat(r.history...)
	now := r.clock.Add(1)
	for _, o := range slices.Clone(h.Operations) {
		if o.Return == math.MaxInt64 { // an EnqueueAndWait, which nothing should have ended
			c := o.Input.(spec.Call)
			c.Look = spec.Sleeps
			h.Operations = append(h.Operations, porcupine.Operation{ClientId: l.Goroutines, Input: c, Output: spec.Return{}, Call: now, Return: now})
		}
	}
	h.Canceled = int(r.canceled.Load())
	end()
	r.q.Close()
	all.Wait()
	return h
}

func name(item int) string { return string(rune('a' + item)) }

// work is what one goroutine does in one phase.
func (r *recorder) work(ctx context.Context, g int, rnd *rand.Rand) {
	took := ""
	for range r.Calls {
		c := r.choose(g, rnd, took)
		if rnd.IntN(4) == 0 {
			runtime.Gosched()
		}
		if c.Look == spec.NoLook && c.Verb == model.Dequeue {
			took = r.dequeue(ctx, g, rnd)
			continue
		}
		if c.Look == spec.NoLook && c.Verb == model.EnqueueAndWait {
			r.enqueueAndWait(ctx, g, c)
			continue
		}
		if c.Item == took {
			took = ""
		}
		r.do(g, c)
	}
	if took != "" {
		r.do(g, spec.Call{Op: model.Op[string]{Verb: model.Done, Item: took}})
	}
}

func (r *recorder) choose(g int, rnd *rand.Rand, took string) (c spec.Call) {
	c.Item = name(rnd.IntN(r.Items))
	c.Options.Delay = time.Duration(rnd.IntN(3)) * time.Second
	if g < r.Consumers {
		switch n := rnd.IntN(20); {
		case took == "":
			c.Verb, c.Item = model.Dequeue, ""
		case r.Settle && n < 14:
			c.Verb, c.Item = model.Requeue, took
			c.Options = model.RequeueOptions{Delay: time.Duration(1+rnd.IntN(3)) * time.Second, Recheck: true}
		case n < 8:
			c.Verb, c.Item = model.Done, took
		case n < 18:
			c.Verb, c.Item = model.Requeue, took
			c.Options.Hold = rnd.IntN(3) == 0
			c.Options.Recheck = rnd.IntN(2) == 0
			c.Options.Err = [8]error{0: errRun, 1: errRun, 2: model.ErrAborted}[rnd.IntN(8)]
			c.Options.Reason = [2]error{errReason}[rnd.IntN(2)]
			c.Options.Done = rnd.IntN(8) == 0
		default: // somebody else's
			c.Verb = model.Done
		}
		return c
	}
	if (r.Background > 0 || r.Settle) && rnd.IntN(3) == 0 {
		c.Verb = model.Offer
		return c
	}
	switch n := rnd.IntN(24); {
	case n < 5:
		c.Verb = model.Enqueue
	case n < 6:
		c.Verb = model.EnqueueAndWait
	case n < 8:
		c.Verb = model.EnqueueNow
	case n < 11:
		c.Verb = model.EnqueueAfter
	case n < 14:
		c.Verb = model.EnqueueWithin
	case n < 16:
		c.Verb = model.Offer
	case n < 18:
		c.Verb = model.Remove
	case n < 20:
		c.Look = spec.State
	case n < 21:
		c.Look = spec.Has
	case n < 22 && r.Stats:
		c.Look, c.Item = spec.Len, ""
	case n < 23 && r.Stats:
		c.Look, c.Item = spec.Stats, ""
	default:
		c.Verb = model.Enqueue
	}
	return c
}

// dequeue takes an item, with a context that may end on the way.
func (r *recorder) dequeue(ctx context.Context, g int, rnd *rand.Rand) (took string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.Cancel && rnd.IntN(4) > 0 {
		spin := rnd.IntN(8)
		go func() {
			for range spin {
				runtime.Gosched()
			}
			cancel()
		}()
	}
	c := spec.Call{Op: model.Op[string]{Verb: model.Dequeue}}
	call := r.clock.Add(1)
	item, err := r.q.Dequeue(ctx)
	ret := r.clock.Add(1)
	switch {
	case err == nil:
		r.add(g, c, spec.Return{Item: item}, call, ret)
	case err == reconcile.ErrClosed:
		r.add(g, c, spec.Return{Answer: model.Over}, call, ret)
	default:
		r.canceled.Add(1) // it took nothing
	}
	return item
}

// enqueueAndWait is two operations. The first of them may come about at any time
// before the return, which there may never be.
func (r *recorder) enqueueAndWait(ctx context.Context, g int, c spec.Call) {
	c.Nth = int(r.waits.Add(1))
	call := r.clock.Add(1)
	r.add(g, c, spec.Return{}, call, math.MaxInt64)
	asked := len(r.history[g]) - 1
	err := r.q.EnqueueAndWait(ctx, c.Item)
	ret := r.clock.Add(1)
	if ctx.Err() != nil {
		return // nobody looks any more
	}
	r.history[g][asked].Return = ret
	c.Look = spec.Ended
	r.add(g, c, spec.Return{Closed: errors.Is(err, reconcile.ErrClosed)}, call, ret)
}

func (r *recorder) do(g int, c spec.Call) {
	q := r.q
	r.record(g, c, func() (ret spec.Return) {
		switch c.Look {
		case spec.State:
			ret.State = q.State(c.Item)
		case spec.Has:
			ret.Has = q.Has(c.Item)
		case spec.Len:
			ret.Len = q.Len()
		case spec.Stats:
			ret.Stats = q.Stats()
		default:
			ret.Removed, _ = c.Do(lockstep.On(q))
		}
		return ret
	})
}

func (r *recorder) record(g int, c spec.Call, do func() spec.Return) {
	call := r.clock.Add(1)
	out := do()
	r.add(g, c, out, call, r.clock.Add(1))
}

func (r *recorder) add(g int, c spec.Call, out spec.Return, call, ret int64) {
	r.history[g] = append(r.history[g], porcupine.Operation{ClientId: g, Input: c, Output: out, Call: call, Return: ret})
}
