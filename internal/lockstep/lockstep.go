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
	Log   []model.Op[T] // all steps so far

	Check func() error // of the queue's own invariants, after each step; may be nil

	items   []T // those to ask about
	start   time.Time
	waiters []waiter // oldest first
	born    int      // counts waiters
	back    chan returned[T]
	idle    *wait         // the WaitIdle that waits; nil if none does
	waits   map[int]*wait // the EnqueueAndWaits that do, by model.Await.Nth
	asked   int           // EnqueueAndWaits so far
	raced   bool          // with the timer, by the last step
}

// A wait is a WaitIdle or an EnqueueAndWait in a goroutine of its own.
type wait struct {
	cancel   context.CancelCauseFunc
	returned chan error
}

func startWait(f func(context.Context) error) *wait {
	ctx, cancel := context.WithCancelCause(context.Background())
	w := &wait{cancel, make(chan error, 1)}
	go func() { w.returned <- f(ctx) }()
	return w
}

// ended reports whether w has returned, and what.
func (w *wait) ended() (err error, ended bool) {
	select {
	case err := <-w.returned:
		w.cancel(nil)
		return err, true
	default:
		return nil, false
	}
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
		Queue: reconcile.NewQueue[T](),
		Model: &model.Attended[T]{},
		items: items,
		start: time.Now(),
		back:  make(chan returned[T], 16),
		waits: map[int]*wait{},
	}
}

// SetBackground has both set observations behind events, before the first step.
func (p *Pair[T]) SetBackground(n int) { p.Queue.Background, p.Model.Background = n, n }

var errCanceled = errors.New("lockstep: canceled")

// Step carries o out on both and compares all that can be seen of them.
// No more than 16 Dequeues may wait at a time.
func (p *Pair[T]) Step(o model.Op[T]) error {
	if !p.raced && p.idle == nil && !p.Model.Idle() {
		p.idle = startWait(p.Queue.WaitIdle)
		synctest.Wait()
	}
	raced, err := p.step(o)
	if err == nil && !raced {
		err = p.compare()
	}
	return p.explain(o, err)
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
	if o.Verb == model.EnqueueAndWait {
		o.Nth = p.asked
		p.asked++
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
	if err := same(got, want); err != nil {
		return false, err
	}
	return false, p.compareWaits(want.Ended)
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
	synctest.Wait()
	for nth, w := range p.waits {
		if err, ended := w.ended(); !ended || !errors.Is(err, errCanceled) {
			return fmt.Errorf("EnqueueAndWait number %d, canceled: returned %t, %v, want one that wraps %v", nth, ended, err, errCanceled)
		}
	}
	return nil
}

// Stop cancels all that wait and looks at nothing any more.
func (p *Pair[T]) Stop() {
	for _, w := range p.waiters {
		w.cancel(errCanceled)
	}
	for _, w := range p.waits {
		w.cancel(errCanceled)
	}
	if p.idle != nil {
		p.idle.cancel(errCanceled)
	}
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
	if removed, ok := o.Do(On(q)); ok {
		r.Removed = removed
		return r, nil
	}
	switch o.Verb {
	case model.EnqueueAndWait:
		p.waits[o.Nth] = startWait(func(ctx context.Context) error { return q.EnqueueAndWait(ctx, o.Item) })
	case model.Advance:
		time.Sleep(o.Options.Delay)
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
