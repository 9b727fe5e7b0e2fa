// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package gate_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/gate"
)

// What a gate adds to a run: the items come back at once, so no worker waits for
// one.
func BenchmarkGate(b *testing.B) {
	never := func(error, time.Duration) bool { return false }
	for _, c := range []struct {
		name string
		gate *gate.Gate
	}{
		{"None", nil},
		{"Open", new(gate.Gate)},
		{"Limit", &gate.Gate{Max: 100, Slow: never}},
		{"Budget", &gate.Gate{Every: time.Nanosecond, Burst: 1 << 30}},
	} {
		b.Run(c.name, func(b *testing.B) {
			q, next := reconcile.NewQueue[string](), 0
			for range 16 {
				next++
				q.Enqueue(fmt.Sprint(next))
			}
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			left := b.N
			r := &reconcile.Reconciler[string]{
				Queue: q, Logger: slog.New(slog.DiscardHandler),
				Reconcile: func(_ context.Context, item string) error {
					if left--; left == 0 {
						cancel()
					}
					q.Enqueue(item)
					return nil
				},
			}
			if c.gate != nil {
				r.Admit = c.gate.Admit
			}
			b.ReportAllocs()
			b.ResetTimer()
			if err := r.Run(ctx); err != nil {
				b.Fatalf("Run: %v", err)
			}
		})
	}
}
