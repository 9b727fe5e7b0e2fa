// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/reconkernel/reconcile"
)

// These benchmarks show the price of the verbs, beside that of a queue that one
// writes by hand and of a channel. The module in bench/ measures everything
// else, and beside other queues: see docs/performance.md.

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
	b.Run("Queue", func(b *testing.B) {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		q, next := reconcile.NewQueue[string](), round()
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
	})
	b.Run("Baseline", func(b *testing.B) {
		q, next := newBaseline(), round()
		b.ReportAllocs()
		for b.Loop() {
			want := next()
			q.add(want)
			item := q.get()
			if item != want {
				b.Fatalf("get: %q, want %q", item, want)
			}
			q.done(item)
		}
	})
	b.Run("Channel", func(b *testing.B) {
		ch, next := make(chan string, 1), round()
		b.ReportAllocs()
		for b.Loop() {
			want := next()
			ch <- want
			if item := <-ch; item != want {
				b.Fatalf("received %q, want %q", item, want)
			}
		}
	})
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
	b.Run("Queue", func(b *testing.B) {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		q := reconcile.NewQueue[string]()
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
	})
	b.Run("Baseline", func(b *testing.B) {
		q := newBaseline()
		q.add("x")
		q.get()
		b.ReportAllocs()
		for b.Loop() {
			q.add("x")
			q.done("x")
			if item := q.get(); item != "x" {
				b.Fatalf("get: %q, want x", item)
			}
		}
	})
}

// What the loop adds to the queue: each run enqueues the next one.
func BenchmarkReconciler(b *testing.B) {
	q, next := reconcile.NewQueue[string](), round()
	more := make(chan bool)
	r := &reconcile.Reconciler[string]{
		Queue: q,
		Reconcile: func(context.Context, string) error {
			if <-more {
				q.Enqueue(next())
			}
			return nil
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	ended := make(chan error)
	go func() { ended <- r.Run(b.Context()) }()
	q.Enqueue(next())
	b.ReportAllocs()
	for b.Loop() {
		more <- true
	}
	more <- false
	q.Close()
	if err := <-ended; err != nil {
		b.Fatalf("Run: %v", err)
	}
}

// A baseline is a queue of a mutex, a map and a slice: it merges what is queued
// and what is in flight, and keeps no times, no failures and no delays.
type baseline struct {
	mu    sync.Mutex // guards the fields below
	wake  sync.Cond
	items map[string]phase
	fifo  []string
	first int // fifo[:first] was taken
}

type phase struct{ running, again bool }

func newBaseline() *baseline {
	q := &baseline{items: make(map[string]phase)}
	q.wake.L = &q.mu
	return q
}

func (q *baseline) add(item string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch p, known := q.items[item]; {
	case !known:
		q.items[item] = phase{}
		q.pushLocked(item)
	case p.running && !p.again:
		q.items[item] = phase{running: true, again: true}
	}
}

func (q *baseline) pushLocked(item string) {
	if q.first > 64 && q.first > len(q.fifo)/2 {
		q.fifo = append(q.fifo[:0], q.fifo[q.first:]...)
		q.first = 0
	}
	q.fifo = append(q.fifo, item)
	q.wake.Signal()
}

func (q *baseline) get() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.first == len(q.fifo) {
		q.wake.Wait()
	}
	item := q.fifo[q.first]
	q.first++
	q.items[item] = phase{running: true}
	return item
}

func (q *baseline) done(item string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.items[item].again {
		q.items[item] = phase{}
		q.pushLocked(item)
	} else {
		delete(q.items, item)
	}
}
