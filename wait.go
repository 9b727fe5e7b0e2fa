// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
)

// EnqueueAndWait enqueues the items, and blocks until all of them are done. An item is
// done when it is unknown to the queue or waits only for a recheck: a run that started
// after the call succeeded, or the item was not retried, or [Queue.Remove] has cancelled
// its run. Retries, and runs that a run schedules ([RequeueAfter], [RequeueWithin]), are
// waited for. It is for programs that apply a desired state once, and for tests. A slice
// is given as items...: q.EnqueueAndWait(ctx, names...).
//
// It returns nil if all runs succeeded or were removed. Otherwise the error joins the
// errors of the items that were not retried, because of [Terminal] or a [RetryPolicy].
// Each error wraps that of the run and names its item, so [errors.As] finds your types.
// Items whose next run [Queue.Close] refused or dropped have [ErrClosed]. There are at
// most a hundred errors, and then the number of the others. When ctx is done first, the
// error wraps its [context.Cause] and says how many items remain, with the names, phases
// and last errors of some.
//
// Do not call it in a run of the same queue: it would also wait for the end of that run,
// for ever if the item is its own or there is no other worker.
func (q *Queue[T]) EnqueueAndWait(ctx context.Context, items ...T) error {
	q.mustBeMade()
	w := &waiter{remaining: 1 + len(items), done: make(chan struct{})} // 1 until all are enqueued
	watchers := make([]watcher, len(items))
	hashes := make([]uint32, len(items))
	for n, item := range items {
		hashes[n] = q.hash(item) // panics, if it must, before anything is enqueued
	}
	for n, item := range items {
		watchers[n].waiter = w
		q.mu.Lock()
		if q.closed {
			watchers[n].err = ErrClosed
			w.notifyLocked()
		} else {
			q.addLocked(hashes[n], item, askReady, 0)
			i, _ := q.store.find(hashes[n], item)
			q.watchers.add(i, &watchers[n])
		}
		q.unlock()
	}
	q.mu.Lock()
	w.notifyLocked()
	q.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	errs := q.giveUpWaiting(ctx, items, watchers)
	notRetried := 0
	for n := range watchers {
		if err := watchers[n].err; err != nil {
			if notRetried++; notRetried <= maxErrors {
				errs = append(errs, fmt.Errorf("item %v: %w", items[n], err))
			}
		}
	}
	if notRetried > maxErrors {
		errs = append(errs, fmt.Errorf("and %d more items", notRetried-maxErrors))
	}
	return errors.Join(errs...)
}

const (
	maxErrors = 100 // of items that were not retried
	maxNamed  = 3   // of the items that remain
)

// giveUpWaiting forgets the watchers that are left, if any are, and returns what is
// to be said about them.
func (q *Queue[T]) giveUpWaiting(ctx context.Context, items []T, watchers []watcher) []error {
	left := 0
	var named []itemState[T]
	for n := range watchers {
		w := &watchers[n]
		q.mu.Lock() // for each, because there may be many
		if q.watchers.remove(w) {
			left++
			q.catchUpLocked()
			if e := q.store.peek(w.index); e != nil && len(named) < maxNamed {
				named = append(named, itemState[T]{items[n], q.stateLocked(e, q.clock())})
			}
		}
		q.unlock()
	}
	if left == 0 {
		return nil
	}
	cause := context.Cause(ctx)
	errs := []error{fmt.Errorf("reconcile: %d of %d items are left: %w", left, len(items), cause)}
	for _, l := range named {
		why := unscheduled{l.state.Err}
		var line error
		switch {
		case l.state.Err == nil:
			line = fmt.Errorf("item %v is %v", l.item, l.state.Phase)
		case l.state.Failures == 0:
			line = fmt.Errorf("item %v is %v: %w", l.item, l.state.Phase, why)
		default:
			line = fmt.Errorf("item %v is %v, after %d failures in a row: %w", l.item, l.state.Phase, l.state.Failures, why)
		}
		errs = append(errs, leftItem{line, cause})
	}
	return errs
}

// A leftItem is the line about an item that is left. It matches the cause for which the
// wait ended, so that isOwn does not take the line for a failure.
type leftItem struct {
	error
	cause error
}

func (l leftItem) Unwrap() error        { return l.error }
func (l leftItem) Is(target error) bool { return errors.Is(l.cause, target) }

// WaitIdle blocks until no item is ready, in flight, or waiting for anything but a
// recheck. A scheduled run ([RequeueAfter], [RequeueWithin], [Queue.EnqueueAfter]) is
// remaining work, and so is a retry. Items that a source has not enqueued yet are not
// known. It is for programs that do not know their items; see [Queue.EnqueueAndWait].
// Items that are not retried do not count as remaining work: to detect them, use
// Reconciler.OnResult. A queue that is closed is idle by the same rule.
//
// WaitIdle returns nil at once if the queue is idle at the call, also if ctx is done. If
// ctx is done before the queue is idle, it returns an error that wraps the
// [context.Cause] of ctx and says how much work remains. Under a load that never pauses
// it may wait for ever. In a run of this queue it waits for that run too.
func (q *Queue[T]) WaitIdle(ctx context.Context) error {
	w := &waiter{remaining: 1, done: make(chan struct{})}
	idle := watcher{waiter: w}
	q.lock()
	q.watchers.add(0, &idle)
	q.unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	q.mu.Lock()
	left := q.watchers.remove(&idle)
	s := Stats{Ready: q.readyLocked(), InFlight: q.inFlight, Waiting: q.waiting - q.rechecks}
	q.unlock()
	if !left {
		return nil
	}
	return fmt.Errorf("reconcile: queue is not idle (%d ready, %d in flight, %d waiting): %w",
		s.Ready, s.InFlight, s.Waiting, context.Cause(ctx))
}
