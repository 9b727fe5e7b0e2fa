// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/reconkernel/reconcile"
)

// Producers, runs that watch, and those that wait for them, all at once. A run
// whose context ended was asked for again, and an event that came after the
// call of UntilChanged never leaves its context open.
func TestWatchersUnderLoad(t *testing.T) {
	var seed uint64
	defer tellSeed(t, &seed)
	for seed = range 3 {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) { loadWatchers(t, q, seed) })
	}
}

func loadWatchers(t *testing.T, q *reconcile.Queue[string], seed uint64) {
	const items, producers, verbs = 6, 4, 500
	type counts struct {
		asked      atomic.Int64 // verbs that began
		begun, now atomic.Int64 // EnqueueNows that began, and that returned
		changed    atomic.Int64 // runs that were ended early
		random     *rand.Rand   // of its runs
	}
	all := make(map[string]*counts)
	names := make([]string, items)
	for i, random := range randoms(seed, 0, items) {
		names[i] = fmt.Sprint("item ", i)
		all[names[i]] = &counts{random: random}
	}
	ended := func(c context.Context) bool {
		select {
		case <-c.Done():
			return true
		case <-time.After(time.Hour):
			return false
		}
	}
	run := launch(t, &reconcile.Reconciler[string]{
		Queue: q, Workers: 3, Logger: unlogged(), Timeout: 24 * time.Hour, Retry: minutes,
		Reconcile: func(ctx context.Context, item string) error {
			n := all[item]
			changed, stop := reconcile.UntilChanged(ctx)
			if n.random.IntN(4) > 0 {
				defer stop()
			}
			before := n.begun.Load()
			if n.random.IntN(8) == 0 {
				n.asked.Add(1)
				go func() {
					other, stop := reconcile.UntilChanged(ctx) // perhaps after the run
					q.Enqueue(item)
					defer stop()
					time.Sleep(time.Microsecond)
					if q.State(item).Phase == reconcile.InFlight {
						return
					}
					select { // it is ended right after the item is given back, which takes no time
					case <-other.Done():
					case <-time.After(1):
						t.Errorf("%s: a context outlives its run", item)
					}
				}()
			}
			time.Sleep(upTo(n.random, 20*time.Microsecond))
			if n.now.Load() > before && !ended(changed) {
				t.Errorf("%s: an EnqueueNow after UntilChanged did not end its context", item)
			}
			if context.Cause(changed) == reconcile.ErrChanged {
				n.changed.Add(1)
				return changed.Err()
			}
			switch n.random.IntN(4) {
			case 0:
				return errBoom
			case 1:
				return reconcile.RequeueAfter(time.Microsecond)
			}
			return nil
		},
	})
	var work sync.WaitGroup
	for p := range producers {
		work.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(items+p)))
			for range verbs {
				item := names[r.IntN(items)]
				n := all[item]
				n.asked.Add(1)
				switch r.IntN(8) {
				case 0, 1:
					n.begun.Add(1)
					q.EnqueueNow(item)
					n.now.Add(1)
				case 2, 3:
					q.Enqueue(item)
				case 4:
					q.EnqueueWithin(item, upTo(r, 10*time.Microsecond))
				case 5:
					q.EnqueueAfter(item, upTo(r, 10*time.Microsecond))
				case 6:
					q.Offer(item)
				case 7:
					q.Remove(item)
				}
				if r.IntN(3) == 0 {
					time.Sleep(upTo(r, 5*time.Microsecond))
				}
			}
		})
	}
	for i := range 4 {
		work.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(items+producers+i)))
			for range 70 {
				ctx, cancel := context.WithTimeout(t.Context(), upTo(r, 50*time.Microsecond))
				if i%2 == 0 {
					q.WaitIdle(ctx)
				} else {
					q.WaitItem(ctx, names[r.IntN(items)])
				}
				cancel()
			}
		})
	}
	work.Wait()
	if err := q.WaitIdle(t.Context()); err != nil {
		t.Errorf("WaitIdle: %v", err)
	}
	for _, item := range names {
		if err := q.WaitItem(t.Context(), item); err != nil {
			t.Errorf("WaitItem: %v", err)
		}
	}
	run.end()
	time.Sleep(time.Hour)
	synctest.Wait()
	early := int64(0)
	for item, n := range all {
		early += n.changed.Load()
		// Beside the verbs, an item is brought back by its own runs.
		if n.changed.Load() > n.asked.Load() {
			t.Errorf("%s: %d runs were ended early, and %d verbs called", item, n.changed.Load(), n.asked.Load())
		}
	}
	if early == 0 {
		t.Error("no run was ended early")
	}
	if n := reconcile.Watchers(q); n != 0 {
		t.Errorf("%d watchers are left", n)
	}
}

// upTo draws a duration that is less than d.
func upTo(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(d)))
}

// Without an event, no context ends before its run: not by those of other items,
// nor by the same item's earlier runs.
func TestUntilChangedEndsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items, seed = 2000, 1
		q := reconcile.NewQueue[int]()
		drawn := randoms(seed, 0, items)
		run := launch(t, &reconcile.Reconciler[int]{
			Queue: q, Workers: 8, Logger: unlogged(),
			Reconcile: func(ctx context.Context, item int) error {
				r := drawn[item]
				changed, stop := reconcile.UntilChanged(ctx)
				if item%3 > 0 {
					defer stop()
				}
				time.Sleep(upTo(r, 20*time.Microsecond))
				if cause := context.Cause(changed); cause != nil {
					t.Errorf("%d: ended by %v", item, cause)
				}
				if r.IntN(2) == 0 {
					return reconcile.RequeueAfter(upTo(r, 50*time.Microsecond))
				}
				return nil
			},
		})
		r := rand.New(rand.NewPCG(seed, items))
		for item := range items {
			q.Enqueue(item)
			time.Sleep(upTo(r, 5*time.Microsecond))
		}
		if err := q.WaitIdle(t.Context()); err != nil {
			t.Error(err)
		}
		run.end()
	})
}

// A thing is found gone once nothing leads to it.
type thing struct{ _ [1024]byte }

type thingKey struct{}

// with returns a context that leads to a thing, and what tells of it.
func with(ctx context.Context) (context.Context, weak.Pointer[thing]) {
	p := new(thing)
	return context.WithValue(ctx, thingKey{}, p), weak.Make(p)
}

// Nothing of a watcher stays reachable once it was told, has given up, or its
// run is over: not by the queue, the loop, or the context of the loop.
func TestWatchersLeaveNothingBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		things := make(map[string]weak.Pointer[thing])
		var kept context.CancelFunc
		watch := func(ctx context.Context, name string) context.CancelFunc {
			ctx, things[name] = with(ctx)
			_, stop := reconcile.UntilChanged(ctx)
			return stop
		}
		wait := func(name string, f func(context.Context) error) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			ctx, things[name] = with(ctx)
			go f(ctx)
			synctest.Wait()
			return cancel
		}
		idle := func(ctx context.Context) error { return q.WaitIdle(ctx) }
		item := func(ctx context.Context) error { return q.WaitItem(ctx, "x") }
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Logger: unlogged(),
			Reconcile: func(ctx context.Context, item string) error {
				if item == "x" {
					kept = watch(ctx, "told, its stop is kept")
					watch(ctx, "told")
					q.Enqueue("x")
					q.Remove("x")
					watch(ctx, "not stopped")
					watch(ctx, "stopped")()
				}
				time.Sleep(time.Minute)
				return nil
			},
		})
		q.Enqueue("busy")
		q.Enqueue("x")
		cancel := []context.CancelFunc{wait("WaitIdle", idle), wait("WaitItem", item)}
		wait("WaitIdle, canceled", idle)()
		wait("WaitItem, canceled", item)()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for name, p := range things {
			for n := 0; p.Value() != nil && name != "told, its stop is kept"; n++ {
				if runtime.GC(); n == 10 {
					t.Errorf("%s: its context is still reachable", name)
					break
				}
			}
		}
		if n := reconcile.Watchers(q); n != 0 {
			t.Errorf("%d watchers are left", n)
		}
		for _, c := range append(cancel, kept) {
			c()
		}
		run.end()
	})
}
