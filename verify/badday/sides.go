// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package badday

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

const workers = 16

// A side keeps the assets of a world in sync until ctx is done. Events, if there are
// any, are items that it is told of. It returns when nothing of it goes on any more.
type side func(ctx context.Context, w *world, events <-chan string)

// sides are compared; the first is the controller of the example.
var sides = []struct {
	name string
	run  side
}{
	{"reconcile", ours},
	{"workqueue", func(ctx context.Context, w *world, events <-chan string) { theirs(ctx, w, events, nil) }},
	{"workqueue and rate", func(ctx context.Context, w *world, events <-chan string) {
		theirs(ctx, w, events, rate.NewLimiter(rate.Limit(0.8*w.rate), int(w.rate/5)))
	}},
	{"ticker", ticker},
}

// What one step towards order made of an asset.
var (
	errInSync   = errors.New("in sync")
	errComing   = errors.New("being made")
	errDidAStep = errors.New("did a step")
)

// step does the next step for one asset: the same for all sides but ours. Want is what
// the side believes is wished for.
func step(ctx context.Context, w *world, name, want string, wanted bool) error {
	a, err := w.get(ctx, name)
	missing := errors.Is(err, errNotFound)
	switch {
	case missing && wanted:
		if err := w.create(ctx, name, want); err != nil {
			return err
		}
		return errComing
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
		return errComing
	case a.spec != want:
		if err := w.update(ctx, name, want); err != nil {
			return err
		}
		return errDidAStep
	}
	return errInSync
}

// theirs is the usual loop on a workqueue: a change of a wish is an event, all is
// looked at again each ten minutes.
func theirs(ctx context.Context, w *world, events <-chan string, limit *rate.Limiter) {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer q.ShutDown()
	var wishes atomic.Pointer[map[string]string]
	first, _ := w.listWishes(ctx)
	wishes.Store(&first)
	var all sync.WaitGroup
	defer all.Wait()
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
				want, wanted := (*wishes.Load())[name]
				err := step(runCtx, w, name, want, wanted)
				cancel()
				switch err {
				case nil, errInSync:
					q.Forget(name)
				case errComing:
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
	defer q.ShutDown()
	lookAtAll := func() {
		there, err := w.listAssets(ctx)
		if err != nil {
			there = nil
		}
		for _, names := range []map[string]string{there, *wishes.Load()} {
			for name := range names {
				q.Add(name)
			}
		}
	}
	lookAtAll()
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
			old := *wishes.Load()
			now, _ := w.listWishes(ctx)
			wishes.Store(&now)
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
			lookAtAll()
		}
	}
}

// ticker goes through all each ten minutes.
func ticker(ctx context.Context, w *world, events <-chan string) {
	tick := time.NewTicker(10 * time.Minute)
	defer tick.Stop()
	for {
		wishes, _ := w.listWishes(ctx)
		names := maps.Clone(wishes)
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
						want, wanted := wishes[name]
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
