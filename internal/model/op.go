// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"time"
)

// Verb names an operation on a queue.
type Verb uint8

const (
	Offer Verb = iota
	Enqueue
	EnqueueAfter
	EnqueueWithin
	EnqueueNow
	Remove
	Done
	Requeue
	Dequeue
	Close
	EnqueueAndWait
	Advance  // the clock
	Canceled // a Dequeue whose context has ended before
	Cancel   // the context of a Dequeue that waits
)

// Verbs is how many there are.
const Verbs = int(Cancel) + 1

func (v Verb) String() string {
	return [...]string{
		"Offer", "Enqueue", "EnqueueAfter", "EnqueueWithin", "EnqueueNow", "Remove", "Done", "Requeue",
		"Dequeue", "Close", "EnqueueAndWait", "Advance", "Canceled", "Cancel",
	}[v]
}

// Op is one operation as plain data, to be generated, printed and replayed.
type Op[T comparable] struct {
	Verb    Verb
	Item    T              // of the verbs on an item
	Options RequeueOptions // of Requeue; EnqueueAfter, EnqueueWithin and Advance use its Delay

	// Nth is, of Cancel, which of those that wait, the oldest first; of Advance, 1
	// if what comes next races with the timer; of EnqueueAndWait, what tells it
	// from others.
	Nth int
}

// A Target is a queue on which operations are carried out.
type Target[T comparable] interface {
	Offer(item T)
	Enqueue(item T)
	EnqueueAfter(item T, d time.Duration)
	EnqueueWithin(item T, d time.Duration)
	EnqueueNow(item T)
	Remove(item T) bool
	Done(item T)
	Requeue(item T, w RequeueOptions)
	Close()
}

// Do carries o out on q and returns what Remove returned. If o is none of the
// methods of a Target, because it blocks, is about the time or not for everybody,
// Do does nothing and ok is false.
func (o Op[T]) Do(q Target[T]) (removed, ok bool) {
	switch o.Verb {
	case Offer:
		q.Offer(o.Item)
	case Enqueue:
		q.Enqueue(o.Item)
	case EnqueueAfter:
		q.EnqueueAfter(o.Item, o.Options.Delay)
	case EnqueueWithin:
		q.EnqueueWithin(o.Item, o.Options.Delay)
	case EnqueueNow:
		q.EnqueueNow(o.Item)
	case Remove:
		removed = q.Remove(o.Item)
	case Done:
		q.Done(o.Item)
	case Requeue:
		q.Requeue(o.Item, o.Options)
	case Close:
		q.Close()
	default:
		return false, false
	}
	return removed, true
}

func (o Op[T]) String() string {
	switch o.Verb {
	case Dequeue, Close, Canceled:
		return fmt.Sprintf("%v()", o.Verb)
	case Advance:
		return fmt.Sprintf("%v(%v)", o.Verb, o.Options.Delay)
	case Cancel:
		return fmt.Sprintf("%v(%d)", o.Verb, o.Nth)
	case EnqueueAfter, EnqueueWithin:
		return fmt.Sprintf("%v(%v, %v)", o.Verb, o.Item, o.Options.Delay)
	case Requeue:
		return fmt.Sprintf("Requeue(%v, {%v})", o.Item, o.Options)
	}
	return fmt.Sprintf("%v(%v)", o.Verb, o.Item)
}

func (w RequeueOptions) String() string {
	s := w.Delay.String()
	if w.MinDelay != 0 {
		s += ", MinDelay " + w.MinDelay.String()
	}
	if w.Recheck {
		s += ", Recheck"
	}
	switch {
	case w.Aborted:
		s += ", Aborted"
	case w.Err != nil:
		s += ", Err"
	}
	if w.Reason != nil {
		s += ", Reason"
	}
	if w.Done {
		s += ", Done"
	}
	return s
}
