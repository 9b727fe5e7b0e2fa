// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"time"
)

// This file holds the way of a [Reconciler]'s workers through its [Gate]. One of
// them at a time is at the door. There it waits until the gate is open, then for
// an item, and is let in as soon as it has one: at once, but if others share the
// gate and were quicker, or if the limit fell. Only then it waits with an item in
// hand. So each call of Run has one item in hand at most.

// A door is where the workers of a loop line up.
type door struct {
	*Gate
	used  chan struct{} // room for one: the worker at the door
	turn  turn          // of that worker
	ahead int64         // so much later it is by the gate's clock than by that of the queue
}

// newDoor returns an error if a field of the gate is wrong. The clock of the
// loop's queue counts from base.
func newDoor(g *Gate, base time.Time) (*door, error) {
	if err := g.begin(); err != nil {
		return nil, err
	}
	return &door{
		Gate:  g,
		used:  make(chan struct{}, 1),
		turn:  turn{wake: make(chan struct{}, 1)},
		ahead: int64(base.Sub(g.base)),
	}, nil
}

// takeThrough is what take does at a gate. It takes under ctx, or under the context
// that it returns.
func (w *worker[T]) takeThrough(ctx context.Context, of contexts) (context.Context, error) {
	if w.some {
		if w.stale {
			w.now = w.loop.source.now()
		}
		w.loop.source.giveBack(&w.grant, w.verdict, &w.wait, w.now)
	}
	for {
		in, err := w.knock(ctx, of)
		if in || err != nil {
			w.some = in
			return ctx, err
		}
		if of.all.Err() != nil {
			ctx = of.all // as in take
		}
	}
}

// knock takes one item through the gate. It returns false and no error if the
// item had to be given back before it was let in.
func (w *worker[T]) knock(ctx context.Context, of contexts) (in bool, err error) {
	source, d := w.loop.source, w.loop.door
	t, done := &d.turn, ctx.Done()
	since := d.now()
	select {
	case d.used <- struct{}{}:
	case <-done:
		return false, context.Cause(ctx)
	}
	defer func() { <-d.used }() // also if the queue panics

	if !d.see() {
		d.wait(&d.doors, t, done, source.over())
	}
	if err := source.first(ctx, &w.grant); err != nil {
		return false, err
	}
	t.since = max(since, w.grant.ready+d.ahead)
	// The end of Run's context may let others leave the gate a moment before ctx,
	// which is derived from it, has ended too.
	in = of.all.Err() == nil
	if in && !d.try(t) {
		lease, lost := w.borrow(of.runs)
		in = d.enter(t, done, lost, of.all.Done())
		w.grant.taken, w.grant.woken = source.now(), false
		w.lease = lease
	}
	if !in {
		w.lease = nil
		source.giveBack(&w.grant, verdictAbort, &Wait{}, w.grant.taken)
		return false, nil
	}
	w.pass = t.pass
	return true, nil
}

// borrow returns the context of the lease of the item in hand, which is that of
// the run to come, and what tells that it ended. Both are nil if there is none, and
// if Lease panics: then the run calls it again, and a panic is a failure of it.
func (w *worker[T]) borrow(runs context.Context) (lease context.Context, lost <-chan struct{}) {
	if w.loop.leaser == nil {
		return nil, nil
	}
	err := guard(func() error {
		lease = w.loop.leaser.Lease(runs, w.grant.item)
		lost = lease.Done()
		return nil
	})
	if err != nil {
		return nil, nil
	}
	return lease, lost
}

// leave tells the gate how the run went. It calls code of the user: Slow.
func (w *worker[T]) leave() {
	g, f := w.loop.Gate, foundNothing
	if g.Slow != nil && w.result.Outcome != Aborted {
		w.stale = true
		switch {
		case g.Slow(w.err, w.result.Duration):
			f = foundSlow
		case w.result.Outcome == Succeeded, w.result.Outcome == Requeued && !w.changed: // not cut short
			f = foundWell
		}
	}
	g.leave(w.pass, f)
	w.stage = reporting
}
