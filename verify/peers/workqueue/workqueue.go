// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package workqueue offers, over a reconcile.Queue, the names that the tests of
// client-go's package of this name use. Those tests are laid over this folder.
//
//lint:file-ignore U1000,SA1019 the names are those that the tests use
package workqueue

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"k8s.io/client-go/util/workqueue"
)

type (
	Interface           = workqueue.Interface
	DelayingInterface   = workqueue.DelayingInterface
	Queue[T comparable] = workqueue.Queue[T]
	Type                = Typed[any]
	QueueConfig         = TypedQueueConfig[any]
	DelayingQueueConfig struct{ Clock bubbleClock }
	delayingType[T any] struct {
		*Typed[any]
		waitingForAddCh chan T
	} // always empty
	TypedQueueConfig[T comparable] struct {
		Name  string
		Queue Queue[T] // Touch is called; the rest is what a reconcile.Queue does itself
	}
)

// A Typed does each of its verbs by one of the queue.
type Typed[T comparable] struct {
	queue *reconcile.Queue[T]
	touch func(T)
	shut  context.Context // done at ShutDown
	end   context.CancelFunc
}

func New() *Type                             { return NewWithConfig(QueueConfig{}) }
func NewWithConfig(config QueueConfig) *Type { return newTyped(config) }
func DefaultQueue[T comparable]() Queue[T]   { return workqueue.DefaultQueue[T]() }

func NewDelayingQueueWithConfig(DelayingQueueConfig) DelayingInterface {
	return &delayingType[any]{Typed: New()}
}

func newTyped[T comparable](config TypedQueueConfig[T]) *Typed[T] {
	q := &Typed[T]{queue: reconcile.NewQueue[T](), touch: func(T) {}}
	q.shut, q.end = context.WithCancel(context.Background())
	if config.Queue != nil {
		q.touch = config.Queue.Touch
	}
	return q
}

func (q *Typed[T]) Add(item T) {
	if q.queue.State(item).Phase == reconcile.Ready {
		q.touch(item)
	}
	q.queue.Enqueue(item)
}

// AddAfter says when the item runs at the latest: of two the sooner one stays.
func (q *Typed[T]) AddAfter(item T, d time.Duration) { q.queue.EnqueueWithin(item, d) }

func (q *Typed[T]) Get() (item T, shutdown bool) {
	item, err := q.queue.Dequeue(context.Background())
	return item, errors.Is(err, reconcile.ErrClosed)
}

func (q *Typed[T]) Done(item T)        { q.queue.Done(item) }
func (q *Typed[T]) Len() int           { return q.queue.Len() }
func (q *Typed[T]) ShuttingDown() bool { return q.shut.Err() != nil }

func (q *Typed[T]) ShutDown() {
	q.queue.Close()
	q.end()
}

func (q *Typed[T]) ShutDownWithDrain() {
	q.queue.Close()
	_ = q.queue.WaitIdle(q.shut) // ShutDown ends the wait
	q.end()
}

// A bubbleClock stands for client-go's fake clock: it moves the one of the bubble
// of testing/synctest that each test runs in.
type bubbleClock struct{}

func newBubbleClock(time.Time) bubbleClock { return bubbleClock{} }

func (bubbleClock) Step(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
