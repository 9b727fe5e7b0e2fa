// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"log/slog"
	"testing"

	"github.com/reconkernel/reconcile"
)

// BenchmarkUntilChanged is a run that watches its item: Plain is the same run
// without that, Stopped is one that nothing happens to, and Ended is one whose
// item is enqueued again.
func BenchmarkUntilChanged(b *testing.B) {
	for name, watch := range map[string]func(context.Context, *reconcile.Queue[string]){
		"Plain": func(_ context.Context, q *reconcile.Queue[string]) { q.Enqueue("x") },
		"Stopped": func(ctx context.Context, q *reconcile.Queue[string]) {
			_, stop := reconcile.UntilChanged(ctx)
			stop()
			q.Enqueue("x")
		},
		"Ended": func(ctx context.Context, q *reconcile.Queue[string]) {
			_, stop := reconcile.UntilChanged(ctx)
			q.Enqueue("x")
			stop()
		},
	} {
		b.Run(name, func(b *testing.B) {
			q := reconcile.NewQueue[string]()
			ctx, end := context.WithCancel(b.Context())
			b.ReportAllocs()
			r := reconcile.Reconciler[string]{
				Queue: q,
				Reconcile: func(ctx context.Context, _ string) error {
					if b.Loop() {
						watch(ctx, q)
					} else {
						end()
					}
					return nil
				},
				Logger: slog.New(slog.DiscardHandler),
			}
			q.Enqueue("x")
			if err := r.Run(ctx); err != nil {
				b.Fatal(err)
			}
		})
	}
}
