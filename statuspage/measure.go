// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import "time"

// Measures are what a page tells of the runs of a loop.
type measures struct {
	now     time.Duration
	totals  [outcomes]uint64 // since the beginning
	dropped uint64           // results that are only in totals
	buckets []bucket         // of the charts, the oldest first

	perSecond float64 // runs, over the last minute
	p50, p99  time.Duration
	timed     bool // there is a p50 and a p99
}

// measure puts together what the recorder has counted.
func (r *recorder[T]) measure() measures {
	m := measures{now: r.now(), dropped: r.dropped.Load(), buckets: make([]bucket, bucketCount)}
	for o := range m.totals {
		m.totals[o] = r.totals[o].Load()
	}
	for i := range r.shards {
		s := &r.shards[i]
		s.read(func() { s.history.addTo(&m) })
	}
	m.sum()
	return m
}

// sum works out what follows from the buckets.
func (m *measures) sum() {
	var all histogram
	for i := range m.buckets {
		all.merge(&m.buckets[i].durations)
	}
	m.p50, m.timed = all.quantile(0.5)
	m.p99, _ = all.quantile(0.99)

	// The last minute is the bucket that has just begun, and those before it.
	const before = int(time.Minute/bucketLen) - 1
	runs := 0
	for _, b := range m.buckets[bucketCount-1-before:] {
		runs += b.runs()
	}
	span := min(m.now, time.Duration(before)*bucketLen+m.now%bucketLen)
	m.perSecond = float64(runs) / max(1, span.Seconds())
}

// addTo adds the buckets of the charts.
func (h *history) addTo(m *measures) {
	last := bucketNumber(m.now)
	for i := range m.buckets {
		sum, number := &m.buckets[i], last-bucketCount+1+int64(i)
		sum.number = number
		if number < 1 {
			continue
		}
		b := &h.buckets[number%int64(len(h.buckets))]
		if b.number != number {
			continue
		}
		for o, n := range b.counts {
			sum.counts[o] += n
		}
		sum.durations.merge(&b.durations)
		if b.depth.known {
			sum.depth = b.depth // only one shard has it
		}
	}
}

func (b *bucket) runs() int {
	n := 0
	for _, c := range b.counts {
		n += int(c)
	}
	return n
}

func (b *bucket) failed() int {
	return int(b.counts[retrying] + b.counts[gaveUp] + b.counts[terminated])
}
