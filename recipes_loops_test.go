// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// Several steps for one item are one function that calls them in order. Each
// has its say, whatever became of those before.
func TestRecipeSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		network := func(context.Context, string) error {
			happened.note("network")
			return errors.New("no address left")
		}
		disk := func(context.Context, string) error {
			happened.note("disk")
			return nil
		}

		q := reconcile.NewQueue[string]()
		q.Enqueue("vm")
		run(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(ctx context.Context, vm string) error {
				return errors.Join(network(ctx, vm), disk(ctx, vm))
			},
			Retry:    reconcile.NoRetry,
			OnResult: func(r reconcile.Result[string]) { happened.note("%s: %v", r.Outcome, r.Err) },
			Logger:   quiet,
		}, time.Second)

		happened.check(t, "0s network", "0s disk", "0s gave up: no address left")
	})
}

// every hands each event to several queues.
type every[T comparable] []reconcile.Enqueuer[T]

func (e every[T]) Enqueue(item T) {
	for _, q := range e {
		q.Enqueue(item)
	}
}

func (e every[T]) EnqueueAfter(item T, d time.Duration) {
	for _, q := range e {
		q.EnqueueAfter(item, d)
	}
}

func (e every[T]) Offer(item T) {
	for _, q := range e {
		q.Offer(item)
	}
}

// Reconcilers that are independent of each other have a queue each and may
// share a feeder. One that fails is tried again alone.
func TestRecipeIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		dns, billing := reconcile.NewQueue[string](), reconcile.NewQueue[string]()
		events := make(chan string, 1)
		events <- "vm"

		failures := 2
		var g reconcile.Group
		g.Add("events", reconcile.Feed(every[string]{dns, billing}, reconcile.FromChan(events)))
		g.Add("dns", &reconcile.Reconciler[string]{
			Queue: dns,
			Reconcile: func(_ context.Context, item string) error {
				happened.note("dns of %s", item)
				if failures--; failures >= 0 {
					return errors.New("no answer")
				}
				return nil
			},
			Retry:  func(error, int) (time.Duration, bool) { return time.Minute, true },
			Logger: quiet,
		})
		g.Add("billing", &reconcile.Reconciler[string]{
			Queue: billing,
			Reconcile: func(_ context.Context, item string) error {
				time.Sleep(time.Second)
				happened.note("bill of %s", item)
				return nil
			},
		})
		run(t, &g, time.Hour)

		happened.check(t, "0s dns of vm", "1s bill of vm", "1m0s dns of vm", "2m0s dns of vm")
	})
}

// What a run found out and the next one needs is kept beside the queue, by
// item, or better in the asset itself; the queue hands on keys alone.
func TestRecipeProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		operation := make(map[string]string) // one worker; with more, a sync.Map

		q := reconcile.NewQueue[string]()
		q.Enqueue("vm")
		run(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				if operation[item] == "" {
					happened.note("start")
					operation[item] = "op-7"
					return fmt.Errorf("%s runs: %w", operation[item], reconcile.RequeueWithin(10*time.Second))
				}
				happened.note("%s ended", operation[item])
				delete(operation, item)
				return nil
			},
		}, time.Minute)

		happened.check(t, "0s start", "10s op-7 ended")
	})
}

// Kinds that come and go share a queue when the kind is part of the item. A
// kind that nobody serves any more ends quietly.
func TestRecipeKinds(t *testing.T) {
	type item struct{ Kind, Name string }
	type handler = func(ctx context.Context, name string) error
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		var serving sync.Map // kind to handler
		serve := func(kind string) {
			serving.Store(kind, func(_ context.Context, name string) error {
				happened.note("%s %s", kind, name)
				return nil
			})
		}

		q := reconcile.NewQueue[item]()
		serve("bucket")
		q.Enqueue(item{"bucket", "logs"})
		q.Enqueue(item{"key", "master"})
		time.AfterFunc(time.Minute, func() {
			serve("key")
			serving.Delete("bucket")
			q.Enqueue(item{"bucket", "logs"})
			q.Enqueue(item{"key", "master"})
		})
		run(t, &reconcile.Reconciler[item]{
			Queue: q,
			Reconcile: func(ctx context.Context, i item) error {
				if h, ok := serving.Load(i.Kind); ok {
					return h.(handler)(ctx, i.Name)
				}
				return nil
			},
		}, time.Hour)

		happened.check(t, "0s bucket logs", "1m0s key master")
	})
}

// What several groups need is a member of one of them. The others wait until it
// is ready.
func TestRecipeOneRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		loaded := make(chan struct{})
		ready := func(ctx context.Context) error {
			select {
			case <-loaded:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		uses := func(name string) reconcile.Runner {
			return reconcile.After(ready, reconcile.RunFunc(func(ctx context.Context) error {
				happened.note("%s begins", name)
				<-ctx.Done()
				return nil
			}))
		}

		var all, vms, disks reconcile.Group
		vms.Add("reconciler", uses("vms"))
		disks.Add("reconciler", uses("disks"))
		all.Add("cache", reconcile.RunFunc(func(ctx context.Context) error {
			time.Sleep(20 * time.Second)
			close(loaded)
			<-ctx.Done()
			return nil
		}))
		all.Add("vms", &vms)
		all.Add("disks", &disks)
		run(t, &all, time.Hour)

		happened.sort() // the two come in no order
		happened.check(t, "20s disks begins", "20s vms begins")
	})
}

// A handler that is replaced takes effect with the next run; Trigger asks for
// one of everything.
func TestRecipeReplace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		var version atomic.Int32
		version.Store(1)
		q := reconcile.NewQueue[string]()
		poller := &reconcile.Poller[string]{
			Queue:    q,
			Period:   time.Hour,
			GetItems: func(context.Context) ([]string, error) { return []string{"a", "b"}, nil },
		}
		time.AfterFunc(time.Minute, func() {
			version.Store(2)
			poller.Trigger()
		})
		var g reconcile.Group
		g.Add("list", poller)
		g.Add("items", &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				happened.note("%s by version %d", item, version.Load())
				return nil
			},
		})
		run(t, &g, 30*time.Minute)

		happened.check(t,
			"0s a by version 1", "0s b by version 1",
			"1m0s a by version 2", "1m0s b by version 2")
	})
}

// A limit over all items is a RetryPolicy around another: here retries are
// told apart by a second at least.
func TestRecipeGlobalRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		var mu sync.Mutex // guards last
		last := time.Now()
		spaced := func(err error, failures int) (time.Duration, bool) {
			delay, retry := reconcile.Backoff(time.Millisecond, time.Millisecond)(err, failures)
			if !retry {
				return 0, false
			}
			mu.Lock()
			defer mu.Unlock()
			at := time.Now().Add(delay)
			if next := last.Add(time.Second); at.Before(next) {
				at = next
			}
			last = at
			return time.Until(at), true
		}

		q := reconcile.NewQueue[string]()
		for _, item := range []string{"a", "b", "c"} {
			q.Enqueue(item)
		}
		run(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				happened.note("%s", item)
				if q.State(item).Failures == 0 {
					return errors.New("throttled")
				}
				return nil
			},
			Retry:  spaced,
			Logger: quiet,
		}, time.Minute)

		happened.check(t, "0s a", "0s b", "0s c", "1s a", "2s b", "3s c")
	})
}

// With HoldRetries an event does not cut the back-off short. The feeder, which
// knows what happened, says which events are worth it.
func TestRecipeHoldOrNow(t *testing.T) {
	type event struct {
		Key     string
		Deleted bool
	}
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		feed := func(e event) {
			if e.Deleted {
				q.EnqueueNow(e.Key)
			} else {
				q.Enqueue(e.Key)
			}
		}
		feed(event{Key: "vm"})
		time.AfterFunc(10*time.Minute, func() { feed(event{Key: "vm"}) })
		time.AfterFunc(90*time.Minute, func() { feed(event{Key: "vm", Deleted: true}) })
		run(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				happened.note("%s", item)
				return errors.New("quota")
			},
			Retry:       func(error, int) (time.Duration, bool) { return time.Hour, true },
			HoldRetries: true,
			Logger:      quiet,
		}, 2*time.Hour)

		happened.check(t, "0s vm", "1h0m0s vm", "1h30m0s vm")
	})
}

// A run declares what it depends on at its end, when it went well; one that
// failed leaves the last good declaration in force. A change of what is
// depended on brings all dependants.
func TestRecipeDependencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		var refs reconcile.Refs[string, string] // key to buckets
		var uses sync.Map                       // bucket to key
		uses.Store("logs", "key-1")
		uses.Store("media", "key-1")

		q := reconcile.NewQueue[string]()
		keys := reconcile.Map(q, refs.Of)
		q.Enqueue("logs")
		q.Enqueue("media")
		time.AfterFunc(1*time.Minute, func() { keys.Enqueue("key-1") })
		time.AfterFunc(2*time.Minute, func() {
			uses.Store("media", "key-2")
			q.Enqueue("media")
		})
		time.AfterFunc(3*time.Minute, func() { keys.Enqueue("key-1") })
		run(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, bucket string) error {
				key, _ := uses.Load(bucket)
				happened.note("%s with %s", bucket, key)
				refs.Set(bucket, key.(string))
				return nil
			},
		}, time.Hour)

		happened.sort() // dependants come in no order
		happened.check(t,
			"0s logs with key-1", "0s media with key-1",
			"1m0s logs with key-1", "1m0s media with key-1",
			"2m0s media with key-2",
			"3m0s logs with key-1")
	})
}
