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
// Each poll runs every item that is in sync. Without a poll, or with a poll that lists
// only new items, return [RecheckWithin] instead of nil.
//
// An item is an identity, never a payload. A [Poller], [Feeder] functions and calls bring
// items into the [Queue]. The return value of the function of a [Reconciler] decides when
// its item runs again.
//
//	     event or poll           a worker is free
//	idle -------------> ready -------------------> in flight
//	 ^                  ^   ^                        | | |
//	 |    its time, or  |   +--- a next run now -----+ | |
//	 |    an event that |                              | |
//	 |    may start it  |                              | |
//	 +--- Remove ---- waiting <-- a next run later ----+ |
//	 +--------------------------- no next run -----------+
//
// An idle item is unknown to the queue. There is no next run after nil, and after a failure
// that is not retried. The next run is later after [RequeueAfter], [RequeueWithin],
// [RecheckWithin], and a failure that is retried. An event during the run brings a next run
// now, or as soon as RequeueAfter or the failure allows it. After an aborted run it is now.
//
//   - [Queue.Enqueue] reports an event, which is never lost. [Queue.Offer] reports
//     that an item exists: it runs an item that is in sync or unknown, and is ignored
//     if the item is in flight or has a next run.
//   - After [RequeueAfter] no event starts the item sooner, only [Queue.EnqueueNow].
//     After [RequeueWithin] any event does.
//   - RequeueWithin says that the work is in progress, [RecheckWithin] that the item
//     is in sync.
//   - After a failure that is retried, no event starts the item within a second, or within
//     the delay of the retry if that is shorter. So a function that writes the failure into
//     its own record, and gets that write back as an event, does not become a hot loop. Set
//     HoldRetries if it must wait for the whole delay.
//
// docs/README.md defines the terms.
//
// # Guarantees
//
// While the process runs:
//
//  1. Every accepted event is followed by a run that starts after it, unless Remove or
//     Close cancels the run.
//  2. Two runs of one item never overlap.
//  3. Items run in the order in which they became ready. If Queue.Background is n (2
//     or more), items with an event run first, but at least one of every n runs is for
//     another ready item, if there is one.
//  4. After RequeueAfter(d), no run starts before d, except by EnqueueNow or after
//     Remove, even if another step of the same run failed. After RequeueWithin(d), the
//     item is ready after d at the latest.
//  5. No worker is idle while an item is ready, unless the Admit hook blocks it.
//  6. If your function panics or calls runtime.Goexit, only that item fails. A panic in
//     a goroutine that your function started ends the process.
//  7. Cancellation loses no item: the item of an aborted run is ready again.
//  8. Run returns when everything that it started has returned, and Group.Run after
//     its ShutdownTimeout at the latest.
//  9. An item without a current or scheduled run uses no memory. An empty queue has no
//     goroutine and no timer.
//  10. The queue follows its state table in any order of operations. Its hot paths do
//     not allocate.
//
// In the sense of the Go memory model, an Enqueue is synchronized before the run that
// follows it, and a run of an item before the next run of that item. Several events of an
// item before its run cause one run. The queue is in memory: nothing outlives the process.
// docs/verification.md names the tests of each guarantee.
package reconcile
