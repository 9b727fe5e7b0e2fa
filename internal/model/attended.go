// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"slices"
)

// Attended is a Queue together with those who wait for something in it: the
// consumers in its Dequeue, and the callers of EnqueueAndWait. They are served
// within the operation that gives them what they wait for. Which consumer gets
// which item is not part of the contract, so consumers are only counted.
type Attended[T comparable] struct {
	Queue[T]
	Waiters int
	Waits   []Await[T]
}

// An Await is an EnqueueAndWait of one item.
type Await[T comparable] struct {
	Nth  int // of its Op
	Item T
	Err  error // what it returns
}

// ErrClosed is what an EnqueueAndWait returns whose item was refused or dropped,
// because the queue is closed.
var ErrClosed = errors.New("model: queue closed")

// Result is what an operation brought about.
type Result[T comparable] struct {
	Removed bool       // Remove found a next run
	Taken   []T        // what was handed out, to the caller of Dequeue or to those that waited
	Over    int        // how many Dequeues ended with ErrClosed
	Ended   []Await[T] // the EnqueueAndWaits that returned
}

// Clone returns a copy that shares nothing with a.
func (a *Attended[T]) Clone() *Attended[T] {
	return &Attended[T]{Queue: *a.Queue.Clone(), Waiters: a.Waiters, Waits: slices.Clone(a.Waits)}
}

// Do carries o out and serves those that wait.
func (a *Attended[T]) Do(o Op[T]) (r Result[T]) {
	switch o.Verb {
	case EnqueueAndWait:
		w := Await[T]{Nth: o.Nth, Item: o.Item}
		if a.Closed() {
			w.Err = ErrClosed
			r.Ended = append(r.Ended, w)
			break
		}
		a.Waits = append(a.Waits, w)
		a.Enqueue(o.Item)
	case Dequeue:
		a.Waiters++
	case Advance:
		end := a.Now() + o.Options.Delay
		for due, ok := a.NextDue(); ok && due <= end; due, ok = a.NextDue() {
			a.Advance(due - a.Now())
			a.serve(&r)
		}
		a.Advance(end - a.Now())
	case Cancel:
		a.Waiters = max(0, a.Waiters-1)
	case Canceled: // takes nothing
	case Close:
		for _, e := range a.entries {
			if e.Next.Later(a.now) {
				a.end(&r, e.Item, ErrClosed)
			}
		}
		a.Close()
	case Requeue:
		a.Requeue(o.Item, o.Options)
		switch {
		case a.Has(o.Item), o.Options.isRecheck():
		case o.Options.Done:
			a.end(&r, o.Item, o.Options.Err) // why it was given up
		default:
			a.end(&r, o.Item, ErrClosed) // which dropped its next run
		}
	default:
		r.Removed, _ = o.Do(&a.Queue)
	}
	a.serve(&r)
	return r
}

// end ends the EnqueueAndWaits of an item.
func (a *Attended[T]) end(r *Result[T], item T, err error) {
	a.Waits = slices.DeleteFunc(a.Waits, func(w Await[T]) bool {
		if w.Item == item {
			w.Err = err
			r.Ended = append(r.Ended, w)
		}
		return w.Item == item
	})
}

func (a *Attended[T]) serve(r *Result[T]) {
	for a.Waiters > 0 {
		item, answer := a.TryDequeue()
		if answer == Empty {
			break
		}
		if answer == Taken {
			r.Taken = append(r.Taken, item)
		} else {
			r.Over++
		}
		a.Waiters--
	}
	for _, w := range slices.Clone(a.Waits) {
		if a.AtRest(w.Item) {
			a.end(r, w.Item, nil)
		}
	}
}
