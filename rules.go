// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"math"
	"time"
)

// This file holds the rules of a [Queue] as pure functions: what becomes of the
// next run of an item by a verb ([nextRun.afterVerb]), and when the item is given
// back ([nextRun.afterRun]). An item in flight follows the same rules as one at
// rest.
//
// The table is in the package comment, with a legend.

// A nextRun says whether and when an item runs next.
type nextRun struct {
	kind runKind

	// The times of a run that is due later, in nanoseconds of Queue.now; of others
	// they are 0. NotBefore is never after due; if it is in the past, an event
	// starts the run at once.
	due, notBefore int64
}

type runKind uint8

const (
	runNone       runKind = iota // there is none: only in flight
	runReady                     // due now
	runBackground                // due now, and in the background: only at rest, see Queue.Background
	runNow                       // due now, whatever the run in flight returns: only in flight
	runLater                     // due later
	runRecheck                   // due later, and only a recheck: only at rest
)

// isLater reports whether the run waits for its time.
func (k runKind) isLater() bool { return k >= runLater }

// afterVerb returns what a verb makes of a next run. Asked is what the verb makes
// of none: Enqueue asks for a run that is ready, EnqueueAfter for one that has both
// times, EnqueueWithin for one that has no notBefore. An Offer comes here only for
// a recheck.
func (r nextRun) afterVerb(asked nextRun, now int64) nextRun {
	switch {
	case r.kind == runNone, asked.kind == runNow, asked.kind == runBackground:
		return asked
	case r.kind == runBackground && asked.kind == runReady:
		return asked
	case !r.kind.isLater():
		return r
	}
	r.kind = runLater
	switch {
	case asked.notBefore == 0:
		r.due = min(r.due, max(asked.due, r.notBefore))
	case r.notBefore < r.due && asked.due <= r.due:
		r.due = max(asked.due, r.notBefore)
		r.notBefore = r.due
	}
	if r.due <= now {
		return nextRun{kind: runReady}
	}
	return r
}

// afterRun returns the next run of an item that is given back. R was asked for
// during the run, and own by the options with which the item is given back. Minimum
// is the time before which no event starts the next run, or 0.
func (r nextRun) afterRun(own nextRun, minimum int64) nextRun {
	switch {
	case r.kind == runNow:
		return nextRun{kind: runReady}
	case r.kind == runNone:
		r = own
	case own.kind != runNone && own.due < r.due:
		r = own
		if r.kind == runRecheck { // An event is still to be handled.
			r.kind = runLater
		}
	}
	if r.kind == runNone || minimum == 0 {
		return r
	}
	return nextRun{runLater, max(r.due, minimum), max(r.notBefore, minimum)}
}

// nextRun returns the next run that the options ask for by themselves.
func (o *RequeueOptions) nextRun(now int64) nextRun {
	d := max(o.Delay, o.MinDelay)
	switch {
	case d <= 0:
		return nextRun{kind: runReady}
	case o.isRecheck():
		return nextRun{kind: runRecheck, due: later(now, d)}
	}
	return nextRun{kind: runLater, due: later(now, d)}
}

// later returns now + d, or the end of time: one before math.MaxInt64, which
// Queue.firesAt keeps for itself.
func later(now int64, d time.Duration) int64 {
	return now + min(int64(d), math.MaxInt64-1-now)
}
