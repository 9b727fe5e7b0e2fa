// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
)

// EnqueueAndWait enqueues the items, and blocks until each is unknown to the queue or waits
// only for a recheck. Retries and scheduled runs are waited for.
//
// It returns nil if all are in sync or were removed. Otherwise it joins the errors of the
// items that were not retried, each with its item: at most a hundred, and then the number of
// the others. [errors.As] finds your types in it. Items that [Queue.Close] refused or
// dropped have [ErrClosed]. When ctx is done first, the error wraps its [context.Cause], and
// says how many items remain and what some of them wait for.
//
// Do not call it in a run of the same queue: it would wait for that run too.
func (q *Queue[T]) EnqueueAndWait(ctx context.Context, items ...T) error {
	w := &waiter{remaining: 1 + len(items), done: make(chan struct{})} // 1 until all are enqueued
	watchers := make([]watcher, len(items))
	hashes := make([]uint32, len(items))
	for n, item := range items {
		hashes[n] = q.hash(item) // panics, if it must, before anything is enqueued
	}
	for n, item := range items {
		watchers[n].waiter = w
		q.lock()
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
	q.lock()
	w.notifyLocked()
	q.mu.Unlock()
	select {
	case <-w.done:
	case <-ctx.Done():
	}
	errs := []error{q.giveUpWaiting(ctx, items, watchers)}
	notRetried := 0
	for n := range watchers {
		if err := watchers[n].err; err != nil {
			if notRetried++; notRetried <= maxErrors {
				errs = append(errs, fmt.Errorf("item %v: %w", items[n], unscheduled{err, answerOf(err).isTerminal()}))
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
func (q *Queue[T]) giveUpWaiting(ctx context.Context, items []T, watchers []watcher) error {
	left := 0
	var named []itemState[T]
	for n := range watchers {
		w := &watchers[n]
		q.lock() // for each, because there may be many
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
	err := fmt.Errorf("reconcile: %d of %d items are left: %w", left, len(items), context.Cause(ctx))
	for _, l := range named {
		err = fmt.Errorf("%w\nitem %v is %v", err, l.item, l.state.Phase)
		if l.state.Failures > 0 {
			err = fmt.Errorf("%w, after %d failures in a row", err, l.state.Failures)
		}
		if l.state.Err != nil {
			err = fmt.Errorf("%w: %w", err, unscheduled{l.state.Err, false})
		}
	}
	return err
}

// An unscheduled error hides each RequeueError in an error. It scheduled the item, and
// not the caller, which may be a run of another queue and return the error. It matches
// ErrTerminal only if the item was not retried because of that.
type unscheduled struct {
	err      error
	terminal bool
}

func (e unscheduled) Error() string { return e.err.Error() }

func (e unscheduled) Is(target error) bool {
	if target == ErrTerminal {
		return e.terminal
	}
	return errors.Is(e.err, target)
}

func (e unscheduled) As(target any) bool {
	_, requeue := target.(*RequeueError)
	return !requeue && errors.As(e.err, target)
}

// WaitIdle blocks until no item is ready, in flight, or waiting for anything but a recheck.
// Retries and scheduled runs are waited for. Items that were not retried do not count; see
// [Reconciler].OnResult. It is for programs that do not know their items.
//
// It returns nil at once if the queue is idle, also if ctx is done. If ctx is done first, the
// error wraps its [context.Cause] and says how much work remains. Do not call it in a run of
// the same queue.
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
	q.lock()
	left := q.watchers.remove(&idle)
	s := Stats{Ready: q.readyLocked(), InFlight: q.inFlight, Waiting: q.waiting - q.rechecks}
	q.unlock()
	if !left {
		return nil
	}
	return fmt.Errorf("reconcile: queue is not idle (%d ready, %d in flight, %d waiting): %w",
		s.Ready, s.InFlight, s.Waiting, context.Cause(ctx))
}
