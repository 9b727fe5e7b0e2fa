// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import "time"

// Debounce returns an Enqueuer that makes one run of a burst of events: an Enqueue
// of an item that is at rest becomes a run in d, and what comes until then is folded
// into it; the time does not begin anew with each event. So events start no more
// than one run of an item in d, and each is followed by one that starts d after it
// at the latest, if a worker is free and the item is neither held longer nor still
// in flight. The price is that a single event waits for d too.
//
// Meanwhile the item waits as one that is held: [Queue.WaitIdle] and [Queue.WaitItem]
// do not wait for its run. An event of an item that is ready is folded into the run
// that comes; if it is in the [Queue.Background], it stays there.
//
// An EnqueueAfter is held for d at least. An Offer is passed on as it is: it is
// ignored if the item is known. With a d of zero or less all verbs are those of q.
// Debounce panics if q is nil.
func Debounce[T comparable](q Enqueuer[T], d time.Duration) Enqueuer[T] {
	mustQueue[T]("the queue of Debounce", q)
	return debounced[T]{q, d}
}

type debounced[T comparable] struct {
	q Enqueuer[T]
	d time.Duration
}

func (e debounced[T]) Enqueue(item T) { e.q.EnqueueAfter(item, e.d) }
func (e debounced[T]) Offer(item T)   { e.q.Offer(item) }

func (e debounced[T]) EnqueueAfter(item T, d time.Duration) {
	e.q.EnqueueAfter(item, max(d, e.d))
}
