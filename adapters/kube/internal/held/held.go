// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package held is what a leader's queue knows of the leader's lease.
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

// In reports whether ctx is that of what runs while a lease is held.
func In(ctx context.Context) bool { return ctx.Value(key{}) != nil }

// Queue returns q as a queue whose runs end at once when the lease is lost, also
// those of a Reconciler with a Grace: what they return then is not a failure.
// Nothing is taken from it after that. In a context without a Lease it changes
// nothing.
func Queue[T comparable](q reconcile.Dequeuer[T]) reconcile.Dequeuer[T] {
	h := &queue[T]{Dequeuer: q}
	if s, ok := q.(statser); ok {
		return struct {
			*queue[T]
			statser
		}{h, s}
	}
	return h
}

// A statser is a queue that has counts, for metrics.
type statser interface{ Stats() reconcile.Stats }

type queue[T comparable] struct {
	reconcile.Dequeuer[T]
	releases sync.Map // of each item that is run, a func() that releases its context
}

// Dequeue waits for an item. Once the lease is lost it waits for the end of ctx
// alone: that may come later, and the items that are given back meanwhile would
// be taken again and again. It asks the clock: in a process that was stopped for a
// while, an item may come before the timer that says that the lease is over.
func (q *queue[T]) Dequeue(ctx context.Context) (item T, err error) {
	t, ok := ctx.Value(key{}).(Lease)
	if !ok {
		return q.Dequeuer.Dequeue(ctx)
	}
	if !t.Over() {
		item, err = q.Dequeuer.Dequeue(ctx)
		if err != nil || !t.Over() {
			return item, err
		}
		q.Dequeuer.Requeue(item, reconcile.RequeueOptions{Aborted: true})
	}
	<-ctx.Done()
	var none T
	return none, context.Cause(ctx)
}

// Lease returns a context for a run of item that ends when the lease is lost.
func (q *queue[T]) Lease(ctx context.Context, item T) context.Context {
	if l, ok := q.Dequeuer.(reconcile.Leaser[T]); ok {
		ctx = l.Lease(ctx, item)
	}
	t, ok := ctx.Value(key{}).(Lease)
	if !ok {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	if t.Over() {
		cancel(context.Cause(t.Lost())) // before Lease returns
	}
	stop := context.AfterFunc(t.Lost(), func() { cancel(context.Cause(t.Lost())) })
	before, waited := q.releases.Swap(item, func() {
		stop()
		cancel(nil)
	})
	if waited { // in Admit
		before.(func())()
	}
	return ctx
}

// Done gives an item back.
func (q *queue[T]) Done(item T) {
	q.release(item)
	q.Dequeuer.Done(item)
}

// Requeue gives an item back.
func (q *queue[T]) Requeue(item T, w reconcile.RequeueOptions) {
	q.release(item)
	q.Dequeuer.Requeue(item, w)
}

// release comes before the item is given back: after that another worker may have it.
func (q *queue[T]) release(item T) {
	if release, ok := q.releases.LoadAndDelete(item); ok {
		release.(func())()
	}
}
