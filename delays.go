// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"math"
	"time"
)

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

// delay gives a record a next run that is due later.
func (q *Queue[T]) delay(i uint32, r *record[T], kind nextRun, due, now int64) {
	r.run = kind
	q.seq++
	q.delays.push(&q.records, delay{due, q.seq, i})
	q.arm(now)
}

// undelay takes the record's next run out of the heap; the caller gives it
// another, or none.
func (q *Queue[T]) undelay(r *record[T]) {
	q.delays.removeAt(&q.records, r.prev)
	if len(q.delays) == 0 {
		q.disarm()
	}
}

// promote makes ready what is due, in order.
func (q *Queue[T]) promote(now int64) {
	for len(q.delays) > 0 && q.delays[0].due <= now {
		d := q.delays[0]
		q.delays.removeAt(&q.records, 0)
		r := q.records.at(d.index)
		if r.running {
			r.run = runReady
			q.again++
			q.changed(d.index)
		} else {
			q.waitsNoMore(r)
			q.makeReady(d.index, r, d.due, now)
		}
	}
}

// arm sees to it that the timer fires when the first delay is due. The timer is
// not put off when the first delay goes: it fires, and is set anew then.
func (q *Queue[T]) arm(now int64) {
	if len(q.delays) == 0 || q.delays[0].due >= q.armed {
		return
	}
	q.armed = q.delays[0].due
	d := time.Duration(q.armed - now)
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.fire)
	} else {
		q.timer.Reset(d)
	}
}

func (q *Queue[T]) disarm() {
	if q.armed != math.MaxInt64 {
		q.timer.Stop()
		q.armed = math.MaxInt64
	}
}

func (q *Queue[T]) fire() {
	q.mu.Lock()
	now := q.now()
	q.armed = math.MaxInt64
	q.promote(now)
	q.arm(now)
	q.unlock()
}
