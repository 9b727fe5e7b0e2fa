// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

func benchItems(n int) []string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf("bucket/%d", i)
	}
	return items
}

// BenchmarkOnResult is what a run costs a worker: with few items, with more than
// are remembered, and by as many workers at once as there are processors.
func BenchmarkOnResult(b *testing.B) {
	results := []struct {
		name string
		reconcile.Result[string]
	}{
		{"succeeded", reconcile.Result[string]{Outcome: reconcile.OutcomeSucceeded}},
		{"planned", reconcile.Result[string]{Outcome: reconcile.OutcomeRequeued, Err: reconcile.RequeueWithin(time.Hour), Next: time.Hour}},
		{"failed", reconcile.Result[string]{Outcome: reconcile.OutcomeRetrying, Err: errors.New("quota exceeded"), Failures: 3}},
	}
	for _, n := range []int{1, 1000, 100_000} {
		items := benchItems(n)
		for _, result := range results {
			r := result.Result
			r.Duration = 50 * time.Millisecond
			b.Run(fmt.Sprintf("items=%d/%s", n, result.name), func(b *testing.B) {
				l := &Loop[string]{Name: "q", Queue: reconcile.NewQueue[string]()}
				record := l.OnResult(nil)
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					r.Item = items[i%n]
					record(r)
					i++
				}
			})
		}
		if n == 1 {
			continue // one item is never in two runs at once
		}
		b.Run(fmt.Sprintf("items=%d/parallel", n), func(b *testing.B) {
			l := &Loop[string]{Name: "q", Queue: reconcile.NewQueue[string]()}
			record := l.OnResult(nil)
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				r := reconcile.Result[string]{Outcome: reconcile.OutcomeSucceeded, Duration: time.Millisecond}
				for i := 0; p.Next(); i++ {
					r.Item = items[i%n]
					record(r)
				}
			})
			b.ReportMetric(100*float64(l.snapshot(time.Second).dropped)/float64(b.N), "%dropped")
		})
	}
}

// BenchmarkOnResultLocked is what a run costs a worker while a reader holds all
// locks of the page: a worker does not wait for it.
func BenchmarkOnResultLocked(b *testing.B) {
	l := &Loop[string]{Name: "q", Queue: reconcile.NewQueue[string]()}
	record := l.OnResult(nil)
	items := benchItems(1000)
	defer l.lockAll()()
	r := reconcile.Result[string]{Outcome: reconcile.OutcomeSucceeded, Duration: time.Millisecond}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		r.Item = items[i%len(items)]
		record(r)
		i++
	}
}

// BenchmarkLook is what it costs to look at a queue of 100,000 items, apart from
// reading them: the snapshot, which all share, and a page of it.
func BenchmarkLook(b *testing.B) {
	q := reconcile.NewQueue[string]()
	l := &Loop[string]{Name: "q", Queue: q, Runs: 100_000}
	record := l.OnResult(nil)
	for i, item := range benchItems(100_000) {
		q.EnqueueAfter(item, time.Hour+time.Duration(i%1000)*time.Second)
		record(reconcile.Result[string]{Item: item, Outcome: reconcile.OutcomeRequeued})
	}
	page := New(l)
	standard, err := parseQuery(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("All", func(b *testing.B) { // how long the queue is held up
		for b.Loop() {
			for range q.All() {
				break
			}
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			l.newSnapshot()
		}
	})
	s := l.snapshot(time.Hour)
	b.Run("search", func(b *testing.B) {
		search := standard
		search.Search = "99999"
		for b.Loop() {
			s.page(search)
		}
	})
	b.Run("page", func(b *testing.B) {
		for b.Loop() {
			o, _, err := page.overview(standard)
			if err != nil {
				b.Fatal(err)
			}
			changes(overviewRegions, o, make(map[string]uint64))
		}
	})
}
