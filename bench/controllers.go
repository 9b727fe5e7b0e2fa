// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/reconkernel/reconcile"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// A loop says what a controller is to do. Whoever runs it calls feed with the
// queue before a worker starts, and returns when ctx is done and all workers
// have ended.
type loop struct {
	ctx       context.Context
	workers   int
	log       *slog.Logger
	feed      func(q feeder)
	reconcile func(item string)
}

type feeder interface {
	Add(item string)
	AddAfter(item string, d time.Duration)
}

func ourLoop(l loop) error {
	q := newOurs[string](0).(*ours[string])
	l.feed(q)
	r := &reconcile.Reconciler[string]{
		Queue: q.q,
		Reconcile: func(_ context.Context, item string) error {
			l.reconcile(item)
			return nil
		},
		Name:    "bench",
		Workers: l.workers,
		Logger:  l.log,
	}
	return r.Run(l.ctx)
}

// clientLoop is the loop of client-go's own examples: take, work, forget, and
// log at Debug, as the kernel does.
func clientLoop(l loop) error {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	l.feed(clientFeeder{q})
	work := func(_ context.Context, item string) error {
		l.reconcile(item)
		return nil
	}
	next := func() bool {
		item, shutdown := q.Get()
		if shutdown {
			return false
		}
		defer q.Done(item)
		if err := work(l.ctx, item); err != nil {
			l.log.Warn("reconcile failed", "item", item, "err", err)
			q.AddRateLimited(item)
			return true
		}
		l.log.Debug("reconciled", "item", item)
		q.Forget(item)
		return true
	}
	var all sync.WaitGroup
	for range l.workers {
		all.Go(func() {
			for next() {
			}
		})
	}
	<-l.ctx.Done()
	q.ShutDown()
	all.Wait()
	return nil
}

type clientFeeder struct {
	workqueue.TypedRateLimitingInterface[string]
}

// ctrlLoop is controller-runtime's controller with its default queue, fed by a
// source, without a manager.
func ctrlLoop(l loop) error { return runCtrl(l, true) }

// ctrlLoopClient is the same controller around client-go's queue.
func ctrlLoopClient(l loop) error { return runCtrl(l, false) }

func runCtrl(l loop, priority bool) error {
	skip := true
	c, err := controller.NewTypedUnmanaged("bench", controller.TypedOptions[string]{
		SkipNameValidation:      &skip,
		UsePriorityQueue:        &priority,
		MaxConcurrentReconciles: l.workers,
		Logger:                  logr.FromSlogHandler(l.log.Handler()),
		Reconciler: ctrlreconcile.TypedFunc[string](func(_ context.Context, item string) (ctrlreconcile.Result, error) {
			l.reconcile(item)
			return ctrlreconcile.Result{}, nil
		}),
	})
	if err != nil {
		return err
	}
	feed := source.TypedFunc[string](func(_ context.Context, q workqueue.TypedRateLimitingInterface[string]) error {
		l.feed(clientFeeder{q})
		return nil
	})
	if err := c.Watch(feed); err != nil {
		return err
	}
	return c.Start(l.ctx)
}
