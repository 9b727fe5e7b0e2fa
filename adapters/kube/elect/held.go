// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect

import (
	"context"
	"sync"

	"github.com/reconkernel/reconcile"
)

// Held returns q as a queue whose runs end at once when the lease is lost, also
// those of a Reconciler with a Grace: what they return then is not a failure.
// Nothing is taken from it after that. It is for the Queue of a Reconciler inside
// of [Elect]; elsewhere it changes nothing. Held panics if q is nil.
func Held[T comparable](q reconcile.Dequeuer[T]) reconcile.Dequeuer[T] {
	if q == nil {
		panic("elect: Held needs a queue, got nil")
	}
	return &held[T]{Dequeuer: q}
}

type held[T comparable] struct {
	reconcile.Dequeuer[T]
	releases sync.Map // of each item that is run, a func() that releases its context
}

// Dequeue waits for an item. Once the lease is lost it waits for the end of ctx
// alone: that may come later, and the items that are given back meanwhile would
// be taken again and again.
func (h *held[T]) Dequeue(ctx context.Context) (T, error) {
	if t, ok := ctx.Value(termKey{}).(*term); ok && t.lost.Err() != nil {
		<-ctx.Done()
	}
	return h.Dequeuer.Dequeue(ctx)
}

// Lease returns a context for a run of item that ends when the lease is lost.
func (h *held[T]) Lease(ctx context.Context, item T) context.Context {
	if l, ok := h.Dequeuer.(reconcile.Leaser[T]); ok {
		ctx = l.Lease(ctx, item)
	}
	t, ok := ctx.Value(termKey{}).(*term)
	if !ok {
		return ctx
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.lost, func() { cancel(context.Cause(t.lost)) })
	before, waited := h.releases.Swap(item, func() {
		stop()
		cancel(nil)
	})
	if waited { // at a Gate
		before.(func())()
	}
	return ctx
}

// Done gives an item back.
func (h *held[T]) Done(item T) {
	h.release(item)
	h.Dequeuer.Done(item)
}

// Requeue gives an item back.
func (h *held[T]) Requeue(item T, w reconcile.Wait) {
	h.release(item)
	h.Dequeuer.Requeue(item, w)
}

// release comes before the item is given back: after that another worker may have it.
func (h *held[T]) release(item T) {
	if release, ok := h.releases.LoadAndDelete(item); ok {
		release.(func())()
	}
}
