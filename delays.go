// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

// This file holds the delayed next runs of a [Queue]: a heap with four children
// to a node, of small values without pointers, so that a step down the heap
// costs one cache line and the garbage collector has nothing to follow.

// A delay is a next run that is due later.
type delay struct {
	due   int64  // in nanoseconds of Queue.now
	seq   uint32 // in which order delays of the same due were scheduled
	index uint32 // of the record
}

// before is the order of the heap. The sequence may wrap around: it tells apart
// what was scheduled for the very same nanosecond, and no two such delays are
// 2^31 others apart.
func (a delay) before(b delay) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return int32(a.seq-b.seq) < 0
}

// delays is the heap. Each record knows its place in it: record.prev.
type delays[T comparable] []delay

func (h *delays[T]) push(s *records[T], d delay) {
	*h = append(*h, d)
	h.up(s, len(*h)-1, d)
}

// removeAt takes out the delay at place p.
func (h *delays[T]) removeAt(s *records[T], p uint32) {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	if int(p) < len(*h) {
		h.fix(s, int(p), last)
	}
	if cap(*h) > 4*len(*h) && cap(*h) > chunkLen {
		*h = append(make(delays[T], 0, 2*len(*h)), *h...)
	}
}

// fix puts d where the delay at place p was.
func (h *delays[T]) fix(s *records[T], p int, d delay) {
	if p > 0 && d.before((*h)[(p-1)/4]) {
		h.up(s, p, d)
	} else {
		h.down(s, p, d)
	}
}

// up and down move the hole at place p to where d belongs, and fill it.

func (h delays[T]) up(s *records[T], p int, d delay) {
	for p > 0 {
		parent := (p - 1) / 4
		if !d.before(h[parent]) {
			break
		}
		h.set(s, p, h[parent])
		p = parent
	}
	h.set(s, p, d)
}

func (h delays[T]) down(s *records[T], p int, d delay) {
	for {
		first := 4*p + 1
		if first >= len(h) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(h)); c++ {
			if h[c].before(h[least]) {
				least = c
			}
		}
		if !h[least].before(d) {
			break
		}
		h.set(s, p, h[least])
		p = least
	}
	h.set(s, p, d)
}

func (h delays[T]) set(s *records[T], p int, d delay) {
	h[p] = d
	s.at(d.index).prev = uint32(p)
}
