// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

// This file holds where the records are: in chunks, which never move, and whose
// memory is given back when their last item goes.

const (
	chunkBits  = 8
	chunkLen   = 1 << chunkBits
	manyChunks = 64 // from so many on, an emptied store starts anew
)

// A chunk holds chunkLen records. Each chunk is full, open (it has room, and is
// in the ring of open chunks), spare (it has no live record) or vacant (its
// memory is given back, only its number is kept). Chunk 0 is the head of that
// ring and, because of the heads, never spare or vacant; so 0 ends every list.
type chunk[T comparable] struct {
	records    *[chunkLen]record[T] // nil if vacant
	free       uint32               // first of the records used before, 0 if none
	fresh      uint32               // records from here on were never used
	live       uint32
	prev, next uint32 // neighbours in the ring; next of a spare or vacant chunk
}

// at returns a live record, or a head.
func (s *records[T]) at(i uint32) *record[T] {
	return &s.chunks[i>>chunkBits].records[i%chunkLen]
}

// peek returns what is at an index that was once that of a record: a record of
// another item or of none, or nil.
func (s *records[T]) peek(i uint32) *record[T] {
	if n := i >> chunkBits; n < uint32(len(s.chunks)) {
		if chunk := s.chunks[n].records; chunk != nil {
			return &chunk[i%chunkLen]
		}
	}
	return nil
}

// alloc returns the index of a record that is zero but for next. It prefers
// chunk 0, so that a queue of few items stays within one chunk.
func (s *records[T]) alloc() uint32 {
	n := uint32(0)
	if s.chunks[0].live == chunkLen {
		if n = s.chunks[0].next; n == 0 {
			n = s.openChunk()
		}
	}
	c := &s.chunks[n]
	i := c.free
	if i != 0 {
		c.free = s.at(i).next
	} else {
		i = n<<chunkBits | c.fresh
		c.fresh++
	}
	if c.live++; c.live == chunkLen && n != 0 {
		s.unlink(n)
	}
	return i
}

// release takes back a record. Nothing of the item stays reachable.
func (s *records[T]) release(i uint32) {
	n := i >> chunkBits
	c := &s.chunks[n]
	*s.at(i) = record[T]{next: c.free}
	c.free = i
	if c.live == chunkLen && n != 0 {
		s.link(n)
	}
	if c.live--; c.live != 0 {
		return
	}
	s.unlink(n)
	c.free, c.fresh = 0, 0
	c.next, s.spare = s.spare, n
	s.spares++
	s.used--
	// Some spare chunks are kept, so that a queue whose length goes up and
	// down does not allocate each time.
	for s.spares > 1+s.used/4 {
		n := s.spare
		c := &s.chunks[n]
		s.spare = c.next
		s.spares--
		*c = chunk[T]{next: s.vacant}
		s.vacant = n
	}
}

// openChunk returns the number of a chunk without records, now in the ring.
func (s *records[T]) openChunk() uint32 {
	n := s.spare
	switch {
	case n != 0:
		s.spare = s.chunks[n].next
		s.spares--
	case s.vacant != 0:
		n = s.vacant
		s.vacant = s.chunks[n].next
		s.chunks[n].records = new([chunkLen]record[T])
	default:
		n = uint32(len(s.chunks))
		s.chunks = append(s.chunks, chunk[T]{records: new([chunkLen]record[T])})
	}
	s.used++
	s.link(n)
	return n
}

// link puts chunk n into the ring, as the first to be used.
func (s *records[T]) link(n uint32) {
	first := s.chunks[0].next
	s.chunks[n].prev, s.chunks[n].next = 0, first
	s.chunks[0].next = n
	s.chunks[first].prev = n
}

func (s *records[T]) unlink(n uint32) {
	c := &s.chunks[n]
	s.chunks[c.prev].next = c.next
	s.chunks[c.next].prev = c.prev
}
