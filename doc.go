// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconcile is a controller loop: a queue that holds each item at most once, and
// workers that call a function for each item until its actual state matches its desired
// state.
//
//	q := reconcile.NewQueue[string]()
//	p := &reconcile.Poller[string]{Queue: q, GetItems: list, Period: time.Minute}
//	r := &reconcile.Reconciler[string]{
//		Queue: q,
//		Reconcile: func(ctx context.Context, zone string) error {
//			if desired(zone) == actual(ctx, zone) {
//				return nil // in sync: the next poll checks it again
//			}
//			return create(ctx, zone) // an error is retried
//		},
//		Retry: reconcile.Backoff(time.Second, p.Period), // because a poll does not shorten a back-off
//	}
//	go p.Run(ctx)
//	err := r.Run(ctx)
//
// An item is an identity, never a payload. A [Poller], a [Feeder] and calls bring items into
// the [Queue]. What the function of a [Reconciler] returns decides when its item runs again.
// Without a poll, return [RecheckWithin] instead of nil.
//
// # Three distinctions
//
//   - Event or observation? [Queue.Enqueue] reports an event, which is never lost: if the
//     item is in flight, it runs again. [Queue.Offer] reports that the item exists. It runs
//     an item that is unknown or waits only for a recheck, and does nothing otherwise.
//   - Not before, or at the latest? After [RequeueAfter] no event starts the item sooner.
//     After [RequeueWithin] an event starts it at once.
//   - In progress, or in sync? RequeueWithin says that the work goes on, [RecheckWithin]
//     that it is done. So [Queue.EnqueueAndWait] knows when the work is done.
//
// # What happens to an event
//
//	during a run                    the item runs again when this run has ended
//	  that returns RequeueAfter(d)  d after the end of this run
//	  that fails and is retried     a second after its end, or after the delay if that is less
//	    with HoldRetries            at the end of the back-off
//	  that fails and is not         a second after its end
//	during a back-off               at once, but not within a second of the failure
//	  with HoldRetries              at the end of the back-off
//	after RequeueAfter(d)           when d has passed
//	after RequeueWithin, a recheck  at once
//
// [Queue.EnqueueNow] ignores all of these delays.
//
// The count of failures, and so the back-off, begins anew after nil, RecheckWithin,
// RequeueAfter, RequeueWithin and a failure that is not retried, also if an event came
// meanwhile, and after Remove of an item that is not in flight. An event, EnqueueNow and an
// aborted run keep it.
//
// # Shutdown
//
// Close drains the queue: stop the feeders, call [Queue.Close], and wait for Run. To stop
// sooner, cancel the ctx of Run: runs in flight have their Grace, and ready items stay in the
// queue.
//
// # State table
//
// A next run has two times: due, at the latest, and not before, for events. At the time 0:
//
//	within 2h    due in 2h; an event starts it at once
//	retry 1s–2h  due in 2h; an event starts it after 1s at the earliest
//	held 2h      due in 2h; no event starts it before
//	recheck 2h   within 2h, and the last run succeeded: only at rest
//	now          ready, whatever the run in flight returns: only in flight
//
//	               none       ready  within 2h  recheck 2h  retry 1s–2h  held 2h
//	Offer          ready      –      –          ready       –            –
//	Enqueue        ready      –      ready      ready       held 1s      –
//	After 1h       held 1h    –      held 1h    held 1h     held 1h      –
//	Within 1h      within 1h  –      within 1h  within 1h   retry 1s–1h  –
//	EnqueueNow     ready      –      ready      ready       ready        ready
//	Remove         –          none   none       none        none         none
//	Close          –          –      none       none        none         none
//
//	in flight, and next:     none         ready    within 2h    held 2h  now
//	Offer                    –            –        –            –        –
//	Enqueue                  ready        –        ready        –        –
//	EnqueueAfter 1h          held 1h      –        held 1h      –        –
//	EnqueueWithin 1h         within 1h    –        within 1h    –        –
//	EnqueueNow               now          now      now          now      –
//	Done                     none         ready    within 2h    held 2h  ready
//	Done, MinDelay 1s        none         held 1s  retry 1s–2h  held 2h  ready
//	Requeue 3h               within 3h    ready    within 2h    held 2h  ready
//	Requeue 3h, Recheck      recheck 3h   ready    within 2h    held 2h  ready
//	Requeue 3h, MinDelay 1s  retry 1s–3h  held 1s  retry 1s–2h  held 2h  ready
//	Requeue 3h, MinDelay 3h  held 3h      held 3h  held 3h      held 3h  ready
//	Requeue, Aborted         ready        ready    ready        ready    ready
//	Remove                   –            none     none         none     none
//	Close                    –            –        none         none     –
//
// A dash changes neither time. Every verb makes a recheck more than a recheck.
//
// # Guarantees
//
// While the process runs:
//
//  1. Every accepted event is followed by a run that starts after it, unless Remove or Close
//     cancels the run.
//  2. Two runs of one item never overlap.
//  3. Without Background, items run in the order in which they became ready. With it, that
//     order holds within each of two lines, and at least one of every n runs is for an item
//     of the background.
//  4. After RequeueAfter(d), no run starts within d, even if another step of the run failed.
//     Exceptions: EnqueueNow; an Enqueue after Remove, which forgets d; a run that is
//     aborted; and, once the queue is closed, an event during the run. After RequeueWithin(d)
//     alone, the item is ready after d at the latest.
//  5. No worker is idle while an item is ready, unless Admit blocks it.
//  6. If your function panics or calls runtime.Goexit, only that item fails.
//  7. A run that is cut short returns its item to the queue, ready for another Run.
//  8. Run returns when everything that it started has returned.
//  9. An item without a current or scheduled run uses no memory. An empty queue has no
//     goroutine and no timer.
//  10. The queue follows the state table in any order of operations. Enqueue, Dequeue and
//     Done do not allocate in a steady state.
//
// In the sense of the Go memory model, an Enqueue is synchronized before the run that
// follows it, and a run of an item before the next run of that item. Several events of an
// item before its run cause one run. The queue is in memory: nothing outlives the process.
// docs/verification.md names the tests of each guarantee.
package reconcile
