// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"testing"
	"time"
)

// BenchmarkTracker lists a million items with names and versions of their own,
// as strings: the first listing, and one in which nothing has changed. It reports
// the bytes that the tracker keeps for each item, strings not counted, as the
// listing has them anyway.
func BenchmarkTracker(b *testing.B) {
	const n = 1_000_000
	items := make([]Seen[string, string], n)
	for i := range items {
		items[i] = Seen[string, string]{Item: fmt.Sprintf("bucket-%d", i), Version: fmt.Sprintf("%032x", i)}
	}
	tracker := func() *Tracker[string, string] {
		t := &Tracker[string, string]{Period: time.Hour, Logger: slog.New(slog.DiscardHandler)}
		t.List = func(context.Context) iter.Seq2[Seen[string, string], error] {
			return func(yield func(Seen[string, string], error) bool) {
				for _, item := range items {
					if !yield(item, nil) {
						return
					}
				}
			}
		}
		t.recall()
		return t
	}
	drop := Filter(NewQueue[string](), func(string) bool { return false })
	list := func(b *testing.B, t *Tracker[string, string]) {
		if err := t.list(b.Context(), drop); err != nil || len(t.entries) != n {
			b.Fatalf("list = %v with %d items, want nil with %d", err, len(t.entries), n)
		}
	}
	b.Run("First", func(b *testing.B) {
		var before, after runtime.MemStats
		var kept uint64
		for b.Loop() {
			runtime.GC()
			runtime.ReadMemStats(&before)
			t := tracker()
			list(b, t)
			runtime.GC()
			runtime.ReadMemStats(&after)
			kept = after.HeapAlloc - before.HeapAlloc
			runtime.KeepAlive(t)
		}
		b.ReportMetric(float64(kept)/n, "B/item")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/item")
	})
	b.Run("Same", func(b *testing.B) {
		t := tracker()
		list(b, t)
		for b.Loop() {
			list(b, t)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/item")
	})
}
