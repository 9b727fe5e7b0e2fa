// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import "sync/atomic"

// A ring takes values from many goroutines and hands them to one at a time. It
// has a fixed size and no lock: push never waits for anybody, neither for the
// one that takes values out, nor for another that puts one in.
//
// Each slot says by its turn what it is for. The value of position p is in slot
// p modulo the size: turn p means that it can be written, p+1 that it can be
// read, and p plus the size that it is free for the next round.
type ring[V any] struct {
	slots []slot[V] // a power of two
	_     [64]byte  // keeps tail away from what is only read
	tail  atomic.Uint64
	_     [64]byte
	head  uint64 // of the one that takes values out
}

type slot[V any] struct {
	turn  atomic.Uint64
	value V
}

func newRing[V any](size int) *ring[V] {
	r := &ring[V]{slots: make([]slot[V], size)}
	for i := range r.slots {
		r.slots[i].turn.Store(uint64(i))
	}
	return r
}

// push puts a value in, or reports false if the ring is full.
func (r *ring[V]) push(v V) bool {
	for {
		at := r.tail.Load()
		s := &r.slots[at&uint64(len(r.slots)-1)]
		switch turn := s.turn.Load(); {
		case turn == at:
			if r.tail.CompareAndSwap(at, at+1) {
				s.value = v
				s.turn.Store(at + 1)
				return true
			}
		case turn < at: // of the last round, and not taken out yet
			return false
		}
	}
}

// pop takes the oldest value out. One goroutine may call it at a time.
func (r *ring[V]) pop() (v V, ok bool) {
	s := &r.slots[r.head&uint64(len(r.slots)-1)]
	if s.turn.Load() != r.head+1 {
		return v, false
	}
	var none V
	v, s.value = s.value, none // nothing is kept alive by an old slot
	s.turn.Store(r.head + uint64(len(r.slots)))
	r.head++
	return v, true
}
