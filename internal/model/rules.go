// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package model

import "time"

// Next is the next run of an item. It becomes ready at Due. An event moves Due
// forward, but not to a time before NotBefore.
type Next struct {
	Exists         bool
	Due, NotBefore time.Duration // since the start of the clock; in the past they mean now

	Recheck bool // at rest only: the last run succeeded, and no event has come since
	Now     bool // in flight only: EnqueueNow asked for it
	Event   bool // an event asked for it

	Order uint64 // runs that are due at the same time become ready in this order; see Queue.schedule
}

// Ready reports whether the next run is due.
func (n Next) Ready(now time.Duration) bool { return n.Exists && n.Due <= now }

// Later reports whether the next run waits for its time.
func (n Next) Later(now time.Duration) bool { return n.Exists && n.Due > now }

// The functions below are the general rules of the contract: each returns the
// next run that an operation makes of n at the time now.

// Enqueued is n after Enqueue, or after EnqueueWithin with a later due.
func (n Next) Enqueued(due, now time.Duration) Next {
	if !n.Exists {
		return Next{Exists: true, Due: due, Event: true}
	}
	n.Recheck, n.Event = false, true
	n.Due = min(n.Due, max(due, n.NotBefore, now))
	return n
}

// EnqueuedAfter is n after EnqueueAfter.
func (n Next) EnqueuedAfter(t time.Duration) Next {
	if !n.Exists {
		return Next{Exists: true, Due: t, NotBefore: t, Event: true}
	}
	n.Recheck, n.Event = false, true
	if n.NotBefore < n.Due && n.Due >= t {
		t = max(t, n.NotBefore)
		n.Due, n.NotBefore = t, t
	}
	return n
}

// EnqueuedNow is n after EnqueueNow.
func (n Next) EnqueuedNow(now time.Duration, inFlight bool) Next {
	if !n.Exists {
		n.Due = now
	}
	return Next{Exists: true, Due: min(n.Due, now), Now: inFlight, Event: true}
}

// Offered is n after Offer of an item at rest.
func (n Next) Offered(now time.Duration) Next {
	if !n.Exists || n.Recheck && n.Due > now {
		return Next{Exists: true, Due: now}
	}
	return n
}

// GivenBack is n, which was asked for during a run, after the item is given back
// with o. Event says whether an event asked for the run that has ended.
func (n Next) GivenBack(o RequeueOptions, now time.Duration, event, closed bool) Next {
	aborted := o.Aborted
	if aborted {
		o = RequeueOptions{}
	}
	minimum := in(now, max(0, o.MinDelay))
	if !o.Done {
		own := Next{Exists: true, Due: in(now, max(0, o.Delay, o.MinDelay)), NotBefore: minimum, Event: aborted && event}
		switch {
		case !n.Exists:
			own.Recheck = o.isRecheck() && own.Due > now
			n = own
		case own.Due < n.Due: // A tie is won by the run that was asked for.
			own.Event = n.Event
			n = own
		}
	}
	if n.Exists && !n.Now && !closed && minimum > now {
		n.Due, n.NotBefore = max(n.Due, minimum), max(n.NotBefore, minimum)
	}
	n.Now = false
	if closed && n.Due > now {
		return Next{}
	}
	return n
}

const endOfTime = time.Duration(1<<63 - 1)

// in is the time d after now, or the end of time if that is sooner.
func in(now, d time.Duration) time.Duration {
	if d > endOfTime-now {
		return endOfTime
	}
	return now + d
}
