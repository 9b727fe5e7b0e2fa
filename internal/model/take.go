// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"time"
)

// Answer is what TryDequeue found.
type Answer uint8

const (
	Taken Answer = iota // an item
	Empty               // nothing yet: Dequeue waits
	Over                // nothing, and nothing to come: Dequeue returns ErrClosed
)

// TryDequeue takes the item that became ready first: of those that were offered,
// if it is their turn, else of the others.
func (q *Queue[T]) TryDequeue() (item T, a Answer) {
	if len(q.line)+len(q.offered) == 0 {
		if !q.closed || slices.ContainsFunc(q.entries, func(e Entry[T]) bool { return e.Next.Kind != None }) {
			return item, Empty
		}
		return item, Over
	}
	line := q.line
	switch {
	case len(q.offered) == 0:
	case len(line) == 0, q.inRow+1 >= q.Background && q.Fault != Starve:
		line, q.inRow = q.offered, 0
	default:
		q.inRow = min(q.inRow+1, q.Background) // which is only reached with Starve
	}
	i := 0
	if q.Fault == LIFO {
		i = len(line) - 1
	}
	item = line[i]
	q.leave(item)
	e := q.find(item)
	e.InFlight, e.Next, e.Since = true, Next{}, q.now
	q.takes++
	e.Take = q.takes
	q.stats.Taken++
	return item, Taken
}

// untaken is a ready item that was given back by Untake.
type untaken[T comparable] struct {
	item T
	turn int
}

// Untake gives an item back to the head of the queue, as if TryDequeue had
// never handed it out: its consumer was canceled before it could see the item.
// was is its entry before; if there was an event since, it is not Offered any
// more. Of several such items those go first that were taken first: that is their
// turn.
func (q *Queue[T]) Untake(was Entry[T], turn int) {
	e := q.find(was.Item)
	if e == nil || !e.InFlight {
		return
	}
	if e.Next.Kind == Ready || e.Next.Kind == Sticky {
		was.Next.Kind = Ready
	}
	e.InFlight, e.Next, e.Since = false, was.Next, was.Since
	q.stats.Taken--
	line := q.line
	if was.Next.Kind == Offered {
		line = q.offered
	}
	at := 0
	for at < len(line) && slices.ContainsFunc(q.back, func(b untaken[T]) bool { return b.item == line[at] && b.turn < turn }) {
		at++
	}
	if was.Next.Kind == Offered {
		q.offer(was.Item, at)
	} else {
		q.line = slices.Insert(q.line, at, was.Item)
	}
	q.back = append(q.back, untaken[T]{was.Item, turn})
}

// leave is called for an item that leaves its line.
func (q *Queue[T]) leave(item T) {
	q.line = slices.DeleteFunc(q.line, func(t T) bool { return t == item })
	q.offered = slices.DeleteFunc(q.offered, func(t T) bool { return t == item })
	q.back = slices.DeleteFunc(q.back, func(b untaken[T]) bool { return b.item == item })
}

// Done gives an item back. Its failures are forgotten; its next run stands.
func (q *Queue[T]) Done(item T) {
	e := q.find(item)
	if e == nil || !e.InFlight {
		return
	}
	e.Failures, e.Err = 0, nil
	q.giveBack(e, e.Next)
}

// Wait is what the queue's Wait is.
type Wait struct {
	Delay time.Duration
	Hold  bool
	Err   error
}

// Requeue gives an item back with the verdict of its run.
func (q *Queue[T]) Requeue(item T, w Wait) {
	e := q.find(item)
	if e == nil || !e.InFlight {
		return
	}
	q.stats.Requeued++
	if w.Err != nil {
		e.Failures, e.Err = e.Failures+1, w.Err
	} else {
		e.Failures, e.Err = 0, nil
	}
	q.giveBack(e, q.verdict(e.Next, w))
}

// verdict replaces whatever was pending, except an EnqueueNow, if it is a
// hold. A ceiling leaves the sooner of the two, with its kind.
func (q *Queue[T]) verdict(n Next, w Wait) Next {
	if w.Delay <= 0 || n.Kind == Sticky {
		return Next{Kind: Ready}
	}
	due := q.in(w.Delay)
	switch {
	case w.Hold:
		return q.schedule(n, Held, due)
	case n.Kind == None, n.Later() && due < n.Due:
		return q.schedule(n, Within, due)
	}
	return n
}

func (q *Queue[T]) giveBack(e *Entry[T], n Next) {
	e.InFlight, e.Next, e.Since = false, n, q.now
	switch {
	case n.Kind == Ready, n.Kind == Sticky:
		e.Next = Next{Kind: Ready}
		q.line = append(q.line, e.Item)
	case n.Kind == None, q.closed:
		q.forget(e.Item)
	}
}
