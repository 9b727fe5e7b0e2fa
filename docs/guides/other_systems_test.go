// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// Programs that show what other systems can do: ../design/from-the-seeds.md.

// What belongs to somebody else is not overwritten and not asked for again and
// again: Terminal, until an event says that something changed.
func TestRecipeNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		var tenants sync.Map // bucket to tenant
		tenants.Store("bucket", "somebody else")

		q := reconcile.NewQueue[string]()
		q.Enqueue("bucket")
		time.AfterFunc(time.Hour, func() {
			tenants.Delete("bucket")
			q.Enqueue("bucket")
		})
		run(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				if tenant, taken := tenants.Load(item); taken {
					return reconcile.Terminal(fmt.Errorf("%s belongs to %s", item, tenant))
				}
				return nil
			},
			OnResult: func(r reconcile.Result[string]) { happened.note("%s %s", r.Item, r.Outcome) },
			Logger:   quiet,
		}, 2*time.Hour)

		happened.check(t, `
0s      bucket terminal_error
1h0m0s  bucket succeeded
`)
	})
}

// The operation is no part of the item: two operations on one object are one
// run that looks at the object. Where each must have a run of its own, the
// operation becomes part of the type.
func TestRecipeOperationInItem(t *testing.T) {
	type job struct{ Op, Key string }
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[job]()
		q.Enqueue(job{"backup", "db"})
		q.Enqueue(job{"rotate", "db"})
		q.Enqueue(job{"backup", "db"})
		run(t, &reconcile.Reconciler[job]{
			Queue: q,
			Reconcile: func(_ context.Context, j job) error {
				happened.note("%s %s", j.Op, j.Key)
				return nil
			},
		}, time.Second)

		happened.check(t, `
0s      backup db
0s      rotate db
`)
	})
}

// A change carries more than a key: the feeder reads it, the queue does
// not. Here changes of the status, which the reconcile function itself writes,
// are distinguished from changes of the desired state by its generation.
func TestRecipeOwnWrites(t *testing.T) {
	type change struct {
		Key        string
		Generation int
	}
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		changes := make(chan change, 10)
		q := reconcile.NewQueue[string]()

		newest := make(map[string]int)
		specs := reconcile.Map(q, func(c change) iter.Seq[string] {
			return func(yield func(string) bool) {
				if c.Generation > newest[c.Key] {
					newest[c.Key] = c.Generation
					yield(c.Key)
				}
			}
		})
		changes <- change{"vm", 1}
		time.AfterFunc(time.Minute, func() { changes <- change{"vm", 2} })

		var g reconcile.Group
		g.Add("changes", reconcile.Feed(specs, reconcile.FromChan(changes)))
		g.Add("vms", &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, key string) error {
				happened.note("%s", key)
				changes <- change{key, newest[key]} // the status, written by us, is seen as a change
				return nil
			},
		})
		run(t, &g, time.Hour)

		happened.check(t, `
0s      vm
1m0s    vm
`)
	})
}

// Any number of sources feed one queue: here a watch for each of two kinds of
// things that belong to an item, and a poll that brings what no watch saw.
func TestRecipeManySources(t *testing.T) {
	type disk struct{ VM string }
	type address struct{ VM string }
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		disks, addresses := make(chan disk), make(chan address)

		var g reconcile.Group
		g.Add("disks", reconcile.Feed(
			reconcile.Map(q, func(d disk) iter.Seq[string] { return slices.Values([]string{d.VM}) }),
			reconcile.FromChan(disks)))
		g.Add("addresses", reconcile.Feed(
			reconcile.Map(q, func(a address) iter.Seq[string] { return slices.Values([]string{a.VM}) }),
			reconcile.FromChan(addresses)))
		g.Add("list", &reconcile.Poller[string]{
			Queue:    q,
			Period:   10 * time.Minute,
			GetItems: func(context.Context) ([]string, error) { return []string{"vm"}, nil },
		})
		g.Add("vms", &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, vm string) error {
				happened.note("%s", vm)
				return nil
			},
		})
		time.AfterFunc(1*time.Minute, func() { disks <- disk{"vm"} })
		time.AfterFunc(2*time.Minute, func() { addresses <- address{"vm"} })
		run(t, &g, 15*time.Minute)

		happened.check(t, `
0s      vm
1m0s    vm
2m0s    vm
10m0s   vm
`)
	})
}

// What must happen at the end stands after Run: by then no run goes on.
func TestRecipeCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		q.Enqueue("vm")
		var g reconcile.Group
		g.Add("vms", &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(ctx context.Context, item string) error {
				<-ctx.Done()
				time.Sleep(3 * time.Second) // puts away its tools
				happened.note("run ended")
				return nil
			},
			Logger: quiet,
		})
		run(t, &g, time.Minute)
		happened.note("clean")

		happened.check(t, `
1m3s    run ended
1m3s    clean
`)
	})
}

// Counters, event records and messages are a function of the result of a run.
// Health is a look at the queue.
func TestRecipeResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		q.Enqueue("good")
		q.Enqueue("bad")
		q.Enqueue("busy")
		count := make(map[reconcile.Outcome]int)
		run(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				switch item {
				case "bad":
					return errors.New("out of order")
				case "busy":
					return fmt.Errorf("snapshot runs: %w", reconcile.RequeueAfter(time.Hour))
				}
				return nil
			},
			OnResult: func(r reconcile.Result[string]) {
				count[r.Outcome]++
				if r.Outcome == reconcile.Succeeded {
					happened.note("Synced %s", r.Item)
				}
			},
			Retry:  reconcile.Backoff(time.Minute, time.Minute),
			Logger: quiet,
		}, time.Second)

		happened.check(t, `
0s      Synced good
`)
		want := map[reconcile.Outcome]int{reconcile.Succeeded: 1, reconcile.Retrying: 1, reconcile.Requeued: 1}
		if !maps.Equal(count, want) {
			t.Errorf("outcomes %v, want %v", count, want)
		}
		failing := 0
		for _, state := range q.All() {
			if state.Failures > 0 {
				failing++
			}
		}
		if failing != 1 {
			t.Errorf("%d items fail, want 1", failing)
		}
	})
}

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
			return reconcile.RequeueWithin(time.Minute) // it is being made
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

		happened.check(t, `
0s      network
0s      disk
0s      requeued: no address left
requeue within 1m0s
`)
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

		happened.check(t, `
0s      dns of vm
1s      bill of vm
1m0s    dns of vm
2m0s    dns of vm
`)
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

		happened.check(t, `
0s      start
10s     op-7 ended
`)
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

		happened.WantAll(t, "20s disks begins", "20s vms begins")
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

		happened.check(t, `
0s      a by version 1
0s      b by version 1
1m0s    a by version 2
1m0s    b by version 2
`)
	})
}

// A run declares what it depends on as soon as it knows. One that fails before
// that leaves the last declaration in force, and a later one replaces it.
func TestRecipeDependencies(t *testing.T) {
	errUnknown := errors.New("the desired state cannot be read")
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		var refs reconcile.Refs[string, string] // key to buckets
		var desired sync.Map                    // bucket to key
		desired.Store("logs", "key-1")

		q := reconcile.NewQueue[string]()
		keys := reconcile.Map(q, refs.Of)
		q.Enqueue("logs")
		time.AfterFunc(1*time.Minute, func() {
			desired.Delete("logs") // it cannot be read for a while
			keys.Enqueue("key-1")
		})
		time.AfterFunc(2*time.Minute, func() {
			desired.Store("logs", "key-2")
			keys.Enqueue("key-1") // still reaches the bucket
		})
		time.AfterFunc(3*time.Minute, func() { keys.Enqueue("key-1") }) // no longer does
		time.AfterFunc(4*time.Minute, func() { keys.Enqueue("key-2") })
		run(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, bucket string) error {
				key, ok := desired.Load(bucket)
				if !ok {
					happened.note("%s fails", bucket)
					return errUnknown // refs stay as they were
				}
				refs.Set(bucket, key.(string))
				happened.note("%s with %s", bucket, key)
				return nil
			},
			Retry:  reconcile.NoRetry,
			Logger: quiet,
		}, time.Hour)

		happened.check(t, `
0s      logs with key-1
1m0s    logs fails
2m0s    logs with key-2
4m0s    logs with key-2
`)
	})
}
