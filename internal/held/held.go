// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package held has the lease of a leader, for the elections of the adapters, and ends the runs of
// the leader's queues with it.
package held

import (
	"context"
	"sync"

	"github.com/reconkernel/reconcile"
)

// A Lease is held for a term.
type Lease interface {
	Over() bool            // whether it is lost; it asks the clock
	Lost() context.Context // done once it is lost, with the reason as its cause
}

type key struct{}

// With returns a context of what runs while a lease is held.
func With(ctx context.Context, l Lease) context.Context { return context.WithValue(ctx, key{}, l) }

// Within returns Queue(q) if ctx is that of what runs while a lease is held, and else q, which
// is faster.
func Within[T comparable](ctx context.Context, q reconcile.Dequeuer[T]) reconcile.Dequeuer[T] {
	if ctx.Value(key{}) == nil {
		return q
	}
	return Queue(q)
}

// Queue returns q as a queue whose runs end at once when the lease is lost, also those of a
// Reconciler that has a Grace, and from which nothing is taken after that. An error of such a
// run is not a failure. In a context without a Lease it changes nothing.
func Queue[T comparable](q reconcile.Dequeuer[T]) reconcile.Dequeuer[T] {
	h := &queue[T]{Dequeuer: q}
	if s, ok := q.(counter); ok {
		return struct {
			*queue[T]
			counter
		}{h, s}
	}
	return h
}

// A counter is a queue that has counts, for metrics.
type counter interface{ Stats() reconcile.Stats }

type queue[T comparable] struct {
	reconcile.Dequeuer[T]
	ends sync.Map // by item: a func() that ends the context of its run
}

// Dequeue waits for an item. Once the lease is lost, it hands out none and waits for the end
// of ctx, which may come later: an item that is given back meanwhile would be taken again and
// again.
func (q *queue[T]) Dequeue(ctx context.Context) (T, error) {
	l, ok := ctx.Value(key{}).(Lease)
	if !ok {
		return q.Dequeuer.Dequeue(ctx)
	}
	if !l.Over() {
		item, err := q.Dequeuer.Dequeue(ctx)
		if err != nil || !l.Over() {
			return item, err
		}
		q.Dequeuer.Requeue(item, reconcile.RequeueOptions{Aborted: true})
	}
	<-ctx.Done()
	var none T
	return none, context.Cause(ctx)
}

// Lease returns the context of a run, which ends when the lease is lost. A Reconciler that
// has an Admit calls it twice for a run.
func (q *queue[T]) Lease(ctx context.Context, item T) context.Context {
	l, ok := ctx.Value(key{}).(Lease)
	if leaser, leases := q.Dequeuer.(reconcile.Leaser[T]); leases {
		ctx = leaser.Lease(ctx, item)
	}
	if !ok {
		return ctx
	}
	run, end := Context(ctx, l)
	q.end(item)
	q.ends.Store(item, end)
	return run
}

// Done gives an item back.
func (q *queue[T]) Done(item T) {
	q.end(item) // before another worker may have the item
	q.Dequeuer.Done(item)
}

// Requeue gives an item back.
func (q *queue[T]) Requeue(item T, o reconcile.RequeueOptions) {
	q.end(item)
	q.Dequeuer.Requeue(item, o)
}

func (q *queue[T]) end(item T) {
	if end, ok := q.ends.LoadAndDelete(item); ok {
		end.(func())()
	}
}

// Context returns a context that ends when ctx does, or when the lease is lost, with the
// lease's cause. End ends it early. Its Err asks the clock, because the timer of a lease is
// late in a process that was stopped.
func Context(ctx context.Context, l Lease) (run context.Context, end func()) {
	r := &leased{lease: l}
	r.Context, r.end = context.WithCancelCause(ctx)
	_ = r.Err() // It ends now if the lease is lost.
	stop := context.AfterFunc(l.Lost(), func() { r.end(context.Cause(l.Lost())) })
	return r, func() {
		stop()
		r.end(nil)
	}
}

type leased struct {
	context.Context
	lease Lease
	end   context.CancelCauseFunc
}

func (r *leased) Err() error {
	if r.lease.Over() {
		r.end(context.Cause(r.lease.Lost()))
	}
	return r.Context.Err()
}
