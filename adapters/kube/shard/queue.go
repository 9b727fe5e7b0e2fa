// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"

	"github.com/reconkernel/reconcile"
)

// Queue returns q as a queue that hands out only what this process owns, and
// drops the rest: the new owner has it from its own feeders and from Gained. The
// context of a run ends, with [reconcile.ErrLeaseLost], when its item is to be
// handed over and Grace has passed. It is for [reconcile.Reconciler.Queue]; feed
// q itself. Queue panics if q is nil.
func (s *Shards[T]) Queue(q reconcile.Dequeuer[T]) reconcile.Dequeuer[T] {
	if q == nil {
		panic("shard: Queue needs a queue, got nil")
	}
	return &queue[T]{q, s}
}

type queue[T comparable] struct {
	reconcile.Dequeuer[T]
	shards *Shards[T]
}

// A ticket is what flights are known by: two queues may hand out the same item.
type ticket[T comparable] struct {
	queue *queue[T]
	item  T
}

// Dequeue waits for an item that this process owns.
func (q *queue[T]) Dequeue(ctx context.Context) (T, error) {
	s := q.shards
	for {
		item, err := q.Dequeuer.Dequeue(ctx)
		if err != nil {
			return item, err
		}
		slot := slotOf(s.key(item))
		s.mu.Lock()
		ours := s.owned != nil && s.owned[slot]
		if ours {
			if s.flights == nil {
				s.flights = make(map[any]*flight)
			}
			s.flights[ticket[T]{q, item}] = &flight{slot: slot}
		}
		s.mu.Unlock()
		if ours {
			return item, nil
		}
		q.Dequeuer.Done(item)
	}
}

// Lease returns a context for a run of item, which ends when it is to be handed over.
func (q *queue[T]) Lease(ctx context.Context, item T) context.Context {
	if l, ok := q.Dequeuer.(reconcile.Leaser[T]); ok {
		ctx = l.Lease(ctx, item)
	}
	ctx, end := context.WithCancelCause(ctx)
	s := q.shards
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[ticket[T]{q, item}]
	if f == nil || f.lost {
		end(reconcile.ErrLeaseLost)
		return ctx
	}
	f.end = end
	return ctx
}

// Done gives an item back.
func (q *queue[T]) Done(item T) {
	q.land(item, func() { q.Dequeuer.Done(item) })
}

// Requeue gives an item back.
func (q *queue[T]) Requeue(item T, w reconcile.RequeueOptions) {
	q.land(item, func() { q.Dequeuer.Requeue(item, w) })
}

// land ends the flight of an item. After give another worker may take it.
func (q *queue[T]) land(item T, give func()) {
	s, key := q.shards, ticket[T]{q, item}
	s.mu.Lock()
	f := s.flights[key]
	delete(s.flights, key)
	if f != nil && f.lost && s.landed != nil {
		close(s.landed)
		s.landed = nil
	}
	s.mu.Unlock()
	if f != nil && f.end != nil {
		f.end(nil)
	}
	give()
}
