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
	mu    sync.Mutex
	runs  map[T]*flight[T]
	swept time.Time // when the lost ones were taken out
}

// A flight is a run that goes on, or has just returned.
type flight[T comparable] struct {
	start time.Time
	span  trace.Span
	end   time.Time // when Reconcile returned; zero before

	// Older is another run of the same item. There is none with a Queue; one
	// that is shared may lose a lease, and hand out the item again.
	older *flight[T]
}

// lostAfter is how long after a run OnResult may come. A [reconcile.Reconciler] does not
// call it if another hook has panicked. The time between two checks is as long.
const lostAfter = time.Minute

// begin adds a run. It returns those that are lost, but not in each call: it checks all.
func (f *flights[T]) begin(item T, r *flight[T]) (lost []*flight[T]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runs == nil {
		f.runs = make(map[T]*flight[T])
	}
	if r.start.Sub(f.swept) >= lostAfter {
		f.swept = r.start
		lost = f.lostLocked(r.start.Add(-lostAfter))
	}
	r.older = f.runs[item]
	f.runs[item] = r
	return lost
}

// returned notes that Reconcile has returned, or was thrown out of.
func (f *flights[T]) returned(r *flight[T]) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	r.end = now
}

// end takes out the run of the item that has returned.
func (f *flights[T]) end(item T) *flight[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takeLocked(item, time.Now())
}

// takeLocked takes out the newest run of the item that has returned by that time.
func (f *flights[T]) takeLocked(item T, by time.Time) *flight[T] {
	var newer *flight[T]
	for r := f.runs[item]; r != nil; newer, r = r, r.older {
		switch {
		case r.end.IsZero() || r.end.After(by):
			continue
		case newer != nil:
			newer.older = r.older
		case r.older != nil:
			f.runs[item] = r.older
		default:
			delete(f.runs, item)
		}
		return r
	}
	return nil
}

// lost takes out the runs that have returned, and that OnResult was not called for.
func (f *flights[T]) lost() []*flight[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lostLocked(time.Now())
}

func (f *flights[T]) lostLocked(by time.Time) (lost []*flight[T]) {
	for item := range f.runs {
		for r := f.takeLocked(item, by); r != nil; r = f.takeLocked(item, by) {
			lost = append(lost, r)
		}
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
