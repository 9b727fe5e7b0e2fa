// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// Loops that share a gate come and go; the limit moves, by hand and by itself;
// queues are closed, runs are aborted, and user code ends badly.
func TestGateUnderStress(t *testing.T) {
	var seed uint64
	defer tellSeed(t, &seed)
	for _, every := range []time.Duration{0, time.Millisecond} {
		for seed = range 5 {
			synctest.Test(t, func(t *testing.T) { stressGate(t, every, seed) })
		}
	}
}

func stressGate(t *testing.T, every time.Duration, seed uint64) {
	const loops, items, highest = 5, 200, 6
	g := &reconcile.Gate{
		Every: every, Burst: 5, Max: highest,
		Slow: func(err error, _ time.Duration) bool {
			if errors.Is(err, errBoom) {
				panic("Slow")
			}
			return errors.Is(err, errBusy)
		},
	}
	var inFlight, starts atomic.Int32
	begin := time.Now()
	var all sync.WaitGroup
	for n := range loops {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			q := reconcile.NewQueue[int]()
			drawn := randoms(seed, uint64(1000*(n+1)), items)
			var done sync.Map
			rec := &reconcile.Reconciler[int]{
				Queue: q, Gate: g, Workers: 1 + r.IntN(8), Logger: unlogged(),
				Retry: func(error, int) (time.Duration, bool) { return time.Millisecond, true },
				Reconcile: func(ctx context.Context, i int) error {
					defer inFlight.Add(-1)
					if now := inFlight.Add(1); now > highest {
						t.Errorf("%d runs at once, the limit was never more than %d", now, highest)
					}
					started := int64(starts.Add(1))
					if most := int64(time.Since(begin)/max(1, every)) + 5; every > 0 && started > most {
						t.Errorf("%d runs have started after %v, want %d at most", started, time.Since(begin), most)
					}
					if n := drawn[i].IntN(3); n > 0 { // timers without a delay: see stress
						select {
						case <-time.After(time.Duration(n) * time.Millisecond): // of the bubble
						case <-ctx.Done():
							return ctx.Err()
						}
					}
					switch drawn[i].IntN(10) {
					case 0:
						return errBusy
					case 1:
						return errBoom
					case 2:
						panic("Reconcile")
					}
					done.Store(i, true)
					return nil
				},
			}
			if n%2 == 1 {
				rec.Queue = plainly(q)
			}
			for i := range items {
				q.Enqueue(i)
			}
			for q.Len() > items/4 { // runs are cut short
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(50))*time.Millisecond)
				if err := rec.Run(ctx); err != nil {
					t.Error(err)
				}
				cancel()
			}
			again := launch(t, rec)
			time.Sleep(10 * time.Second)
			q.Close()
			if err := again.wait(); err != nil {
				t.Error(err)
			}
			for i := range items {
				if _, ok := done.Load(i); !ok {
					t.Errorf("loop %d: item %d was lost: %+v", n, i, q.State(i))
				}
			}
		})
	}
	ended := make(chan struct{})
	all.Go(func() {
		r := rand.New(rand.NewPCG(seed, loops))
		for {
			select {
			case <-ended:
				return
			case <-time.After(3 * time.Millisecond):
			}
			g.SetLimit(r.IntN(highest + 2))
			g.Stats()
			if err := reconcile.CheckGate(g); err != nil {
				t.Error(err)
			}
		}
	})
	time.Sleep(5 * time.Second)
	close(ended)
	all.Wait()
	mustBeIdle(t, g)
}
