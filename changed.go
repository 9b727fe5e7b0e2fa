// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
)

// UntilChanged returns a context that ends, with [ErrChanged] as its cause, as
// soon as the item of the run has a next run that is ready; if it has one
// already, at once. It is for runs that take long, and whose work is outdated if
// something happens to the item meanwhile. The context is derived from ctx, which
// is that of the run or one derived from it.
//
//	Enqueue, EnqueueNow                          ends it
//	a later next run becomes due                 ends it
//	EnqueueAfter, EnqueueWithin, an Enqueue of   does not
//	an item that no event may start yet, Offer
//
// It ends as well when ctx does, with the cause of that, and with
// [context.Canceled] when stop is called or the item is given back. Call stop
// when the part of the run that may be cut short is over; more than once is
// fine. A context that has ended stays so, also if [Queue.Remove] cancels the next run
// after that.
//
// What a run returns after such a context ended with ErrChanged:
//
//	nil                             as usual: the item runs again
//	RequeueAfter                    as usual: no next run before its delay, unless EnqueueNow asked for it
//	RequeueWithin, RecheckWithin    as usual: the item runs again at once
//	any error, after the end of     as usual: aborted
//	Run's ctx or of the lease
//	a panic                         as usual: a failure
//	any other error, also Terminal  no failure: the item runs again
//
// In the last row the outcome is [Requeued], and the next run starts at once, also with
// HoldRetries. There is one limit: it starts at least one second after the start of this
// run, so that a run that enqueues its own item does not become a hot loop. The count of
// failures is reset, because the failures were those of an outdated desired state. If the
// next run has been cancelled by Remove, that row does not apply.
//
// It may be called several times in a run, and from any goroutine. For the
// context of a run that has returned, it returns one that has ended. Outside of
// a run, and if the Queue of the [Reconciler] is not a [*Queue], its context ends
// only when ctx does or stop is called. It does not block.
func UntilChanged(ctx context.Context) (c context.Context, stop context.CancelFunc) {
	if r, ok := ctx.Value(runKey{}).(runContext); ok {
		return r.untilChanged(ctx)
	}
	return context.WithCancel(ctx)
}

func (r *run[T]) untilChanged(ctx context.Context) (context.Context, context.CancelFunc) {
	if q, ok := r.worker.loop.queue.(*Queue[T]); ok {
		return q.untilChanged(ctx, r)
	}
	return context.WithCancel(ctx)
}

func (q *Queue[T]) untilChanged(ctx context.Context, r *run[T]) (context.Context, context.CancelFunc) {
	c, cancel := context.WithCancelCause(ctx)
	w := &watcher{end: func(cause error) {
		if cause == ErrChanged {
			r.worker.addChange(r, c) // before the run can see the end, and return
		}
		cancel(cause)
	}}
	var cause error
	q.mu.Lock()
	q.catchUpLocked()
	// A worker puts its run aside before it gives the item back, and gives it
	// back under the lock. So while the run is the worker's, so is the item.
	if e := entryOfRunLocked(q, r); e == nil {
		cause = context.Canceled
	} else if e.readyNext() {
		cause = ErrChanged
	} else {
		q.watchers.add(r.worker.index, w)
	}
	q.unlock()
	if cause != nil {
		w.end(cause)
	}
	return c, func() {
		q.mu.Lock()
		q.watchers.remove(w)
		q.unlock()
		cancel(nil)
	}
}
