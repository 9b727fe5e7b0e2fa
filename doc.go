// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconcile is the kernel of a controller: a queue that holds each item
// once, and a loop that calls a function for one item after another until what
// is there is what is wanted.
//
//	q := reconcile.NewQueue[string]()
//	var g reconcile.Group
//	g.Add("list", &reconcile.Poller[string]{Queue: q, GetItems: list, Period: time.Minute})
//	g.Add("zones", &reconcile.Reconciler[string]{
//		Queue: q,
//		Reconcile: func(ctx context.Context, zone string) error {
//			if wanted(zone) == lookUp(ctx, zone) {
//				return reconcile.RecheckWithin(time.Hour) // in order
//			}
//			return create(ctx, zone) // an error is tried again
//		},
//		RecheckJitter: 0.1, // looks that fall together come apart
//	})
//	err := g.Run(ctx)
//
// An item is an identity, never a payload. A [Poller], [Feeder] functions and
// calls bring items into the [Queue]; what the function of a [Reconciler] returns
// says what follows.
//
//   - [Queue.Enqueue] reports an event, and is never lost. [Queue.Offer] reports
//     an observation: it runs an item that is in order or not known, and is ignored
//     if a run is due or planned anyway.
//   - [RequeueAfter] is a floor: only [Queue.EnqueueNow] brings the item back
//     sooner. [RequeueWithin] is a ceiling: any event does.
//   - RequeueWithin says that work is left, [RecheckWithin] that the item is in order.
//
// # Promises
//
//  1. An accepted event is followed by a run that started after it.
//  2. An item is never in two runs at once.
//  3. Items are taken in the order in which they became ready; a Background of 2
//     or more makes two such lines, and starves neither.
//  4. No run starts before the end of a floor (RequeueAfter), unless by
//     EnqueueNow; an item is ready by the end of a ceiling (RequeueWithin).
//  5. No worker sleeps while an item is ready, unless Admit holds it back.
//  6. A panic or runtime.Goexit in a reconcile function is a failure of that
//     item alone.
//  7. Cancellation loses no item.
//  8. When a Run returns, so has all that it started, unless a ShutdownTimeout
//     cut it short.
//  9. An item with neither a run nor a next one takes no memory; an idle queue
//     has no goroutine, no timer and nothing left of a burst.
//  10. The queue does what its state table says in any order of operations, and
//     its hot paths allocate nothing.
//
// What precedes an Enqueue happens before the run that follows it, and a run before
// the next one of its item. Nothing more is promised: events of an item before its
// run are one run, and nothing outlives the process.
// docs/verification.md names the tests.
package reconcile
