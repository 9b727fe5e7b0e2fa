// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// A Phase says where an item is.
type Phase uint8

// The phases of an item. Idle is the zero Phase: the queue does not know it.
const (
	Idle     Phase = iota
	Ready          // can be taken
	Waiting        // becomes ready later
	InFlight       // taken and not yet given back
)

// String returns "idle", "ready", "waiting" or "in flight".
func (p Phase) String() string {
	switch p {
	case Ready:
		return "ready"
	case Waiting:
		return "waiting"
	case InFlight:
		return "in flight"
	default:
		return "idle"
	}
}

// A State is what a queue knows of an item. The zero State is that of an item
// that it does not know.
type State struct {
	Phase    Phase
	Since    time.Time // when it entered this phase
	Due      time.Time // Waiting: when it becomes ready
	Hold     bool      // Waiting: an Enqueue does not bring it forward
	Again    bool      // InFlight: it has a next run already
	Failures int       // in a row
	Err      error     // the last failure
}

// Stats counts what a queue holds now, and what it did since [NewQueue].
type Stats struct {
	Ready, Waiting, InFlight int

	Enqueued  uint64 // accepted as new work: the item had no next run
	Coalesced uint64 // folded into work already known; ignored Offers too
	Taken     uint64 // dequeued
	Requeued  uint64 // given back with a Wait
}

// Len returns how many items are ready. It never blocks.
func (q *Queue[T]) Len() int {
	q.lock()
	defer q.unlock()
	q.catchUp()
	return q.ready
}

// Has reports whether the item is known at all: ready, waiting or in flight. It
// never blocks.
func (q *Queue[T]) Has(item T) bool {
	hash := q.hash(item)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.records.find(hash, item) != 0
}

// State returns what the queue knows of the item. It never blocks.
func (q *Queue[T]) State(item T) State {
	hash := q.hash(item)
	q.mu.Lock()
	defer q.unlock()
	q.catchUp()
	i := q.records.find(hash, item)
	if i == 0 {
		return State{}
	}
	return q.state(q.records.at(i), q.clock())
}

// All returns a snapshot of all items, made when the loop begins: those in
// flight, then those ready in the order in which they will be taken, then those
// that wait, the first due first. Making it holds up the other methods for a
// time that grows with the number of items; the loop itself does not.
func (q *Queue[T]) All() iter.Seq2[T, State] {
	return func(yield func(T, State) bool) {
		for _, e := range q.snapshot() {
			if !yield(e.item, e.state) {
				return
			}
		}
	}
}

type entry[T comparable] struct {
	item  T
	state State
}

func (q *Queue[T]) snapshot() []entry[T] {
	q.lock()
	defer q.unlock()
	q.catchUp()
	all := make([]entry[T], 0, q.records.count)
	now := q.clock()
	add := func(r *record[T]) { all = append(all, entry[T]{r.item, q.state(r, now)}) }
	for n := range q.records.chunks {
		records := q.records.chunks[n].records
		for i := 0; records != nil && i < chunkLen; i++ {
			if records[i].running {
				add(&records[i])
			}
		}
	}
	ofFront, ofBack, inRow := q.front.next, q.back.next, q.inRow
	for ofFront != front || ofBack != back {
		i := ofFront
		if ofBack != back {
			i, inRow = q.choose(ofFront, ofBack, inRow)
		}
		r := q.records.at(i)
		add(r)
		if i == ofFront {
			ofFront = r.next
		} else {
			ofBack = r.next
		}
	}
	due := slices.Clone(q.delays)
	slices.SortFunc(due, func(a, b delay) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(int32(a.seq-b.seq), 0))
	})
	for _, d := range due {
		if r := q.records.at(d.index); !r.running {
			add(r)
		}
	}
	return all
}

// Stats returns the counts of the queue. It never blocks, and takes the same
// time however many items there are.
func (q *Queue[T]) Stats() Stats {
	q.lock()
	defer q.unlock()
	q.catchUp()
	return Stats{
		Ready: q.ready, Waiting: q.waiting, InFlight: q.inFlight,
		Enqueued: q.enqueued, Coalesced: q.coalesced, Taken: q.takenSum, Requeued: q.requeued,
	}
}

// catchUp makes ready what is due, in case the timer is late.
func (q *Queue[T]) catchUp() {
	if len(q.delays) > 0 {
		q.promote(q.now())
	}
}

// A clock tells the time of day of a reading of Queue.now.
type clock struct {
	base time.Time // the time of day when now was 0, as the clock stands now
}

func (q *Queue[T]) clock() clock {
	t := time.Now()
	return clock{t.Add(-t.Sub(q.base))}
}

func (c clock) at(now int64) time.Time { return c.base.Add(time.Duration(now)) }

func (q *Queue[T]) state(r *record[T], clock clock) State {
	s := State{Phase: Ready, Since: clock.at(r.since)}
	switch {
	case r.running:
		s.Phase = InFlight
		s.Again = r.run != runNone
	case r.run.delayed():
		s.Phase = Waiting
		s.Due = clock.at(q.delays[r.prev].due)
		s.Hold = r.run == runHeld
	}
	if r.failed != nil {
		s.Failures, s.Err = r.failed.count, r.failed.err
	}
	return s
}
