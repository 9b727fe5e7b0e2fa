// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// settle returns once q has processed everything that was done to it: some queues
// pass a delay to a goroutine, in order. It takes what is ready until then and passes
// it to early.
func settle(q queue, early func(item string)) {
	const last = "settle/last-00000000"
	q.AddAfter(last, time.Nanosecond)
	for {
		item, _ := q.Get()
		if item == last {
			q.Done(item)
			return
		}
		early(item)
	}
}

// BenchmarkDelays adds a million items that wait for up to an hour. One of a thousand
// waits for two seconds at most. These must come out, each once and not too early, and
// nothing else: they stand for all others. It reports the memory of an item that waits,
// without its text.
func BenchmarkDelays(b *testing.B) {
	const probes = million / 1000
	items, delays, r := names(million), make([]time.Duration, million), rand.New(rand.NewPCG(1, 0))
	for i := range delays {
		delays[i] = 10*time.Minute + time.Duration(r.Int64N(int64(time.Hour)))
		if i%(million/probes) == 0 {
			delays[i] = time.Duration(r.Int64N(int64(2 * time.Second)))
		}
	}
	compare(b, delaying, func(b *testing.B, im impl) {
		each(b, im, func(m *meter, q queue) {
			l, seen, before := newLedger(million), 0, liveBytes()
			m.start()
			began := time.Now()
			probe := func(item string) {
				i := index(item)
				l.take(i)
				if d := time.Since(began); d < delays[i] {
					b.Fatalf("%q came after %v, want %v", item, d, delays[i])
				}
				seen++
				q.Done(item)
			}
			for i, item := range items {
				q.AddAfter(item, delays[i])
			}
			settle(q, probe)
			m.stop(million)
			held := (liveBytes() - before) / million
			b.ReportMetric(held, "held-B/item")
			if im.name == nameOurs && held > 95 {
				b.Errorf("a waiting item has %.1f bytes, want at most 95", held)
			}
			for seen < probes {
				item, _ := q.Get()
				probe(item)
			}
			wantLen(b, q, 0)
		})
	})
}

// BenchmarkFire lets 100,000 delays end within 200 ms. It reports how late the items
// come out at one worker.
func BenchmarkFire(b *testing.B) {
	const n = 100_000
	const lead = n * 10 * time.Microsecond // to add them all
	items, delays, r := names(n), make([]time.Duration, n), rand.New(rand.NewPCG(1, 0))
	for i := range delays {
		delays[i] = lead + time.Duration(r.Int64N(int64(200*time.Millisecond)))
	}
	compare(b, delaying, func(b *testing.B, im impl) {
		var late []time.Duration
		each(b, im, func(m *meter, q queue) {
			due, l := make([]time.Duration, n), newLedger(n)
			m.start()
			began := time.Now()
			for i, item := range items {
				now := time.Since(began)
				due[i] = max(now, delays[i])
				q.AddAfter(item, delays[i]-now)
			}
			for range items {
				item, _ := q.Get()
				i := index(item)
				l.take(i)
				d := time.Since(began) - due[i]
				if d < 0 {
					b.Fatalf("%q came %v too early", item, -d)
				}
				late = append(late, d)
				q.Done(item)
			}
			m.stop(n)
			m.lateness(late)
			wantLen(b, q, 0)
		})
	})
}

// BenchmarkRequeue lets 4 workers take 10,000 items and give each back for a
// millisecond, until each item has been taken 20 times.
func BenchmarkRequeue(b *testing.B) {
	const workers, n, times, pause = 4, 10_000, 20, time.Millisecond
	items := names(n)
	compare(b, delaying, func(b *testing.B, im impl) {
		each(b, im, func(m *meter, q queue) {
			l, runs := newLedger(n), make([]int, n)
			m.start()
			work := func() {
				for {
					item, ok := q.Get()
					if !ok {
						return
					}
					i := index(item)
					l.take(i)
					if runs[i]++; runs[i] == times {
						l.finish() // and stays taken: it must not come again
						q.Done(item)
						continue
					}
					l.giveBack(i)
					q.RequeueAfter(item, pause)
				}
			}
			add(q, items)
			var all sync.WaitGroup
			for range workers {
				all.Go(work)
			}
			<-l.all
			m.stop(n * times)
			wantLen(b, q, 0)
			q.Close()
			all.Wait()
		})
	})
}

// BenchmarkFail takes 100,000 items, all of which fail, and gives them back for a
// back-off.
func BenchmarkFail(b *testing.B) {
	items := names(100_000)
	compare(b, limiting, func(b *testing.B, im impl) {
		each(b, im, func(m *meter, q queue) {
			add(q, items)
			m.start()
			for _, want := range items {
				take(b, q, want)
				q.Fail(want)
			}
			settle(q, func(item string) { b.Fatalf("took %q, want nothing before the back-off", item) })
			m.stop(len(items))
			wantLen(b, q, 0)
		})
	})
}
