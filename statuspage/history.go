// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"math/bits"
	"time"
)

// The charts show bucketCount buckets of bucketLen each.
const (
	bucketLen   = 10 * time.Second
	bucketCount = 90
	chartLen    = bucketCount * bucketLen
)

// A history counts runs by outcome and duration, and notes the depth of the
// queue, over the time that the charts show. Its size is fixed.
type history struct {
	buckets [bucketCount + 1]bucket
}

// A bucket is what happened in bucketLen.
type bucket struct {
	number    int64 // of the time that it is for, from 1 on; 0 if it was never used
	counts    [outcomes]uint32
	durations histogram
	depth     depth
}

// A depth is how many items were ready and in flight, at most, within a bucket.
type depth struct {
	known           bool
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

func (h *history) count(r run) {
	if b := h.bucket(r.ended); b != nil {
		b.counts[r.outcome]++
		b.durations.add(r.duration)
	}
}

func (h *history) sample(at time.Duration, ready, inFlight int) {
	if b := h.bucket(at); b != nil {
		d := &b.depth
		*d = depth{true, max(d.ready, ready), max(d.inFlight, inFlight)}
	}
}

// A histogram counts durations in steps of a quarter of an octave or less, from
// a quarter of a microsecond to some hours.
type histogram [144]uint32

const histogramUnit = 8 // as a shift: 256 ns

func (h *histogram) add(d time.Duration) {
	i := 0
	if d > 0 {
		i = histogramStep(uint64(d) >> histogramUnit)
	}
	h[min(i, len(h)-1)]++
}

// histogramStep returns the step of a number: the first four are exact, then
// four of them double it.
func histogramStep(v uint64) int {
	if v < 4 {
		return int(v)
	}
	octave := bits.Len64(v) - 1
	return (octave-1)*4 + int(v>>(octave-2)&3)
}

// histogramFloor is the inverse: the smallest number of a step.
func histogramFloor(step int) uint64 {
	if step < 4 {
		return uint64(step)
	}
	octave := step/4 + 1
	return uint64(4+step%4) << (octave - 2)
}

func (h *histogram) merge(o *histogram) {
	for i, n := range o {
		h[i] += n
	}
}

// quantile returns the duration below which the part q of all lies, to within a
// step, and false if there is none.
func (h *histogram) quantile(q float64) (time.Duration, bool) {
	var sum uint64
	for _, n := range h {
		sum += uint64(n)
	}
	if sum == 0 {
		return 0, false
	}
	rank := uint64(q*float64(sum-1)) + 1
	for i, n := range h {
		if uint64(n) < rank {
			rank -= uint64(n)
			continue
		}
		low, high := histogramFloor(i), histogramFloor(i+1)
		part := (float64(rank) - 0.5) / float64(n)
		ns := (float64(low) + part*float64(high-low)) * (1 << histogramUnit)
		return time.Duration(ns), true
	}
	return 0, false
}
