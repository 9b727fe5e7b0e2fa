// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconcile is the kernel of a controller: a queue of items that need a
// run, and a loop that runs them one by one until what is there is what is
// wanted.
//
//	q := reconcile.NewQueue[string]()
//	var g reconcile.Group
//	g.Add("list", &reconcile.Poller[string]{Queue: q, GetItems: list, Period: time.Minute})
//	g.Add("zones", &reconcile.Reconciler[string]{
//		Queue: q,
//		Reconcile: func(ctx context.Context, zone string) error {
//			want, got := wanted(zone), lookUp(ctx, zone)
//			if want == got {
//				return reconcile.RecheckWithin(time.Hour) // in order
//			}
//			return create(ctx, zone, want) // an error is tried again
//		},
//	})
//	err := g.Run(ctx)
//
// An item is an identity, such as a name: never a payload. A [Queue] knows each
// item once. It is fed by a [Poller], which lists items again and again, by
// [Feeder] functions, which pass on events, and by whoever calls [Queue.Enqueue]. A
// [Reconciler] takes the items and calls a function for each, which looks at the
// world, compares what is wanted with what is there, and changes what differs.
// What it returns says what follows: nil, [RecheckWithin], [RequeueWithin],
// [RequeueAfter], [Terminal], or any other error, which is tried again as a
// [RetryPolicy] says. A [Group] runs all of these together.
//
// # Three distinctions
//
// An event says that something happened, an observation that an item was seen.
// [Queue.Enqueue] takes an event: it is never lost, also not while the item is
// in flight. [Queue.Offer] takes an observation: it is ignored if the item is
// known at all, so that polls do not disturb back-off and plans.
//
// A floor says not before, a ceiling no later than. Nothing but
// [Queue.EnqueueNow] brings an item back before the end of a [RequeueAfter]; an
// event does before that of a [RequeueWithin].
//
// Not there yet is not the same as in order. RequeueWithin says that the work goes
// on, [RecheckWithin] that all is well and only to be looked at again: then the
// item is settled. [Queue.EnqueueAndWait] and [Queue.WaitIdle] wait for that.
//
// # What the package promises
//
// Each promise names a test that shows it.
//
//  1. An event that was accepted is followed by a run that started after it
//     (TestEventLostWhileInFlight). What happened before Enqueue was called
//     happens before that run, in the sense of the Go memory model.
//  2. One item is never in two runs at once
//     (TestReconcilerNeverRunsAnItemTwiceAtOnce). What a run did happens before
//     the next run of that item.
//  3. Items are taken in the order in which they became ready, and become ready
//     in the order in which they are due (TestQueueIsFIFO, TestDueOrder). With a
//     [Queue.Background] that holds for events and for observations, each among
//     themselves, and with 2 or more neither starves (TestBackgroundStarvesNobody).
//  4. No run starts inside a hold, unless EnqueueNow asks for it, and an item
//     is ready by the end of a ceiling (TestHoldIsAFloorAndCeilingACeiling).
//  5. No consumer sleeps while an item is ready
//     (TestConsumerSleepsWhileAnItemIsQueued).
//  6. A panic or a call of [runtime.Goexit] in a reconcile function is a failure
//     of that item alone (TestPanicInReconcileIsAFailureOfThatItemAlone).
//  7. Cancellation swallows no item (TestCancellationSwallowsAnItem).
//  8. Run returns when all that it started has ended
//     (TestRunReturnsWhenAllThatItStartedHasEnded,
//     TestGroupLeavesNoGoroutineBehind). An idle queue has no goroutine and no
//     timer (TestQueueHasNoGoroutines).
//  9. An item that is neither in flight nor has a next run costs nothing: there
//     is nothing to forget, and the memory of a burst goes back
//     (TestMemoryIsKeptAfterABurst).
//
// It promises no more. Events of one item that come before its run are one run.
// Nothing outlives the process: poll what is wanted and what is there, and a
// restart finds what is left to do. The order in which several workers begin to
// run what they took is not defined. Times are those of the monotonic clock.
package reconcile
