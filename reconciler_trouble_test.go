// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/reconkernel/reconcile"
)

// leased is a Queue that is a Leaser too.
type leased struct {
	*reconcile.Queue[string]
	lease func(ctx context.Context) context.Context
}

func (l leased) Lease(ctx context.Context, _ string) context.Context { return l.lease(ctx) }

func TestLeaseThatReturnsNilIsAFailureOfThatItemAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		q.Close()
		var got reconcile.Result[string]
		r := reconcile.Reconciler[string]{
			Queue:     leased{q, func(context.Context) context.Context { return nil }},
			Reconcile: func(context.Context, string) error { return nil },
			Retry:     reconcile.NoRetry,
			OnResult:  func(r reconcile.Result[string]) { got = r },
			Logger:    slog.New(slog.DiscardHandler),
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got.Outcome != reconcile.GaveUp || got.Err == nil || !strings.Contains(got.Err.Error(), "Lease") {
			t.Errorf("the result is %q, %v, want one that names Lease", got.Outcome, got.Err)
		}
	})
}

// The context of a lease is user code too: its Done is called before the run.
func TestLeaseWhoseContextEndsBadlyIsAFailureOfThatItemAlone(t *testing.T) {
	for name, end := range failuresOfUserCode {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				q.Enqueue("a")
				q.Close()
				var results resultBook[string]
				r := reconcile.Reconciler[string]{
					Queue:     leased{q, func(ctx context.Context) context.Context { return rudeContext{ctx, end} }},
					Reconcile: nothing, Retry: reconcile.NoRetry, OnResult: results.add, Logger: unlogged(),
				}
				if err := r.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if r := results.last(t); r.Outcome != reconcile.GaveUp {
					t.Errorf("result = %+v, want it to give up", r)
				}
			})
		})
	}
}

// countWarnings counts the warnings of stuck runs; a line that says that a run
// starts takes it a while.
type countWarnings struct {
	slog.Handler
	start time.Duration
	count *atomic.Int32
}

func (h countWarnings) Enabled(context.Context, slog.Level) bool { return true }

func (h countWarnings) Handle(_ context.Context, r slog.Record) error {
	switch {
	case r.Message == "run starts":
		time.Sleep(h.start)
	case strings.Contains(r.Message, "has not returned"):
		h.count.Add(1)
	}
	return nil
}

// The run begins when its context has ended already.
func TestRunThatBeganTooLateIsWarnedAbout(t *testing.T) {
	lost := func(ctx context.Context) context.Context {
		ctx, end := context.WithCancelCause(ctx)
		end(reconcile.ErrLeaseLost)
		return ctx
	}
	for name, test := range map[string]struct {
		queue func(*reconcile.Queue[string]) reconcile.Dequeuer[string]
		slow  time.Duration
	}{
		"shutdown while its start is logged": {func(q *reconcile.Queue[string]) reconcile.Dequeuer[string] { return q }, time.Minute},
		"lease lost at once":                 {func(q *reconcile.Queue[string]) reconcile.Dequeuer[string] { return leased{q, lost} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				q.Enqueue("a")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				var count atomic.Int32
				r := reconcile.Reconciler[string]{
					Queue: test.queue(q),
					Reconcile: func(context.Context, string) error {
						time.Sleep(time.Hour)
						return nil
					},
					Logger: slog.New(countWarnings{slog.DiscardHandler, test.slow, &count}),
				}
				if err := r.Run(ctx); err != nil {
					t.Fatal(err)
				}
				if count.Load() == 0 {
					t.Error("a run that went on for an hour after its context ended was not warned about")
				}
			})
		})
	}
}

// breaks is a Dequeuer that hands out one item and fails then.
type breaks struct {
	*reconcile.Queue[string]
	taken atomic.Bool
}

var errBroken = errors.New("connection lost")

func (b *breaks) Dequeue(ctx context.Context) (string, error) {
	if b.taken.Swap(true) {
		return "", errBroken
	}
	return b.Queue.Dequeue(ctx)
}

func TestReconcilerRunReturnsTheErrorOfAQueueThatFailedBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r := reconcile.Reconciler[string]{
			Queue:   &breaks{Queue: q},
			Workers: 2,
			Reconcile: func(ctx context.Context, _ string) error {
				<-ctx.Done()
				return nil
			},
		}
		if err := r.Run(ctx); !errors.Is(err, errBroken) {
			t.Errorf("Run: %v, want %v", err, errBroken)
		}
	})
}

// badTree is an error that panics when it is looked into.
type badTree struct{}

func (badTree) Error() string { return "bad" }
func (badTree) Unwrap() error { panic("no") }

func TestAbortedThoughTheErrorCannotBeLookedInto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var got reconcile.Outcome
		r := reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(ctx context.Context, _ string) error {
				<-ctx.Done()
				return badTree{}
			},
			OnResult: func(r reconcile.Result[string]) { got = r.Outcome },
			Logger:   slog.New(slog.DiscardHandler),
		}
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if s := q.State("a"); got != reconcile.Aborted || s.Phase != reconcile.Ready {
			t.Errorf("the run was %q, the item is %v; want %q and ready", got, s.Phase, reconcile.Aborted)
		}
	})
}

func TestPollerOffersWhatComesAfterAnItemThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[any]()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		p := reconcile.Poller[any]{
			Queue:    q,
			GetItems: func(context.Context) ([]any, error) { return []any{1, []int{2}, 3}, nil },
			Period:   time.Hour,
			Logger:   slog.New(slog.DiscardHandler),
		}
		if err := p.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if !q.Has(1) || !q.Has(3) {
			t.Errorf("known are 1: %v, 3: %v; want both", q.Has(1), q.Has(3))
		}
	})
}

func TestGroupTakesTheErrorOfItsOwnContextForAnEnd(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var g reconcile.Group
			for _, name := range []string{"a", "b", "c", "d"} {
				g.Add(name, reconcile.RunFunc(func(context.Context) error {
					<-ctx.Done() // not the member's own
					return ctx.Err()
				}))
			}
			if err := g.Run(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestRestartDoesNotRestartAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g reconcile.Group
		g.Add("flaky", reconcile.RunFunc(func(context.Context) error { return errBroken }))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		err := reconcile.Restart(nil, &g).Run(ctx)
		if !errors.Is(err, reconcile.ErrTerminal) || time.Since(begin) > time.Second {
			t.Errorf("Run: %v after %v, want a terminal error after one pause", err, time.Since(begin))
		}
	})
}

// What a slow Retry takes is its own item's time, and nobody else's.
func TestSlowRetryDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		start, began := time.Now(), make(map[string][]time.Duration)
		r := &reconcile.Reconciler[string]{
			Queue:  q,
			Logger: slog.New(slog.DiscardHandler),
			Reconcile: func(_ context.Context, item string) error {
				began[item] = append(began[item], time.Since(start))
				if item == "slow" && len(began[item]) == 1 {
					return errors.New("no")
				}
				return nil
			},
			Retry: func(error, int) (time.Duration, bool) {
				time.Sleep(10 * time.Second)
				return 5 * time.Minute, true
			},
		}
		q.Enqueue("slow")
		q.EnqueueAfter("other", 5*time.Minute+5*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		want := map[string][]time.Duration{
			"slow":  {0, 5*time.Minute + 10*time.Second},
			"other": {5*time.Minute + 5*time.Second},
		}
		if diff := cmp.Diff(want, began); diff != "" {
			t.Errorf("runs began (-want +got):\n%s", diff)
		}
	})
}
