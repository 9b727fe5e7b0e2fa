// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package badday

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

const workers = 16

// A service keeps the assets of a world in sync until ctx is done. Events has the items
// of events; it may be nil. A service returns when all of its goroutines have ended.
type service func(ctx context.Context, w *world, events <-chan string)

// services are compared with the first one, the controller of the example.
var services = []struct {
	name string
	run  service
}{
	{"reconcile", ours},
	{"workqueue", func(ctx context.Context, w *world, events <-chan string) { theirs(ctx, w, events, nil) }},
	{"workqueue and rate", func(ctx context.Context, w *world, events <-chan string) {
		theirs(ctx, w, events, rate.NewLimiter(rate.Limit(0.8*w.rate), int(w.rate/5)))
	}},
	{"workqueue, rate and listing", listing},
	{"ticker", ticker},
}

// The results of one step.
var (
	errInSync   = errors.New("in sync")
	errCreating = errors.New("being created")
	errDidAStep = errors.New("did a step")
)

// step does the next step for one asset, for all services except ours. Want is the
// desired spec as the service knows it.
func step(ctx context.Context, w *world, name, want string, wanted bool) error {
	a, err := w.get(ctx, name)
	missing := errors.Is(err, errNotFound)
	switch {
	case missing && wanted:
		if err := w.create(ctx, name, want); err != nil {
			return err
		}
		return errCreating
	case missing:
		return nil
	case err != nil:
		return err
	case !wanted:
		if err := w.remove(ctx, name); err != nil {
			return err
		}
		return errDidAStep
	case time.Now().Before(a.ready):
		return errCreating
	case a.spec != want:
		if err := w.update(ctx, name, want); err != nil {
			return err
		}
		return errDidAStep
	}
	return errInSync
}

// work starts the workers of a workqueue, until it is shut down.
func work(ctx context.Context, w *world, q workqueue.TypedRateLimitingInterface[string], all *sync.WaitGroup, desired *atomic.Pointer[map[string]string], limit *rate.Limiter) {
	for range workers {
		all.Go(func() {
			for {
				name, down := q.Get()
				if down {
					return
				}
				if ctx.Err() != nil || limit != nil && limit.Wait(ctx) != nil {
					q.Done(name)
					continue
				}
				runCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
				want, wanted := (*desired.Load())[name]
				err := step(runCtx, w, name, want, wanted)
				cancel()
				switch err {
				case nil, errInSync:
					q.Forget(name)
				case errCreating:
					q.Forget(name)
					q.AddAfter(name, 10*time.Second)
				case errDidAStep:
					q.Forget(name)
					q.Add(name)
				default:
					q.AddRateLimited(name)
				}
				q.Done(name)
			}
		})
	}
}

// firstDesired lists the desired state until that succeeds, or ctx is done.
func firstDesired(ctx context.Context, w *world) map[string]string {
	for ctx.Err() == nil {
		if all, err := w.listDesired(ctx); err == nil {
			return all
		}
		time.Sleep(10 * time.Second)
	}
	return nil
}

// theirs is the usual loop on a workqueue. A change of the desired state is an event, and
// all assets are checked again each ten minutes.
func theirs(ctx context.Context, w *world, events <-chan string, limit *rate.Limiter) {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	var desired atomic.Pointer[map[string]string]
	first := firstDesired(ctx, w)
	desired.Store(&first)
	var all sync.WaitGroup
	defer all.Wait()
	defer q.ShutDown()
	work(ctx, w, q, &all, &desired, limit)
	enqueueAll := func() {
		there, err := w.listAssets(ctx)
		if err != nil {
			there = nil
		}
		for _, names := range []map[string]string{there, *desired.Load()} {
			for name := range names {
				q.Add(name)
			}
		}
	}
	enqueueAll()
	minute, tenMinutes := time.NewTicker(time.Minute), time.NewTicker(10*time.Minute)
	defer minute.Stop()
	defer tenMinutes.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-events:
			q.Add(name)
		case <-minute.C:
			old := *desired.Load()
			now, err := w.listDesired(ctx)
			if err != nil {
				continue
			}
			desired.Store(&now)
			for name, want := range now {
				if old[name] != want {
					q.Add(name)
				}
			}
			for name := range old {
				if _, ok := now[name]; !ok {
					q.Add(name)
				}
			}
		case <-tenMinutes.C:
			enqueueAll()
		}
	}
}

// listing is a loop on a workqueue with a limit of the runs. Each minute it lists both
// sides, and enqueues the assets that differ, and a share of the others.
func listing(ctx context.Context, w *world, events <-chan string) {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	var desired atomic.Pointer[map[string]string]
	first := firstDesired(ctx, w)
	desired.Store(&first)
	var all sync.WaitGroup
	defer all.Wait()
	defer q.ShutDown()
	work(ctx, w, q, &all, &desired, rate.NewLimiter(rate.Limit(0.8*w.rate), int(w.rate/5)))
	compare := func() {
		there, err := w.listAssets(ctx)
		now, errDesired := w.listDesired(ctx)
		if errDesired == nil {
			old := *desired.Load()
			desired.Store(&now)
			for name, want := range now {
				if old[name] != want || err == nil && there[name] != want || rand.Float64() < time.Minute.Seconds()/w.recheck.Seconds() {
					q.Add(name)
				}
			}
		}
		for name := range there {
			if _, wanted := (*desired.Load())[name]; !wanted {
				q.Add(name)
			}
		}
	}
	compare()
	minute := time.NewTicker(time.Minute)
	defer minute.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case name := <-events:
			q.Add(name)
		case <-minute.C:
			compare()
		}
	}
}

// ticker checks all assets one after the other each ten minutes.
func ticker(ctx context.Context, w *world, events <-chan string) {
	tick := time.NewTicker(10 * time.Minute)
	defer tick.Stop()
	for {
		desired := firstDesired(ctx, w)
		names := maps.Clone(desired)
		if there, err := w.listAssets(ctx); err == nil {
			maps.Copy(names, there)
		}
		items := make(chan string)
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for name := range items {
					if ctx.Err() == nil {
						runCtx, cancel := context.WithTimeout(ctx, 30*time.Second)
						want, wanted := desired[name]
						_ = step(runCtx, w, name, want, wanted) // the next round tries again
						cancel()
					}
				}
			})
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			items <- name
		}
		close(items)
		all.Wait()
		for waits := true; waits; {
			select {
			case <-ctx.Done():
				return
			case <-events:
			case <-tick.C:
				waits = false
			}
		}
	}
}
