// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"time"

	"github.com/reconkernel/reconcile"
)

// This file holds the timers of a [Queue]: the waiting items that this process
// was told of. When one is due it is made ready, by whoever is first.

type timers[T comparable] struct {
	known    map[T]seen
	rechecks int                    // of known
	clock    *reconcile.Queue[[1]T] // hands out items of known when they are due; nil until there is one. T may be a pointer
}

func (t *timers[T]) init() { t.known = make(map[T]seen) }

// set sets an item's timer to a record that waits.
func (t *timers[T]) set(item T, s seen) {
	t.remove(item)
	t.known[item] = s
	t.count(s, +1)
	t.clock.EnqueueAfter([1]T{item}, time.Until(time.Unix(0, s.due)))
}

func (t *timers[T]) remove(item T) {
	s, ok := t.known[item]
	if !ok {
		return
	}
	t.count(s, -1)
	t.clock.Remove([1]T{item})
	delete(t.known, item)
	if len(t.known) == 0 {
		t.init() // so that the memory of a burst goes back
	}
}

func (t *timers[T]) count(s seen, n int) {
	if s.next == nextRecheck {
		t.rechecks += n
	}
}

// replaced notes that the record of an item with the sequence before is now s.
func (t *timers[T]) replaced(item T, before uint64, s seen) {
	switch a, ok := t.known[item]; {
	case !ok || a.seq > before:
	case s.waiting():
		s.tokens = a.tokens
		t.set(item, s)
	default:
		t.remove(item)
	}
}

// schedule has an item made ready when it is due.
func (q *Queue[T]) schedule(item T, s seen) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.life.Err() != nil {
		return
	}
	t := &q.timers
	if t.clock == nil {
		t.clock = reconcile.NewQueue[[1]T]()
		q.running.Go(q.keepTime)
	}
	// One that is overdue here was held up, as by a machine that slept.
	if a, ok := t.known[item]; !ok || a.seq < s.seq || s.due <= time.Now().UnixNano() {
		t.set(item, s)
	}
}

// keepTime makes ready what is due.
func (q *Queue[T]) keepTime() {
	clock := q.timers.clock
	defer clock.Close()
	for {
		item, err := clock.Dequeue(q.life)
		if err != nil {
			return
		}
		clock.Done(item)
		q.ring(item[0])
	}
}

func (q *Queue[T]) ring(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := &q.timers
	now := time.Now().UnixNano()
	s, ok := t.known[item]
	switch {
	case !ok || q.overLocked() != nil:
	case s.due > now: // since a moment ago, or by the time of day
		t.set(item, s)
	default:
		t.remove(item)
		q.hintLocked(item, q.postLocked(item, s.tokens, op{verb: verbDue, at: now}, nil), s)
	}
}
