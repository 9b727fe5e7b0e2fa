// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// This file lets somebody be told of the next change of an item: a run, that its
// item was enqueued again; anybody, that an item, or the queue, has settled.
//
// Who is told is a watcher. The queue knows it by the record that it watches,
// and forgets it as it is told, or when it gives up. As long as nobody watches
// there is no map of them, and every place that has something to tell looks for
// no more than that.

// ErrChanged is the [context.Cause] of a context of [UntilChanged] whose item
// was enqueued again.
var ErrChanged = errors.New("reconcile: item was enqueued again")

// UntilChanged returns a context that ends, with [ErrChanged] as its cause, as
// soon as the item of the run has a next run that is ready; if it has one
// already, at once. It is for runs that take long, and whose work is outdated if
// something happens to the item meanwhile. The context is derived from ctx, which
// is that of the run or one derived from it.
//
//	Enqueue, EnqueueNow                          ends it
//	a later next run becomes due                 ends it
//	EnqueueAfter, EnqueueWithin, an Enqueue of   does not
//	an item whose next run is held, Offer
//
// It ends as well when ctx does, with the cause of that, and with
// [context.Canceled] when stop is called or the item is given back. Call stop
// when the part of the run that may be cut short is over; more than once is
// fine. A context that has ended stays so: if [Queue.Remove] cancels the next
// run after that, the run finds out by looking at the world.
//
// What a run returns after such a context ended with ErrChanged:
//
//	nil                             as ever: the item runs again
//	RequeueAfter                    as ever: holds the next run, but for EnqueueNow
//	RequeueWithin                   as ever: the item runs again at once
//	any error, after the end of     as ever: aborted
//	Reconciler.Run or of the lease
//	a panic                         as ever: a failure
//	any other error, also Terminal  as RequeueWithin(0), which is no failure
//
// In the last row the outcome is [Requeued], the item runs again at once, also
// with HoldRetries, and the count of its failures starts anew, since they were
// those of an outdated wish. If the next run has been cancelled by Remove, that
// row does not apply. A run that enqueues its own item, and then ends by that row,
// begins again at once, for as long as it does so.
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
	if q, ok := r.worker.loop.source.(*Queue[T]); ok {
		return q.untilChanged(ctx, r)
	}
	return context.WithCancel(ctx)
}

func (q *Queue[T]) untilChanged(ctx context.Context, r *run[T]) (context.Context, context.CancelFunc) {
	c, end := context.WithCancelCause(ctx)
	w := &watcher{of: ofRun, tell: func(cause error) {
		if cause == ErrChanged && c.Err() == nil {
			r.marks.Or(markChanged) // before the run can see the end, and return
		}
		r.end(end, cause)
	}}
	var told error
	q.mu.Lock()
	q.catchUp()
	// A worker gives back no item but under the lock, and after it has put its
	// run aside: so its grant, if the run is the one, is that of the run.
	if r.worker.current.Load() != r {
		told = context.Canceled
	} else if i, rec := q.taken(&r.worker.grant); rec == nil {
		told = context.Canceled
	} else if rec.readyNext() {
		told = ErrChanged
	} else {
		q.watch(i, w)
	}
	q.unlock()
	if told != nil {
		w.tell(told)
	}
	return c, func() {
		q.mu.Lock()
		q.unwatch(w)
		q.unlock()
		end(nil)
	}
}

// end ends a context of the run on behalf of somebody else, who is not to suffer
// if the context that it was derived from, which is user code, panics.
func (r *run[T]) end(end context.CancelCauseFunc, cause error) {
	err := guard(func() error {
		end(cause)
		return nil
	})
	if err != nil {
		l := r.worker.loop
		logGuarded(l.Logger, slog.LevelError, "context of a run panicked as it ended",
			"item", r.item, "err", err, "reconciler", l.Name)
	}
}

// outdated reports whether a run that has returned was told of a change, and
// the next run that this was is there still.
func (r *run[T]) outdated() bool {
	if r.marks.Load()&markChanged == 0 {
		return false
	}
	q := r.worker.loop.source.(*Queue[T]) // nobody else told it
	q.mu.Lock()
	defer q.unlock()
	q.catchUp()
	_, rec := q.taken(&r.worker.grant)
	return rec != nil && rec.readyNext()
}

// taken returns the record of an item that was taken for a run, or 0 and nil if
// somebody gave it back: a record at rest has the turn of no run.
func (q *Queue[T]) taken(g *grant[T]) (uint32, *record[T]) {
	if r := q.records.peek(g.index); r != nil && r.turn == g.turn && r.item == g.item {
		return g.index, r
	}
	return 0, nil
}

// readyNext reports whether an item in flight has a next run that is ready.
func (r *record[T]) readyNext() bool { return r.run == runReady || r.run == runNow }

// WaitIdle blocks until there is nothing left to do for now: no item is ready,
// in flight, or waiting to be retried. An item that waits for a run that was
// planned does not count, be it by a run, by EnqueueAfter or by [Debounce]; nor does
// what a source has not told yet. A queue that is closed is idle by the same rule:
// what is ready in it is still to be done.
//
// It returns nil only if there was such a moment after the call: at once if it
// is now, also if ctx is done. If ctx is done first, it returns an error that
// wraps the [context.Cause] of ctx and says how much was left to do. Under a
// load that never pauses it may wait for ever, and in a run of this queue it waits
// for that run too.
func (q *Queue[T]) WaitIdle(ctx context.Context) error {
	done := ctx.Done()
	q.lock()
	if q.idle() {
		q.unlock()
		return nil
	}
	var ready, inFlight, retrying int
	if q.settles(0, done, func() { ready, inFlight, retrying = q.ready, q.inFlight, q.retrying }) {
		return nil
	}
	return fmt.Errorf("reconcile: queue is not idle (%d ready, %d in flight, %d to be retried): %w",
		ready, inFlight, retrying, context.Cause(ctx))
}

// WaitItem is WaitIdle for one item. It blocks until the queue does not know the
// item, or the item waits and its last run, if there was one, did not fail. So it
// returns after a run that went well, was the last, or planned the next one, unless
// an event had asked for another by then. If ctx is done first, it returns an error
// that wraps the [context.Cause] of ctx and says what became of the item so far.
// What the last run failed with is in [Queue.State].
func (q *Queue[T]) WaitItem(ctx context.Context, item T) error {
	done := ctx.Done()
	hash := q.hash(item)
	q.mu.Lock()
	q.catchUp()
	i := q.records.find(hash, item)
	if i == 0 || q.records.at(i).settled() {
		q.unlock()
		return nil
	}
	var s State
	if q.settles(i, done, func() { s = q.state(q.records.at(i), q.clock()) }) {
		return nil
	}
	return fmt.Errorf("reconcile: item %v is %v, after %d failures in a row: %w", item, s.Phase, s.Failures, context.Cause(ctx))
}

// settles waits for the item of a record to settle, or for the whole queue if it
// is record 0. It reports whether that came about before done was closed; if
// not, it calls look before anything can change. It is called with the lock held
// and gives it up.
func (q *Queue[T]) settles(i uint32, done <-chan struct{}, look func()) bool {
	told := make(chan struct{})
	w := &watcher{of: ofRest, tell: func(error) { close(told) }}
	q.watch(i, w)
	q.unlock()
	select {
	case <-told:
		return true
	case <-done:
	}
	q.mu.Lock()
	defer q.unlock()
	if !q.unwatch(w) {
		return true
	}
	q.catchUp()
	look()
	return false
}

// idle reports whether there is nothing left to do for now.
func (q *Queue[T]) idle() bool {
	if q.busy() {
		return false
	}
	q.catchUp()
	return !q.busy()
}

func (q *Queue[T]) busy() bool { return q.ready > 0 || q.inFlight > 0 || q.retrying > 0 }

// settled reports whether an item waits for a run that was planned.
func (r *record[T]) settled() bool { return !r.running && r.run.delayed() && r.failed == nil }

// A watcher is told once, and by then the queue has forgotten it.
type watcher struct {
	tell       func(cause error) // of the end of a context; code of the user may follow
	cause      error
	of         subject
	watching   bool   // it is in a list
	index      uint32 // of its record
	prev, next *watcher
}

// A subject is what a watcher is told of.
type subject uint8

const (
	ofRun  subject = iota // the run in flight: a change, or its end
	ofRest                // that the item, or the queue, has settled
)

// watch adds a watcher of a record; one of record 0 watches the queue.
func (q *Queue[T]) watch(i uint32, w *watcher) {
	if q.watchers == nil {
		q.watchers = make(map[uint32]*watcher)
	}
	w.index, w.watching, w.next = i, true, q.watchers[i]
	if w.next != nil {
		w.next.prev = w
	}
	q.watchers[i] = w
}

// unwatch takes out a watcher, and reports whether it was still there.
func (q *Queue[T]) unwatch(w *watcher) bool {
	if !w.watching {
		return false
	}
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case w.next != nil:
		q.watchers[w.index] = w.next
	default:
		delete(q.watchers, w.index)
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.watching, w.prev, w.next = false, nil, nil
	return true
}

// changed is called when an item in flight gets a next run that is ready.
func (q *Queue[T]) changed(i uint32) {
	if q.watchers != nil {
		q.tell(i, ofRun, ErrChanged)
	}
}

// rests is called when an item is given back.
func (q *Queue[T]) rests(i uint32, r *record[T]) {
	q.tell(i, ofRun, context.Canceled)
	if r.settled() {
		q.tell(i, ofRest, nil)
	}
}

// goes is called when a record is about to go.
func (q *Queue[T]) goes(i uint32) {
	if q.watchers != nil {
		q.tell(i, ofRun, context.Canceled)
		q.tell(i, ofRest, nil)
	}
}

// tell takes out those watchers of a record that watch for this, and has unlock
// tell them.
func (q *Queue[T]) tell(i uint32, of subject, cause error) {
	for w := q.watchers[i]; w != nil; {
		next := w.next
		if w.of == of {
			q.unwatch(w)
			w.cause, w.next = cause, q.told
			q.told = w
		}
		w = next
	}
}

// news returns those that unlock is to tell.
func (q *Queue[T]) news() *watcher {
	if q.watchers[0] != nil && q.idle() {
		q.tell(0, ofRest, nil)
	}
	if len(q.watchers) == 0 {
		q.watchers = nil
	}
	told := q.told
	q.told = nil
	return told
}

// tellAll is called without the lock.
func tellAll(w *watcher) {
	for w != nil {
		it := w
		w, it.next = it.next, nil
		it.tell(it.cause)
	}
}
