// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// A view makes snapshots of a loop, and shares them: however many people look,
// the queue is asked for all its items once in an interval, and never by a
// worker. Nothing happens while nobody looks, and soon after that the last
// snapshot is let go.
type view[T comparable] struct {
	mu      sync.Mutex // guards the fields below; held while a snapshot is made
	last    *snapshot
	items   []T // of the rows of last
	release *time.Timer
}

// A snapshot is the state of all items at one time. It is never changed.
type snapshot struct {
	taken  time.Time
	base   time.Time // of all times since
	cost   time.Duration
	rows   []row
	counts counts
	measures
}

// counts sums up a snapshot. Each item is in order, in flight, ready, waiting or
// idle, as [row.state] says.
type counts struct {
	Items    int `json:"items"`    // the sum of in_order, ready, waiting, in_flight and idle
	InOrder  int `json:"in_order"` // the last run ended well, and nothing is left to do
	Ready    int `json:"ready"`
	Waiting  int `json:"waiting"` // not in order
	Held     int `json:"held"`    // of those that wait
	InFlight int `json:"in_flight"`
	Idle     int `json:"idle"`     // remembered, not in the queue, not in order
	Failing  int `json:"failing"`  // in whatever state
	GivenUp  int `json:"given_up"` // of those that fail: idle, nobody tries again

	longestInFlight, longestReady time.Duration // since the base; taken if there is none
	firstDue, firstLook           time.Duration // of those that wait, and of those in order
	mostFailures                  int32
}

const (
	// share is which part of the time at most snapshots are being made: one in
	// twenty. A queue of a million items is refreshed less often.
	share = 20

	// releaseAfter is how long the last snapshot is kept once nobody looks.
	releaseAfter = 10 * time.Second
)

// snapshot returns one that is no older than the interval, if that is not too
// much work.
func (l *Loop[T]) snapshot(interval time.Duration) *snapshot {
	s, _ := l.look(interval)
	return s
}

func (l *Loop[T]) look(interval time.Duration) (*snapshot, []T) {
	v := &l.view
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last == nil || !time.Now().Before(v.last.expires(interval)) {
		l.takeLocked()
	}
	if v.release == nil {
		v.release = time.AfterFunc(releaseAfter+interval, v.letGo)
	} else {
		v.release.Reset(releaseAfter + interval)
	}
	return v.last, v.items
}

func (v *view[T]) letGo() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last, v.items = nil, nil
}

// expires returns when there is to be a new snapshot.
func (s *snapshot) expires(interval time.Duration) time.Time {
	return s.taken.Add(max(interval, share*s.cost))
}

func (l *Loop[T]) takeLocked() {
	v, r := &l.view, l.rec
	begin := time.Now()
	var states []reconcile.State
	v.items = nil
	if l.Queue != nil {
		for item, state := range l.Queue.All() {
			v.items, states = append(v.items, item), append(states, state)
		}
	}
	lasts := r.lasts()
	rows := make([]row, 0, len(states)+len(lasts))
	for i, item := range v.items {
		rows = append(rows, newRow(l.format(item), r.base, states[i], lasts[item]))
		delete(lasts, item)
	}
	for item, last := range lasts { // the queue does not know these
		v.items = append(v.items, item)
		rows = append(rows, newRow(l.format(item), r.base, reconcile.State{}, last))
	}
	r.sample(r.now())
	measures := r.measure()
	end := time.Now()
	v.last = &snapshot{
		taken:    end,
		base:     r.base,
		cost:     end.Sub(begin),
		rows:     rows,
		counts:   count(rows, measures.now),
		measures: measures,
	}
}

// never is a time that does not come.
const never = 1<<63 - 1

func count(rows []row, now time.Duration) counts {
	c := counts{Items: len(rows), longestInFlight: now, longestReady: now, firstDue: never, firstLook: never}
	for i := range rows {
		r := &rows[i]
		if r.Failing() {
			c.Failing++
			c.mostFailures = max(c.mostFailures, r.failures)
			if r.Final() {
				c.GivenUp++
			}
		}
		switch r.state() {
		case inOrderItems:
			c.InOrder++
			if r.phase == reconcile.Waiting {
				c.firstLook = min(c.firstLook, r.due)
			}
		case inFlightItems:
			c.InFlight++
			c.longestInFlight = min(c.longestInFlight, r.since)
		case readyItems:
			c.Ready++
			c.longestReady = min(c.longestReady, r.since)
		case waitingItems:
			c.Waiting++
			c.firstDue = min(c.firstDue, r.due)
			if r.hold {
				c.Held++
			}
		default:
			c.Idle++
		}
	}
	return c
}

// page returns the rows that a query asks for, how many there are on all pages,
// and the number of the page, which is the last one if there are not so many.
func (s *snapshot) page(q query) (rows []row, total, page int) {
	type keyed struct {
		key int64
		row *row
	}
	first := min(q.Page, len(s.rows)/q.Size+1) * q.Size // those up to the page
	var found []keyed
	compare := func(a, b keyed) int {
		if q.Descending {
			a, b = b, a
		}
		return cmp.Or(cmp.Compare(a.key, b.key), strings.Compare(a.row.name, b.row.name))
	}
	text, full := q.needle(), false // there are that many, in order
	for i := range s.rows {
		r := &s.rows[i]
		if !q.State.has(r) || !r.matches(text) {
			continue
		}
		total++
		k := keyed{q.Sort.key(r, s.now), r}
		if full && compare(k, found[first-1]) >= 0 {
			continue
		}
		if found = append(found, k); len(found) == 2*first { // those that come later are not needed
			slices.SortFunc(found, compare)
			found, full = found[:first], true
		}
	}
	slices.SortFunc(found, compare)
	page = min(q.Page, max(1, (total+q.Size-1)/q.Size))
	from := (page - 1) * q.Size
	for _, k := range found[from:min(len(found), from+q.Size)] {
		rows = append(rows, *k.row)
	}
	return rows, total, page
}
