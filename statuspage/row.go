// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
)

// A row is what a page tells of one item. Times are since the base of the
// recorder of its loop.
type row struct {
	name string
	err  string // of the last run, or the last failure; "" if there is none

	phase      reconcile.Phase
	settled    bool
	hold       bool
	again      bool
	failures   int32
	since, due time.Duration // in its phase, and when it becomes ready if it waits

	outcome outcome       // of the last run; noOutcome if that is not remembered
	ended   time.Duration // the last run
	took    time.Duration // the last run
}

// newRow puts together what the queue and what the book say of an item. The last
// run is zero if the book has forgotten it.
func newRow(name string, base time.Time, s reconcile.State, last run) row {
	r := row{
		name:     name,
		phase:    s.Phase,
		settled:  s.Settled,
		hold:     s.Hold,
		again:    s.Again,
		failures: int32(min(s.Failures, 1<<31-1)),
	}
	if !s.Since.IsZero() {
		r.since = s.Since.Sub(base)
	}
	if !s.Due.IsZero() {
		r.due = s.Due.Sub(base)
	}
	if last.outcome != noOutcome {
		r.outcome, r.ended, r.took, r.err = last.outcome, last.ended, last.duration, last.err
		if s.Phase == reconcile.Idle {
			r.failures, r.since = last.failures, last.ended
		}
	} else if s.Failures > 0 {
		r.err = textOf(s.Err)
	}
	return r
}

// Failing reports whether something is wrong with the item: its last run failed.
func (r *row) Failing() bool { return r.failures > 0 || r.outcome.failed() }

// Final reports whether the item failed and nobody will try again.
func (r *row) Final() bool {
	return r.phase == reconcile.Idle && r.Failing()
}

// inOrder reports whether the last run ended well and nothing is left to do: the
// item waits only to be looked at again, or the queue has it no more.
func (r *row) inOrder() bool {
	return r.settled || r.phase == reconcile.Idle && r.outcome == succeeded
}

// state returns the part of the rows that the row is in: its phase, unless it is
// in order.
func (r *row) state() filter {
	switch {
	case r.inOrder():
		return inOrderItems
	case r.phase == reconcile.InFlight:
		return inFlightItems
	case r.phase == reconcile.Ready:
		return readyItems
	case r.phase == reconcile.Waiting:
		return waitingItems
	}
	return idleItems
}

// known reports whether it is known since when the row is in its phase.
func (r *row) known() bool { return r.phase != reconcile.Idle || r.outcome != noOutcome }

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
)

var sortings = []sorting{byAttention, byName, byState, bySince, byDue, byFailures, byOutcome, byDuration}

// key returns a number that puts the rows in the order of s; ties are broken by
// name. What is of most interest is first: the failing, the slow, the soon.
func (s sorting) key(r *row, now time.Duration) int64 {
	switch s {
	case byAttention:
		// All that need no look are in one class, so that they stay where they are
		// while they run and wait in turn.
		switch {
		case r.Final():
			return -3<<60 - int64(r.failures)
		case r.Failing():
			return -2<<60 - int64(r.failures)
		case r.phase == reconcile.InFlight && now-r.since >= longRun:
			return -1<<60 + int64(r.since)/16 // the oldest first
		}
	case byState:
		return int64(slices.Index(ranks, r.state()))
	case bySince:
		return int64(r.since)
	case byDue:
		switch {
		case r.phase == reconcile.Waiting:
			return int64(r.due)
		case r.phase == reconcile.Ready:
			return -2 // before all that wait
		case r.phase == reconcile.InFlight && r.again:
			return -1
		}
		return never
	case byFailures:
		return -int64(r.failures)
	case byOutcome:
		return -int64(r.ended)
	case byDuration:
		return -int64(r.took)
	}
	return 0
}

// ranks are the states in their order.
var ranks = []filter{inFlightItems, readyItems, waitingItems, idleItems, inOrderItems}

// longRun is from when on a run that goes on needs a look.
const longRun = 10 * time.Second

// A filter is a part of the rows.
type filter string

const (
	allItems      filter = "all"
	inOrderItems  filter = "in-order"
	failingItems  filter = "failing"
	inFlightItems filter = "in-flight"
	readyItems    filter = "ready"
	waitingItems  filter = "waiting"
	idleItems     filter = "idle"
)

var filters = []filter{allItems, inOrderItems, failingItems, inFlightItems, readyItems, waitingItems, idleItems}

func (f filter) has(r *row) bool {
	switch f {
	case allItems:
		return true
	case failingItems:
		return r.Failing()
	}
	return r.state() == f
}

// words returns the filter as it is read. It is no String method, which
// html/template would use for URLs and forms as well.
func (f filter) words() string { return strings.ReplaceAll(string(f), "-", " ") }

// matches reports whether the row's name or error contains the text, which is in
// lower case.
func (r *row) matches(text string) bool {
	return text == "" || strings.Contains(strings.ToLower(r.name), text) || strings.Contains(strings.ToLower(r.err), text)
}
