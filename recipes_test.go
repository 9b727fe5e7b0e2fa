// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// The recipes of docs/from-the-seeds.md: what other systems have a feature
// for and this one does with what is there. Each runs in a bubble and checks
// what happened at which instant.

// A diary notes what happened and how long after the start.
type diary struct {
	mu    sync.Mutex // guards lines
	lines []string
	start time.Time
}

func newDiary() *diary {
	return &diary{start: time.Now()}
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%v ", time.Since(d.start))+fmt.Sprintf(format, args...))
}

func (d *diary) check(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, want) {
		t.Errorf("what happened:\n  %s\nwant:\n  %s", strings.Join(d.lines, "\n  "), strings.Join(want, "\n  "))
	}
}

func (d *diary) sort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.lines)
}

// run runs r for as long as the bubble needs to come to d, then ends it.
func run(t *testing.T, r reconcile.Runner, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := r.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
}

var quiet = slog.New(slog.DiscardHandler)

// Assets carry the key of their owner, here as a tag. A poll over the assets
// that offers these keys finds what an owner left behind, also when nobody saw
// the owner go.
func TestRecipeOwnerTags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		wanted := map[string]bool{"alice": true}
		var mu sync.Mutex // guards ownerTag
		ownerTag := map[string]string{"disk-1": "alice", "disk-2": "bob", "disk-3": "bob"}

		q := reconcile.NewQueue[string]()
		var g reconcile.Group
		g.Add("assets", &reconcile.Poller[string]{
			Queue:  q,
			Period: time.Minute,
			GetItems: func(context.Context) ([]string, error) {
				mu.Lock()
				defer mu.Unlock()
				return slices.Sorted(maps.Values(ownerTag)), nil // twice the same owner is one item
			},
		})
		g.Add("owners", &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, owner string) error {
				if wanted[owner] {
					return nil
				}
				mu.Lock()
				defer mu.Unlock()
				maps.DeleteFunc(ownerTag, func(_, of string) bool { return of == owner })
				happened.note("removed what %s left", owner)
				return nil
			},
		})
		run(t, &g, 3*time.Minute)

		happened.check(t, "0s removed what bob left")
		if !maps.Equal(ownerTag, map[string]string{"disk-1": "alice"}) {
			t.Errorf("assets left: %v", ownerTag)
		}
	})
}

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

		happened.check(t, "0s bucket terminated", "1h0m0s bucket succeeded")
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

		happened.check(t, "0s backup db", "0s rotate db")
	})
}

// A change carries more than a key: the feeder looks at it, the queue does
// not. Here changes of the status, which the reconcile function itself writes,
// are told from changes of the wish by its generation.
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
		wishes := reconcile.Map(q, func(c change) iter.Seq[string] {
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
		g.Add("changes", reconcile.Feed(wishes, reconcile.FromChan(changes)))
		g.Add("vms", &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, key string) error {
				happened.note("%s", key)
				changes <- change{key, newest[key]} // the status, written by us, is seen as a change
				return nil
			},
		})
		run(t, &g, time.Hour)

		happened.check(t, "0s vm", "1m0s vm")
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

		happened.check(t, "1m3s run ended", "1m3s clean")
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

		happened.check(t, "0s Synced good")
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

// Feeders run on every replica and keep the queue warm; only the one that was
// elected reconciles.
func TestRecipeLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		events := make(chan string, 1)
		events <- "vm"
		elected := func(ctx context.Context) error {
			select {
			case <-time.After(time.Minute):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		var g reconcile.Group
		g.Add("events", reconcile.Feed(q, reconcile.FromChan(events)))
		g.Add("vms", reconcile.After(elected, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, item string) error {
				happened.note("%s", item)
				return nil
			},
		}))
		time.AfterFunc(time.Second, func() {
			if n := q.Len(); n != 1 {
				t.Errorf("before the election %d items are ready, want 1", n)
			}
		})
		run(t, &g, time.Hour)

		happened.check(t, "1m0s vm")
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

// Processes share the work when each keeps what it owns.
func TestRecipeShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := []string{"ant", "bee", "crow", "dog"}
		var got []string
		for shard := range 2 {
			q := reconcile.NewQueue[string]()
			mine := reconcile.Filter(q, func(item string) bool { return int(item[0])%2 == shard })
			for _, item := range events {
				mine.Enqueue(item)
			}
			for item := range q.All() {
				got = append(got, fmt.Sprintf("%d: %s", shard, item))
			}
		}
		if want := []string{"0: bee", "0: dog", "1: ant", "1: crow"}; !slices.Equal(got, want) {
			t.Errorf("shards %v, want %v", got, want)
		}
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

// A change from one owner to another is an event for both; an owner that is
// named twice runs once.
func TestRecipeOldAndNew(t *testing.T) {
	type change struct{ Old, New string } // owners
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		owners := reconcile.Map(q, func(c change) iter.Seq[string] {
			return slices.Values([]string{c.Old, c.New})
		})
		owners.Enqueue(change{"alice", "bob"})
		owners.Enqueue(change{"bob", "bob"})

		var got []string
		for owner := range q.All() {
			got = append(got, owner)
		}
		if want := []string{"alice", "bob"}; !slices.Equal(got, want) {
			t.Errorf("owners enqueued: %v, want %v", got, want)
		}
	})
}

// Any number of sources feed one queue: here a watch for each of two kinds of
// things that belong to an item, and a poll that brings what no watch told of.
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

		happened.check(t, "0s vm", "1m0s vm", "2m0s vm", "10m0s vm")
	})
}
