// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

// What a gate adds to a run: the items come back at once, so no worker waits for
// one.
func BenchmarkGate(b *testing.B) {
	never := func(error, time.Duration) bool { return false }
	for _, c := range []struct {
		name string
		gate *reconcile.Gate
	}{
		{"None", nil},
		{"Open", new(reconcile.Gate)},
		{"Limit", &reconcile.Gate{Max: 100, Slow: never}},
		{"Budget", &reconcile.Gate{Every: time.Nanosecond, Burst: 1 << 40}},
	} {
		b.Run(c.name, func(b *testing.B) {
			q, next := reconcile.NewQueue[string](), round()
			for range 16 {
				q.Enqueue(next())
			}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			left := b.N
			r := &reconcile.Reconciler[string]{
				Queue: q, Gate: c.gate, Logger: slog.New(slog.DiscardHandler),
				Reconcile: func(_ context.Context, item string) error {
					if left--; left == 0 {
						cancel()
					}
					q.Enqueue(item)
					return nil
				},
			}
			b.ReportAllocs()
			b.ResetTimer()
			if err := r.Run(ctx); err != nil {
				b.Fatalf("Run: %v", err)
			}
		})
	}
}
