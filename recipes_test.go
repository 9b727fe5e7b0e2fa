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
