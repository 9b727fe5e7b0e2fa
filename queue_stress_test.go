// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// watched is one item of a stress test, with what shows a broken promise.
type watched struct {
	events  atomic.Int64 // accepted by the queue: counted before the call
	running atomic.Int32
	seen    atomic.Int64 // events that had been counted when the last run started
}

// Goroutines run side by side in a bubble as they do elsewhere; only time
// stands still until all of them wait. So the delays cost nothing, and the
// bubble ends only if no goroutine is left.
//
// No timer here is without a delay: in a bubble that one fires on the goroutine
// that sets it, and two at once break the race detector (go.dev/issue/78156).
func TestQueueUnderStress(t *testing.T) {
	for _, size := range []struct{ items, producers, workers, events int }{
		{1, 4, 4, 400},
		{10, 8, 8, 400},
		{500, 16, 32, 300},
	} {
		synctest.Test(t, func(t *testing.T) {
			stress(t, size.items, size.producers, size.workers, size.events)
		})
	}
}

func stress(t *testing.T, items, producers, workers, events int) {
	q := reconcile.NewQueue[int]()
	world := make([]watched, items)
	var busy sync.WaitGroup
	for p := range producers {
		busy.Go(func() {
			r := rand.New(rand.NewPCG(uint64(p), 1))
			for range events {
				i := r.IntN(items)
				world[i].events.Add(1)
				d := time.Duration(r.IntN(4)) * time.Second
				switch r.IntN(8) {
				case 0:
					q.EnqueueAfter(i, d)
				case 1:
					q.EnqueueWithin(i, d)
				case 2:
					q.EnqueueNow(i)
				default:
					q.Enqueue(i)
				}
				switch r.IntN(20) {
				case 0:
					time.Sleep(time.Duration(r.IntN(3)) * time.Second)
				case 1, 2, 3:
					runtime.Gosched()
				case 4: // observers
					q.Offer(i)
					q.State(i)
					q.Stats()
					q.Len()
				case 5:
					for range q.All() {
						break
					}
				}
			}
		})
	}
	var working sync.WaitGroup
	for w := range workers {
		working.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 2))
			for {
				// Some of the consumers lose patience.
				ctx, cancel := context.WithCancel(context.Background())
				switch r.IntN(6) {
				case 0:
					go cancel()
				case 1:
					time.AfterFunc(time.Duration(1+r.IntN(2))*time.Second, cancel)
				}
				i, err := q.Dequeue(ctx)
				cancel()
				if err == reconcile.ErrClosed {
					return
				}
				if err != nil {
					if err != context.Canceled {
						t.Errorf("Dequeue: %v", err)
					}
					continue
				}
				x := &world[i]
				if x.running.Add(1) != 1 {
					t.Errorf("item %d is in two hands", i)
				}
				x.seen.Store(x.events.Load())
				if r.IntN(3) == 0 {
					runtime.Gosched()
				}
				x.running.Add(-1)
				switch d := time.Duration(r.IntN(3)) * time.Second; r.IntN(8) {
				case 0:
					q.Requeue(i, reconcile.Wait{Delay: d})
				case 1:
					q.RequeueAfter(i, d)
				case 2:
					q.Requeue(i, reconcile.Wait{Delay: d, Hold: true, Err: errors.New("no")})
				default:
					q.Done(i)
				}
			}
		})
	}
	defer func() {
		q.Close()
		working.Wait()
	}()
	busy.Wait()
	// Requeues go on for a while. All counts are of one moment: between two calls
	// an item may move to where the first call has looked.
	for s := q.Stats(); s.Waiting+s.Ready+s.InFlight > 0; s = q.Stats() {
		time.Sleep(time.Second)
		synctest.Wait()
	}
	for i := range world {
		if seen, want := world[i].seen.Load(), world[i].events.Load(); seen != want {
			t.Errorf("item %d: its last run started after %d of %d events", i, seen, want)
		}
	}
	s := q.Stats()
	if all := uint64(producers * events); s.Enqueued+s.Coalesced < all || s.Taken < uint64(min(items, int(all))) {
		t.Errorf("Stats: %+v, want all of %d events counted", s, all)
	}
	mustAgree(t, q)
}

// A hold is not broken, whoever asks at once for the item.
func TestHoldsUnderStress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items, rounds = 20, 50
		q := reconcile.NewQueue[int]()
		var until [items]atomic.Int64
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for w := range 8 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(w), 3))
				for {
					i, err := q.Dequeue(ctx)
					if err != nil {
						return
					}
					if now := int64(time.Since(start)); now < until[i].Load() {
						t.Errorf("item %d runs at %v, held until %v", i, time.Duration(now), time.Duration(until[i].Load()))
					}
					d := time.Duration(1+r.IntN(5)) * time.Second
					until[i].Store(int64(time.Since(start) + d))
					q.RequeueAfter(i, d)
				}
			})
		}
		for p := range 8 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(p), 4))
				for range rounds {
					for range 10 {
						switch i := r.IntN(items); r.IntN(4) {
						case 0:
							q.Offer(i)
						case 1:
							q.EnqueueWithin(i, time.Second)
						case 2:
							q.EnqueueAfter(i, time.Millisecond)
						default:
							q.Enqueue(i)
						}
					}
					time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
				}
			})
		}
		time.Sleep(rounds * time.Second)
		cancel()
		all.Wait()
		if got := q.Stats(); got.Waiting+got.Ready != items || got.InFlight != 0 {
			t.Errorf("Stats: %+v, want %d items, none in flight", got, items)
		}
	})
}

// Each item is taken once, though most consumers give up as it comes.
func TestCanceledWaitersUnderStress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 3000
		q := reconcile.NewQueue[int]()
		var taken [n]atomic.Int32
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				for {
					ctx, cancel := context.WithCancel(context.Background())
					go func() {
						runtime.Gosched()
						cancel()
					}()
					switch i, err := q.Dequeue(ctx); err {
					case nil:
						taken[i].Add(1)
						q.Done(i)
					case reconcile.ErrClosed:
						cancel()
						return
					}
				}
			})
		}
		for i := range n {
			q.Enqueue(i)
			if i%7 == 0 {
				runtime.Gosched()
			}
		}
		q.Close()
		all.Wait()
		for i := range taken {
			if got := taken[i].Load(); got != 1 {
				t.Errorf("item %d was taken %d times", i, got)
			}
		}
		if got, want := q.Stats(), (reconcile.Stats{Enqueued: n, Taken: n}); got != want {
			t.Errorf("Stats: %+v, want %+v", got, want)
		}
	})
}
