// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
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
	Phase   Phase
	Since   time.Time // when it entered this phase
	Due     time.Time // Waiting: when it becomes ready
	Hold    bool      // Waiting: an Enqueue does not bring it forward
	Again   bool      // InFlight: it has a next run already
	Recheck bool      // Waiting: its last run ended well, and the next is only a look

	// Pending is since when there has been work: since the first event, Offer or
	// due time after the item was last settled or not known. A run that ends well
	// answers what came before it began; what is left then counts from that
	// beginning. Pending is zero while the item is settled. So an item that plans
	// its next run again and again is pending all the time, and one that has an
	// event in each good run is not.
	Pending time.Time

	Failures int // in a row

	// Err is the last failure. With no failures, it is the reason that the last
	// run gave for a plan, if it gave one; it stays until the next run has ended.
	Err error
}

// Stats counts what a queue holds now, and what it did since [NewQueue].
type Stats struct {
	Ready, Waiting, InFlight int
	Rechecks                 int // of those that wait: the next run is only a recheck
	Again                    int // of those in flight: their next run is ready

	Enqueued  uint64 // accepted as new work: the item had no next run
	Coalesced uint64 // folded into work already known; ignored Offers too
	Taken     uint64 // dequeued
	Requeued  uint64 // given back with a next run: retries, plans, looks, aborted runs
}

// Len returns how many items are ready. It never blocks.
func (q *Queue[T]) Len() int { return q.Stats().Ready }

// Has reports whether the item is known at all: ready, waiting or in flight. It
// never blocks.
func (q *Queue[T]) Has(item T) bool { return q.State(item).Phase != Idle }

// State returns what the queue knows of the item. It never blocks.
func (q *Queue[T]) State(item T) State {
	hash := q.hash(item)
	q.mu.Lock()
	defer q.unlock()
	q.catchUpLocked()
	_, e := q.store.find(hash, item)
	if e == nil {
		return State{}
	}
	return q.stateLocked(e, q.clock())
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

type itemState[T comparable] struct {
	item  T
	state State
}

func (q *Queue[T]) snapshot() []itemState[T] {
	q.lock()
	defer q.unlock()
	q.catchUpLocked()
	all := make([]itemState[T], 0, q.inFlight+q.readyLocked()+q.waiting)
	clock := q.clock()
	add := func(e *entry[T]) { all = append(all, itemState[T]{e.item, q.stateLocked(e, clock)}) }
	for _, chunk := range q.store.chunks {
		for i := 0; chunk.entries != nil && i < chunkLen; i++ {
			if e := &chunk.entries[i]; e.inFlight {
				add(e)
			}
		}
	}
	events, offered, inRow := q.events.first, q.offered.first, q.inRow
	for events != 0 || offered != 0 {
		next := &events
		if offered != 0 {
			var from *list
			if from, inRow = q.chooseLocked(events != 0, inRow); from == &q.offered {
				next = &offered
			}
		}
		e := q.store.entry(*next)
		add(e)
		*next = e.next
	}
	due := make([]delay, q.delays.len)
	for p := range due {
		due[p] = *q.delays.node(p)
	}
	slices.SortFunc(due, func(a, b delay) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	for _, d := range due {
		if e := q.store.entry(d.index); !e.inFlight {
			add(e)
		}
	}
	return all
}

// Stats returns the counts of the queue. It never blocks, and takes the same
// time however many items there are.
func (q *Queue[T]) Stats() Stats {
	q.lock()
	defer q.unlock()
	q.catchUpLocked()
	return Stats{
		Ready: q.readyLocked(), Waiting: q.waiting, InFlight: q.inFlight,
		Rechecks: q.settled, Again: q.again,
		Enqueued: q.enqueued, Coalesced: q.coalesced, Taken: q.taken, Requeued: q.requeued,
	}
}

// catchUpLocked makes ready what is due, in case the timer is late.
func (q *Queue[T]) catchUpLocked() {
	if q.delays.len > 0 {
		q.promoteDueLocked(q.now())
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

func (c clock) time(now int64) time.Time { return c.base.Add(time.Duration(now)) }

func (q *Queue[T]) stateLocked(e *entry[T], clock clock) State {
	s := State{Phase: Ready, Since: clock.time(e.since)}
	next := q.nextRunLocked(e)
	switch {
	case e.inFlight:
		s.Phase = InFlight
		s.Again = next.kind != runNone
	case next.kind == runNone: // dropped by Close
		return State{}
	case next.kind.delayed():
		s.Phase = Waiting
		s.Due = clock.time(next.due)
		s.Hold = next.kind == runHeld
		s.Recheck = next.kind == runSettled
	}
	if !s.Recheck {
		s.Pending = clock.time(e.pending)
	}
	if e.cause != nil {
		s.Failures, s.Err = e.cause.failures, e.cause.err
	}
	return s
}
