// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench measures the queue and the loop beside client-go's workqueue and
// controller-runtime's priorityqueue and controller.
package bench

import (
	"context"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

// A queue is what every implementation is measured through. Each adapter costs
// one call through this interface, so none is favoured.
type queue interface {
	Add(item string)
	AddAfter(item string, d time.Duration) // not before d

	// Get waits for an item. It reports false once the queue is closed.
	Get() (item string, ok bool)

	Done(item string)
	RequeueAfter(item string, d time.Duration) // Done, and again in d
	Fail(item string)                          // Done, and again after a back-off
	Len() int                                  // ready items, all Adds so far included
	Close()
}

// An impl is one implementation that a benchmark compares.
type impl struct {
	name string
	open func() queue
	loop func(context.Context, loop) error // a controller around the queue
}

// The implementations, each time with the leanest of client-go's queues that can do
// the work, and with no metrics except in timed.
var (
	plain    = []impl{{nameOurs, newOurs, ourLoop}, {nameClient, newClient, clientLoop}, {nameCtrl, newCtrl, ctrlLoop}}
	timed    = []impl{{nameOurs, newOurs, nil}, {nameClient, newClientMetrics, nil}}
	delaying = []impl{{nameOurs, newOurs, nil}, {nameClient, newClientDelayed, nil}, {nameCtrl, newCtrl, nil}}
	limiting = []impl{{nameOurs, newOurs, nil}, {nameClient, newClientLimited, nil}, {nameCtrl, newCtrl, nil}}
)

const (
	nameOurs   = "reconcile"
	nameClient = "client-go"
	nameCtrl   = "controller-runtime"
)

// compare runs a benchmark with one implementation after the other. It panics if that
// takes too long, because -timeout does not end benchmarks.
func compare(b *testing.B, impls []impl, run func(b *testing.B, im impl)) {
	for _, im := range impls {
		b.Run("impl="+im.name, func(b *testing.B) {
			stuck := time.AfterFunc(10*time.Minute, func() {
				panic("stuck: an item is lost, or a worker sleeps while one is queued")
			})
			defer stuck.Stop()
			run(b, im)
		})
	}
}

// The back-off of a failed run, the same for every implementation.
const (
	failDelay = time.Minute
	failMax   = 10 * time.Minute
)

// ours is the kernel's queue. Its consumers carry a context that can end, as
// every real one does.
type ours struct {
	*reconcile.Queue[string]
	ctx    context.Context
	cancel context.CancelFunc
}

var (
	errFailed = context.DeadlineExceeded // any error that exists already
	backoff   = reconcile.Backoff(failDelay, failMax)
)

func newOurs() queue {
	ctx, cancel := context.WithCancel(context.Background())
	return &ours{reconcile.NewQueue[string](), ctx, cancel}
}

func (o *ours) Add(item string)                       { o.Enqueue(item) }
func (o *ours) AddAfter(item string, d time.Duration) { o.EnqueueAfter(item, d) }

func (o *ours) Get() (string, bool) {
	item, err := o.Dequeue(o.ctx)
	return item, err == nil
}

// Fail does what the Reconciler does with a run that failed.
func (o *ours) Fail(item string) {
	d, _ := backoff(errFailed, o.State(item).Failures+1)
	o.Requeue(item, reconcile.RequeueOptions{Delay: d, MinDelay: d, Err: errFailed})
}

func (o *ours) Close() {
	o.Queue.Close()
	o.cancel()
}

// theirs is a queue of client-go or controller-runtime. The plain verbs of client-go
// go to the typed queue, which is the fastest of the three; the delaying and the rate
// limiting queue around it are made when a workload needs them.
type theirs struct {
	workqueue.TypedInterface[string]
	delayed workqueue.TypedDelayingInterface[string]
	limited workqueue.TypedRateLimitingInterface[string]
}

func newClient() queue {
	return &theirs{TypedInterface: workqueue.NewTyped[string]()}
}

func newClientDelayed() queue {
	q := workqueue.NewTypedDelayingQueue[string]()
	return &theirs{TypedInterface: q, delayed: q}
}

func newClientLimited() queue {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](failDelay, failMax))
	return &theirs{TypedInterface: q, delayed: q, limited: q}
}

// newClientMetrics is the typed queue with its metrics on. The metrics
// themselves do nothing, so that only the queue's own bookkeeping is measured.
func newClientMetrics() queue {
	return &theirs{TypedInterface: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{
		Name:            "bench",
		MetricsProvider: idleMetrics{},
	})}
}

// newCtrl is controller-runtime's priority queue, with every item of one priority.
// Without a name it keeps no metrics.
func newCtrl() queue {
	q := priorityqueue.New("", func(o *priorityqueue.Opts[string]) {
		o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[string](failDelay, failMax)
	})
	return &theirs{TypedInterface: q, delayed: q, limited: q}
}

func (q *theirs) AddAfter(item string, d time.Duration) { q.delayed.AddAfter(item, d) }

func (q *theirs) Get() (string, bool) {
	item, shutdown := q.TypedInterface.Get()
	return item, !shutdown
}

func (q *theirs) RequeueAfter(item string, d time.Duration) {
	q.delayed.AddAfter(item, d)
	q.Done(item)
}

func (q *theirs) Fail(item string) {
	q.limited.AddRateLimited(item)
	q.Done(item)
}

// Close may be called again, which ShutDown of controller-runtime's queue may not.
func (q *theirs) Close() {
	if !q.ShuttingDown() {
		q.ShutDown()
	}
}

// idleMetrics is a provider of metrics that drop every value.
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
