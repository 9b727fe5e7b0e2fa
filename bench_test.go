// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/reconkernel/reconcile"
)

// These benchmarks show the price of the verbs. The module in bench/ measures the kernel
// beside other queues: see docs/performance.md.

// benchItems are enough that their entries do not all sit in the nearest cache.
var benchItems = func() []string {
	items := make([]string, 1024)
	for i := range items {
		items[i] = fmt.Sprintf("team-%02d/asset-%08d", i%100, i)
	}
	return items
}()

// round returns the items one after the other, for ever.
func round() func() string {
	i := -1
	return func() string {
		if i++; i == len(benchItems) {
			i = 0
		}
		return benchItems[i]
	}
}

func BenchmarkCycle(b *testing.B) {
	q, next := reconcile.NewQueue[string](), round()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		want := next()
		q.Enqueue(want)
		item, err := q.Dequeue(ctx)
		if err != nil || item != want {
			b.Fatalf("Dequeue: %q, %v, want %q", item, err, want)
		}
		q.Done(item)
	}
}

// BenchmarkBackground is BenchmarkCycle while a hundred thousand items wait in
// the background: every eighth item taken is one of these, and offered anew.
func BenchmarkBackground(b *testing.B) {
	q, next := reconcile.NewQueue[string](), round()
	q.Background = 8
	for i := range 100_000 {
		q.Offer(fmt.Sprintf("seen-%08d", i))
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		q.Enqueue(next())
		item, err := q.Dequeue(ctx)
		if err != nil {
			b.Fatal(err)
		}
		q.Done(item)
		if item[0] == 's' {
			q.Offer(item)
		}
	}
}

func BenchmarkEnqueueInFlight(b *testing.B) {
	q := reconcile.NewQueue[string]()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	q.Enqueue("x")
	q.Dequeue(ctx)
	b.ReportAllocs()
	for b.Loop() {
		q.Enqueue("x")
		q.Done("x")
		if item, err := q.Dequeue(ctx); err != nil || item != "x" {
			b.Fatalf("Dequeue: %q, %v, want x", item, err)
		}
	}
}

// What the loop adds to the queue: each run enqueues the next one.
func BenchmarkReconciler(b *testing.B) {
	q, next := reconcile.NewQueue[string](), round()
	r := &reconcile.Reconciler[string]{
		Queue: q,
		Reconcile: func(context.Context, string) error {
			if b.Loop() {
				q.Enqueue(next())
			} else {
				q.Close()
			}
			return nil
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	q.Enqueue(next())
	b.ReportAllocs()
	if err := r.Run(b.Context()); err != nil {
		b.Fatal(err)
	}
}
