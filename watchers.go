// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import "slices"

// This file keeps the calls of EnqueueAndWait and WaitIdle that wait for items, or for
// the queue, to have nothing left to do. It knows no lock.

// watchers holds the watchers of a queue by the entry that they watch, and those of the
// queue itself at 0. It is nil while there are none, and every place that may have to
// notify one checks no more than that.
type watchers map[uint32][]*watcher

// A watcher waits for one thing, once.
type watcher struct {
	waiter *waiter
	index  uint32
	err    error // why the item is not retried
}

// A waiter is a call that waits for a number of watchers to be notified.
type waiter struct {
	remaining int           // guarded by Queue.mu
	done      chan struct{} // closed when none remains
}

func (w *waiter) notifyLocked() {
	if w.remaining--; w.remaining == 0 {
		close(w.done)
	}
}

// add adds a watcher of an entry, or of the queue at index 0.
func (l *watchers) add(i uint32, w *watcher) {
	if *l == nil {
		*l = make(watchers)
	}
	w.index = i
	(*l)[i] = append((*l)[i], w)
}

// remove takes out a watcher, and reports whether it was there.
func (l *watchers) remove(w *watcher) bool {
	all := (*l)[w.index]
	n := slices.Index(all, w)
	if n < 0 {
		return false
	}
	l.set(w.index, slices.Delete(all, n, n+1))
	return true
}

func (l *watchers) set(i uint32, all []*watcher) {
	if len(all) > 0 {
		(*l)[i] = all
	} else if delete(*l, i); len(*l) == 0 {
		*l = nil
	}
}

// notify notifies and removes all watchers of an entry; err is why its item is not
// retried.
func (l *watchers) notify(i uint32, err error) {
	for _, w := range (*l)[i] {
		w.err = err
		w.waiter.notifyLocked()
	}
	l.set(i, nil)
}

// notifyMoved notifies the watchers of an entry that has moved, or is about to be
// removed, if there is nothing left to do for its item.
func notifyMoved[T comparable](l *watchers, i uint32, e *entry[T], err error) {
	if !e.inFlight && (e.kind == runNone || e.kind == runRecheck) {
		l.notify(i, err)
	}
}
