// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
)

// A row is what a page tells of one item.
type row struct {
	item any
	text string // how it is shown; at most maxName bytes, and a few that say that it is cut
	reconcile.State
	Last run // zero if none is remembered
}

// maxName is how many bytes of a name are shown.
const maxName = 4 << 10

// remember adds the last run to what the queue says of an item.
func (r *row) remember(last run, format errorFormat) {
	switch {
	case last.Outcome == "" && r.State.Err != nil: // of a failure, or a plan
		last.Error = format.text(r.Err, maxText)
	case last.Outcome != "" && r.Phase == reconcile.PhaseIdle:
		r.Failures, r.Since = last.Failures, last.Ended.Time()
	}
	r.Last = last
}

// Name returns the name as a table has it.
func (r *row) Name() string { return shorten(visible(r.text), 200) }

// Key returns the name as a form has it.
func (r *row) Key() string { return url.QueryEscape(nameInURL(r.text)) }

// Next returns when the next run is, "" if there is none.
func (r *row) Next() string {
	switch {
	case r.Phase == reconcile.PhaseWaiting:
		return "in " + until(r.Due)
	case r.Phase == reconcile.PhaseReady:
		return "now"
	case r.Again:
		return "after this run"
	}
	return ""
}

// PendingFor returns for how long there has been work, if that is longer than the
// item has been where it is; otherwise "".
func (r *row) PendingFor() string {
	if r.Pending.IsZero() || r.Since.Sub(r.Pending) < time.Second {
		return ""
	}
	return since(r.Pending)
}

// Failing reports whether something is wrong with the item: its last run failed.
func (r *row) Failing() bool { return r.Failures > 0 || r.Last.Failed() }

// Final reports whether the item failed and nobody will try again.
func (r *row) Final() bool { return r.Phase == reconcile.PhaseIdle && r.Failing() }

// Held reports whether no event starts the next run before it is due.
func (r *row) Held() bool { return !r.NotBefore.IsZero() && r.NotBefore.Equal(r.Due) }

// inSync reports whether the last run ended well and nothing is left to do: the
// item waits only to be looked at again, or the queue has it no more.
func (r *row) inSync() bool {
	return r.Recheck || r.Phase == reconcile.PhaseIdle && r.Last.Outcome == reconcile.OutcomeSucceeded
}

// Status returns the part of the rows that the row is in: its phase, unless it is
// in sync.
func (r *row) Status() filter {
	if r.inSync() {
		return inSyncItems
	}
	return filter(strings.ReplaceAll(r.Phase.String(), " ", "-"))
}

// A sorting is an order of the rows.
type sorting string

const (
	byAttention sorting = "attention"
	byName      sorting = "item"
	byState     sorting = "state"
	bySince     sorting = "since"
	byDue       sorting = "next"
	byFailures  sorting = "failures"
	byOutcome   sorting = "last"
	byDuration  sorting = "duration"
	byPending   sorting = "pending"
)

var sortings = []string{"attention", "item", "state", "since", "next", "failures", "last", "duration", "pending"}

// key returns a number that puts the rows in the order of s; ties are broken by
// name. What is of most interest is first: the failing, the slow, the soon.
func (s sorting) key(r *row, now time.Time) int64 {
	switch s {
	case byAttention:
		// All items that need no attention are in one class, so that they stay where they are
		// while they run and wait in turn.
		switch {
		case r.Final():
			return -3<<60 - int64(r.Failures)
		case r.Failing():
			return -2<<60 - int64(r.Failures)
		case r.Phase == reconcile.PhaseInFlight && now.Sub(r.Since) >= longRun:
			return -1<<60 + r.Since.UnixNano()/16 // the oldest first
		}
	case byState:
		return int64(slices.Index(ranks, r.Status()))
	case bySince:
		return r.Since.UnixNano()
	case byDue:
		switch {
		case r.Phase == reconcile.PhaseWaiting:
			return r.Due.UnixNano()
		case r.Phase == reconcile.PhaseReady:
			return -2 // before all that wait
		case r.Phase == reconcile.PhaseInFlight && r.Again:
			return -1
		}
		return math.MaxInt64
	case byFailures:
		return -int64(r.Failures)
	case byOutcome:
		return -int64(r.Last.Ended)
	case byDuration:
		return -int64(r.Last.Duration)
	case byPending:
		if r.inSync() || r.Pending.IsZero() {
			return math.MaxInt64
		}
		return r.Pending.UnixNano()
	}
	return 0
}

// ranks are the states in their order.
var ranks = []filter{inFlightItems, readyItems, waitingItems, idleItems, inSyncItems}

// longRun is the age from which a run needs attention.
const longRun = 10 * time.Second

// A filter is a part of the rows.
type filter string

const (
	allItems      filter = "all"
	inSyncItems   filter = "in-sync"
	failingItems  filter = "failing"
	inFlightItems filter = "in-flight"
	readyItems    filter = "ready"
	waitingItems  filter = "waiting"
	idleItems     filter = "idle"
)

var filters = []string{"all", "in-sync", "failing", "in-flight", "ready", "waiting", "idle"}

func (f filter) has(r *row) bool {
	switch f {
	case allItems:
		return true
	case failingItems:
		return r.Failing()
	}
	return r.Status() == f
}

// words returns the filter as it is read. It is no String method, which
// html/template would use for URLs and forms as well.
func (f filter) words() string { return strings.ReplaceAll(string(f), "-", " ") }
