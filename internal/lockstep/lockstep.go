// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package lockstep runs a queue and its model side by side, one operation
// after the other, and says where they differ. It is for tests, and only
// inside a synctest bubble: it compares exact times.
package lockstep

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/model"
)

// Pair is a queue and its model.
type Pair[T comparable] struct {
	Queue *reconcile.Queue[T]
	Model *model.Attended[T]
	Check func() error  // of the queue's own invariants, after each step; may be nil
	Log   []model.Op[T] // all steps so far

	items   []T // those to ask about
	start   time.Time
	waiters []waiter // oldest first
	born    int      // counts waiters
	back    chan returned[T]
	settles []settle // those that wait for an item to settle, or, the last, for the queue
	raced   bool     // with the timer, by the last step
}

// A settle is a WaitItem or WaitIdle.
type settle struct {
	cancel   context.CancelCauseFunc // nil if none waits
	returned chan error
}

type waiter struct {
	id     int
	cancel context.CancelCauseFunc
}

type returned[T comparable] struct {
	id   int
	item T
	err  error
}

// New returns a pair, both empty. After each step it asks about items.
func New[T comparable](items ...T) *Pair[T] {
	return &Pair[T]{
		Queue:   reconcile.NewQueue[T](),
		Model:   &model.Attended[T]{},
		items:   items,
		start:   time.Now(),
		back:    make(chan returned[T], 16),
		settles: make([]settle, len(items)+1),
	}
}

// SetBackground has both set observations behind events, before the first step.
func (p *Pair[T]) SetBackground(n int) { p.Queue.Background, p.Model.Background = n, n }

var errCanceled = errors.New("lockstep: canceled")

// Step carries o out on both and compares all that can be seen of them.
// No more than 16 Dequeues may wait at a time.
func (p *Pair[T]) Step(o model.Op[T]) error {
	if !p.raced {
		p.settle()
	}
	raced, err := p.step(o)
	if err == nil && !raced {
		err = p.compare()
	}
	return p.explain(o, err)
}

// Walk carries the operations out on both and compares only what they answer.
func (p *Pair[T]) Walk(ops ...model.Op[T]) error {
	for _, o := range ops {
		if _, err := p.step(o); err != nil {
			return p.explain(o, err)
		}
	}
	return nil
}

func (p *Pair[T]) explain(o model.Op[T], err error) error {
	if err != nil {
		return fmt.Errorf("step %d, %v: %w\nafter %s", len(p.Log), o, err, p.history())
	}
	return nil
}

func (p *Pair[T]) step(o model.Op[T]) (raced bool, err error) {
	if o.Verb == model.Cancel && len(p.waiters) == 0 {
		return false, nil
	}
	p.Log = append(p.Log, o)
	p.raced = false
	want := p.Model.Do(o)
	got, err := p.do(o, want)
	if err != nil {
		return false, err
	}
	if o.Verb == model.Advance && o.Nth == 1 && len(p.waiters) == 0 {
		p.raced = true
		return true, nil // to wait, or to look, would give the timer time to fire
	}
	synctest.Wait()
	if err := p.collect(&got); err != nil {
		return false, err
	}
	return false, same(got, want)
}

// End cancels all that wait, and compares for the last time.
func (p *Pair[T]) End() error {
	if err := p.Step(model.Op[T]{Verb: model.Advance}); err != nil {
		return err
	}
	for len(p.waiters) > 0 {
		if err := p.Step(model.Op[T]{Verb: model.Cancel}); err != nil {
			return err
		}
	}
	p.Stop()
	return nil
}

// Stop cancels all that wait and looks at nothing any more.
func (p *Pair[T]) Stop() {
	for _, w := range p.waiters {
		w.cancel(errCanceled)
	}
	for _, s := range p.settles {
		if s.cancel != nil {
			s.cancel(errCanceled)
		}
	}
}

// settle lets somebody wait for each item that has not settled, and for the queue.
func (p *Pair[T]) settle() {
	started := false
	for i := range p.settles {
		s := &p.settles[i]
		if s.cancel != nil || p.settled(i) {
			continue
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		s.cancel, s.returned = cancel, make(chan error, 1)
		started = true
		go func(returned chan<- error) { returned <- p.wait(ctx, i) }(s.returned)
	}
	if started {
		synctest.Wait()
	}
}

// settled and wait ask the model and the queue about item i, or all of them.

func (p *Pair[T]) settled(i int) bool {
	if i == len(p.items) {
		return p.Model.Idle()
	}
	return p.Model.Settled(p.items[i])
}

func (p *Pair[T]) wait(ctx context.Context, i int) error {
	if i == len(p.items) {
		return p.Queue.WaitIdle(ctx)
	}
	return p.Queue.WaitItem(ctx, p.items[i])
}

// canceled is a context that has ended.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errCanceled)
	return ctx
}()

func (p *Pair[T]) history() string {
	var b strings.Builder
	for i, o := range p.Log {
		fmt.Fprintf(&b, "\n%4d  %v", i+1, o)
	}
	return b.String()
}

// do carries o out on the queue. A Dequeue that the model answers must not
// wait; one that it does not answer must.
func (p *Pair[T]) do(o model.Op[T], want model.Result[T]) (r model.Result[T], err error) {
	q := p.Queue
	switch o.Verb {
	case model.Offer:
		q.Offer(o.Item)
	case model.Enqueue:
		q.Enqueue(o.Item)
	case model.EnqueueAfter:
		q.EnqueueAfter(o.Item, o.Wait.Delay)
	case model.EnqueueWithin:
		q.EnqueueWithin(o.Item, o.Wait.Delay)
	case model.EnqueueNow:
		q.EnqueueNow(o.Item)
	case model.Remove:
		r.Removed = q.Remove(o.Item)
	case model.Done:
		q.Done(o.Item)
	case model.Requeue:
		q.Requeue(o.Item, reconcile.Wait(o.Wait))
	case model.Close:
		q.Close()
	case model.Advance:
		time.Sleep(o.Wait.Delay)
	case model.Canceled:
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(errCanceled)
		if item, err := q.Dequeue(ctx); err != errCanceled {
			return r, fmt.Errorf("a Dequeue with an ended context: %v, %v, want its cause", item, err)
		}
	case model.Cancel:
		p.waiters[o.Nth%len(p.waiters)].cancel(errCanceled)
	case model.Dequeue:
		ctx, cancel := context.WithCancelCause(context.Background())
		p.born++
		w := waiter{p.born, cancel}
		p.waiters = append(p.waiters, w)
		take := func() {
			item, err := q.Dequeue(ctx)
			p.back <- returned[T]{w.id, item, err}
		}
		if len(want.Taken)+want.Over == 0 {
			go take()
			return r, nil
		}
		stop := time.AfterFunc(time.Hour, func() { cancel(errors.New("lockstep: still waiting after an hour")) })
		take()
		stop.Stop()
	}
	return r, nil
}

// collect sees to the Dequeues that have returned.
func (p *Pair[T]) collect(r *model.Result[T]) error {
	canceled := 0
	for {
		select {
		case b := <-p.back:
			p.waiters = slices.DeleteFunc(p.waiters, func(w waiter) bool {
				if w.id == b.id {
					w.cancel(nil)
				}
				return w.id == b.id
			})
			switch {
			case b.err == nil:
				r.Taken = append(r.Taken, b.item)
			case b.err == reconcile.ErrClosed:
				r.Over++
			case b.err == errCanceled:
				canceled++
			default:
				return fmt.Errorf("a Dequeue: %v, %v", b.item, b.err)
			}
			continue
		default:
		}
		break
	}
	if len(p.waiters) != p.Model.Waiters {
		return fmt.Errorf("%d Dequeues wait, want %d; taken: %v, ended: %d, canceled: %d", len(p.waiters), p.Model.Waiters, r.Taken, r.Over, canceled)
	}
	return nil
}
