// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/reconkernel/reconcile"
)

// ours is the kernel's queue. Its consumers carry a context that can end, as
// every real one does.
type ours[T comparable] struct {
	q      *reconcile.Queue[T]
	ctx    context.Context
	cancel context.CancelFunc
}

var (
	errFailed = context.DeadlineExceeded // any error that exists already
	backoff   = reconcile.Backoff(failDelay, failMax)
)

func newOurs[T comparable](int) queue[T] {
	ctx, cancel := context.WithCancel(context.Background())
	return &ours[T]{reconcile.NewQueue[T](), ctx, cancel}
}

func (o *ours[T]) Add(item T)                       { o.q.Enqueue(item) }
func (o *ours[T]) AddAfter(item T, d time.Duration) { o.q.EnqueueAfter(item, d) }
func (o *ours[T]) Done(item T)                      { o.q.Done(item) }
func (o *ours[T]) Len() int                         { return o.q.Len() }

func (o *ours[T]) Get() (T, bool) {
	item, err := o.q.Dequeue(o.ctx)
	return item, err == nil
}

func (o *ours[T]) RequeueAfter(item T, d time.Duration) { o.q.RequeueAfter(item, d) }

// Fail does what the Reconciler does with a run that failed.
func (o *ours[T]) Fail(item T) {
	d, _ := backoff(errFailed, o.q.State(item).Failures+1)
	o.q.Requeue(item, reconcile.RequeueOptions{Delay: d, MinDelay: d, Err: errFailed})
}

func (o *ours[T]) Close() {
	o.q.Close()
	o.cancel()
}
