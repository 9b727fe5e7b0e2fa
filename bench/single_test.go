// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import "testing"

// This file has the workloads of one goroutine: the price of the single verbs,
// and of a million items.

const (
	manyNames = 1024  // that a cycle goes through
	manyHeld  = 65536 // that wait while it does
	million   = 1_000_000
)

// BenchmarkCycle measures Enqueue, Dequeue, Done.
func BenchmarkCycle(b *testing.B) {
	compare(b, plain, func(b *testing.B, im impl) { cycle(b, im.open(), names(manyNames), 0) })
}

// BenchmarkCycleTimed is BenchmarkCycle with the times kept that the kernel always
// keeps. client-go keeps them only with its metrics on.
func BenchmarkCycleTimed(b *testing.B) {
	compare(b, timed, func(b *testing.B, im impl) { cycle(b, im.open(), names(manyNames), 0) })
}

// BenchmarkCycleHeld is BenchmarkCycle with 64k items in the queue.
func BenchmarkCycleHeld(b *testing.B) {
	compare(b, plain, func(b *testing.B, im impl) {
		items, q := names(manyHeld+manyNames), im.open()
		add(q, items[:manyHeld])
		cycle(b, q, items, manyHeld)
	})
}

// cycle measures Add, Get, Done with held items in the queue, which are the
// first ones. There are more items than that.
func cycle(b *testing.B, q queue, items []string, held int) {
	defer q.Close()
	in, out := held, 0
	repeat(b, func() {
		q.Add(items[in])
		if in++; in == len(items) {
			in = 0
		}
		want := items[out]
		take(b, q, want)
		if out++; out == len(items) {
			out = 0
		}
		q.Done(want)
	})
	wantLen(b, q, held)
}

// add adds items, and waits until q has noticed all of them.
func add(q queue, items []string) {
	for _, item := range items {
		q.Add(item)
	}
	q.Len()
}

// take takes the next item, which must be want.
func take(b *testing.B, q queue, want string) {
	if item, ok := q.Get(); !ok || item != want {
		b.Fatalf("took %q, %t, want %q", item, ok, want)
	}
}

// drain takes all items, which must be these, in this order.
func drain(b *testing.B, q queue, items []string) {
	for _, want := range items {
		take(b, q, want)
		q.Done(want)
	}
	wantLen(b, q, 0)
}

func wantLen(b *testing.B, q queue, want int) {
	if n := q.Len(); n != want {
		b.Fatalf("%d items are left in the queue, want %d", n, want)
	}
}

// BenchmarkQueuedAgain measures Enqueue of an item that is queued.
func BenchmarkQueuedAgain(b *testing.B) {
	compare(b, plain, func(b *testing.B, im impl) {
		items, q := names(manyNames), im.open()
		defer q.Close()
		add(q, items)
		i, m := 0, &meter{b: b}
		m.start()
		for b.Loop() {
			q.Add(items[i])
			if i++; i == len(items) {
				i = 0
			}
		}
		b.StartTimer()
		q.Len() // some queues process only now what was added
		m.stop(b.N)
		m.report()
		drain(b, q, items)
	})
}

// BenchmarkInFlightAgain measures Enqueue of an item in flight, then Done, and
// Dequeue of the same item again.
func BenchmarkInFlightAgain(b *testing.B) {
	compare(b, plain, func(b *testing.B, im impl) {
		q, want := im.open(), names(1)[0]
		defer q.Close()
		q.Add(want)
		take(b, q, want)
		repeat(b, func() {
			q.Add(want)
			q.Done(want)
			take(b, q, want)
		})
		q.Done(want)
		wantLen(b, q, 0)
	})
}

// BenchmarkBurst fills a queue with a million items and drains it again. It reports
// the memory of an item that waits, without its text.
func BenchmarkBurst(b *testing.B) {
	items := names(million)
	compare(b, plain, func(b *testing.B, im impl) {
		each(b, im, func(m *meter, q queue) {
			before := liveBytes()
			m.start()
			add(q, items)
			m.stop(0)
			held := (liveBytes() - before) / million
			b.ReportMetric(held, "held-B/item")
			if im.name == nameOurs && held > 80 {
				b.Errorf("a ready item has %.1f bytes, want at most 80", held)
			}
			m.start()
			drain(b, q, items)
			m.stop(million)
		})
	})
}
