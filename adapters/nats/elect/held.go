// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect

import (
	"context"
	"sync"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/lease"
)

// Held returns q as a queue whose runs end at once when the lease is lost, also
// those of a Reconciler with a Grace: what they return then is not a failure.
// Nothing is taken from it after that. It is for the Queue of a Reconciler inside
// of [Elect]; elsewhere it changes nothing. Held panics if q is nil.
func Held[T comparable](q reconcile.Dequeuer[T]) reconcile.Dequeuer[T] {
	if q == nil {
		panic("natsadapter: Held needs a queue, got nil")
	}
	h := &held[T]{Dequeuer: q}
	if s, ok := q.(counter); ok {
		return struct {
			*held[T]
			counter
		}{h, s}
	}
	return h
}

// A counter is a queue that has counts, for metrics.
type counter interface{ Stats() reconcile.Stats }

type held[T comparable] struct {
	reconcile.Dequeuer[T]
	ends sync.Map // by item: a func() that ends the context of its run
}

// Dequeue waits for an item. Once the lease is lost it hands out none, and waits for the
// end of ctx, which may come later: what a run gives back as the lease is lost would be
// taken again. It asks the clock, because a timer may be late.
func (h *held[T]) Dequeue(ctx context.Context) (T, error) {
	item, err := h.Dequeuer.Dequeue(ctx)
	if l := lease.Of(ctx); err != nil || l == nil || !l.Over() {
		return item, err
	}
	h.Dequeuer.Requeue(item, reconcile.RequeueOptions{Aborted: true})
	<-ctx.Done()
	var none T
	return none, context.Cause(ctx)
}

// Lease returns the context of a run, which ends when the lease is lost. A Reconciler with
// an Admit calls it twice for a run.
func (h *held[T]) Lease(ctx context.Context, item T) context.Context {
	if leaser, ok := h.Dequeuer.(reconcile.Leaser[T]); ok {
		ctx = leaser.Lease(ctx, item)
	}
	l := lease.Of(ctx)
	if l == nil {
		return ctx
	}
	ctx, end := context.WithCancelCause(ctx)
	if l.Over() {
		end(reconcile.ErrLeaseLost) // before Lease returns
	}
	stop := context.AfterFunc(l.Lost(), func() { end(reconcile.ErrLeaseLost) })
	h.end(item)
	h.ends.Store(item, func() {
		stop()
		end(nil)
	})
	return &lease.Run{Context: ctx, Lease: l, End: end}
}

// Done gives an item back.
func (h *held[T]) Done(item T) {
	h.end(item) // before another worker may have the item
	h.Dequeuer.Done(item)
}

// Requeue gives an item back.
func (h *held[T]) Requeue(item T, o reconcile.RequeueOptions) {
	h.end(item)
	h.Dequeuer.Requeue(item, o)
}

func (h *held[T]) end(item T) {
	if end, ok := h.ends.LoadAndDelete(item); ok {
		end.(func())()
	}
}
