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
	Advance  // the clock
	Canceled // a Dequeue whose context has ended before
	Cancel   // the context of a Dequeue that waits
)

// Verbs is how many there are.
const Verbs = int(Cancel) + 1

func (v Verb) String() string {
	return [...]string{
		"Offer", "Enqueue", "EnqueueAfter", "EnqueueWithin", "EnqueueNow",
		"Remove", "Done", "Requeue", "Dequeue", "Close", "Advance", "Canceled", "Cancel",
	}[v]
}

// Op is one operation as plain data, to be generated, printed and replayed.
type Op[T comparable] struct {
	Verb Verb
	Item T    // of the verbs on an item
	Wait Wait // of Requeue; EnqueueAfter, EnqueueWithin and Advance use its Delay
	Nth  int  // of Cancel: which of those that wait, the oldest first; of Advance: 1 if what comes next races with the timer
}

func (o Op[T]) String() string {
	switch o.Verb {
	case Dequeue, Close, Canceled:
		return fmt.Sprintf("%v()", o.Verb)
	case Advance:
		return fmt.Sprintf("%v(%v)", o.Verb, o.Wait.Delay)
	case Cancel:
		return fmt.Sprintf("%v(%d)", o.Verb, o.Nth)
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
