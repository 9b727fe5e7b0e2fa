// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"math/bits"
	"unsafe"
)

// This file holds the memory of a [Queue]: an entry for each item, a hash table
// that finds it, the lists of ready items and the heap of delays. None of them
// knows a lock, a clock or a rule.
//
// A map of pointers to entries would be plainer. This store is faster with many
// items, costs the garbage collector less, gives the memory of a burst back, and
// makes no call pay for all items at once.

// An entry is all that the queue knows about one item.
type entry[T comparable] struct {
	item    T
	since   int64    // when it entered its phase, in nanoseconds of Queue.now
	pending int64    // since when there is work, by the same clock; not read while it waits for a recheck
	last    *lastRun // nil if there is nothing to say about it

	// The neighbours in the list of ready items that the entry is in, if it is.
	// While its next run is delayed, prev is its place in the heap.
	prev, next uint32

	hash     uint32  // 0 if the entry is free
	kind     runKind // of the next run
	held     bool    // of a next run that is due later: no event starts it before
	event    bool    // an event asked for the next run; of an item in flight, for the run in flight
	inFlight bool
}

// A lastRun is what the last run of an item left behind, if it failed or scheduled
// the next one.
type lastRun struct {
	failures  int   // in a row
	err       error // the failure, or the reason why a run is scheduled; may be nil
	notBefore int64 // of the next run, if it is due later and not held
}

// notBefore returns the time before which no event starts the next run, which is
// due later.
func (e *entry[T]) notBefore(due int64) int64 {
	switch {
	case e.held:
		return due
	case e.last != nil:
		return e.last.notBefore
	}
	return 0
}

// setNotBefore keeps the notBefore of a next run that is due later. Most have none,
// or that of their due, so it is not worth a field of its own.
func (e *entry[T]) setNotBefore(r nextRun) {
	e.held = r.notBefore == r.due
	switch {
	case e.last != nil:
		e.last.notBefore = r.notBefore
	case !e.held && r.notBefore != 0:
		e.last = &lastRun{notBefore: r.notBefore}
	}
}

// A store holds the entries. Each has an index, which stays the same as long as
// the entry is used; 0 is the index of none. The zero store is empty.
type store[T comparable] struct {
	parts       [partCount]part // the hash table
	chunks      []chunk[T]
	withRoom    []uint32 // chunks that may have room; all that have room are among them
	unallocated []uint32 // chunks without memory
	empty       int      // chunks with memory and without entries in use
	count       int      // entries in use
}

// find returns the index and the entry of an item, or 0 and nil.
func (s *store[T]) find(hash uint32, item T) (uint32, *entry[T]) {
	slots := s.part(hash).slots
	if len(slots) == 0 {
		return 0, nil
	}
	for p := hash; ; p++ {
		found := slots[p&uint32(len(slots)-1)]
		if found == 0 {
			return 0, nil
		}
		if found.hash() == hash {
			if e := s.entry(found.index()); e.item == item {
				return found.index(), e
			}
		}
	}
}

// insert adds an entry for an item that has none.
func (s *store[T]) insert(hash uint32, item T) (uint32, *entry[T]) {
	i := s.allocate()
	e := s.entry(i)
	e.item, e.hash = item, hash
	s.count++
	s.part(hash).insert(newSlot(hash, i))
	return i, e
}

// remove frees an entry. Nothing of the item stays reachable.
func (s *store[T]) remove(i uint32) {
	e := s.entry(i)
	s.part(e.hash).remove(newSlot(e.hash, i))
	*e = entry[T]{}
	s.free(i)
	if s.count--; s.count == 0 && (len(s.chunks) > manyChunks || unsafe.Sizeof(*s.chunks[0].entries) > maxEmptyBytes) {
		*s = store[T]{} // The chunk of index 0 as well, which is never free.
	}
}

// The hash table is split in parts by the first bits of the hash, so that no
// growth moves more than one part of it. Each part is a table by open addressing
// with linear probing from the last bits of the hash.
const (
	partBits  = 6
	partCount = 1 << partBits
	minSlots  = 8
)

type part struct {
	slots []slot // a power of two of them, or none
	used  int
}

// A slot holds the hash and the index of an entry, and is 0 if it is free; so
// passing by the slots of others, and moving slots, touches no entry.
type slot uint64

func newSlot(hash, i uint32) slot { return slot(hash)<<32 | slot(i) }
func (s slot) hash() uint32       { return uint32(s >> 32) }
func (s slot) index() uint32      { return uint32(s) }

func (s *store[T]) part(hash uint32) *part { return &s.parts[hash>>(32-partBits)] }

// insert puts a slot in its place.
func (t *part) insert(s slot) {
	if (t.used+1)*4 > len(t.slots)*3 {
		t.resize(max(minSlots, 2*len(t.slots)))
	}
	mask := uint32(len(t.slots) - 1)
	p := s.hash() & mask
	for t.slots[p] != 0 {
		p = (p + 1) & mask
	}
	t.slots[p] = s
	t.used++
}

// remove clears a slot, and closes the gap.
func (t *part) remove(s slot) {
	mask := uint32(len(t.slots) - 1)
	gap := s.hash() & mask
	for t.slots[gap] != s {
		gap = (gap + 1) & mask
	}
	for p := (gap + 1) & mask; t.slots[p] != 0; p = (p + 1) & mask {
		// A slot may move back to the gap, but not before its home.
		if (p-t.slots[p].hash())&mask >= (p-gap)&mask {
			t.slots[gap] = t.slots[p]
			gap = p
		}
	}
	t.slots[gap] = 0
	t.used--
	if len(t.slots) > minSlots && t.used*8 < len(t.slots) {
		t.resize(len(t.slots) / 2)
	}
}

func (t *part) resize(n int) {
	old := t.slots
	t.slots, t.used = make([]slot, n), 0
	for _, s := range old {
		if s != 0 {
			t.insert(s)
		}
	}
}

const (
	// Of the 32 indexes that are a chunk's the last is not used: with the header that
	// the runtime gives an allocation with pointers, 31 entries fill just what it
	// rounds up to.
	chunkSpan = 32
	chunkLen  = chunkSpan - 1

	maxEmpty      = 8       // chunks that are kept, so that a queue that goes up and down allocates nothing
	maxEmptyBytes = 1 << 15 // and their size: those of items that are big are not kept
	manyChunks    = 128     // from so many on, an emptied store begins anew
)

// A chunk holds chunkLen entries, which never move.
type chunk[T comparable] struct {
	entries *[chunkLen]entry[T] // nil if the chunk is unallocated
	used    uint32              // a bit for each entry in use
	listed  bool                // in store.withRoom
}

// entry returns the entry of an index.
func (s *store[T]) entry(i uint32) *entry[T] { return &s.chunks[i/chunkSpan].entries[i%chunkSpan] }

// peek returns the entry at an index that was used once: that of any item, a
// free one, or nil.
func (s *store[T]) peek(i uint32) *entry[T] {
	if n := i / chunkSpan; n < uint32(len(s.chunks)) {
		if entries := s.chunks[n].entries; entries != nil {
			return &entries[i%chunkSpan]
		}
	}
	return nil
}

// allocate returns the index of a free entry, which is zero.
func (s *store[T]) allocate() uint32 {
	for len(s.withRoom) > 0 {
		n := s.withRoom[len(s.withRoom)-1]
		c := &s.chunks[n]
		if c.entries != nil && c.used != 1<<chunkLen-1 {
			if c.used == 0 {
				s.empty--
			}
			free := bits.TrailingZeros32(^c.used)
			c.used |= 1 << free
			return n*chunkSpan + uint32(free)
		}
		c.listed = false
		s.withRoom = s.withRoom[:len(s.withRoom)-1]
	}
	fresh := chunk[T]{entries: new([chunkLen]entry[T]), used: 1, listed: true}
	if len(s.chunks) == 0 {
		fresh.used = 3 // the first entry is that of index 0, and never used
	}
	n := uint32(len(s.chunks))
	if v := len(s.unallocated); v > 0 {
		n = s.unallocated[v-1]
		s.unallocated = s.unallocated[:v-1]
		s.chunks[n] = fresh
	} else {
		s.chunks = append(s.chunks, fresh)
	}
	s.withRoom = append(s.withRoom, n)
	return n*chunkSpan + uint32(bits.Len32(fresh.used)-1)
}

// free takes back an entry.
func (s *store[T]) free(i uint32) {
	n := i / chunkSpan
	c := &s.chunks[n]
	c.used &^= 1 << (i % chunkSpan)
	if !c.listed {
		c.listed = true
		s.withRoom = append(s.withRoom, n)
	}
	switch {
	case c.used != 0:
	case s.empty < maxEmpty && uintptr(s.empty+1)*unsafe.Sizeof(*c.entries) <= maxEmptyBytes:
		s.empty++
	default:
		c.entries = nil
		s.unallocated = append(s.unallocated, n)
	}
}

// A list is one of ready items, first to be taken first. Its entries are linked
// by their indexes.
type list struct {
	first, last uint32
	len         int
}

func (s *store[T]) push(l *list, i uint32, e *entry[T]) {
	e.prev, e.next = l.last, 0
	if l.last == 0 {
		l.first = i
	} else {
		s.entry(l.last).next = i
	}
	l.last = i
	l.len++
}

func (s *store[T]) unlink(l *list, e *entry[T]) {
	if e.prev == 0 {
		l.first = e.next
	} else {
		s.entry(e.prev).next = e.next
	}
	if e.next == 0 {
		l.last = e.prev
	} else {
		s.entry(e.next).prev = e.prev
	}
	l.len--
}

// readyNext reports whether an item in flight has a next run that is ready.
func (e *entry[T]) readyNext() bool { return e.kind == runReady || e.kind == runNow }
