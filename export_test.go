// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"math"
	"time"
)

// This file is what the tests of other files see and do of the inside.

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
	for name, l := range map[runKind]*list{runReady: &q.line, runBackground: &q.background} {
		n, prev := 0, uint32(0)
		for i := l.first; i != 0; i = s.entry(i).next {
			e := s.entry(i)
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
	if q.background.len > 0 && (q.sinceBackground < 0 || q.sinceBackground >= max(1, q.Background)) {
		return fmt.Errorf("%d in a row while %d are offered, and Background is %d", q.sinceBackground, q.background.len, q.Background)
	}

	for p := range q.delays.len {
		d := *q.delays.node(p)
		e := s.entry(d.index)
		if !e.kind.isLater() || int(e.prev) != p {
			return fmt.Errorf("delay %d is of entry %d (%v), which says kind=%d at %d", p, d.index, e.item, e.kind, e.prev)
		}
		if p > 0 && d.before(*q.delays.node((p - 1) / 4)) {
			return fmt.Errorf("delay %d is before its parent", p)
		}
	}
	if q.delays.len > 0 && q.firesAt > q.delays.first() {
		return fmt.Errorf("the timer is armed for %d, the first delay due at %d", q.firesAt, q.delays.first())
	}

	var restReady, delayed, waiting, settled, inFlight, again int
	for i, e := range s.all() {
		switch {
		case e.inFlight:
			inFlight++
			if e.readyNext() {
				again++
			}
			if e.kind == runBackground || e.kind == runRecheck {
				return fmt.Errorf("entry %d (%v) is in flight with kind=%d", i, e.item, e.kind)
			}
		case e.kind == runReady, e.kind == runBackground:
			restReady++
		case e.kind.isLater():
			waiting++
			if e.kind == runRecheck {
				settled++
			}
		default:
			return fmt.Errorf("entry %d (%v) is at rest with kind=%d", i, e.item, e.kind)
		}
		if e.kind.isLater() {
			delayed++
		}
		if e.last != nil && (e.last.failures < 0 || e.last.failures > 0 && e.last.err == nil) {
			return fmt.Errorf("entry %d (%v) has %d failures and the error %v", i, e.item, e.last.failures, e.last.err)
		}
		if e.kind == runReady && !e.inFlight && !e.event && q.Background > 0 || e.kind == runRecheck && (e.event || e.held) {
			return fmt.Errorf("entry %d (%v) has kind=%d, event=%v, held=%v", i, e.item, e.kind, e.event, e.held)
		}
		if e.kind.isLater() && !q.closed {
			if due := q.delays.node(int(e.prev)).due; e.notBefore(due) > due {
				return fmt.Errorf("entry %d (%v) is due at %d, and not before %d", i, e.item, due, e.notBefore(due))
			}
		}
		if e.pending > e.since && !e.inFlight && !e.kind.isLater() {
			return fmt.Errorf("entry %d (%v) is pending since %d, and ready since %d", i, e.item, e.pending, e.since)
		}
	}
	if q.closed { // what was delayed is dropped
		if delayed > 0 && ready+inFlight == 0 {
			return fmt.Errorf("closed and empty, with %d entries in the store", s.count)
		}
		waiting, settled, delayed = 0, 0, 0
	}
	got := [...]int{ready, q.waiting, q.rechecks, q.inFlight, q.again, q.delays.len}
	if want := [...]int{restReady, waiting, settled, inFlight, again, delayed}; got != want {
		return fmt.Errorf("counts of ready, waiting, settled, in flight, again, delays are %v, want %v", got, want)
	}
	return q.checkWatchers()
}

// checkWatchers checks who watches.
func (q *Queue[T]) checkWatchers() error {
	if q.watchers != nil && len(q.watchers) == 0 {
		return fmt.Errorf("a map of watchers is kept, though nobody watches")
	}
	for i, all := range q.watchers {
		e := q.store.peek(i)
		if q.closed && i != 0 && (e == nil || e.kind.isLater()) {
			continue // dropped by Close; who waits for it finds out
		}
		if len(all) == 0 || i != 0 && (e == nil || e.hash == 0) {
			return fmt.Errorf("watchers %v of entry %d", all, i)
		}
		for _, w := range all {
			switch {
			case w.index != i:
				return fmt.Errorf("entry %d has the watcher %+v", i, w)
			case i != 0 && e.kind == runRecheck:
				return fmt.Errorf("entry %d (%v) is settled, and is waited for", i, e.item)
			case i == 0 && q.readyLocked()+q.inFlight+q.waiting-q.rechecks == 0:
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
	count := 0
	used := make([]uint32, len(s.chunks))
	if len(used) > 0 {
		used[0] = 1
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
				return fmt.Errorf("slot %d of part %d is that of no entry", at, p)
			}
			count++
			used[slot.index()/chunkSpan] |= 1 << (slot.index() % chunkSpan)
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

	withRoom := map[uint32]bool{}
	for _, n := range s.withRoom {
		if withRoom[n] || !s.chunks[n].listed {
			return fmt.Errorf("chunk %d is in withRoom twice, or does not say so", n)
		}
		withRoom[n] = true
	}
	empty, unallocated := 0, 0
	for n := range s.chunks {
		c := &s.chunks[n]
		if c.entries == nil {
			if unallocated++; c.used != 0 {
				return fmt.Errorf("chunk %d is unallocated, and used by %x", n, c.used)
			}
			continue
		}
		if c.used != used[n] {
			return fmt.Errorf("chunk %d says that %x are used, want %x", n, c.used, used[n])
		}
		if c.used != 1<<chunkLen-1 && !withRoom[uint32(n)] {
			return fmt.Errorf("chunk %d has room, and is not in withRoom", n)
		}
		if c.used == 0 {
			empty++
		}
		for i := range c.entries {
			e := &c.entries[i]
			var none T
			if c.used>>i&1 == 0 && (e.item != none || e.pending != 0 || e.last != nil || e.hash != 0 || e.inFlight || e.kind != runNone) {
				return fmt.Errorf("free entry %d of chunk %d remembers %+v", i, n, e)
			}
		}
	}
	if empty != s.empty || empty > maxEmpty || unallocated != len(s.unallocated) {
		return fmt.Errorf("%d chunks are empty and %d unallocated, counts say %d and %d", empty, unallocated, s.empty, len(s.unallocated))
	}
	return nil
}

// Watchers returns how many watch the queue and its items; 0 only if not even
// the map of them is kept.
func Watchers[T comparable](q *Queue[T]) (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, all := range q.watchers {
		n += len(all)
	}
	if n == 0 && q.watchers != nil {
		return -1
	}
	return n
}

// DelayTimer makes the timer of the queue fire d later than it should, as on a busy
// machine.
func DelayTimer[T comparable](q *Queue[T], d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.firesAt != math.MaxInt64 {
		q.timer.Reset(time.Duration(q.firesAt-q.now()) + d)
	}
}

// RunOf is r.Run, and whether its ticker runs.
func RunOf[T comparable](r *Reconciler[T]) (run func(context.Context) error, ticking func() bool) {
	l, err := newLoop(context.Background(), r)
	if err != nil {
		panic(err)
	}
	return l.run, l.stuck.ticking.Load
}

// BaseOf returns the base of the clock of a queue.
func BaseOf[T comparable](q *Queue[T]) time.Time { return q.base }

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
	k := takenItem[T]{item: item}
	k.index, _ = q.store.find(q.hash(item), item)
	err = q.giveBackAndTake(ctx, &k, &RequeueOptions{}, q.now())
	return k.item, err
}
