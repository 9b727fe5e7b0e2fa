// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import "context"

// This file keeps who waits for something to happen to an item: a run, for its item
// to have a next run that is ready; a call of EnqueueAndWait or WaitIdle, for items, or
// the queue, to have nothing left to do. It knows no lock.
//
// A watcher is known by the entry that it watches, and is removed before it is
// notified. While there are no watchers there is no map of them, and every place that
// may have to notify one checks no more than that.

// watchers holds the watchers of a queue. The zero watchers has none.
type watchers struct {
	at       map[uint32]*watcher // by entry; those of the queue at 0; nil if there are none
	notified *watcher            // the first of those that unlock calls
}

// A watcher is notified once: a run, by a call of end; a waiter, by the count of
// the remaining ones.
type watcher struct {
	end        func(cause error) // of the context of a run: user code may follow
	waiter     *waiter
	err        error // that ended the context; or why the item is not retried
	index      uint32
	watching   bool // it is in a list of Queue.watchers
	prev, next *watcher
}

// A waiter is a call that waits for a number of watchers to be notified.
type waiter struct {
	remaining int           // guarded by Queue.mu
	done      chan struct{} // closed when none remains
}

// add adds a watcher of an entry, or of the queue at index 0.
func (l *watchers) add(i uint32, w *watcher) {
	if l.at == nil {
		l.at = make(map[uint32]*watcher)
	}
	w.index, w.watching, w.next = i, true, l.at[i]
	if w.next != nil {
		w.next.prev = w
	}
	l.at[i] = w
}

// remove takes out a watcher, and reports whether it was there.
func (l *watchers) remove(w *watcher) bool {
	if !w.watching {
		return false
	}
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case w.next != nil:
		l.at[w.index] = w.next
	default:
		delete(l.at, w.index)
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.watching, w.prev, w.next = false, nil, nil
	return true
}

// notifyMoved notifies the watchers of an entry that has moved, or is
// about to be removed; err is why its item is not retried.
func notifyMoved[T comparable](l *watchers, i uint32, e *entry[T], err error) {
	switch {
	case e.inFlight && e.readyNext():
		l.notify(i, true, ErrChanged)
	case !e.inFlight:
		l.notify(i, true, context.Canceled)
		if e.kind == runNone || e.kind == runRecheck {
			l.notify(i, false, err)
		}
	}
}

// notify notifies the watchers of a run, or of the item, at an entry. What
// ends contexts is left to unlock.
func (l *watchers) notify(i uint32, ofRun bool, err error) {
	for w := l.at[i]; w != nil; {
		next := w.next
		if ofRun == (w.end != nil) {
			l.remove(w)
			w.err = err
			if ofRun {
				w.next, l.notified = l.notified, w
			} else if w.waiter.remaining--; w.waiter.remaining == 0 {
				close(w.waiter.done)
			}
		}
		w = next
	}
}

func notifyAll(w *watcher) {
	for w != nil {
		notified := w
		w, notified.next = notified.next, nil
		notified.end(notified.err)
	}
}
