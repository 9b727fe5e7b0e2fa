// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package model is what a reconcile.Queue must do, written to be read beside
// the state table of its contract: one goroutine, no lock, a clock that the
// caller moves, a plain slice wherever the queue has something faster.
//
// The tests of the queue run the same operations on both and compare. Nothing
// here imports the queue, so that the two stay two readings of one text.
package model

import (
	"cmp"
	"slices"
	"time"
)

// Entry is what the queue knows about one item.
type Entry[T comparable] struct {
	Item     T
	InFlight bool
	Event    bool // in flight: an event asked for this run
	Take     int  // which take it was, of all
	Next     Next
	Since    time.Duration // when it entered its phase
	Pending  time.Duration // since when there is work; says nothing while it waits for a recheck
	Failures int           // in a row
	Err      error         // the last failure; if there is none, the reason of a scheduled run
}

// Fault is a deliberate mistake. Tests switch one on to see that they find it.
type Fault uint8

const (
	NoFault       Fault = iota
	DropInFlight        // an Enqueue of an item in flight is lost
	BreakHold           // an Enqueue starts an item before its time
	HotLoop             // an item is given back without its MinDelay
	LIFO                // the item that became ready last is taken first
	Starve              // the background waits until there is nothing else
	NoEventBit          // what becomes ready later waits in the first line, whatever asked for it
	StayRecheck         // a verb that changes nothing else leaves a recheck a recheck
	IgnoreRecheck       // an Offer of an item that waits for a recheck is ignored
	ForgetPending       // an item is pending since its last run
)

// Queue is the model. The zero Queue is empty, open and ready for use, at
// time zero. It has one owner: nothing in it is safe for two goroutines.
type Queue[T comparable] struct {
	// Background is how many items are taken for one of the background, at least;
	// if it is 0, there is no background.
	Background int
	Fault      Fault

	now        time.Duration
	closed     bool
	entries    []Entry[T] // one for each known item, in no particular order
	line       []T        // the items at rest that are ready, the next one first
	background []T        // the same, behind those of line
	inRow      int        // taken from line while the background had some, since one of these was taken
	order      uint64     // counts schedulings
	takes      int
	stats      Stats // the counters; the phases are counted when asked for
}

// Clone returns a copy that shares nothing with q.
func (q *Queue[T]) Clone() *Queue[T] {
	c := *q
	c.entries = slices.Clone(q.entries)
	c.line = slices.Clone(q.line)
	c.background = slices.Clone(q.background)
	return &c
}

// Now is the time on the clock.
func (q *Queue[T]) Now() time.Duration { return q.now }

// Closed reports whether Close was called.
func (q *Queue[T]) Closed() bool { return q.closed }

// Advance moves the clock on. What falls due on the way becomes ready, in
// order of due time, then of scheduling. An item at rest has been ready since
// its due time. For an item in flight a run that is due is a ready next one.
func (q *Queue[T]) Advance(d time.Duration) {
	was := q.now
	q.now += d
	var due []*Entry[T]
	for i := range q.entries {
		if e := &q.entries[i]; !e.InFlight && e.Next.Later(was) && e.Next.Ready(q.now) {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, byDue)
	for _, e := range due {
		if e.Next.Recheck {
			e.Next.Recheck, e.Pending = false, e.Next.Due
		}
		q.join(e, e.Next.Due)
	}
}

// NextDue is the earliest time at which Advance would find something due.
func (q *Queue[T]) NextDue() (due time.Duration, ok bool) {
	for _, e := range q.entries {
		if e.Next.Later(q.now) && (!ok || e.Next.Due < due) {
			due, ok = e.Next.Due, true
		}
	}
	return due, ok
}

// Offer reports that the item exists.
func (q *Queue[T]) Offer(item T) {
	q.change(item, func(e *Entry[T]) Next {
		if e.InFlight || e.Next.Recheck && q.Fault == IgnoreRecheck {
			return e.Next
		}
		return e.Next.Offered(q.now)
	})
}

// Enqueue reports an event.
func (q *Queue[T]) Enqueue(item T) { q.EnqueueWithin(item, 0) }

// EnqueueWithin asks for a run in d at the latest.
func (q *Queue[T]) EnqueueWithin(item T, d time.Duration) {
	q.change(item, func(e *Entry[T]) Next {
		switch {
		case q.Fault == DropInFlight && e.InFlight && d <= 0 && !e.Next.Exists:
			return e.Next
		case q.Fault == BreakHold:
			e.Next.NotBefore = 0
		case q.Fault == StayRecheck && e.Next.Recheck && q.in(d) >= e.Next.Due:
			return e.Next
		}
		return e.Next.Enqueued(q.in(d), q.now)
	})
	if d <= 0 {
		q.moveForward(item)
	}
}

// EnqueueAfter asks for a run in d, and not before.
func (q *Queue[T]) EnqueueAfter(item T, d time.Duration) {
	if d <= 0 {
		q.Enqueue(item)
		return
	}
	q.change(item, func(e *Entry[T]) Next {
		if q.Fault == StayRecheck && e.Next.Recheck && q.in(d) > e.Next.Due {
			return e.Next
		}
		return e.Next.EnqueuedAfter(q.in(d))
	})
}

// EnqueueNow asks for a run now, whatever the run in flight returns.
func (q *Queue[T]) EnqueueNow(item T) {
	q.change(item, func(e *Entry[T]) Next { return e.Next.EnqueuedNow(q.now, e.InFlight) })
	q.moveForward(item)
}

// change applies one of the verbs above.
func (q *Queue[T]) change(item T, to func(*Entry[T]) Next) {
	if q.closed {
		return
	}
	e := q.find(item)
	if e == nil {
		q.entries = append(q.entries, Entry[T]{Item: item, Since: q.now, Pending: q.now})
		e = &q.entries[len(q.entries)-1]
	}
	was := e.Next
	q.schedule(e, to(e), was)
	if was.Recheck && (!e.Next.Recheck || e.Next.Due < was.Due) {
		e.Pending = q.now
	}
	if !was.Exists && e.Next.Exists {
		q.stats.Enqueued++
	} else {
		q.stats.Coalesced++
	}
	if !e.InFlight && !was.Ready(q.now) && e.Next.Ready(q.now) {
		q.join(e, q.now)
	}
}

// moveForward moves an item that is ready in the background to the first line.
func (q *Queue[T]) moveForward(item T) {
	if !q.closed && slices.Contains(q.background, item) {
		q.leave(item)
		q.line = append(q.line, item)
	}
}

// join appends an item that has become ready to its line.
func (q *Queue[T]) join(e *Entry[T], since time.Duration) {
	e.Since = since
	if q.Background <= 0 || e.Next.Event || q.Fault == NoEventBit {
		q.line = append(q.line, e.Item)
		return
	}
	if len(q.background) == 0 {
		q.inRow = 0
	}
	q.background = append(q.background, e.Item)
}

// Remove cancels the next run and reports whether there was one.
func (q *Queue[T]) Remove(item T) bool {
	e := q.find(item)
	if e == nil || !e.Next.Exists {
		return false
	}
	e.Next = Next{}
	if !e.InFlight {
		q.leave(item)
		q.forget(item)
	}
	return true
}

// Close lets nothing more in and drops every later run.
func (q *Queue[T]) Close() {
	q.closed = true
	for i := range q.entries {
		e := &q.entries[i]
		e.Next.Now = false // Nothing delays it any more.
		if e.Next.Later(q.now) {
			e.Next = Next{}
		}
	}
	q.entries = slices.DeleteFunc(q.entries, func(e Entry[T]) bool {
		return !e.InFlight && !e.Next.Exists
	})
}

func (q *Queue[T]) find(item T) *Entry[T] {
	for i := range q.entries {
		if q.entries[i].Item == item {
			return &q.entries[i]
		}
	}
	return nil
}

func (q *Queue[T]) forget(item T) {
	q.entries = slices.DeleteFunc(q.entries, func(e Entry[T]) bool { return e.Item == item })
}

// in is the time in d, now at the earliest.
func (q *Queue[T]) in(d time.Duration) time.Duration { return in(q.now, max(0, d)) }

// schedule gives an entry its next run. If that is due later, it comes after those
// that are due at the same time, unless the run before it was due then already.
func (q *Queue[T]) schedule(e *Entry[T], n, was Next) {
	n.Order = was.Order
	if n.Later(q.now) && (!was.Exists || was.Due != n.Due) {
		q.order++
		n.Order = q.order
	}
	e.Next = n
}

func byDue[T comparable](a, b *Entry[T]) int {
	return cmp.Or(cmp.Compare(a.Next.Due, b.Next.Due), cmp.Compare(a.Next.Order, b.Next.Order))
}
