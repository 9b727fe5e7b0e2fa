// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
)

// What a gate does to real Reconcilers.

// serve runs r, with the fields that it lacks, and returns what ends it and waits.
func serve(t *testing.T, r *reconcile.Reconciler[string]) (end func()) {
	t.Helper()
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	}
}

func TestAFieldThatIsWrongEndsRun(t *testing.T) {
	q := reconcile.NewQueue[string]()
	q.Enqueue("a")
	r := &reconcile.Reconciler[string]{
		Queue: q, Admit: (&Gate{Max: -1}).Admit, Logger: slog.New(slog.DiscardHandler),
		Reconcile: func(context.Context, string) error { t.Error("a runs"); return nil },
	}
	if err := r.Run(t.Context()); fmt.Sprint(err) != "reconcile: admit: gate: Gate.Max is -1, want 0 (which means no limit) or more" {
		t.Errorf("Run = %v", err)
	}
}

// While the gate is paused one item is in hand, the others are in the queue, where
// events are folded into them; no failure is added by it, and none is lost.
func TestAPauseKeepsItemsAndTheirFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, q := record.New(), reconcile.NewQueue[string]()
		g := &Gate{
			Logger: slog.New(slog.DiscardHandler),
			Pause: func(err error) time.Duration {
				if errors.Is(err, errBusy) {
					return time.Minute
				}
				return 0
			},
		}
		var down atomic.Bool
		defer serve(t, &reconcile.Reconciler[string]{
			Queue: q, Admit: g.Admit, Workers: 4, Timeout: 30 * time.Second,
			Retry: reconcile.Backoff(10*time.Second, 10*time.Second),
			Reconcile: func(_ context.Context, item string) error {
				j.Note("%s", item)
				switch {
				case down.Load():
					return fmt.Errorf("%w: %w", errBusy, reconcile.RequeueWithin(time.Minute))
				case item == "bad":
					return errBoom
				}
				return nil
			},
		})()
		q.Enqueue("bad")
		time.Sleep(time.Second)
		down.Store(true)
		q.Enqueue("a")
		time.Sleep(time.Second)
		for _, item := range []string{"a", "b", "c", "b"} {
			q.Enqueue(item)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s := q.Stats()
		if s.InFlight != 1 || s.Ready+s.Waiting != 3 {
			t.Errorf("Stats() = %+v, want one item in hand and three in the queue", s)
		}
		for item, want := range map[string]int{"bad": 1, "a": 0, "b": 0} {
			if state := q.State(item); state.Failures > want {
				t.Errorf("State(%s) = %+v, want %d failures at most", item, state, want)
			}
		}
		if probes := len(j.Lines()) - 2; probes != 10 {
			t.Errorf("%d probes in ten minutes, want one a minute: %v", probes, j.Lines())
		}
		down.Store(false)
		time.Sleep(time.Minute)
		if s := g.Stats(); !s.PausedSince.IsZero() || s.Pauses != 1 {
			t.Errorf("Stats() = %+v, want it open after one pause", s)
		}
	})
}

// An item in hand at the end is given back as it was, and its turn is not used up.
func TestTheEndGivesBackTheItemInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g := reconcile.NewQueue[string](), &Gate{Every: time.Hour}
		q.Enqueue("a")
		q.Enqueue("b")
		end := serve(t, &reconcile.Reconciler[string]{Queue: q, Admit: g.Admit, Workers: 3, Reconcile: func(context.Context, string) error { return nil }})
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := q.State("b"); s.Phase != reconcile.InFlight {
			t.Errorf("State(b) = %+v, want it in hand", s)
		}
		end()
		if s := q.State("b"); s.Phase != reconcile.Ready {
			t.Errorf("State(b) = %+v, want it ready", s)
		}
		if next := g.Stats().Next; next != time.Hour-time.Minute {
			t.Errorf("the budget allows a run in %v, want 59m0s", next)
		}
		mustBeIdle(t, g)
	})
}

// While others wait, none starts a second run before each of them started one.
func TestLimitIsTakenByTurns(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			r, mu := rand.New(rand.NewPCG(seed, 1)), sync.Mutex{}
			g := &Gate{Max: 3}
			names := []string{"a", "b", "c", "d"}
			var order []string
			for _, name := range names {
				q := reconcile.NewQueue[string]()
				for i := range 50 {
					q.Enqueue(fmt.Sprint(i))
				}
				defer serve(t, &reconcile.Reconciler[string]{Queue: q, Admit: g.Admit, Workers: 5, Reconcile: func(context.Context, string) error {
					mu.Lock()
					order = append(order, name)
					d := time.Duration(1 + r.IntN(1e9))
					mu.Unlock()
					time.Sleep(d)
					return nil
				}})()
				synctest.Wait()
			}
			time.Sleep(time.Hour)
			mu.Lock()
			defer mu.Unlock()
			if len(order) != 200 {
				t.Fatalf("seed %d: %d runs, want 200", seed, len(order))
			}
			for i := 3; i+8 < 150; i++ { // all wait by then
				if next := slices.Index(order[i+1:], order[i]); next != 3 {
					t.Fatalf("seed %d: run %d is the next of %s after %d others, want 3", seed, i, order[i], next)
				}
			}
		})
	}
}

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
