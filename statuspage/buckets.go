// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"math"
	"time"
)

// The charts show bucketCount buckets of bucketLen each.
const (
	bucketLen   = 10 * time.Second
	bucketCount = 90
)

// A history counts runs by duration, and notes the depth of the queue, over the
// time that the charts show. Its size is fixed. Times are since its beginning.
type history struct {
	buckets [bucketCount + 1]bucket
}

// A bucket is what happened in bucketLen.
type bucket struct {
	number    int64 // of the time that it is for, from 1 on; 0 if it was never used
	runs      int
	failed    int // of these
	durations histogram

	sampled         bool // the rest is known: how many items there were, at most
	ready, inFlight int
}

func bucketNumber(at time.Duration) int64 { return 1 + int64(at/bucketLen) }

// bucket returns the bucket for a time, or nil if that is too long ago.
func (h *history) bucket(at time.Duration) *bucket {
	number := bucketNumber(at)
	b := &h.buckets[number%int64(len(h.buckets))]
	if b.number > number {
		return nil
	}
	if b.number < number {
		*b = bucket{number: number}
	}
	return b
}

func (h *history) count(at time.Duration, r *run) {
	if b := h.bucket(at); b != nil {
		b.runs++
		if r.Failed() {
			b.failed++
		}
		b.durations.add(r.Duration)
	}
}

func (h *history) sample(at time.Duration, ready, inFlight int) {
	if b := h.bucket(at); b != nil {
		b.sampled, b.ready, b.inFlight = true, max(b.ready, ready), max(b.inFlight, inFlight)
	}
}

// Measures are what a page tells of the runs of a loop.
type measures struct {
	age     time.Duration         // of the recorder
	totals  [len(outcomes)]uint64 // since the beginning
	dropped uint64                // results that are only in totals
	buckets [bucketCount]bucket   // of the charts, the oldest first

	perSecond float64 // runs, over the last minute
	p50, p99  duration
}

// add adds the buckets of the charts.
func (m *measures) add(h *history) {
	for i := range m.buckets {
		sum, number := &m.buckets[i], bucketNumber(m.age)-bucketCount+1+int64(i)
		sum.number = number
		b := &h.buckets[max(number, 0)%int64(len(h.buckets))]
		if number < 1 || b.number != number {
			continue
		}
		sum.runs += b.runs
		sum.failed += b.failed
		sum.durations.merge(&b.durations)
		if b.sampled { // in one shard only
			sum.sampled, sum.ready, sum.inFlight = true, b.ready, b.inFlight
		}
	}
}

// sum works out what follows from the buckets.
func (m *measures) sum() {
	var all histogram
	for i := range m.buckets {
		all.merge(&m.buckets[i].durations)
	}
	m.p50, m.p99 = all.quantile(0.5), all.quantile(0.99)

	// The last minute is the bucket that has just begun, and those before it.
	const before = int(time.Minute/bucketLen) - 1
	runs := 0
	for _, b := range m.buckets[bucketCount-1-before:] {
		runs += b.runs
	}
	span := min(m.age, time.Duration(before)*bucketLen+m.age%bucketLen)
	m.perSecond = float64(runs) / max(1, span.Seconds())
}

// A histogram counts durations in steps of a quarter of an octave, from
// histogramUnit to some hours.
type histogram [144]uint32

const histogramUnit = 256 // nanoseconds

// The exponent of a floating-point number and the first two bits of its fraction
// count in such steps.

func histogramStep(d float64) int {
	return int(math.Float64bits(d)>>50) - int(math.Float64bits(histogramUnit)>>50)
}

// histogramFloor is the inverse: the smallest number of a step.
func histogramFloor(step int) float64 {
	return math.Float64frombits(math.Float64bits(histogramUnit) + uint64(step)<<50)
}

func (h *histogram) add(d duration) {
	h[min(histogramStep(max(float64(d), histogramUnit)), len(h)-1)]++
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o {
		h[i] += n
	}
}

// quantile returns the duration below which the part q of all lies, to within a
// step, and none if there is no run.
func (h *histogram) quantile(q float64) duration {
	var sum uint64
	for _, n := range h {
		sum += uint64(n)
	}
	rank := uint64(q*float64(max(sum, 1)-1)) + 1
	for i, n := range h {
		if uint64(n) < rank {
			rank -= uint64(n)
			continue
		}
		low, high := histogramFloor(i), histogramFloor(i+1)
		return duration(low + (high-low)*(float64(rank)-0.5)/float64(n))
	}
	return none
}
