// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The store beside a map, with hashes that many items share. What is subtle is a
// slot whose removal is pending, and which the same hash and index make good
// again: with few free entries and few hashes that happens all the time.
func TestStoreDoesWhatAMapDoes(t *testing.T) {
	again := 0 // removals of slots that were good again
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
				for _, r := range s.removals[:s.removed] {
					if r == newSlot(hash(item), i) {
						again++
					}
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
	if again < 1000 {
		t.Errorf("%d slots were made good again while their removal was pending, want many", again)
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
		step(s.at(index).hash, func() { s.remove(index) })
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

// Chunks are used again: those that have room first, then the vacant ones.
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
	want := func(when string, all, empty, vacant int) {
		t.Helper()
		if len(s.chunks) != all || s.empty != empty || len(s.vacant) != vacant {
			t.Errorf("%s: %d chunks, %d empty, %d vacant, want %d, %d, %d", when, len(s.chunks), s.empty, len(s.vacant), all, empty, vacant)
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
func TestDelaysMoveInTheirOwnBranch(t *testing.T) {
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
		if h.at(p).before(*h.at((p - 1) / 4)) {
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
				if p == 0 && *h.at(0) != d {
					t.Fatalf("seed %d, step %d: %v is the first, want %v", seed, step, *h.at(0), d)
				}
				want = slices.Delete(want, p, p+1)
				h.remove(&s, int(s.at(d.index).prev))
				s.remove(d.index)
			} else {
				i, _ := s.insert(max(1, random.Uint32()), step)
				order++
				d := delay{random.Int64N(span), order, i}
				h.push(&s, d)
				p, _ := slices.BinarySearchFunc(want, d, func(a, b delay) int { return int(a.due*2 - b.due*2 - 1) })
				want = slices.Insert(want, p, d) // behind those of the same due
			}
			biggest = max(biggest, h.len)
			for p := range h.len {
				if d := *h.at(p); s.at(d.index).prev != uint32(p) || p > 0 && d.before(*h.at((p - 1) / 4)) {
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
func TestNothingIsDueAtTheEndOfTime(t *testing.T) {
	for _, now := range []int64{0, 100} {
		if got := later(now, math.MaxInt64); got != math.MaxInt64-1 {
			t.Errorf("later(%d, MaxInt64) = %d, want one less than MaxInt64", now, got)
		}
	}
}

// From here on, what the tests of other files see and do of the inside: this is the
// one test file in the package itself.

// Check returns an error if the queue breaks one of the rules that stand at its
// mutex, or its store one of its own.
func Check[T comparable](q *Queue[T]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.store.check(); err != nil {
		return err
	}
	return q.check()
}

// Blocked returns how many consumers wait for an item.
func Blocked[T comparable](q *Queue[T]) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.blocked
}

func (q *Queue[T]) check() error {
	s := &q.store
	ready := 0
	for name, l := range map[runKind]*list{runReady: &q.events, runOffered: &q.offered} {
		n, prev := 0, uint32(0)
		for i := l.first; i != 0; i = s.at(i).next {
			e := s.at(i)
			if e.inFlight || e.kind != name || e.prev != prev {
				return fmt.Errorf("entry %d (%v) is in list %d with inFlight=%v kind=%d prev=%d, want prev=%d", i, e.item, name, e.inFlight, e.kind, e.prev, prev)
			}
			prev = i
			if n++; n > s.count {
				return fmt.Errorf("list %d is longer than the %d entries", name, s.count)
			}
		}
		if l.last != prev || l.len != n {
			return fmt.Errorf("list %d ends at %d with a length of %d, want %d and %d", name, l.last, l.len, prev, n)
		}
		ready += n
	}
	if q.offered.len > 0 && (q.inRow < 0 || q.inRow >= max(1, q.Background)) {
		return fmt.Errorf("%d in a row while %d are offered, and Background is %d", q.inRow, q.offered.len, q.Background)
	}

	for p := range q.delays.len {
		d := *q.delays.at(p)
		e := s.at(d.index)
		if !e.kind.delayed() || int(e.prev) != p {
			return fmt.Errorf("delay %d is of entry %d (%v), which says kind=%d at %d", p, d.index, e.item, e.kind, e.prev)
		}
		if p > 0 && d.before(*q.delays.at((p - 1) / 4)) {
			return fmt.Errorf("delay %d is before its parent", p)
		}
	}
	if q.delays.len > 0 && q.armed > q.delays.first() {
		return fmt.Errorf("the timer is armed for %d, the first delay due at %d", q.armed, q.delays.first())
	}

	var restReady, delayed, waiting, settled, inFlight, again int
	for i, e := range s.all() {
		switch {
		case e.inFlight:
			inFlight++
			if e.readyNext() {
				again++
			}
			if e.kind == runOffered || e.kind == runSettled {
				return fmt.Errorf("entry %d (%v) is in flight with kind=%d", i, e.item, e.kind)
			}
		case e.kind == runReady, e.kind == runOffered:
			restReady++
		case e.kind.delayed():
			waiting++
			if e.kind == runSettled {
				settled++
			}
		default:
			return fmt.Errorf("entry %d (%v) is at rest with kind=%d", i, e.item, e.kind)
		}
		if e.kind.delayed() {
			delayed++
		}
		if e.failed != nil && (e.failed.count < 1 || e.failed.err == nil) {
			return fmt.Errorf("entry %d (%v) has %d failures and the error %v", i, e.item, e.failed.count, e.failed.err)
		}
	}
	if q.closed { // what was delayed is dropped
		if delayed > 0 && ready+inFlight == 0 {
			return fmt.Errorf("closed and empty, with %d entries in the store", s.count)
		}
		waiting, settled, delayed = 0, 0, 0
	}
	got := [...]int{ready, q.waiting, q.settled, q.inFlight, q.again, q.delays.len}
	if want := [...]int{restReady, waiting, settled, inFlight, again, delayed}; got != want {
		return fmt.Errorf("counts of ready, waiting, settled, in flight, again, delays are %v, want %v", got, want)
	}
	return q.checkWatchers()
}

// checkWatchers checks who watches, and that nobody was left to be notified.
func (q *Queue[T]) checkWatchers() error {
	if q.notified != nil {
		return fmt.Errorf("a watcher was not called")
	}
	if q.watchers != nil && len(q.watchers) == 0 {
		return fmt.Errorf("a map of watchers is kept, though nobody watches")
	}
	for i, w := range q.watchers {
		e := q.store.peek(i)
		if q.closed && i != 0 && (e == nil || e.kind.delayed()) {
			continue // dropped by Close; who waits for it finds out
		}
		if w == nil || w.prev != nil || i != 0 && (e == nil || e.hash == 0) {
			return fmt.Errorf("watcher %+v of entry %d", w, i)
		}
		for ; w != nil; w = w.next {
			switch ofRun := w.ended != nil; {
			case !w.watching || w.index != i || w.next != nil && w.next.prev != w:
				return fmt.Errorf("entry %d has the watcher %+v", i, w)
			case ofRun && (!e.inFlight || e.readyNext()):
				return fmt.Errorf("a run is watched at entry %d (%v) with inFlight=%v kind=%d", i, e.item, e.inFlight, e.kind)
			case !ofRun && i != 0 && e.kind == runSettled:
				return fmt.Errorf("entry %d (%v) is settled, and is waited for", i, e.item)
			case !ofRun && i == 0 && q.readyLocked()+q.inFlight+q.waiting-q.settled == 0:
				return fmt.Errorf("the queue is idle, and that is waited for")
			}
		}
	}
	return nil
}

// all yields the entries in use, by the table.
func (s *store[T]) all() func(func(uint32, *entry[T]) bool) {
	return func(yield func(uint32, *entry[T]) bool) {
		for p := range s.parts {
			for _, slot := range s.parts[p].slots {
				if slot == 0 {
					continue
				}
				if e := s.peek(slot.index()); e != nil && e.hash == slot.hash() && !yield(slot.index(), e) {
					return
				}
			}
		}
	}
}

// check checks the table and the chunks.
func (s *store[T]) check() error {
	count, stale := 0, 0
	used := make([]uint64, len(s.chunks))
	if len(used) > 0 {
		used[0] = 1
	}
	pending := map[slot]bool{}
	for _, r := range s.removals[:s.removed] {
		pending[r] = true
	}
	for p := range s.parts {
		t := &s.parts[p]
		seen := map[slot]bool{}
		for at, slot := range t.slots {
			if slot == 0 {
				continue
			}
			if seen[slot] || int(slot.hash()>>(32-partBits)) != p {
				return fmt.Errorf("slot %d of part %d is there twice, or in the wrong part", at, p)
			}
			seen[slot] = true
			mask := uint32(len(t.slots) - 1)
			for home := slot.hash() & mask; home != uint32(at); home = (home + 1) & mask {
				if t.slots[home] == 0 {
					return fmt.Errorf("slot %d of part %d is not found from its home", at, p)
				}
			}
			e := s.peek(slot.index())
			if e == nil || e.hash != slot.hash() {
				if stale++; !pending[slot] {
					return fmt.Errorf("slot %d of part %d is that of no entry, and of no removal", at, p)
				}
				continue
			}
			count++
			used[slot.index()/chunkLen] |= 1 << (slot.index() % chunkLen)
			if i, _ := s.find(e.hash, e.item); i != slot.index() {
				return fmt.Errorf("entry %d (%v) is found at %d", slot.index(), e.item, i)
			}
		}
		if t.used != len(seen) || t.used*4 > len(t.slots)*3 || len(t.slots)&(len(t.slots)-1) != 0 {
			return fmt.Errorf("part %d says %d of %d slots, has %d", p, t.used, len(t.slots), len(seen))
		}
	}
	if count != s.count {
		return fmt.Errorf("%d entries in the table, count says %d", count, s.count)
	}

	open := map[uint32]bool{}
	for _, n := range s.open {
		if open[n] || !s.chunks[n].listed {
			return fmt.Errorf("chunk %d is open twice, or does not say so", n)
		}
		open[n] = true
	}
	empty, vacant := 0, 0
	for n := range s.chunks {
		c := &s.chunks[n]
		if c.entries == nil {
			if vacant++; c.used != 0 {
				return fmt.Errorf("chunk %d is vacant, and used by %x", n, c.used)
			}
			continue
		}
		if c.used != used[n] {
			return fmt.Errorf("chunk %d says that %x are used, want %x", n, c.used, used[n])
		}
		if c.used != 1<<chunkLen-1 && !open[uint32(n)] {
			return fmt.Errorf("chunk %d has room, and is not open", n)
		}
		if c.used == 0 {
			empty++
		}
		for i := range c.entries {
			e := &c.entries[i]
			var none T
			if c.used>>i&1 == 0 && (e.item != none || e.failed != nil || e.hash != 0 || e.inFlight || e.kind != runNone) {
				return fmt.Errorf("free entry %d of chunk %d remembers %+v", i, n, e)
			}
		}
	}
	if empty != s.empty || empty > maxEmpty || vacant != len(s.vacant) {
		return fmt.Errorf("%d chunks are empty and %d vacant, counts say %d and %d", empty, vacant, s.empty, len(s.vacant))
	}
	return nil
}

// GiveUp is what a Reconciler does with an item that it gives up.
func GiveUp[T comparable](q *Queue[T], item T, err error) {
	q.lock()
	q.giveBackUnlock(item, verdict{Wait: Wait{Err: err}, done: true})
}

// UntilChangedOf is UntilChanged in a run of an item that was taken by Dequeue.
func UntilChangedOf[T comparable](ctx context.Context, q *Queue[T], item T) (context.Context, context.CancelFunc) {
	w := &worker[T]{loop: &loop[T]{source: q}}
	hash := q.hash(item)
	q.mu.Lock()
	var e *entry[T]
	w.index, e = q.store.find(hash, item)
	w.at = e.since
	q.mu.Unlock()
	r := &run[T]{Context: ctx, worker: w, item: item}
	w.current.Store(r)
	return UntilChanged(r)
}

// Watchers returns how many watch the queue and its items; 0 only if not even
// the map of them is kept.
func Watchers[T comparable](q *Queue[T]) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.watchers {
		for ; w != nil; w = w.next {
			n++
		}
	}
	if n == 0 && q.watchers != nil {
		return -1
	}
	return n
}

// CheckGate returns an error if the gate breaks one of the rules that stand at its
// mutex, or keeps one that does not wait.
func CheckGate(g *Gate) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	limit, now, waiting := g.limitLocked(), g.now(), len(g.waiting)
	at := int64(0)
	if waiting > 0 && g.hasRoomLocked() {
		at = g.dueLocked()
	}
	switch {
	case g.running < 0, g.roomless != (limit > 0 && g.running >= limit):
		return fmt.Errorf("%d runs of %d, and roomless is %v", g.running, limit, g.roomless)
	case g.moved && (limit < max(1, g.Min) || g.Max > 0 && limit > g.Max):
		return fmt.Errorf("the limit is %d, not from %d to %d", limit, g.Min, g.Max)
	case g.armed != at:
		return fmt.Errorf("%d wait at %d, and the timer is armed for %d, want %d", waiting, now, g.armed, at)
	}
	for i, p := range g.waiting[:cap(g.waiting)] {
		if (i < waiting) != (p != nil) {
			return fmt.Errorf("place %d of %d in the list is %+v", i, waiting, p)
		}
	}
	return nil
}

// GateTimerRuns reports whether the timer of the gate runs.
func GateTimerRuns(g *Gate) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer == nil || !g.timer.Stop() {
		return false
	}
	g.timer.Reset(time.Duration(g.armed - g.now()))
	return true
}

// DelayTimer makes the timer of the queue fire d later than it should, as on a busy
// machine.
func DelayTimer[T comparable](q *Queue[T], d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.armed != math.MaxInt64 {
		q.timer.Reset(time.Duration(q.armed-q.now()) + d)
	}
}

// RunOf is r.Run, and whether its ticker runs.
func RunOf[T comparable](r *Reconciler[T]) (run func(context.Context) error, ticking func() bool) {
	l, err := newLoop(r)
	if err != nil {
		panic(err)
	}
	return l.run, l.ticking.Load
}

// PromoteMax is how many items one call makes ready at most.
const PromoteMax = promoteMax

// StopTimer makes the timer of the queue late: it does not fire at all. It reports
// whether the timer ran.
func StopTimer[T comparable](q *Queue[T]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.timer.Stop()
}

// DoneAndTake is what a worker does that gives back one item and takes the next.
func DoneAndTake[T comparable](ctx context.Context, q *Queue[T], item T) (next T, err error) {
	k := taken[T]{item: item}
	err = q.exchange(ctx, &k, &verdict{}, q.now())
	return k.item, err
}
