// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import "math/bits"

// This file holds the memory of a [Queue]: one record per item, found by hash.
//
// It is a hash table of the kernel's own, for three reasons that a map cannot
// serve: the hash is computed before the lock is taken, the lists of the queue
// run through the records by 32-bit index and so need no memory of their own,
// and the table grows and shrinks one bucket at a time. So no call pays for a
// rehash of everything, and a burst gives its memory back as it drains.

// A record is all that the queue knows about one item.
type record[T comparable] struct {
	item   T
	since  int64    // when it entered its phase, in nanoseconds of Queue.now
	failed *failure // nil unless the last run failed
	hash   uint32
	chain  uint32 // next record of the bucket, or next free record of the chunk

	// Neighbours in the list of ready items, while the record is in it.
	// While its next run is delayed, prev is its place in the heap.
	prev, next uint32

	running bool // in flight
	run     nextRun
}

type failure struct {
	count int
	err   error
}

// nextRun says whether and when an item runs next.
type nextRun uint8

const (
	runNone   nextRun = iota // only in flight
	runReady                 // now, unless the verdict of the run in flight delays it
	runNow                   // only in flight: now, whatever the verdict
	runWithin                // no later than its due time
	runHeld                  // not before its due time
)

func (n nextRun) delayed() bool { return n >= runWithin }

const (
	chunkBits  = 8
	chunkLen   = 1 << chunkBits
	minBuckets = 16
	manyChunks = 64 // from here on an emptied table starts anew
)

// A chunk holds chunkLen records. Each chunk is full, open (it has room, and is
// in the ring of open chunks), spare (it has no live record) or vacant (its
// memory is given back, only its number is kept). Chunk 0 is the head of that
// ring and, because of record 0, never spare or vacant; so 0 ends every list.
type chunk[T comparable] struct {
	records    *[chunkLen]record[T] // nil if vacant
	free       uint32               // first of the records used before, 0 if none
	fresh      uint32               // records from here on were never used
	live       uint32
	prev, next uint32 // neighbours in the ring; next of a spare or vacant chunk
}

// records is a hash table by linear hashing: among n buckets one is chosen by
// the low bits of the hash, and when there are more items than buckets one
// bucket is split in two. Record 0 is no item: it is the head of the queue's
// list of ready items.
type records[T comparable] struct {
	chunks []chunk[T]
	heads  []uint32 // the first record of each bucket, 0 if none
	count  int      // items

	spare, vacant uint32 // lists of chunks
	used, spares  int    // chunks with live records; spare ones
}

func newRecords[T comparable]() records[T] {
	var s records[T]
	s.chunks = []chunk[T]{{records: new([chunkLen]record[T]), fresh: 1, live: 1}}
	s.heads = make([]uint32, minBuckets)
	s.used = 1
	return s
}

func (s *records[T]) at(i uint32) *record[T] {
	return &s.chunks[i>>chunkBits].records[i%chunkLen]
}

// bucket returns the number of the bucket of a hash.
func (s *records[T]) bucket(hash uint32) uint32 {
	n := uint32(len(s.heads))
	high := uint32(1)<<bits.Len32(n) - 1 // the smallest mask that n fits under
	if b := hash & high; b < n {
		return b
	}
	return hash & (high >> 1)
}

// find returns the index of an item's record, or 0.
func (s *records[T]) find(hash uint32, item T) uint32 {
	for i := s.heads[s.bucket(hash)]; i != 0; {
		r := s.at(i)
		if r.hash == hash && r.item == item {
			return i
		}
		i = r.chain
	}
	return 0
}

// insert adds a record for an item that has none.
func (s *records[T]) insert(hash uint32, item T) (uint32, *record[T]) {
	i := s.alloc()
	r := s.at(i)
	r.item, r.hash = item, hash
	b := s.bucket(hash)
	r.chain = s.heads[b]
	s.heads[b] = i
	if s.count++; s.count > len(s.heads) {
		s.split()
	}
	return i, r
}

// remove forgets a record.
func (s *records[T]) remove(i uint32) {
	link := &s.heads[s.bucket(s.at(i).hash)]
	for *link != i {
		link = &s.at(*link).chain
	}
	*link = s.at(i).chain
	s.release(i)
	s.count--
	for len(s.heads) > minBuckets && s.count*4 < len(s.heads) {
		s.merge()
	}
	if s.count == 0 && len(s.chunks) > manyChunks {
		s.chunks = append([]chunk[T](nil), s.chunks[0])
		s.chunks[0].prev, s.chunks[0].next = 0, 0
		s.spare, s.vacant, s.used, s.spares = 0, 0, 1, 0
	}
}

// split adds a bucket, and moves to it what now belongs there.
func (s *records[T]) split() {
	n := uint32(len(s.heads))
	high := uint32(1)<<bits.Len32(n) - 1
	s.heads = append(s.heads, 0)
	link, moved := &s.heads[n&(high>>1)], &s.heads[n]
	for i := *link; i != 0; i = *link {
		r := s.at(i)
		if r.hash&high == n {
			*link, *moved = r.chain, i
			moved = &r.chain
			r.chain = 0
		} else {
			link = &r.chain
		}
	}
}

// merge takes the last bucket away, and gives what it held to the bucket that
// it was once split from.
func (s *records[T]) merge() {
	n := uint32(len(s.heads)) - 1
	high := uint32(1)<<bits.Len32(n) - 1
	first := s.heads[n]
	s.heads = s.heads[:n]
	if first != 0 {
		link := &s.heads[n&(high>>1)]
		for *link != 0 {
			link = &s.at(*link).chain
		}
		*link = first
	}
	if cap(s.heads) > 4*len(s.heads) && cap(s.heads) > chunkLen {
		s.heads = append(make([]uint32, 0, 2*len(s.heads)), s.heads...)
	}
}

// alloc returns the index of a record that is zero but for its chain. It prefers
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
		c.free = s.at(i).chain
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
	*s.at(i) = record[T]{chain: c.free}
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
	c.prev, c.next = 0, 0
}
