// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

// This file holds the memory of a [Queue]: one record per item, and a hash table
// of the kernel's own that finds it. A map from items to records would be
// plainer. The table is here because
//
//   - the hash is computed before the lock is taken, but for an item given back
//     that is not where it is looked for first, which keeps the lock short;
//   - the lists of the queue run through the records by 32-bit index, and so
//     need no memory of their own;
//   - it grows and shrinks by small tables, so no call pays for all items, and
//     a burst gives its memory back while it drains;
//   - an item that goes leaves its slot behind, to be swept up with others. To
//     clear it at once would be a cache miss for each item that goes.

// A record is all that the queue knows about one item.
type record[T comparable] struct {
	item   T
	since  int64    // when it entered its phase, in nanoseconds of Queue.now
	failed *failure // nil unless the last run failed

	// Neighbours in the list of ready items that it is in, if it is. While
	// its next run is delayed, prev is its place in the heap. While it is free,
	// next is the next free record of its chunk.
	prev, next uint32

	hash    uint32 // 0 if it is the record of no item
	turn    uint16 // which take it was, see takeTurn; at rest only if that was undone
	running bool   // in flight
	run     nextRun
}

type failure struct {
	count int
	err   error
}

// nextRun says whether and when an item runs next.
type nextRun uint8

const (
	runNone    nextRun = iota // only in flight
	runReady                  // now, unless the verdict of the run in flight delays it
	runOffered                // only at rest: now, but behind events, see Background
	runNow                    // only in flight: now, whatever the verdict
	runWithin                 // no later than its due time
	runHeld                   // not before its due time
)

func (n nextRun) delayed() bool { return n >= runWithin }

const (
	front = 0 // the record where the list of ready items begins and ends
	back  = 1 // that of those that were offered, if the queue has a Background
	heads = 2 // how many such records there are
)

const (
	tableLen     = 128
	fullAt       = tableLen * 3 / 4
	mergeAt      = tableLen / 4
	slack        = 2 * tableLen // stale slots that are put up with in any case,
	stalePerItem = 4            // and for each item: the more, the fewer tables are swept
)

// A table is a part of the hash table: open addressing with linear probing. A
// slot holds the hash and the index of a record, and is 0 if it is free; so
// moving slots, and passing by those of other items, touches no record.
//
// A slot whose record is gone, or has another hash by now, is stale. It stays
// where it is until its table is purged, or until a record of just that hash
// and index makes it good again.
type table struct {
	slots [tableLen]slot
	used  int   // stale ones included
	depth uint8 // how many of the first bits of the hash are the same in it
}

type slot uint64

func newSlot(hash, i uint32) slot { return slot(hash)<<32 | slot(i) }
func (s slot) hash() uint32       { return uint32(s >> 32) }
func (s slot) index() uint32      { return uint32(s) }

// records is a hash table by extendible hashing: the first bits of the hash
// choose a table by way of the directory, the last bits a slot of it. A full
// table is split in two, and two that are almost empty are made one.
//
// The first records are no items, but the heads of the lists of ready items.
type records[T comparable] struct {
	chunks []chunk[T]
	count  int // items
	stale  int // slots

	directory []*table // 1<<depth of them; a table of less depth is there more than once
	depth     uint8
	deepest   int    // tables of that depth
	broom     uint32 // the hash with whose table the next sweep begins

	spare, vacant uint32 // lists of chunks
	used, spares  int    // chunks with live records; spare ones
}

func newRecords[T comparable](first chunk[T]) records[T] {
	if first.records == nil {
		first = chunk[T]{records: new([chunkLen]record[T]), fresh: heads, live: heads}
	}
	return records[T]{
		chunks:    []chunk[T]{first},
		directory: []*table{new(table)},
		deepest:   1,
		used:      1,
	}
}

// table returns the table of a hash.
func (s *records[T]) table(hash uint32) *table {
	return s.directory[hash>>(32-s.depth)]
}

// find returns the index of an item's record, or 0.
func (s *records[T]) find(hash uint32, item T) uint32 {
	t := s.table(hash)
	for p := hash; ; p++ {
		slot := t.slots[p%tableLen]
		if slot == 0 {
			return 0
		}
		if slot.hash() == hash {
			if r := s.peek(slot.index()); r != nil && r.hash == hash && r.item == item {
				return slot.index()
			}
		}
	}
}

// insert adds a record for an item that has none.
func (s *records[T]) insert(hash uint32, item T) (uint32, *record[T]) {
	i := s.alloc()
	r := s.at(i)
	r.item, r.hash = item, hash
	s.count++
	t := s.table(hash)
	if t.used >= fullAt {
		// Stale slots of one item, which may be many, have the same hash: no
		// split would ever part them.
		if s.stale > 0 {
			s.purge(t, true)
		}
		for t.used > tableLen/2 {
			s.split(t, hash)
			t = s.table(hash)
		}
	}
	if !t.insert(newSlot(hash, i)) {
		s.stale--
	}
	return i, r
}

// remove forgets a record. Its slot becomes stale.
func (s *records[T]) remove(i uint32) {
	s.release(i)
	s.count--
	s.stale++
	switch {
	case s.count == 0 && len(s.chunks) > manyChunks:
		*s = newRecords(s.chunks[0])
	case s.stale > stalePerItem*s.count+slack:
		s.sweep()
	}
}

// sweep clears one table of stale slots, another one each time.
func (s *records[T]) sweep() {
	hash := s.broom
	t := s.table(hash)
	s.broom += 1 << (32 - t.depth) // and around, to 0
	used := t.used
	if s.purge(t, false); t.used > used*3/4 {
		s.purge(t, true)
	}
	for t.used <= mergeAt/2 && s.merge(t, hash) {
		continue // t is what they are made one in
	}
}

// purge clears a table of stale slots: of all of them if it is to be thorough,
// otherwise of those that it finds without a look at the records of full chunks.
// As a queue drains, that is nearly all of them, for a tenth of the cache misses.
func (s *records[T]) purge(t *table, thorough bool) {
	slots, used := t.slots, t.used
	// Load all hashes before the first of them decides anything: so the cache
	// misses, one for each record of a big queue, do not wait for each other.
	var hashes [tableLen]uint32
	for p, slot := range slots {
		i := slot.index()
		switch c := &s.chunks[i>>chunkBits]; {
		case c.live == chunkLen && !thorough:
			hashes[p] = slot.hash()
		case c.live > 0:
			hashes[p] = c.records[i%chunkLen].hash
		}
	}
	t.slots, t.used = [tableLen]slot{}, 0
	for p, slot := range slots {
		if slot != 0 && hashes[p] == slot.hash() {
			t.insert(slot)
		}
	}
	s.stale -= used - t.used
}

// insert puts a slot in its place, and reports whether it was not there, stale.
func (t *table) insert(s slot) bool {
	p := s.hash()
	for ; t.slots[p%tableLen] != 0; p++ {
		if t.slots[p%tableLen] == s {
			return false
		}
	}
	t.slots[p%tableLen] = s
	t.used++
	return true
}

// split shares out a full table, which is that of hash, between two.
func (s *records[T]) split(t *table, hash uint32) {
	if t.depth == s.depth {
		directory := make([]*table, 0, 2*len(s.directory))
		for _, t := range s.directory {
			directory = append(directory, t, t)
		}
		s.directory = directory
		s.depth++
		s.deepest = 0
	}
	slots := t.slots
	low, high := t, new(table)
	low.slots, low.used = [tableLen]slot{}, 0
	low.depth++
	high.depth = low.depth
	if low.depth == s.depth {
		s.deepest += 2
	}
	for _, slot := range slots {
		switch {
		case slot == 0:
		case slot.hash()>>(32-low.depth)&1 == 0:
			low.insert(slot)
		default:
			high.insert(slot)
		}
	}
	s.direct(hash>>(32-low.depth)|1, high)
}

// merge makes one of a table, which is that of hash, and the one that it was
// split from, and reports whether that could be done.
func (s *records[T]) merge(t *table, hash uint32) bool {
	if t.depth == 0 {
		return false
	}
	prefix := hash >> (32 - t.depth)
	other := s.directory[(prefix^1)<<(s.depth-t.depth)]
	if other.depth != t.depth || t.used+other.used > mergeAt {
		return false
	}
	for _, slot := range other.slots {
		if slot != 0 {
			t.insert(slot)
		}
	}
	if t.depth == s.depth {
		s.deepest -= 2
	}
	t.depth--
	s.direct(prefix>>1, t)
	for s.deepest == 0 {
		s.halve()
	}
	return true
}

// direct has all entries of the directory that begin with the table's prefix
// lead to it.
func (s *records[T]) direct(prefix uint32, t *table) {
	n := uint32(1) << (s.depth - t.depth)
	for i := prefix * n; i < (prefix+1)*n; i++ {
		s.directory[i] = t
	}
}

// halve makes the directory half as long, when no table is of its depth.
func (s *records[T]) halve() {
	s.depth--
	half := make([]*table, 1<<s.depth)
	for i := range half {
		half[i] = s.directory[2*i]
		if half[i].depth == s.depth {
			s.deepest++ // such a table is there once
		}
	}
	s.directory = half
}
