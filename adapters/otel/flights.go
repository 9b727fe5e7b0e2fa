// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter

import (
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// Flights are the runs from the start of Reconcile to OnResult, which gets no
// context: the item leads from one to the other.
type flights[T comparable] struct {
	// mu guards the fields below, and those of each flight.
	mu   sync.Mutex
	runs map[T]*flight[T]

	// The runs that have returned, in that order, by later. Those that have ended are
	// taken out once they are the first.
	first, last *flight[T]
}

// A flight is a run that goes on, or has just returned.
type flight[T comparable] struct {
	item  T
	start time.Time
	span  trace.Span
	end   time.Time // when Reconcile returned; zero before

	// Older is another run of the same item. There is none with a Queue; one
	// that is shared may lose a lease, and hand out the item again.
	older *flight[T]

	later *flight[T]
	ended bool // by OnResult, or as one that it was not called for
}

// lostAfter is how long after a run OnResult may come. A [reconcile.Reconciler] does not
// call it if another hook has panicked.
const lostAfter = time.Minute

func (f *flights[T]) begin(item T, r *flight[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runs == nil {
		f.runs = make(map[T]*flight[T])
	}
	r.item, r.older = item, f.runs[item]
	f.runs[item] = r
}

// returned notes that Reconcile has returned, or was thrown out of.
func (f *flights[T]) returned(r *flight[T]) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	r.end = now
	if f.first == nil {
		f.first = r
	} else {
		f.last.later = r
	}
	f.last = r
}

// end takes out the run of the item that has returned.
func (f *flights[T]) end(item T) *flight[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.takeLocked(item, func(r *flight[T]) bool { return !r.end.IsZero() })
	for f.first != nil && f.first.ended {
		f.first = f.first.later
	}
	return r
}

func (f *flights[T]) takeLocked(item T, which func(*flight[T]) bool) *flight[T] {
	var newer *flight[T]
	for r := f.runs[item]; r != nil; newer, r = r, r.older {
		switch {
		case !which(r):
			continue
		case newer != nil:
			newer.older = r.older
		case r.older != nil:
			f.runs[item] = r.older
		default:
			delete(f.runs, item)
		}
		r.ended = true
		return r
	}
	return nil
}

// lost takes out the runs that have returned by that time, and that OnResult was not called
// for.
func (f *flights[T]) lost(by time.Time) (lost []*flight[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := f.first; r != nil && (r.ended || !r.end.After(by)); r = r.later {
		if !r.ended {
			f.takeLocked(r.item, func(o *flight[T]) bool { return o == r })
			lost = append(lost, r)
		}
		f.first = r.later
	}
	return lost
}

// oldest returns for how long the oldest run has been going on; 0 if none does.
// It looks at each of them: there are as many as workers.
func (f *flights[T]) oldest() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var oldest time.Duration
	now := time.Now()
	for _, r := range f.runs {
		for ; r != nil; r = r.older {
			if r.end.IsZero() {
				oldest = max(oldest, now.Sub(r.start))
			}
		}
	}
	return oldest
}
