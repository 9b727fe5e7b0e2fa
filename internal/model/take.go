// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
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

// leave is called for an item that leaves its line.
func (q *Queue[T]) leave(item T) {
	q.line = slices.DeleteFunc(q.line, func(t T) bool { return t == item })
	q.offered = slices.DeleteFunc(q.offered, func(t T) bool { return t == item })
}

// Done gives an item back. Its failures are forgotten; its next run stands.
func (q *Queue[T]) Done(item T) {
	e := q.find(item)
	if e == nil || !e.InFlight {
		return
	}
	q.answer(e)
	e.Failures, e.Err = 0, nil
	q.giveBack(e, e.Next)
}

// answer is called for a run that ended well: it answers what came before it
// began, and what its item has ahead came later.
func (q *Queue[T]) answer(e *Entry[T]) { e.Pending = e.Since }

// RequeueOptions are those of the queue.
type RequeueOptions struct {
	Delay   time.Duration
	Hold    bool
	Err     error
	Recheck bool
	Reason  error
	Done    bool
}

// Well reports whether the run ended well, and the next is only a look.
func (w RequeueOptions) Well() bool { return w.Recheck && !w.Hold && w.Err == nil && !w.Done }

// ErrAborted as the Err of the options gives the item back as if it had not run.
var ErrAborted = errors.New("model: run aborted")

// Requeue gives an item back with the verdict of its run.
func (q *Queue[T]) Requeue(item T, w RequeueOptions) {
	e := q.find(item)
	if e == nil || !e.InFlight {
		return
	}
	switch {
	case w.Err == ErrAborted:
		q.stats.Requeued++
		q.giveBack(e, Next{Kind: Ready})
		return
	case w.Done && w.Err == nil:
		q.Done(item)
		return
	case w.Done: // given up
		e.Failures, e.Err = 0, nil
		q.giveBack(e, e.Next)
		return
	case w.Err != nil:
		e.Failures, e.Err = e.Failures+1, w.Err
	case w.Well():
		q.answer(e)
		e.Failures, e.Err = 0, nil
	default:
		e.Failures, e.Err = 0, w.Reason
	}
	if q.Fault == ForgetPending {
		q.answer(e)
	}
	q.stats.Requeued++
	q.giveBack(e, q.verdict(e.Next, w))
}

// verdict replaces whatever was pending, except an EnqueueNow, if it is a
// hold. A ceiling leaves the sooner of the two, with its kind. An item is settled
// only if nothing was pending, which is an event still to be answered.
func (q *Queue[T]) verdict(n Next, w RequeueOptions) Next {
	if w.Delay <= 0 || n.Kind == Sticky {
		return Next{Kind: Ready}
	}
	due := q.in(w.Delay)
	switch {
	case w.Hold:
		return q.schedule(n, Held, due)
	case n.Kind == None && w.Well():
		return q.schedule(n, Recheck, due)
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
