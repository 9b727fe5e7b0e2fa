// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// What a gate does to real Reconcilers.

// Loops that share a gate come and go; the limit and the pauses move, by hand and by
// themselves; runs are aborted, and user code panics. No item is lost, and neither
// the limit nor the budget is overrun.
func TestUnderStress(t *testing.T) {
	for _, every := range []time.Duration{0, time.Millisecond} {
		for seed := range uint64(3) {
			synctest.Test(t, func(t *testing.T) { stress(t, every, seed) })
		}
	}
}

func stress(t *testing.T, every time.Duration, seed uint64) {
	const loops, items, highest = 5, 100, 6
	quiet := slog.New(slog.DiscardHandler)
	errPause := errors.New("pause")
	g := &Gate{
		Every: every, Burst: 5, Max: highest, Logger: quiet,
		Slow: func(err error, _ time.Duration) bool {
			if errors.Is(err, errBoom) {
				panic("Slow")
			}
			return errors.Is(err, errBusy)
		},
		Pause: func(err error) time.Duration {
			if errors.Is(err, errPause) {
				return 5 * time.Millisecond
			}
			return 0
		},
	}
	var inFlight, starts atomic.Int32
	begin := time.Now()
	var mu sync.Mutex // guards chance
	chance := rand.New(rand.NewPCG(seed, loops+1))
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return chance.IntN(n)
	}
	var all sync.WaitGroup
	for n := range loops {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			q := reconcile.NewQueue[int]()
			var done sync.Map
			rec := &reconcile.Reconciler[int]{
				Queue: q, Admit: g.Admit, Workers: 1 + r.IntN(8), Logger: quiet,
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
					select {
					case <-time.After(time.Duration(draw(3_000_000))):
					case <-ctx.Done():
						return ctx.Err()
					}
					switch draw(12) {
					case 0:
						return errBusy
					case 1:
						return errBoom
					case 2:
						panic("Reconcile")
					case 3:
						return errPause
					}
					done.Store(i, true)
					return nil
				},
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
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if err := rec.Run(ctx); err != nil {
				t.Error(err)
			}
			for i := range items {
				if _, ok := done.Load(i); !ok {
					t.Errorf("loop %d: item %d was lost: %+v", n, i, q.State(i))
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(seed, loops))
	for range 1500 {
		time.Sleep(3 * time.Millisecond)
		switch r.IntN(5) {
		case 0:
			g.PauseUntil(time.Now().Add(time.Duration(r.IntN(20)) * time.Millisecond))
		case 1:
			g.PauseUntil(time.Time{})
		default:
			g.SetLimit(r.IntN(highest + 2))
		}
		check(t, g)
	}
	all.Wait()
	mustBeIdle(t, g)
}
