// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
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
	Advance // the clock
)

func (v Verb) String() string {
	return [...]string{
		"Offer", "Enqueue", "EnqueueAfter", "EnqueueWithin", "EnqueueNow",
		"Remove", "Done", "Requeue", "Dequeue", "Close", "Advance",
	}[v]
}

// Op is one operation as plain data, to be generated, printed and replayed.
type Op[T comparable] struct {
	Verb Verb
	Item T    // of all but Dequeue, Close and Advance
	Wait Wait // of Requeue; EnqueueAfter, EnqueueWithin and Advance use its Delay
}

func (o Op[T]) String() string {
	switch o.Verb {
	case Dequeue, Close:
		return fmt.Sprintf("%v()", o.Verb)
	case Advance:
		return fmt.Sprintf("%v(%v)", o.Verb, o.Wait.Delay)
	case EnqueueAfter, EnqueueWithin:
		return fmt.Sprintf("%v(%v, %v)", o.Verb, o.Item, o.Wait.Delay)
	case Requeue:
		s := fmt.Sprint(o.Wait.Delay)
		if o.Wait.Hold {
			s += ", Hold"
		}
		if o.Wait.Err != nil {
			s += ", Err"
		}
		return fmt.Sprintf("Requeue(%v, {%s})", o.Item, s)
	}
	return fmt.Sprintf("%v(%v)", o.Verb, o.Item)
}

// Result is what an operation answered.
type Result[T comparable] struct {
	Removed bool   // of Remove
	Answer  Answer // of Dequeue
	Item    T      // of a Dequeue that took one
}

// Do carries o out.
func (q *Queue[T]) Do(o Op[T]) (r Result[T]) {
	switch o.Verb {
	case Offer:
		q.Offer(o.Item)
	case Enqueue:
		q.Enqueue(o.Item)
	case EnqueueAfter:
		q.EnqueueAfter(o.Item, o.Wait.Delay)
	case EnqueueWithin:
		q.EnqueueWithin(o.Item, o.Wait.Delay)
	case EnqueueNow:
		q.EnqueueNow(o.Item)
	case Remove:
		r.Removed = q.Remove(o.Item)
	case Done:
		q.Done(o.Item)
	case Requeue:
		q.Requeue(o.Item, o.Wait)
	case Dequeue:
		r.Item, r.Answer = q.TryDequeue()
	case Close:
		q.Close()
	case Advance:
		q.Advance(o.Wait.Delay)
	}
	return r
}
