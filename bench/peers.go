// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// The back-off of a failed run, the same for every implementation.
const (
	failDelay = time.Minute
	failMax   = 10 * time.Minute
)

// client is client-go's workqueue. The plain verbs go to the typed queue, which
// is the fastest of the three; the delaying and the rate limiting queue around
// it are made when a workload needs them.
type client[T comparable] struct {
	typed   workqueue.TypedInterface[T]
	delayed workqueue.TypedDelayingInterface[T]
	limited workqueue.TypedRateLimitingInterface[T]
}

func newClient[T comparable](int) queue[T] {
	return &client[T]{typed: workqueue.NewTyped[T]()}
}

func newClientDelayed() queue[string] {
	q := workqueue.NewTypedDelayingQueue[string]()
	return &client[string]{typed: q, delayed: q}
}

func newClientLimited() queue[string] {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](failDelay, failMax))
	return &client[string]{typed: q, delayed: q, limited: q}
}

// newClientMetrics is the typed queue with its metrics on. The metrics
// themselves do nothing, so that what is seen is the queue's own bookkeeping.
func newClientMetrics[T comparable](int) queue[T] {
	return &client[T]{typed: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{
		Name:            "bench",
		MetricsProvider: idleMetrics{},
	})}
}

func (c *client[T]) Add(item T)                       { c.typed.Add(item) }
func (c *client[T]) AddAfter(item T, d time.Duration) { c.delayed.AddAfter(item, d) }
func (c *client[T]) Done(item T)                      { c.typed.Done(item) }
func (c *client[T]) Len() int                         { return c.typed.Len() }
func (c *client[T]) Close()                           { c.typed.ShutDown() }

func (c *client[T]) Get() (T, bool) {
	item, shutdown := c.typed.Get()
	return item, !shutdown
}

func (c *client[T]) RequeueAfter(item T, d time.Duration) {
	c.delayed.AddAfter(item, d)
	c.typed.Done(item)
}

func (c *client[T]) Fail(item T) {
	c.limited.AddRateLimited(item)
	c.typed.Done(item)
}

// ctrl is controller-runtime's priority queue, with every item of one priority.
// Without a name it keeps no metrics.
type ctrl[T comparable] struct {
	q priorityqueue.PriorityQueue[T]
}

func newCtrl[T comparable](int) queue[T] {
	return &ctrl[T]{priorityqueue.New("", func(o *priorityqueue.Opts[T]) {
		o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[T](failDelay, failMax)
	})}
}

func (c *ctrl[T]) Add(item T)                       { c.q.Add(item) }
func (c *ctrl[T]) AddAfter(item T, d time.Duration) { c.q.AddAfter(item, d) }
func (c *ctrl[T]) Done(item T)                      { c.q.Done(item) }
func (c *ctrl[T]) Len() int                         { return c.q.Len() }

func (c *ctrl[T]) Get() (T, bool) {
	item, shutdown := c.q.Get()
	return item, !shutdown
}

func (c *ctrl[T]) RequeueAfter(item T, d time.Duration) {
	c.q.AddAfter(item, d)
	c.q.Done(item)
}

func (c *ctrl[T]) Fail(item T) {
	c.q.AddRateLimited(item)
	c.q.Done(item)
}

// Close may be called again, which ShutDown of this queue may not.
func (c *ctrl[T]) Close() {
	if !c.q.ShuttingDown() {
		c.q.ShutDown()
	}
}

// idleMetrics is a provider of metrics that drop what they are told.
type idleMetrics struct{}

type idleMetric struct{}

func (idleMetric) Inc()            {}
func (idleMetric) Dec()            {}
func (idleMetric) Set(float64)     {}
func (idleMetric) Observe(float64) {}

func (idleMetrics) NewDepthMetric(string) workqueue.GaugeMetric            { return idleMetric{} }
func (idleMetrics) NewAddsMetric(string) workqueue.CounterMetric           { return idleMetric{} }
func (idleMetrics) NewLatencyMetric(string) workqueue.HistogramMetric      { return idleMetric{} }
func (idleMetrics) NewWorkDurationMetric(string) workqueue.HistogramMetric { return idleMetric{} }
func (idleMetrics) NewRetriesMetric(string) workqueue.CounterMetric        { return idleMetric{} }
func (idleMetrics) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return idleMetric{}
}

func (idleMetrics) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return idleMetric{}
}
