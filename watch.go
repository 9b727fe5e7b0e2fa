// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
)

// This file notifies those who wait for something to happen to an item: a run,
// that its item was enqueued again; anybody, that items, or the queue, have
// settled.
//
// The queue knows a watcher by the entry that it watches, and forgets it before
// it is notified. As long as nobody watches there is no map of watchers, and
// every place that has something to notify of looks for no more than that.

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
//	RequeueAfter                    as ever: holds the next run, unless EnqueueNow asked for it
//	RequeueWithin, RecheckWithin    as ever: the item runs again at once
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
	w := &watcher{ended: func(cause error) {
		if cause == ErrChanged && c.Err() == nil {
			r.changed.Store(true) // before the run can see the end, and return
		}
		end(cause)
	}}
	var cause error
	q.mu.Lock()
	q.catchUpLocked()
	// A worker puts its run aside before it gives the item back, and gives it
	// back under the lock. So while the run is the worker's, so is the item.
	if e := q.entryOfRunLocked(r); e == nil {
		cause = context.Canceled
	} else if e.readyNext() {
		cause = ErrChanged
	} else {
		q.watchLocked(r.worker.index, w)
	}
	q.unlock()
	if cause != nil {
		w.ended(cause)
	}
	return c, func() {
		q.mu.Lock()
		q.unwatchLocked(w)
		q.unlock()
		end(nil)
	}
}

// outdated reports whether a run that has returned was notified of a change, and
// the next run that this was is still there.
func (w *worker[T]) outdated(r *run[T]) bool {
	if !r.changed.Load() {
		return false
	}
	q := w.loop.source.(*Queue[T]) // nobody else notified it
	q.mu.Lock()
	defer q.unlock()
	q.catchUpLocked()
	e := q.entryOfRunLocked(r)
	return e != nil && e.readyNext()
}

// entryOfRunLocked returns the entry of the item of a run that its worker has;
// nil if the run has ended, or somebody else gave its item back.
func (q *Queue[T]) entryOfRunLocked(r *run[T]) *entry[T] {
	if r.worker.current.Load() != r {
		return nil
	}
	if e := q.store.peek(r.worker.index); e != nil && e.inFlight && e.item == r.item && e.since == r.worker.at {
		return e
	}
	return nil
}

// EnqueueAndWait enqueues the items, and blocks until each of them is settled,
// or is not known to the queue any more: a run that started after the call ended
// well, or the item was given up or removed. What a run plans ([RequeueAfter],
// [RequeueWithin]) or retries is waited for. It is for programs that apply what is
// wanted once, and for tests.
//
// It returns nil if all ended well. Otherwise the error joins those of the items
// that were given up, by [Terminal] or a [RetryPolicy], each with its item, and
// [ErrClosed] for those whose next run [Queue.Close] refused or dropped: a hundred
// of them at most, and then how many more there are. When ctx is done first, the
// error wraps its [context.Cause] and says how many items are left, with the
// names, states and last errors of some.
//
// In a run of the same queue it would wait for the end of that run too: for ever,
// if the item is its own or there is no other worker.
func (q *Queue[T]) EnqueueAndWait(ctx context.Context, items ...T) error {
	q.mustBeMade()
	w := &wait{left: len(items), done: make(chan struct{})}
	watchers := make([]watcher, len(items))
	hashes := make([]uint32, len(items))
	for n, item := range items {
		hashes[n] = q.hash(item) // panics, if it must, before anything is enqueued
	}
	var closing <-chan struct{}
	for n, item := range items {
		watchers[n].wait = w
		q.mu.Lock()
		if q.closed {
			watchers[n].err = ErrClosed
			w.left--
		} else {
			if q.closing == nil {
				q.closing = make(chan struct{})
			}
			closing = q.closing
			q.addLocked(hashes[n], item, runReady, 0)
			i, _ := q.store.find(hashes[n], item)
			q.watchLocked(i, &watchers[n])
		}
		q.unlock()
	}
	q.wait(ctx, w, closing)
	if isDone(closing) {
		q.dropWaits(watchers)
		q.wait(ctx, w, nil)
	}
	errs := q.giveUpWaiting(ctx, items, watchers)
	gaveUp := 0
	for n := range watchers {
		if err := watchers[n].err; err != nil {
			if gaveUp++; gaveUp <= maxErrors {
				errs = append(errs, fmt.Errorf("item %v: %w", items[n], err))
			}
		}
	}
	if gaveUp > maxErrors {
		errs = append(errs, fmt.Errorf("and %d more items", gaveUp-maxErrors))
	}
	return errors.Join(errs...)
}

const (
	maxErrors = 100 // of items that were given up
	maxLeft   = 3   // items that are left, and are named
)

// giveUpWaiting forgets the watchers that are left, if any are, and returns what is
// to be said about them.
func (q *Queue[T]) giveUpWaiting(ctx context.Context, items []T, watchers []watcher) []error {
	left := 0
	var named []itemState[T]
	for n := range watchers {
		w := &watchers[n]
		q.mu.Lock() // for each, because there may be many
		if q.unwatchLocked(w) {
			left++
			q.catchUpLocked()
			if e := q.store.peek(w.index); e != nil && len(named) < maxLeft {
				named = append(named, itemState[T]{items[n], q.stateLocked(e, q.clock())})
			}
		}
		q.unlock()
	}
	if left == 0 {
		return nil
	}
	errs := []error{fmt.Errorf("reconcile: %d of %d items are left: %w", left, len(items), context.Cause(ctx))}
	for _, l := range named {
		if l.state.Failures == 0 {
			errs = append(errs, fmt.Errorf("item %v is %v", l.item, l.state.Phase))
		} else {
			errs = append(errs, fmt.Errorf("item %v is %v, after %d failures in a row: %w", l.item, l.state.Phase, l.state.Failures, l.state.Err))
		}
	}
	return errs
}

// dropWaits is called after Close. It ends the waits for items whose next run
// Close has dropped: here, and not in Close, because there may be many.
func (q *Queue[T]) dropWaits(watchers []watcher) {
	for n := range watchers {
		w := &watchers[n]
		q.mu.Lock()
		if e := q.store.peek(w.index); w.watching && (e == nil || e.kind.delayed()) {
			q.unwatchLocked(w)
			w.err = ErrClosed
			w.wait.left--
		}
		q.unlock()
	}
}

// WaitIdle blocks until there is nothing left to do: no item is ready, in flight,
// or waiting without being settled. A plan ([RequeueAfter], [RequeueWithin],
// [Queue.EnqueueAfter]) is work that is left, and so is a retry; what a source has
// not fed yet is not. It is for programs that do not know their items; see
// [Queue.EnqueueAndWait]. An item that was given up is not left: look at the
// results. A queue that is closed is idle by the same rule: what is ready in it is
// still to be done.
//
// It returns nil only if there was such a moment after the call: at once if it
// is now, also if ctx is done. If ctx is done first, it returns an error that
// wraps the [context.Cause] of ctx and says how much was left to do. Under a
// load that never pauses it may wait for ever, and in a run of this queue it waits
// for that run too.
func (q *Queue[T]) WaitIdle(ctx context.Context) error {
	w := &wait{left: 1, done: make(chan struct{})}
	var idle watcher
	idle.wait = w
	q.lock()
	q.watchLocked(0, &idle)
	q.unlock()
	q.wait(ctx, w, nil)
	q.mu.Lock()
	left := q.unwatchLocked(&idle)
	s := Stats{Ready: q.readyLocked(), InFlight: q.inFlight, Waiting: q.waiting - q.settled}
	q.unlock()
	if !left {
		return nil
	}
	return fmt.Errorf("reconcile: queue is not idle (%d ready, %d in flight, %d waiting): %w",
		s.Ready, s.InFlight, s.Waiting, context.Cause(ctx))
}

// idleLocked reports whether there is nothing left to do.
func (q *Queue[T]) idleLocked() bool {
	q.catchUpLocked()
	return q.readyLocked() == 0 && q.inFlight == 0 && q.waiting == q.settled
}

// A wait is for a number of watchers to be notified.
type wait struct {
	left int           // guarded by Queue.mu
	done chan struct{} // closed when none is left
}

// wait returns when none is left, or ctx is done, or closing is closed.
func (q *Queue[T]) wait(ctx context.Context, w *wait, closing <-chan struct{}) {
	q.mu.Lock()
	left := w.left
	q.mu.Unlock()
	if left == 0 {
		return
	}
	select {
	case <-w.done:
	case <-closing:
	case <-ctx.Done():
	}
}

// A watcher is notified once: a run, by a call of ended; a wait, by the count of
// those that are left.
type watcher struct {
	ended      func(cause error) // of the context of a run: user code may follow
	wait       *wait
	err        error // that ended the context; or why the item was given up
	index      uint32
	watching   bool // it is in a list of Queue.watchers
	prev, next *watcher
}

// watchLocked adds a watcher of an entry, or of the queue at index 0.
func (q *Queue[T]) watchLocked(i uint32, w *watcher) {
	if q.watchers == nil {
		q.watchers = make(map[uint32]*watcher)
	}
	w.index, w.watching, w.next = i, true, q.watchers[i]
	if w.next != nil {
		w.next.prev = w
	}
	q.watchers[i] = w
}

// unwatchLocked takes out a watcher, and reports whether it was there.
func (q *Queue[T]) unwatchLocked(w *watcher) bool {
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

// notifyMovedLocked notifies the watchers of an entry that has moved, or is
// about to be removed; err is why its item was given up.
func (q *Queue[T]) notifyMovedLocked(i uint32, e *entry[T], err error) {
	switch {
	case e.inFlight && e.readyNext():
		q.notifyLocked(i, true, ErrChanged)
	case !e.inFlight:
		q.notifyLocked(i, true, context.Canceled)
		if e.kind == runNone || e.kind == runSettled {
			q.notifyLocked(i, false, err)
		}
	}
}

// notifyLocked notifies the watchers of a run, or of the item, at an entry. What
// ends contexts is left to unlock.
func (q *Queue[T]) notifyLocked(i uint32, ofRun bool, err error) {
	for w := q.watchers[i]; w != nil; {
		next := w.next
		if ofRun == (w.ended != nil) {
			q.unwatchLocked(w)
			w.err = err
			if ofRun {
				w.next, q.notified = q.notified, w
			} else if w.wait.left--; w.wait.left == 0 {
				close(w.wait.done)
			}
		}
		w = next
	}
}

// takeNotifiedLocked returns the watchers that unlock calls.
func (q *Queue[T]) takeNotifiedLocked() *watcher {
	if q.watchers[0] != nil && q.idleLocked() {
		q.notifyLocked(0, false, nil)
	}
	if len(q.watchers) == 0 {
		q.watchers = nil
	}
	w := q.notified
	q.notified = nil
	return w
}

func notifyAll(w *watcher) {
	for w != nil {
		notified := w
		w, notified.next = notified.next, nil
		notified.ended(notified.err)
	}
}
