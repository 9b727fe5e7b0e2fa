// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import "math"

// This file holds which next run is due when. It knows no lock and no clock.

// A delay is a next run that is due later.
type delay struct {
	due   int64  // in nanoseconds of Queue.now
	order uint32 // in which delays of the same due were scheduled
	index uint32 // of the entry
}

// before is the order of the heap. The field order may wrap around: it decides
// only among delays of the same nanosecond.
func (d delay) before(o delay) bool {
	if d.due != o.due {
		return d.due < o.due
	}
	return int32(d.order-o.order) < 0
}

// delays is a heap with four children to a node, of small values without
// pointers: a step down costs one cache line or two, and the garbage collector
// has nothing to follow. Each entry knows its place in the heap. The heap is kept
// in rows, so that no growth copies it.
type delays[T comparable] struct {
	rows []*[rowLen]delay
	len  int
}

const rowLen = 256

func (h *delays[T]) node(p int) *delay { return &h.rows[p/rowLen][p%rowLen] }

// first returns when the first delay is due, or the end of time.
func (h *delays[T]) first() int64 {
	if h.len == 0 {
		return math.MaxInt64
	}
	return h.rows[0][0].due
}

func (h *delays[T]) push(s *store[T], d delay) {
	if h.len == len(h.rows)*rowLen {
		h.rows = append(h.rows, new([rowLen]delay))
	}
	h.len++
	h.up(s, h.len-1, d)
}

// remove takes out the delay at place p.
func (h *delays[T]) remove(s *store[T], p int) {
	h.len--
	last := *h.node(h.len)
	switch {
	case p == h.len:
	case p > 0 && last.before(*h.node((p - 1) / 4)):
		h.up(s, p, last)
	default:
		h.down(s, p, last)
	}
	if rows := len(h.rows) - 1; rows > h.len/rowLen+1 { // one more is kept
		h.rows[rows] = nil
		h.rows = h.rows[:rows]
	}
}

// up and down move the gap at place p to where d belongs, and fill it.

func (h *delays[T]) up(s *store[T], p int, d delay) {
	for p > 0 {
		parent := (p - 1) / 4
		if !d.before(*h.node(parent)) {
			break
		}
		h.set(s, p, *h.node(parent))
		p = parent
	}
	h.set(s, p, d)
}

func (h *delays[T]) down(s *store[T], p int, d delay) {
	for {
		least := 4*p + 1
		if least >= h.len {
			break
		}
		for c := least + 1; c < min(4*p+5, h.len); c++ {
			if h.node(c).before(*h.node(least)) {
				least = c
			}
		}
		if !h.node(least).before(d) {
			break
		}
		h.set(s, p, *h.node(least))
		p = least
	}
	h.set(s, p, d)
}

func (h *delays[T]) set(s *store[T], p int, d delay) {
	*h.node(p) = d
	s.entry(d.index).prev = uint32(p)
}
