// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// A View is a queue as it stands in all processes. It has the methods of a
// [reconcile.Queue] with which a page of statuspage shows a queue, and is for any
// process, also one that takes no items:
//
//	vms := &queue.View[string]{Queue: q, List: statuspage.Poll(group, "queue of vms", q.All)}
//	page := statuspage.New(&statuspage.Loop[string]{Name: "vms", Queue: vms}, group)
//
// How the runs of an item went is known to the process alone that had them; of the
// others the queue has the failures in a row, and the text of the last. Queue is
// required, and both fields are not to be changed once a method was called. The
// methods may be called from any goroutine.
type View[T comparable] struct {
	Queue *Queue[T]

	// List reads the items; nil means All of Queue. With what statuspage.Poll
	// makes of that, a page tells since when they cannot be read.
	List func(context.Context) ([]Entry[T], error)

	mu     sync.Mutex      // guards the fields below
	last   []Entry[T]      // as it was read last
	counts reconcile.Stats // of these
}

// viewPatience is how long a View waits for the server.
const viewPatience = 5 * time.Second

// All returns all items that the queue knows, as [Queue.All] does. It reads the
// whole stream, and waits for the server for five seconds at most. If that fails,
// it returns what it read last, which it keeps.
func (v *View[T]) All() iter.Seq2[T, reconcile.State] {
	list := v.List
	if list == nil {
		list = v.Queue.All
	}
	ctx, cancel := context.WithTimeout(context.Background(), viewPatience)
	defer cancel()
	entries, err := list(ctx)
	v.mu.Lock()
	if err == nil {
		v.last, v.counts = entries, count(entries)
	}
	entries = v.last
	v.mu.Unlock()
	return func(yield func(T, reconcile.State) bool) {
		for _, e := range entries {
			if !yield(e.Item, e.State) {
				return
			}
		}
	}
}

// count counts the items of each kind.
func count[T comparable](entries []Entry[T]) (s reconcile.Stats) {
	for _, e := range entries {
		switch e.State.Phase {
		case reconcile.PhaseReady:
			s.Ready++
		case reconcile.PhaseInFlight:
			s.InFlight++
			if e.State.Again {
				s.Again++
			}
		case reconcile.PhaseWaiting:
			s.Waiting++
			if e.State.Recheck {
				s.Rechecks++
			}
		}
	}
	return s
}

// State is [Queue.State]: while the server does not answer, nothing is known of an
// item that is not in flight here.
func (v *View[T]) State(item T) reconcile.State { return v.Queue.State(item) }

// Stats returns how many items of each kind there were when All was last called, 0
// before that, and what this process did. It never blocks.
func (v *View[T]) Stats() reconcile.Stats {
	v.mu.Lock()
	s := v.counts
	v.mu.Unlock()
	here := v.Queue.Stats()
	s.Enqueued, s.Coalesced, s.Taken, s.Requeued = here.Enqueued, here.Coalesced, here.Taken, here.Requeued
	return s
}

// EnqueueNow is [Queue.EnqueueNow].
func (v *View[T]) EnqueueNow(item T) { v.Queue.EnqueueNow(item) }

// Remove is [Queue.Remove]. It waits for the server for five seconds at most: after that
// it returns an error, and the run may still be cancelled.
func (v *View[T]) Remove(ctx context.Context, item T) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, viewPatience)
	defer cancel()
	return v.Queue.Remove(ctx, item)
}
