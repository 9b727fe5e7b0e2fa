// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package held_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/held"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/lanes"
	"github.com/reconkernel/reconcile/supervise"
)

// In a term, a run ends with the lease, whatever its Grace, and no other starts, also if a
// feeder has not ended.
func TestTerm(t *testing.T) {
	for name, runner := range map[string]func(r *reconcile.Reconciler[string]) reconcile.Runner{
		"Reconciler": func(r *reconcile.Reconciler[string]) reconcile.Runner {
			q := reconcile.NewQueue[string]()
			q.Enqueue("x")
			r.Queue = held.Queue(q)
			return r
		},
		"Set": func(r *reconcile.Reconciler[string]) reconcile.Runner {
			ensure := r.Reconcile
			r.Reconcile = nil
			return &keep.Set[string, int, int]{
				Period: time.Minute, Reconciler: r,
				Desired: func(context.Context) (map[string]int, error) { return map[string]int{"x": 1}, nil },
				Actual:  func(context.Context) (map[string]int, error) { return nil, nil },
				Ensure:  func(ctx context.Context, key string, _ int) error { return ensure(ctx, key) },
				Delete:  func(context.Context, string, int) error { return nil },
			}
		},
		"Lanes": func(r *reconcile.Reconciler[string]) reconcile.Runner {
			l := &lanes.Lanes[string, string]{
				Lane:       func(item string) string { return item },
				Reconciler: func(string) *reconcile.Reconciler[string] { return r },
			}
			l.Enqueue("x")
			return l
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			term := held.NewTerm(time.Now().Add(10 * time.Second))
			ctx, end := held.Context(held.With(t.Context(), term), term)
			defer end()
			runs := 0
			group := supervise.Group{Logger: slog.New(slog.DiscardHandler)}
			group.Add("feeder", reconcile.Feed(reconcile.NewQueue[string](), func(ctx context.Context, _ reconcile.Enqueuer[string]) error {
				<-ctx.Done()
				time.Sleep(time.Second / 2)
				return nil
			}))
			group.Add(name, runner(&reconcile.Reconciler[string]{Grace: time.Hour, Reconcile: func(ctx context.Context, _ string) error {
				if runs++; runs > 1 {
					time.Sleep(time.Second)
				}
				<-ctx.Done()
				if !term.Over() {
					t.Errorf("%s: the run ended before the lease", name)
				}
				return context.Cause(ctx)
			}}))
			begun := time.Now()
			_ = group.Run(ctx) // It may return that the lease was lost.
			if took := time.Since(begun); runs != 1 || took > 12*time.Second {
				t.Errorf("%s: %d runs, and the end after %v, want 1, and the lease of 10s", name, runs, took)
			}
		})
	}
}
