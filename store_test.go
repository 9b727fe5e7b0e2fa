// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// The store beside a map, with hashes that many items share, and few free entries:
// so slots of the same hash are inserted, moved and removed all the time.
func TestStoreAgreesWithAMap(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 7))
		shared := random.Uint32() >> random.IntN(32) // bits that are the same in all hashes
		hash := func(item int) uint32 { return max(1, uint32(item)*0x9e3779b9|shared) }
		var s store[int]
		want := map[int]uint32{}
		var items []int              // the keys of want
		keys := 8 << random.IntN(11) // few of them come back soon
		target := 0
		for step := range 10_000 {
			if step%1000 == 0 {
				target = random.IntN(keys)
			}
			if item := random.IntN(keys); len(items) < target && want[item] == 0 {
				if i, e := s.find(hash(item), item); i != 0 || e != nil {
					t.Fatalf("seed %d, step %d: find(%d) = %d, %v, want none", seed, step, item, i, e)
				}
				i, e := s.insert(hash(item), item)
				if i == 0 || *e != (entry[int]{item: item, hash: hash(item)}) {
					t.Fatalf("seed %d, step %d: a new entry is %d, %+v", seed, step, i, *e)
				}
				want[item] = i
				items = append(items, item)
			} else if len(items) > 0 {
				p := random.IntN(len(items))
				item := items[p]
				items[p] = items[len(items)-1]
				items = items[:len(items)-1]
				s.remove(want[item])
				delete(want, item)
				if i, e := s.find(hash(item), item); i != 0 || e != nil {
					t.Fatalf("seed %d, step %d: find(%d) = %d, %v, though it was removed", seed, step, item, i, e)
				}
			}
			if step%100 != 0 {
				continue
			}
			if err := s.check(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			for item, i := range want {
				if got, e := s.find(hash(item), item); got != i || e.item != item {
					t.Fatalf("seed %d, step %d: find(%d) = %d, %v, want %d", seed, step, item, got, e, i)
				}
			}
		}
	}
}

// A growing table moves a part of itself at a time, and a shrinking one too: no
// call pays for all items. What is left of a burst is small.
func TestStoreMovesLittleAtATime(t *testing.T) {
	const n, few = 300_000, 10
	random := rand.New(rand.NewPCG(1, 1))
	var s store[int]
	var indexes []uint32
	worst, moved := 0, 0
	step := func(hash uint32, change func()) {
		part := s.part(hash)
		was := len(part.slots)
		change()
		if n := len(part.slots); n != was {
			if n > max(was, minSlots, 4*part.used) {
				t.Errorf("a part of %d slots has grown to %d, for %d", was, n, part.used)
			}
			worst = max(worst, part.used)
			moved++
		}
	}
	for i := range n {
		hash := max(1, random.Uint32())
		step(hash, func() {
			index, _ := s.insert(hash, i)
			indexes = append(indexes, index)
		})
	}
	if err := s.check(); err != nil {
		t.Fatal(err)
	}
	random.Shuffle(n, func(i, j int) { indexes[i], indexes[j] = indexes[j], indexes[i] })
	for i, index := range indexes[few:] {
		step(s.entry(index).hash, func() { s.remove(index) })
		if i%50_000 == 0 {
			if err := s.check(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if worst > n/16 || moved < 2*partCount {
		t.Errorf("%d times slots were moved, up to %d of them, want at most %d at a time", moved, worst, n/16)
	}
	slots, entries := 0, 0
	for p := range s.parts {
		slots += len(s.parts[p].slots)
	}
	for _, c := range s.chunks {
		if c.entries != nil {
			entries += chunkLen
		}
	}
	if slots > partCount*64 || entries > (few+maxEmpty+1)*chunkLen {
		t.Errorf("%d slots and %d entries are kept for %d items", slots, entries, few)
	}
	for _, index := range indexes[:few] {
		s.remove(index)
	}
	if len(s.chunks) != 0 || s.peek(indexes[0]) != nil {
		t.Errorf("an emptied store has %d chunks", len(s.chunks))
	}
}

// Chunks are used again: those that have room first, then the unallocated ones.
func TestStoreUsesChunksAgain(t *testing.T) {
	var s store[int]
	insert := func(i int) uint32 {
		index, _ := s.insert(uint32(i+1)*0x9e3779b9, i)
		return index
	}
	const chunks = 20
	var indexes []uint32
	for i := range chunks*chunkLen - 1 { // index 0 is not used
		indexes = append(indexes, insert(i))
	}
	want := func(when string, all, empty, unallocated int) {
		t.Helper()
		if len(s.chunks) != all || s.empty != empty || len(s.unallocated) != unallocated {
			t.Errorf("%s: %d chunks, %d empty, %d unallocated, want %d, %d, %d", when, len(s.chunks), s.empty, len(s.unallocated), all, empty, unallocated)
		}
		if err := s.check(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	want("full", chunks, 0, 0)
	for _, i := range indexes[chunkLen-1:] { // all chunks but the first
		s.remove(i)
	}
	want("emptied", chunks, maxEmpty, chunks-1-maxEmpty)
	for round := range 3 {
		for i := range (chunks - 1) * chunkLen {
			indexes[chunkLen-1+i] = insert((round+1)*10_000 + i)
		}
		want("full again", chunks, 0, 0)
		for i, index := range indexes[chunkLen-1:] {
			if i%chunkLen != round { // one stays in each
				s.remove(index)
			}
		}
		want("almost emptied", chunks, 0, 0)
		for i, index := range indexes[chunkLen-1:] {
			if i%chunkLen == round {
				s.remove(index)
			}
		}
		want("emptied again", chunks, maxEmpty, chunks-1-maxEmpty)
	}
}

// The place of a delay that was removed is not filled from below another node, even
// if there is an earlier one there.
func TestDelaysMoveOnlyInTheirHeapBranch(t *testing.T) {
	var s store[int]
	var h delays[int]
	for p := range 39 {
		branch := p // the node below the root that p is, or is below of
		for branch > 4 {
			branch = (branch - 1) / 4
		}
		due := int64(p)
		if branch == 1 || p == 38 {
			due += 100 // so the last one, which fills the place, belongs there
		}
		i, _ := s.insert(uint32(p+1), p)
		h.push(&s, delay{due, uint32(p), i})
	}
	h.remove(&s, 8) // its children are 33 to 36
	for p := 1; p < h.len; p++ {
		if h.node(p).before(*h.node((p - 1) / 4)) {
			t.Errorf("delay %d is before its parent", p)
		}
	}
}

// The heap beside a sorted slice, with an order that wraps around.
func TestDelaysAreInOrder(t *testing.T) {
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 3))
		span := int64(10) // many of the same due, or none
		if seed%2 == 1 {
			span = 1 << 60
		}
		var s store[int]
		var h delays[int]
		var want []delay
		order := uint32(math.MaxUint32 - 500)
		biggest := 0
		for step := range 6000 {
			grow := step%3000 < 2000
			if len(want) > 0 && grow == (random.IntN(3) == 0) {
				p := random.IntN(len(want)) * random.IntN(2) // the first, or any
				d := want[p]
				if p == 0 && *h.node(0) != d {
					t.Fatalf("seed %d, step %d: %v is the first, want %v", seed, step, *h.node(0), d)
				}
				want = slices.Delete(want, p, p+1)
				h.remove(&s, int(s.entry(d.index).prev))
				s.remove(d.index)
			} else {
				i, _ := s.insert(max(1, random.Uint32()), step)
				order++
				d := delay{random.Int64N(span), order, i}
				h.push(&s, d)
				p, _ := slices.BinarySearchFunc(want, d, func(a, b delay) int { return cmp.Compare(a.due, b.due+1) })
				want = slices.Insert(want, p, d) // behind those of the same due
			}
			biggest = max(biggest, h.len)
			for p := range h.len {
				if d := *h.node(p); s.entry(d.index).prev != uint32(p) || p > 0 && d.before(*h.node((p - 1) / 4)) {
					t.Fatalf("seed %d, step %d: delay %d is out of its place", seed, step, p)
				}
			}
			if h.len != len(want) || len(h.rows) > h.len/rowLen+2 {
				t.Fatalf("seed %d, step %d: %d delays in %d rows, want %d", seed, step, h.len, len(h.rows), len(want))
			}
		}
		if biggest < 2*rowLen {
			t.Errorf("seed %d: no more than %d delays, which is no burst", seed, biggest)
		}
	}
}

// The end of time means that a timer is not set, so nothing is due then.
func TestMaximalDelayIsNeverDue(t *testing.T) {
	for _, now := range []int64{0, 100} {
		if got := later(now, math.MaxInt64); got != math.MaxInt64-1 {
			t.Errorf("later(%d, MaxInt64) = %d, want one less than MaxInt64", now, got)
		}
	}
}

// An empty chunk is kept for the next items only if it is small.
func TestStoreKeepsNoBigChunk(t *testing.T) {
	kept := func(chunks int) int { return min(chunks, maxEmpty) }
	if got, want := emptyChunks[string](20), kept(20); got != want {
		t.Errorf("%d empty chunks of strings are kept, want %d", got, want)
	}
	if got := emptyChunks[[1 << 16]byte](2); got != 0 {
		t.Errorf("%d empty chunks of big items are kept, want none", got)
	}
	var s store[[1 << 16]byte]
	i, _ := s.insert(1, [1 << 16]byte{})
	if s.remove(i); s.chunks != nil {
		t.Error("the first chunk of big items is kept when the last of them is removed")
	}
}

// emptyChunks fills a number of chunks, removes all items but one, and returns how
// many chunks with memory and without an item there are.
func emptyChunks[T comparable](chunks int) int {
	var s store[T]
	var zero T
	var all []uint32
	for h := range uint32(chunks * chunkSpan) {
		i, _ := s.insert(h+1, zero)
		all = append(all, i)
	}
	for _, i := range all[1:] {
		s.remove(i)
	}
	return s.empty
}
