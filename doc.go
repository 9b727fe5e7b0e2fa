// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconcile is a controller loop: a queue that holds each item at most once,
// and workers that call a function for each item until its actual state matches its
// desired state.
//
//	q := reconcile.NewQueue[string]()
//	var g reconcile.Group
//	g.Add("list", &reconcile.Poller[string]{Queue: q, GetItems: list, Period: time.Minute})
//	g.Add("zones", &reconcile.Reconciler[string]{
//		Queue: q,
//		Reconcile: func(ctx context.Context, zone string) error {
//			if desired(zone) == actual(ctx, zone) {
//				return nil // in sync: the next poll checks it again
//			}
//			return create(ctx, zone) // an error is retried
//		},
//	})
//	err := g.Run(ctx)
//
// Each poll runs every item that is in sync. Without a poll, or with one that lists only
// what is new, the function returns [RecheckWithin] instead of nil.
//
// An item is an identity, never a payload. A [Poller], [Feeder] functions and
// calls bring items into the [Queue]; what the function of a [Reconciler] returns
// says what follows.
//
//   - [Queue.Enqueue] reports an event, which is never lost. [Queue.Offer] reports
//     that an item exists: it runs an item that is in sync or unknown, and is ignored
//     if the item is in flight or has a next run.
//   - After [RequeueAfter] no event starts the item sooner, only [Queue.EnqueueNow].
//     After [RequeueWithin] any event does.
//   - RequeueWithin says that the work is in progress, [RecheckWithin] that the item
//     is in sync.
//   - After a failure no event starts the item within a second, or within the delay of
//     the retry if that is shorter. So a function that writes the failure into its own
//     record, and gets that write back as an event, is no hot loop.
//
// # Guarantees
//
//  1. An accepted event is followed by a run that started after it.
//  2. An item is never in two runs at once.
//  3. Items are taken in the order in which they became ready; a Background of 2
//     or more makes two such lines, and starves neither.
//  4. After RequeueAfter(d) no run starts before d has passed, unless by EnqueueNow,
//     also if another step of the same run failed. After RequeueWithin(d) the item is
//     ready when d has passed.
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
// the next one of its item. Nothing more is guaranteed: events of an item before its
// run are one run, and nothing outlives the process.
// docs/verification.md names the tests.
package reconcile
