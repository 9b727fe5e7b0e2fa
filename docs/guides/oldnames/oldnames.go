// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package oldnames has the names of openclarity/simple-controller-runtime on package
// reconcile, to be copied into a service that keeps its code. Its page is
// from-simple-controller-runtime.md.
package oldnames

import (
	"context"
	"fmt"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Queue also has the methods of [reconcile.Queue].
type Queue[T comparable] = reconcile.Queue[T]

// NewQueue returns an empty queue.
func NewQueue[T comparable]() *Queue[T] { return reconcile.NewQueue[T]() }

// NewRequeueAfterError returns an error after which no event runs the item before d.
func NewRequeueAfterError(d time.Duration, msg string) error {
	return fmt.Errorf("%s: %w", msg, reconcile.RequeueAfter(d))
}

// A Poller offers the items of GetItems to Queue each PollPeriod.
type Poller[T comparable] struct {
	PollPeriod time.Duration
	GetItems   func(context.Context) ([]T, error)
	Queue      reconcile.Enqueuer[T]
}

// Start returns at once. The poller ends with ctx.
func (p *Poller[T]) Start(ctx context.Context) {
	start(ctx, &reconcile.Poller[T]{Queue: p.Queue, GetItems: p.GetItems, Period: p.PollPeriod})
}

// A Reconciler calls ReconcileFunction for each item of Queue.
type Reconciler[T comparable] struct {
	ReconcileFunction func(context.Context, T) error
	ReconcileTimeout  time.Duration // 0 means none
	Queue             reconcile.Dequeuer[T]
}

// Start returns at once. Each call starts one more worker, which ends with ctx.
func (r *Reconciler[T]) Start(ctx context.Context) {
	start(ctx, &reconcile.Reconciler[T]{
		Queue:     r.Queue,
		Reconcile: r.ReconcileFunction,
		Timeout:   r.ReconcileTimeout,
		Retry:     reconcile.NoRetry, // the next poll runs a failed item
	})
}

// start runs r and logs why it ended, if not because of ctx: a field is missing.
func start(ctx context.Context, r reconcile.Runner) {
	go func() {
		if err := r.Run(ctx); err != nil {
			reconcile.Logger(ctx).Error("not started", "error", err)
		}
	}()
}
