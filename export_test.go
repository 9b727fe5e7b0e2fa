// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
)

// Check returns an error if the queue breaks one of the rules that stand at its
// mutex and at its records.
func Check[T comparable](q *Queue[T]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.checkRecords(); err != nil {
		return err
	}
	return q.check()
}

func (q *Queue[T]) check() error {
	s := &q.records
	ready, offered := 0, 0
	for head, want := range []nextRun{front: runReady, back: runOffered} {
		head, prev := uint32(head), uint32(head)
		turns := true // those that were put back come first
		for i := s.at(head).next; i != head; i = s.at(i).next {
			r := s.at(i)
			if r.running || r.run != want || r.prev != prev {
				return fmt.Errorf("record %d (%v) is in ready list %d with running=%v run=%d prev=%d, want prev=%d", i, r.item, head, r.running, r.run, r.prev, prev)
			}
			if turns = turns && r.turn != 0; !turns && r.turn != 0 {
				return fmt.Errorf("record %d (%v), of turn %d, is behind others in ready list %d", i, r.item, r.turn, head)
			}
			prev = i
			if ready++; ready > s.count {
				return fmt.Errorf("the ready lists are longer than the %d records", s.count)
			}
			if head == back {
				offered++
			}
		}
		if s.at(head).prev != prev {
			return fmt.Errorf("ready list %d ends at %d, its head says %d", head, prev, s.at(head).prev)
		}
	}
	if ready != q.ready || offered != q.offered {
		return fmt.Errorf("%d items are ready, %d of them offered; the counts say %d and %d", ready, offered, q.ready, q.offered)
	}
	if offered > 0 && (q.inRow < 0 || q.inRow >= max(1, q.Background)) {
		return fmt.Errorf("%d in a row while %d are offered, and Background is %d", q.inRow, offered, q.Background)
	}

	for p, d := range q.delays {
		r := s.at(d.index)
		if !r.run.delayed() || int(r.prev) != p {
			return fmt.Errorf("delay %d is of record %d (%v), which says run=%d at %d", p, d.index, r.item, r.run, r.prev)
		}
		if p > 0 && d.before(q.delays[(p-1)/4]) {
			return fmt.Errorf("delay %d is before its parent", p)
		}
	}
	if len(q.delays) > 0 && q.armed > q.delays[0].due {
		return fmt.Errorf("the timer is armed for %d, the first delay due at %d", q.armed, q.delays[0].due)
	}

	var restReady, delayed, waiting, retrying, inFlight, again int
	err := q.eachRecord(func(i uint32, r *record[T]) error {
		switch {
		case r.running:
			inFlight++
			if r.run == runReady || r.run == runNow {
				again++
			}
			if r.run == runOffered {
				return fmt.Errorf("record %d (%v) is in flight, and offered", i, r.item)
			}
		case r.run == runReady, r.run == runOffered:
			restReady++
		case r.run.delayed():
			waiting++
			if r.failed != nil {
				retrying++
			}
		default:
			return fmt.Errorf("record %d (%v) is at rest with run=%d", i, r.item, r.run)
		}
		if r.run.delayed() {
			delayed++
		}
		if r.failed != nil && (r.failed.count < 1 || r.failed.err == nil) {
			return fmt.Errorf("record %d (%v) has %d failures and the error %v", i, r.item, r.failed.count, r.failed.err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	got := [...]int{q.ready, q.waiting, q.retrying, q.inFlight, q.again, len(q.delays)}
	if want := [...]int{restReady, waiting, retrying, inFlight, again, delayed}; got != want {
		return fmt.Errorf("counts of ready, waiting, to be retried, in flight, again, delays are %v, want %v", got, want)
	}

	if q.consumers.head != nil && q.ready > 0 {
		return fmt.Errorf("a consumer waits while %d items are ready", q.ready)
	}
	if q.closed && (len(q.delays) > 0 || q.consumers.head != nil && q.drained()) {
		return fmt.Errorf("closed with %d delays, %d again, and a consumer that waits: %v", len(q.delays), q.again, q.consumers.head != nil)
	}
	if q.woken != nil {
		return fmt.Errorf("a consumer was left untold")
	}
	if err := q.checkWatchers(); err != nil {
		return err
	}
	for c := q.consumers.idle; c != nil; c = c.next {
		var none grant[T]
		if c.grant != none || c.closed || c.waiting {
			return fmt.Errorf("an idle consumer remembers %+v", c)
		}
	}
	return nil
}

// InOneHold calls f with the lock held, so that nobody who is handed an item meanwhile
// sees it before f returns. The verbs that f calls are Offer, Enqueue and EnqueueNow.
func InOneHold[T comparable](q *Queue[T], f func(add func(verb string, item T))) {
	q.mu.Lock()
	defer q.unlock()
	verbs := map[string]nextRun{"Offer": runNone, "Enqueue": runReady, "EnqueueNow": runNow}
	f(func(verb string, item T) {
		hash := q.hash(item)
		if i := q.records.find(hash, item); i == 0 {
			q.admit(hash, item, verbs[verb], 0)
		} else {
			q.meet(i, q.records.at(i), verbs[verb], 0)
		}
	})
}

// checkWatchers checks who watches, and that nobody was left untold.
func (q *Queue[T]) checkWatchers() error {
	if q.told != nil {
		return fmt.Errorf("a watcher was left untold")
	}
	if q.watchers != nil && len(q.watchers) == 0 {
		return fmt.Errorf("a map of watchers is kept, though nobody watches")
	}
	for i, w := range q.watchers {
		r := q.records.peek(i)
		if w == nil || w.prev != nil || r == nil || i != 0 && r.hash == 0 {
			return fmt.Errorf("watcher %+v of record %d", w, i)
		}
		for ; w != nil; w = w.next {
			switch {
			case !w.watching || w.index != i || w.next != nil && w.next.prev != w:
				return fmt.Errorf("record %d has the watcher %+v", i, w)
			case w.of == ofRun && (!r.running || r.run == runReady || r.run == runNow):
				return fmt.Errorf("a run is watched at record %d (%v) with running=%v run=%d", i, r.item, r.running, r.run)
			case w.of == ofRest && i != 0 && !r.running && r.run.delayed() && r.failed == nil:
				return fmt.Errorf("record %d (%v) has settled, and is waited for", i, r.item)
			case w.of == ofRest && i == 0 && q.ready+q.inFlight+q.retrying == 0:
				return fmt.Errorf("the queue is idle, and that is waited for")
			}
		}
	}
	return nil
}

// eachRecord calls f for every item's record, found through the directory.
func (q *Queue[T]) eachRecord(f func(uint32, *record[T]) error) error {
	s := &q.records
	var last *table
	for n, t := range s.directory {
		if t == last {
			continue
		}
		last = t
		for p, slot := range t.slots {
			if slot == 0 {
				continue
			}
			r := s.peek(slot.index())
			if r == nil || r.hash != slot.hash() {
				continue // stale
			}
			if err := f(slot.index(), r); err != nil {
				return fmt.Errorf("table %d, slot %d: %w", n, p, err)
			}
		}
	}
	return nil
}

// checkRecords checks the table: its directory, chunks and lists of chunks.
func (q *Queue[T]) checkRecords() error {
	s := &q.records
	count := 0
	live := make([]uint32, len(s.chunks))
	live[0] = heads
	err := q.eachRecord(func(i uint32, r *record[T]) error {
		if count++; count > s.count {
			return fmt.Errorf("more records than the count of %d", s.count)
		}
		live[i>>chunkBits]++
		if r.hash != q.hash(r.item) || s.find(r.hash, r.item) != i {
			return fmt.Errorf("record %d (%v) is not where its hash says", i, r.item)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if count != s.count {
		return fmt.Errorf("%d records, count says %d", count, s.count)
	}
	if err := s.checkDirectory(); err != nil {
		return err
	}

	condition := make([]string, len(s.chunks))
	note := func(n uint32, name string) error {
		if condition[n] != "" {
			return fmt.Errorf("chunk %d is %s and %s", n, condition[n], name)
		}
		condition[n] = name
		return nil
	}
	prev := uint32(0)
	for n := s.chunks[0].next; n != 0; n = s.chunks[n].next {
		if err := note(n, "open"); err != nil {
			return err
		}
		if s.chunks[n].prev != prev {
			return fmt.Errorf("open chunk %d says prev %d, want %d", n, s.chunks[n].prev, prev)
		}
		prev = n
	}
	spares := 0
	for n := s.spare; n != 0; n = s.chunks[n].next {
		if err := note(n, "spare"); err != nil {
			return err
		}
		spares++
	}
	for n := s.vacant; n != 0; n = s.chunks[n].next {
		if err := note(n, "vacant"); err != nil {
			return err
		}
	}
	used := 0
	for n := range s.chunks {
		c := &s.chunks[n]
		if c.live != live[n] {
			return fmt.Errorf("chunk %d says %d live records, has %d", n, c.live, live[n])
		}
		if c.live > 0 {
			used++
		}
		want := ""
		switch {
		case n == 0 || c.live == chunkLen:
		case c.live > 0:
			want = "open"
		case c.records != nil:
			want = "spare"
		default:
			want = "vacant"
		}
		if condition[n] != want {
			return fmt.Errorf("chunk %d with %d live records is %q, want %q", n, c.live, condition[n], want)
		}
		free := uint32(0)
		for i := c.free; i != 0; i = s.at(i).next {
			var none T
			if r := s.at(i); r.item != none || r.failed != nil || r.run != runNone || r.running || r.hash != 0 {
				return fmt.Errorf("free record %d remembers %+v", i, r)
			}
			if free++; free > chunkLen {
				return fmt.Errorf("the free list of chunk %d has no end", n)
			}
		}
		if c.records != nil && c.live+free != c.fresh && c.live > 0 {
			return fmt.Errorf("chunk %d: %d live, %d free, %d used so far", n, c.live, free, c.fresh)
		}
	}
	if used != s.used || spares != s.spares || spares > 1+used/4 {
		return fmt.Errorf("%d chunks used and %d spare, counts say %d and %d", used, spares, s.used, s.spares)
	}
	return nil
}

// checkDirectory checks that each table stands where its depth says, and is
// neither overfull nor left sparse beside another.
func (s *records[T]) checkDirectory() error {
	if len(s.directory) > 16*tableLen+s.count+s.stale {
		return fmt.Errorf("a directory of %d for %d records and %d stale slots", len(s.directory), s.count, s.stale)
	}
	if len(s.directory) != 1<<s.depth {
		return fmt.Errorf("%d entries in a directory of depth %d", len(s.directory), s.depth)
	}
	deepest, slots := 0, 0
	for n := 0; n < len(s.directory); {
		t := s.directory[n]
		if t.depth > s.depth {
			return fmt.Errorf("a table of depth %d in a directory of depth %d", t.depth, s.depth)
		}
		if t.depth == s.depth {
			deepest++
		}
		span := 1 << (s.depth - t.depth)
		if n%span != 0 {
			return fmt.Errorf("entry %d leads to a table that spans %d", n, span)
		}
		for i := n; i < n+span; i++ {
			if s.directory[i] != t {
				return fmt.Errorf("entry %d does not lead to the table of entry %d", i, n)
			}
		}
		used := 0
		seen := make(map[slot]bool)
		for _, slot := range t.slots {
			if slot == 0 {
				continue
			}
			used++
			if int(slot.hash()>>(32-s.depth))/span != n/span || seen[slot] {
				return fmt.Errorf("record %d is in the wrong table, or twice in it", slot.index())
			}
			seen[slot] = true
		}
		if used != t.used || used > fullAt {
			return fmt.Errorf("entry %d has %d slots in use, says %d", n, used, t.used)
		}
		slots += used
		n += span
	}
	if slots != s.count+s.stale || s.stale < 0 || s.stale > stalePerItem*s.count+slack+len(s.directory) {
		return fmt.Errorf("%d slots in use for %d records and %d stale ones", slots, s.count, s.stale)
	}
	if deepest != s.deepest {
		return fmt.Errorf("%d tables of depth %d, count says %d", deepest, s.depth, s.deepest)
	}
	return nil
}

// UntilChangedOf is UntilChanged in a run of an item that was taken by Dequeue.
func UntilChangedOf[T comparable](ctx context.Context, q *Queue[T], item T) (context.Context, context.CancelFunc) {
	w := &worker[T]{loop: &loop[T]{source: q}}
	hash := q.hash(item)
	q.mu.Lock()
	w.grant.item, w.grant.index = item, q.records.find(hash, item)
	w.grant.turn = q.records.at(w.grant.index).turn
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
