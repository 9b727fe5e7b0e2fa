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

// Kind says when the next run of an item may start.
type Kind uint8

const (
	None    Kind = iota // there is no next run
	Ready               // at once
	Offered             // at once, but behind events: see Queue.Background
	Sticky              // at once, whatever the verdict of the run in flight: EnqueueNow
	Within              // at Due, sooner if an event asks for it
	Held                // at Due and not before
	Recheck             // as Within, but all is well: it is only a look. At rest only
)

// Next is the next run of an item.
type Next struct {
	Kind  Kind
	Due   time.Duration // of a later one, since the start of the clock
	Order uint64        // of a later one: runs due at once become ready in this order
}

// Later reports whether the next run is still waiting for its time.
func (n Next) Later() bool { return n.Kind == Within || n.Kind == Held || n.Kind == Recheck }

// unsettled is n once something was asked for that n does not answer.
func (n Next) unsettled() Next {
	if n.Kind == Recheck {
		n.Kind = Within
	}
	return n
}

// Entry is what the queue knows about one item.
type Entry[T comparable] struct {
	Item     T
	InFlight bool
	Take     int // which take it was, of all
	Next     Next
	Since    time.Duration // when it entered its phase
	Pending  time.Duration // since when there is work; says nothing while it is settled
	Failures int           // in a row
	Err      error         // the last failure; if there is none, the reason of a plan
}

// Fault is a deliberate mistake. Tests switch one on to see that they find it.
type Fault uint8

const (
	NoFault       Fault = iota
	DropInFlight        // an Enqueue of an item in flight is lost
	BreakHold           // an Enqueue cuts a hold short
	LIFO                // the item that became ready last is taken first
	Starve              // what was offered waits until there is nothing else
	StaySettled         // a verb that changes nothing else leaves a settled item settled
	IgnoreSettled       // an Offer of a settled item is ignored
	ForgetPending       // an item is pending since its last run
)

// Queue is the model. The zero Queue is empty, open and ready for use, at
// time zero. It has one owner: nothing in it is safe for two goroutines.
type Queue[T comparable] struct {
	// Background is how many items are taken for one of those that were offered
	// and not enqueued since, at least; if it is 0, Offered is Ready.
	Background int
	Fault      Fault

	now     time.Duration
	closed  bool
	entries []Entry[T] // one per known item, in no particular order
	line    []T        // the resting items that are Ready, next one first
	offered []T        // those that are Offered
	inRow   int        // taken from line while some were offered, since one of these was
	order   uint64     // counts schedulings
	takes   int
	stats   Stats // the counters; the phases are counted when asked for
}

// Clone returns a copy that shares nothing with q.
func (q *Queue[T]) Clone() *Queue[T] {
	c := *q
	c.entries = slices.Clone(q.entries)
	c.line = slices.Clone(q.line)
	c.offered = slices.Clone(q.offered)
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
	q.now += d
	var due []*Entry[T]
	for i := range q.entries {
		if e := &q.entries[i]; e.Next.Later() && e.Next.Due <= q.now {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, byDue)
	for _, e := range due {
		if !e.InFlight {
			e.Since = e.Next.Due
			q.line = append(q.line, e.Item)
		}
		if e.Next.Kind == Recheck {
			e.Pending = e.Next.Due
		}
		e.Next = Next{Kind: Ready}
	}
}

// NextDue is the earliest time at which Advance would find something due.
func (q *Queue[T]) NextDue() (due time.Duration, ok bool) {
	for _, e := range q.entries {
		if e.Next.Later() && (!ok || e.Next.Due < due) {
			due, ok = e.Next.Due, true
		}
	}
	return due, ok
}

// Offer asks for a run of an item that is not known or settled; any other is
// about to run, or was promised a run.
func (q *Queue[T]) Offer(item T) {
	q.change(item, func(e *Entry[T], n Next) Next {
		switch {
		case e.InFlight, n.Kind != None && n.Kind != Recheck, n.Kind == Recheck && q.Fault == IgnoreSettled:
			return n
		case q.Background > 0:
			return Next{Kind: Offered}
		}
		return Next{Kind: Ready}
	})
}

// Enqueue asks for now. A hold answers "not yet".
func (q *Queue[T]) Enqueue(item T) {
	q.change(item, func(e *Entry[T], n Next) Next {
		switch n.Kind {
		case None:
			if q.Fault == DropInFlight && e.InFlight {
				return n
			}
			return Next{Kind: Ready}
		case Within, Recheck, Offered:
			return Next{Kind: Ready}
		case Held:
			if q.Fault == BreakHold {
				return Next{Kind: Ready}
			}
		}
		return n
	})
}

// EnqueueAfter asks for a hold of d. It never delays a run that was promised
// sooner, and it does not touch a hold.
func (q *Queue[T]) EnqueueAfter(item T, d time.Duration) {
	if d <= 0 {
		q.Enqueue(item)
		return
	}
	due := q.in(d)
	q.change(item, func(_ *Entry[T], n Next) Next {
		if q.Fault == StaySettled && n.Kind == Recheck && due > n.Due {
			return n
		}
		n = n.unsettled()
		switch n.Kind {
		case None:
			return q.schedule(n, Held, due)
		case Within:
			if due <= n.Due {
				return q.schedule(n, Held, due)
			}
		}
		return n
	})
}

// EnqueueWithin asks for a run in d at the latest.
func (q *Queue[T]) EnqueueWithin(item T, d time.Duration) {
	if d <= 0 {
		q.Enqueue(item)
		return
	}
	due := q.in(d)
	q.change(item, func(_ *Entry[T], n Next) Next {
		if q.Fault == StaySettled && n.Kind == Recheck && due >= n.Due {
			return n
		}
		n = n.unsettled()
		switch n.Kind {
		case None:
			return q.schedule(n, Within, due)
		case Within:
			if due < n.Due {
				return q.schedule(n, Within, due)
			}
		}
		return n
	})
}

// EnqueueNow asks for now and takes no other answer. For an item in flight
// that binds the verdict of its run too.
func (q *Queue[T]) EnqueueNow(item T) {
	q.change(item, func(e *Entry[T], _ Next) Next {
		if e.InFlight {
			return Next{Kind: Sticky}
		}
		return Next{Kind: Ready}
	})
}

// change applies one of the verbs above: to is given the entry and its next
// run and returns what the next run is from now on.
func (q *Queue[T]) change(item T, to func(*Entry[T], Next) Next) {
	if q.closed {
		return
	}
	e := q.find(item)
	if e == nil {
		q.entries = append(q.entries, Entry[T]{Item: item, Since: q.now, Pending: q.now})
		e = &q.entries[len(q.entries)-1]
	}
	was := e.Next
	e.Next = to(e, was)
	if was.Kind == Recheck {
		e.Pending = q.now
	}
	if was.Kind == None && e.Next.Kind != None {
		q.stats.Enqueued++
	} else {
		q.stats.Coalesced++
	}
	switch {
	case e.InFlight || e.Next.Kind == was.Kind:
	case was.Kind == Offered: // and ready since then
		q.leave(item)
		q.line = append(q.line, item)
	case e.Next.Kind == Ready:
		e.Since = q.now
		q.line = append(q.line, item)
	case e.Next.Kind == Offered:
		if len(q.offered) == 0 {
			q.inRow = 0
		}
		e.Since = q.now
		q.offered = append(q.offered, item)
	}
}

// Remove cancels the next run and reports whether there was one.
func (q *Queue[T]) Remove(item T) bool {
	e := q.find(item)
	if e == nil || e.Next.Kind == None {
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
		if e := &q.entries[i]; e.Next.Later() {
			e.Next = Next{}
		}
	}
	q.entries = slices.DeleteFunc(q.entries, func(e Entry[T]) bool {
		return !e.InFlight && e.Next.Kind == None
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

// in is the time in d, or the end of time if that is sooner.
func (q *Queue[T]) in(d time.Duration) time.Duration {
	const end = time.Duration(1<<63 - 1)
	if d > end-q.now {
		return end
	}
	return q.now + d
}

// schedule makes a later run of the one that was. It goes behind those that
// are due at the same time, unless it was due then already.
func (q *Queue[T]) schedule(was Next, k Kind, due time.Duration) Next {
	if was.Later() && was.Due == due {
		return Next{Kind: k, Due: due, Order: was.Order}
	}
	q.order++
	return Next{Kind: k, Due: due, Order: q.order}
}

func byDue[T comparable](a, b *Entry[T]) int {
	return cmp.Or(cmp.Compare(a.Next.Due, b.Next.Due), cmp.Compare(a.Next.Order, b.Next.Order))
}
