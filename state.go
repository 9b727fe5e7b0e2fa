// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"iter"
	"slices"
	"time"
)

// Len returns how many items are ready.
func (q *Queue[T]) Len() int { return q.Stats().Ready }

// Has reports whether the item is known at all: ready, waiting or in flight.
func (q *Queue[T]) Has(item T) bool { return q.State(item).Phase != PhaseIdle }

// State returns what the queue knows of the item.
func (q *Queue[T]) State(item T) State {
	hash := q.hash(item)
	q.lock()
	defer q.unlock()
	q.catchUpLocked()
	_, e := q.store.find(hash, item)
	if e == nil {
		return State{}
	}
	return q.stateLocked(e, q.clock())
}

// All returns a snapshot of all items, made when the loop begins: those in flight, those
// ready in the order in which they will be taken, and those that wait, the first due first.
// Making it holds up the other methods for a time that grows with the number of items.
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
	line, background, since := q.line.first, q.background.first, q.sinceBackground
	for line != 0 || background != 0 {
		next := &line
		if background != 0 {
			var from *list
			if from, since = q.chooseLocked(line != 0, since); from == &q.background {
				next = &background
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

// Stats returns the counts of the queue. It takes the same time however many items there
// are.
func (q *Queue[T]) Stats() Stats {
	q.lock()
	defer q.unlock()
	q.catchUpLocked()
	return Stats{
		Ready: q.readyLocked(), Waiting: q.waiting, InFlight: q.inFlight,
		Rechecks: q.rechecks, Again: q.again,
		Enqueued: q.enqueued, Coalesced: q.coalesced, Taken: q.taken, Requeued: q.requeued,
	}
}

// A clock tells the time of day of a reading of Queue.now, as the system's clock
// stands at the moment.
type clock struct {
	at  time.Time
	now int64 // the reading of Queue.now at that time
}

func (q *Queue[T]) clock() clock {
	t := time.Now()
	return clock{t, atBase + int64(t.Sub(q.base))}
}

func (c clock) time(now int64) time.Time { return c.at.Add(time.Duration(now - c.now)) }

func (q *Queue[T]) stateLocked(e *entry[T], clock clock) State {
	s := State{Phase: PhaseReady, Since: clock.time(e.since)}
	next := q.nextRunLocked(e)
	switch {
	case e.inFlight:
		s.Phase = PhaseInFlight
		s.Again = next.kind != runNone
	case next.kind == runNone: // dropped by Close
		return State{}
	case next.kind.isLater():
		s.Phase = PhaseWaiting
		s.Due = clock.time(next.due)
		if next.notBefore > clock.now {
			s.NotBefore = clock.time(next.notBefore)
		}
		s.Recheck = next.kind == runRecheck
	}
	if !s.Recheck {
		s.Pending = clock.time(e.pending)
	}
	if e.last != nil {
		s.Failures, s.Err = e.last.failures, e.last.err
	}
	return s
}
