// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package priorityqueue offers, over a reconcile.Queue, the names that the tests
// of controller-runtime's package of this name use. Those tests are laid over
// this folder.
//
//lint:file-ignore U1000,SA1019 the names are those that the tests use
package priorityqueue

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onsi/gomega"
	"github.com/reconkernel/reconcile"
	"k8s.io/client-go/util/workqueue"
)

// AddOpts says how an item is added. A Priority below zero is what
// controller-runtime gives to what it lists, so that is offered, behind events,
// unless the item is in flight: then it runs again there. There are no others.
type AddOpts struct {
	After       time.Duration
	RateLimited bool
	Priority    *int
}

type priorityqueue[T comparable] struct {
	queue       *reconcile.Queue[T]
	rateLimiter workqueue.TypedRateLimiter[T]
	metrics     counts
	ctx         context.Context // done at ShutDown
	end         context.CancelFunc

	tick       func(time.Duration) <-chan time.Time // set by tests, and never called
	lockedLock sync.Mutex
	locked     inFlight
}

// An inFlight says how many items are in flight.
type inFlight func() reconcile.Stats

func (f inFlight) Len() int { return f().InFlight }

// New returns a queue; its name is for metrics.
func New[T comparable](string) *priorityqueue[T] {
	q := &priorityqueue[T]{
		queue:       reconcile.NewQueue[T](),
		rateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[T](5*time.Millisecond, 1000*time.Second),
	}
	q.queue.Background = 8
	q.ctx, q.end = context.WithCancel(context.Background())
	q.locked, q.metrics.stats = q.queue.Stats, q.queue.Stats
	return q
}

func (q *priorityqueue[T]) AddWithOpts(o AddOpts, items ...T) {
	for _, item := range items {
		after := o.After
		if o.RateLimited {
			if d := q.rateLimiter.When(item); after == 0 || d < after {
				after = d
			}
		}
		switch {
		case after > 0: // of two the sooner one stays, as there
			q.metrics.delayed.Add(1)
			q.queue.EnqueueWithin(item, after)
		case o.Priority != nil && *o.Priority < 0 && q.queue.State(item).Phase != reconcile.InFlight:
			q.queue.Offer(item)
		default:
			q.queue.Enqueue(item)
		}
	}
}

func (q *priorityqueue[T]) Add(item T) { q.AddWithOpts(AddOpts{}, item) }

func (q *priorityqueue[T]) Get() (item T, shutdown bool) {
	item, err := q.queue.Dequeue(q.ctx)
	return item, err != nil
}

func (q *priorityqueue[T]) GetWithPriority() (item T, priority int, shutdown bool) {
	item, shutdown = q.Get()
	return item, 0, shutdown
}

func (q *priorityqueue[T]) Done(item T) { q.queue.Done(item) }

// Len counts what is in flight and runs again at once, too.
func (q *priorityqueue[T]) Len() int { s := q.queue.Stats(); return s.Ready + s.Again }

// ShutDown leaves behind what is ready, so it ends the context as well.
func (q *priorityqueue[T]) ShutDown() {
	q.queue.Close()
	q.end()
}

// counts stands for the fake provider of metrics.
type counts struct {
	mu      sync.Mutex             // is locked by tests
	depth   map[string]map[int]int // by priority: nil, as there are none
	stats   func() reconcile.Stats
	delayed atomic.Int64
}

func (c *counts) adds(string) int    { return int(c.stats().Enqueued) }
func (c *counts) retries(string) int { return int(c.delayed.Load()) }

func newQueue() (*priorityqueue[string], *counts) {
	q := New[string]("test")
	return q, &q.metrics
}

// newQueueWithTimeForwarder moves the clock of the bubble that the test runs in.
func newQueueWithTimeForwarder() (*priorityqueue[string], *counts, func(time.Duration)) {
	q, metrics := newQueue()
	return q, metrics, func(d time.Duration) {
		time.Sleep(d)
		synctest.Wait()
	}
}

// Describe and It stand for Ginkgo's: each spec is a test in a bubble.
func Describe(_ string, specs func()) bool { specs(); return true }

func It(name string, spec func()) { specs = append(specs, named{name, spec}) }

type named struct {
	name string
	spec func()
}

var specs []named

func runSpecs(t *testing.T) {
	for _, s := range specs {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gomega.RegisterTestingT(t)
				s.spec()
			})
		})
	}
}
