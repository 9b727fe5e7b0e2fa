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

// TryDequeue takes the item that became ready first: of the background, if it is
// its turn, otherwise of the first line.
func (q *Queue[T]) TryDequeue() (item T, a Answer) {
	if len(q.line)+len(q.background) == 0 {
		if !q.closed || slices.ContainsFunc(q.entries, func(e Entry[T]) bool { return e.Next.Exists }) {
			return item, Empty
		}
		return item, Over
	}
	line := q.line
	switch {
	case len(q.background) == 0:
	case len(line) == 0, q.inRow+1 >= q.Background && q.Fault != Starve:
		line, q.inRow = q.background, 0
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
	e.InFlight, e.Event, e.Next, e.Since = true, e.Next.Event, Next{}, q.now
	q.takes++
	e.Take = q.takes
	q.stats.Taken++
	return item, Taken
}

// leave is called for an item that leaves its line.
func (q *Queue[T]) leave(item T) {
	q.line = slices.DeleteFunc(q.line, func(t T) bool { return t == item })
	q.background = slices.DeleteFunc(q.background, func(t T) bool { return t == item })
}

// Done gives an item back. Its failures are forgotten; its next run stays.
func (q *Queue[T]) Done(item T) { q.Requeue(item, RequeueOptions{Done: true}) }

// RequeueOptions are those of the queue.
type RequeueOptions struct {
	Delay    time.Duration
	MinDelay time.Duration
	Err      error
	Recheck  bool
	Reason   error
	Done     bool
	Aborted  bool // as if it had not run
}

// isRecheck reports whether the run succeeded, and the next is only a recheck.
func (o RequeueOptions) isRecheck() bool {
	return o.Recheck && o.MinDelay <= 0 && o.Err == nil && !o.Done
}

// Requeue gives an item back with the result of its run.
func (q *Queue[T]) Requeue(item T, o RequeueOptions) {
	e := q.find(item)
	if e == nil || !e.InFlight {
		return
	}
	aborted := o.Aborted
	if aborted {
		o = RequeueOptions{Aborted: true}
	}
	if !o.Done {
		q.stats.Requeued++
	}
	switch {
	case aborted:
	case o.Done:
		e.Failures, e.Err = 0, nil
	case o.Err != nil:
		e.Failures, e.Err = e.Failures+1, o.Err
	case o.isRecheck():
		e.Failures, e.Err = 0, nil
	default:
		e.Failures, e.Err = 0, o.Reason
	}
	// A run that succeeds covers what came before it began.
	if o.isRecheck() || o.Done && o.Err == nil || q.Fault == ForgetPending && !aborted && !o.Done {
		e.Pending = e.Since
	}
	if q.Fault == HotLoop {
		o.Delay, o.MinDelay = max(o.Delay, o.MinDelay), 0
	}
	q.schedule(e, e.Next.GivenBack(o, q.now, e.Event, q.closed), e.Next)
	e.InFlight, e.Event, e.Since = false, false, q.now
	switch {
	case !e.Next.Exists:
		q.forget(item)
	case e.Next.Ready(q.now):
		q.join(e, q.now)
	}
}
