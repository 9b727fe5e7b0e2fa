// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package badday

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/cloud"
	"github.com/reconkernel/reconcile/example/controller"
)

const workers = 16

// A loop is a service on client-go's workqueue.
type loop struct {
	cloud   client
	queue   workqueue.TypedRateLimitingInterface[cloud.ID]
	desired atomic.Pointer[specs]
	limit   *rate.Limiter // of the runs
}

// The results of one step.
var (
	errInSync   = errors.New("in sync")
	errCreating = errors.New("being created")
	errDidAStep = errors.New("did a step")
)

// step does the next step for one asset.
func (l *loop) step(ctx context.Context, id cloud.ID) error {
	want, desired := (*l.desired.Load())[id]
	a, err := l.cloud.Get(ctx, id)
	missing := errors.Is(err, cloud.ErrNotFound)
	switch {
	case missing && desired:
		if _, err := l.cloud.Create(ctx, id, want); err != nil {
			return err
		}
		return errCreating
	case missing:
		return errInSync
	case err != nil:
		return err
	case !desired:
		if err := l.cloud.Delete(ctx, id); err != nil {
			return err
		}
		return errDidAStep
	case a.State == cloud.Creating:
		return errCreating
	case a.Spec != want:
		if err := l.cloud.Update(ctx, id, want, a.Version); err != nil {
			return err
		}
		return errDidAStep
	}
	return errInSync
}

// work runs items until the queue is shut down.
func (l *loop) work(ctx context.Context) {
	for {
		id, down := l.queue.Get()
		if down {
			return
		}
		if ctx.Err() != nil || l.limit.Wait(ctx) != nil {
			l.queue.Done(id)
			continue
		}
		runCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
		err := l.step(runCtx, id)
		cancel()
		switch err {
		case errInSync:
			l.queue.Forget(id)
		case errCreating:
			l.queue.Forget(id)
			l.queue.AddAfter(id, 10*time.Second)
		case errDidAStep:
			l.queue.Forget(id)
			l.queue.Add(id)
		default:
			l.queue.AddRateLimited(id)
		}
		l.queue.Done(id)
	}
}

// theirs is a loop on a workqueue with a limit of the runs. Each minute it lists both
// sides, and enqueues the assets that differ, and a share of the others. It lists the
// cloud as ours does.
func theirs(ctx context.Context, w *world) {
	l := &loop{
		cloud: client{w.cloud, w},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cloud.ID]()),
		limit: rate.NewLimiter(rate.Limit(0.8*w.rate), int(w.rate/5)),
	}
	lister := (&controller.Controller{Cloud: l.cloud}).Set(reconcile.NewQueue[cloud.ID]()) // which does not run
	l.desired.Store(&specs{})
	var all sync.WaitGroup
	defer all.Wait()
	defer l.queue.ShutDown()
	for range workers {
		all.Go(func() { l.work(ctx) })
	}
	each := time.NewTicker(time.Minute)
	defer each.Stop()
	for ctx.Err() == nil {
		there, err := lister.Actual(ctx)
		old, now := *l.desired.Load(), w.listDesired(ctx)
		l.desired.Store(&now)
		for id, want := range now {
			if old[id] != want || err == nil && there[id].Spec != want || rand.Float64() < time.Minute.Seconds()/resync.Seconds() {
				l.queue.Add(id)
			}
		}
		for id := range there {
			if _, desired := now[id]; !desired {
				l.queue.Add(id)
			}
		}
		select {
		case <-ctx.Done():
		case <-each.C:
		}
	}
}
