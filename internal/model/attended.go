// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "fmt"

// Attended is a Queue together with the consumers that wait in its Dequeue.
// They are served within the operation that gives them something to take.
// Which of them gets what is not part of the contract: they are but counted.
type Attended[T comparable] struct {
	Queue[T]
	Waiters int
}

// Result is what an operation brought about.
type Result[T comparable] struct {
	Removed bool // Remove found a next run
	Taken   []T  // what was handed out, to the caller of Dequeue or to those that waited
	Over    int  // how many Dequeues ended with ErrClosed
}

// Clone returns a copy that shares nothing with a.
func (a *Attended[T]) Clone() *Attended[T] {
	return &Attended[T]{Queue: *a.Queue.Clone(), Waiters: a.Waiters}
}

// Key is equal for two that will answer alike, as for [Queue.Key].
func (a *Attended[T]) Key() string {
	return fmt.Sprintf("waiters %d %s", a.Waiters, a.Queue.Key())
}

// Do carries o out and serves those that wait.
func (a *Attended[T]) Do(o Op[T]) (r Result[T]) {
	switch o.Verb {
	case Offer:
		a.Offer(o.Item)
	case Enqueue:
		a.Enqueue(o.Item)
	case EnqueueAfter:
		a.EnqueueAfter(o.Item, o.Wait.Delay)
	case EnqueueWithin:
		a.EnqueueWithin(o.Item, o.Wait.Delay)
	case EnqueueNow:
		a.EnqueueNow(o.Item)
	case Remove:
		r.Removed = a.Remove(o.Item)
	case Done:
		a.Done(o.Item)
	case Requeue:
		a.Requeue(o.Item, o.Wait)
	case Dequeue:
		a.Waiters++
	case Close:
		a.Close()
	case Advance:
		end := a.Now() + o.Wait.Delay
		for due, ok := a.NextDue(); ok && due <= end; due, ok = a.NextDue() {
			a.Advance(due - a.Now())
			a.serve(&r)
		}
		a.Advance(end - a.Now())
	case Canceled:
	case Cancel:
		a.Waiters = max(0, a.Waiters-1)
	}
	a.serve(&r)
	return r
}

func (a *Attended[T]) serve(r *Result[T]) {
	for a.Waiters > 0 {
		item, answer := a.TryDequeue()
		switch answer {
		case Empty:
			return
		case Taken:
			r.Taken = append(r.Taken, item)
		case Over:
			r.Over++
		}
		a.Waiters--
	}
}
