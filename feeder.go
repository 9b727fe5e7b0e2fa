// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"iter"
	"time"
)

// A Runner works until ctx is done, and returns when everything that it started has
// ended. It returns nil, or the error of ctx, unless it failed. [Reconciler] and [Poller]
// are Runners, and [Feed] returns one. Package supervise runs several together.
//
// A Runner that runs another one may also have a method
//
//	Unwrap() Runner
//
// that returns the other one, or nil. By it a supervisor finds a [Reconciler].
type Runner interface {
	Run(ctx context.Context) error
}

// RunFunc makes a Runner of a function.
type RunFunc func(ctx context.Context) error

// Run calls f.
func (f RunFunc) Run(ctx context.Context) error { return f(ctx) }

// A Feeder enqueues items: from a watch, a subscription, a channel. It returns nil when ctx
// is done or no more will come, and an error when it cannot go on. [Feed] makes it a
// [Runner].
type Feeder[T comparable] func(ctx context.Context, q Enqueuer[T]) error

// Feed returns a Runner that runs f with q. If q or f is nil, Run returns a [Terminal]
// error.
func Feed[T comparable](q Enqueuer[T], f Feeder[T]) Runner {
	return RunFunc(func(ctx context.Context) error {
		if err := checkQueue[T]("the queue of Feed", q); err != nil {
			return Terminal(err)
		}
		if f == nil {
			return Terminal(errors.New("reconcile: Feed needs a Feeder, got nil"))
		}
		return f(ctx, q)
	})
}

// FromChan returns a Feeder that enqueues every value that it receives from the channel,
// even if ctx is cancelled meanwhile. It returns nil when the channel is closed or ctx is
// done.
func FromChan[T comparable](ch <-chan T) Feeder[T] {
	return func(ctx context.Context, q Enqueuer[T]) error {
		if ch == nil {
			return Terminal(errors.New("reconcile: FromChan needs a channel, got nil"))
		}
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case item, ok := <-ch:
				if !ok {
					return nil
				}
				q.Enqueue(item)
			}
		}
		return nil
	}
}

// Filter returns an Enqueuer that passes on to q the items for which keep returns true: a
// predicate, or a shard. Keep is called from any goroutine. Filter panics if q or keep is nil.
func Filter[T comparable](q Enqueuer[T], keep func(T) bool) Enqueuer[T] {
	mustQueue[T]("the queue of Filter", q)
	if keep == nil {
		panic("reconcile: Filter needs a function, got nil")
	}
	return filter[T]{q, keep}
}

type filter[T comparable] struct {
	q    Enqueuer[T]
	keep func(T) bool
}

func (f filter[T]) Enqueue(item T) {
	if f.keep(item) {
		f.q.Enqueue(item)
	}
}

func (f filter[T]) EnqueueAfter(item T, d time.Duration) {
	if f.keep(item) {
		f.q.EnqueueAfter(item, d)
	}
}

func (f filter[T]) Offer(item T) {
	if f.keep(item) {
		f.q.Offer(item)
	}
}

// Map returns an Enqueuer of another type of item. For each it passes on to q the items that
// fn yields: an owner, many dependants, or none; see package refs. Fn is called from any
// goroutine, and may return nil. Map panics if q or fn is nil.
func Map[S, T comparable](q Enqueuer[T], fn func(S) iter.Seq[T]) Enqueuer[S] {
	mustQueue[T]("the queue of Map", q)
	if fn == nil {
		panic("reconcile: Map needs a function, got nil")
	}
	return mapped[S, T]{q, fn}
}

type mapped[S, T comparable] struct {
	q  Enqueuer[T]
	fn func(S) iter.Seq[T]
}

func (m mapped[S, T]) each(s S, f func(T)) {
	if items := m.fn(s); items != nil {
		for item := range items {
			f(item)
		}
	}
}

func (m mapped[S, T]) Enqueue(s S) { m.each(s, m.q.Enqueue) }
func (m mapped[S, T]) Offer(s S)   { m.each(s, m.q.Offer) }

func (m mapped[S, T]) EnqueueAfter(s S, d time.Duration) {
	m.each(s, func(item T) { m.q.EnqueueAfter(item, d) })
}

func mustQueue[T comparable](what string, q any) {
	if err := checkQueue[T](what, q); err != nil {
		panic(err.Error())
	}
}
