// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/supervise"
)

// The programs of events-and-observations.md and back-off.md that start, stop and restart sources.

type machine struct{ Region, Name string }

// regions keeps a poller for each region that is wanted. It is for one goroutine.
type regions struct {
	group *supervise.Group
	queue reconcile.Enqueuer[machine]
	list  func(ctx context.Context, region string) ([]machine, error)
	stops map[string]func()
}

func (r *regions) set(wanted ...string) {
	for region, stop := range r.stops {
		if !slices.Contains(wanted, region) {
			stop() // returns when its poll has ended: nothing comes from it any more
			delete(r.stops, region)
		}
	}
	for _, region := range wanted {
		if r.stops[region] == nil {
			r.stops[region] = r.group.Add(region, &reconcile.Poller[machine]{
				Queue:    r.queue,
				GetItems: func(ctx context.Context) ([]machine, error) { return r.list(ctx, region) },
				Period:   time.Minute,
			})
		}
	}
}

func TestSourcesComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[machine]()
		var group supervise.Group
		r := &regions{
			group: &group,
			queue: q,
			list: func(_ context.Context, region string) ([]machine, error) {
				happened.note("list %s", region)
				return []machine{{Region: region, Name: "vm"}}, nil
			},
			stops: make(map[string]func()),
		}
		group.Add("settings", reconcile.RunFunc(func(ctx context.Context) error {
			r.set("eu")
			time.Sleep(90 * time.Second)
			r.set("eu", "us")
			time.Sleep(75 * time.Second)
			r.set("us")
			<-ctx.Done()
			return nil
		}))
		group.Add("vms", &reconcile.Reconciler[machine]{
			Queue:     q,
			Reconcile: func(context.Context, machine) error { return nil },
		})
		run(t, &group, 4*time.Minute)
		happened.check(t, `
0s      list eu
1m0s    list eu
1m30s   list us
2m0s    list eu
2m30s   list us
3m30s   list us
`)
	})
}

func TestSourcesRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		poller := &reconcile.Poller[string]{
			Queue: q,
			GetItems: func(context.Context) ([]string, error) {
				happened.note("list")
				return nil, nil
			},
			Period: 10 * time.Minute,
		}
		stream := func(ctx context.Context, q reconcile.Enqueuer[string]) error {
			time.Sleep(time.Second) // to connect
			happened.note("connected")
			poller.Trigger() // what happened before is not in the stream
			select {
			case <-time.After(10 * time.Second):
				return errors.New("connection reset")
			case <-ctx.Done():
				return nil
			}
		}

		var group supervise.Group
		group.Add("list", poller)
		group.Add("events", supervise.Restart(each(5*time.Second), reconcile.Feed(q, stream)))
		run(t, &group, 20*time.Second)
		happened.check(t, `
0s      list
1s      connected
1s      list
17s     connected
17s     list
`)
	})
}

func TestSourcesSync(t *testing.T) {
	load := func(t *testing.T, takes time.Duration, want string) {
		synctest.Test(t, func(t *testing.T) {
			happened := newDiary()
			q := reconcile.NewQueue[string]()
			q.Enqueue("vm")
			loaded := make(chan struct{})

			var group supervise.Group
			group.Add("cache", reconcile.RunFunc(func(ctx context.Context) error {
				time.Sleep(takes) // a big list
				close(loaded)
				<-ctx.Done()
				return nil
			}))
			ready := func(ctx context.Context) error {
				select {
				case <-loaded:
					return nil
				case <-time.After(time.Minute):
					return errors.New("the cache has not loaded in a minute")
				case <-ctx.Done():
					return nil
				}
			}
			group.Add("vms", supervise.After(ready, &reconcile.Reconciler[string]{
				Queue: q,
				Reconcile: func(_ context.Context, vm string) error {
					happened.note("look at %s", vm)
					return nil
				},
			}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if err := group.Run(ctx); err != nil {
				happened.note("%v", err)
			}
			happened.check(t, want)
		})
	}
	t.Run("in time", func(t *testing.T) {
		load(t, 20*time.Second, `
20s     look at vm
`)
	})
	t.Run("late", func(t *testing.T) {
		load(t, 61*time.Second, `
1m1s    vms: not ready: the cache has not loaded in a minute
`)
	})
}

func TestKindsWithoutAHandler(t *testing.T) {
	type item struct{ Kind, Name string }
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		handlers := map[string]func(ctx context.Context, name string) error{
			"bucket": func(_ context.Context, name string) error { happened.note("bucket %s", name); return nil },
		}
		reconcileAny := func(ctx context.Context, i item) error {
			handle, ok := handlers[i.Kind]
			if !ok {
				return nil // nobody serves this kind any more
			}
			if err := handle(ctx, i.Name); err != nil {
				return fmt.Errorf("%s: %w", i.Kind, err)
			}
			return nil
		}
		q := reconcile.NewQueue[item]()
		q.Enqueue(item{"bucket", "logs"})
		q.Enqueue(item{"queue", "mail"})
		run(t, &reconcile.Reconciler[item]{Queue: q, Reconcile: reconcileAny}, time.Second)
		happened.check(t, `
0s      bucket logs
`)
	})
}
