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

// A view makes snapshots of a loop for all readers of the page. It reads the items of the
// queue once in an interval, however many readers there are, and never in a worker.
// Without a reader it does nothing, and soon drops the last snapshot.
type view struct {
	mu      sync.Mutex // guards the fields below; held while a snapshot is made
	last    *snapshot
	release *time.Timer
}

// A snapshot is the state of all items at one time. It is never changed.
type snapshot struct {
	taken time.Time
	cost  time.Duration
	rows  []row
	counts
	*measures
}

// counts sums up a snapshot. Each item is in sync, in flight, ready, waiting or
// idle, as [row.Status] says.
type counts struct {
	Items    int `json:"items"`   // the sum of in_sync, ready, waiting, in_flight and idle
	InSync   int `json:"in_sync"` // the last run ended well, and nothing is left to do
	Ready    int `json:"ready"`
	Waiting  int `json:"waiting"` // not in sync
	Held     int `json:"held"`    // of those that wait
	InFlight int `json:"in_flight"`
	Idle     int `json:"idle"`     // remembered, not in the queue, not in sync
	Failing  int `json:"failing"`  // in whatever state
	GivenUp  int `json:"given_up"` // of those that fail: idle, nobody tries again

	// The earliest of each; zero if there is none.
	inFlightSince, readySince time.Time
	due, recheck              time.Time // of those that wait, and of those in sync
	pending                   time.Time // since when the oldest has not been in sync
	mostFailures              int
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
	v := &l.view
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last == nil || !time.Now().Before(v.last.expires(interval)) {
		v.last = l.newSnapshot()
	}
	if v.release != nil {
		v.release.Stop()
	}
	v.release = time.AfterFunc(releaseAfter+interval, v.drop)
	return v.last
}

func (v *view) drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.last = nil
}

// expires returns when there is to be a new snapshot.
func (s *snapshot) expires(interval time.Duration) time.Time {
	return s.taken.Add(max(interval, share*s.cost))
}

func (l *Loop[T]) newSnapshot() *snapshot {
	begin := time.Now()
	s := &snapshot{}
	if l.Queue != nil {
		for item, state := range l.Queue.All() {
			s.rows = append(s.rows, l.newRow(item, state))
		}
	}
	lasts, measures := l.rec.read() // after All, so that an item on its way out is seen here at least
	for i := range s.rows {
		item, _ := s.rows[i].item.(T)
		s.rows[i].remember(lasts[item], l.format())
		delete(lasts, item)
	}
	for item, last := range lasts {
		if l.gone(item, last) {
			continue
		}
		r := l.newRow(item, reconcile.State{})
		r.remember(last, l.format())
		s.rows = append(s.rows, r)
	}
	s.measures, s.counts = measures, count(s.rows)
	s.taken = time.Now()
	s.cost = s.taken.Sub(begin)
	return s
}

func count(rows []row) counts {
	c := counts{Items: len(rows)}
	for i := range rows {
		r := &rows[i]
		if r.Failing() {
			c.Failing++
			c.mostFailures = max(c.mostFailures, r.Failures)
			if r.Final() {
				c.GivenUp++
			}
		}
		if !r.inSync() {
			keepEarliest(&c.pending, r.Pending)
		}
		switch r.Status() {
		case inSyncItems:
			c.InSync++
			keepEarliest(&c.recheck, r.Due)
		case inFlightItems:
			c.InFlight++
			keepEarliest(&c.inFlightSince, r.Since)
		case readyItems:
			c.Ready++
			keepEarliest(&c.readySince, r.Since)
		case waitingItems:
			c.Waiting++
			keepEarliest(&c.due, r.Due)
			if r.Held() {
				c.Held++
			}
		default:
			c.Idle++
		}
	}
	return c
}

// keepEarliest makes t the earlier of both; one that is zero is none.
func keepEarliest(t *time.Time, other time.Time) {
	if t.IsZero() || !other.IsZero() && other.Before(*t) {
		*t = other
	}
}

// A tablePage has the rows that a query asks for.
type tablePage struct {
	Rows  []*row
	Total int // on all pages
	Page  int // the last one, if there are not so many
	Pages int
}

// Prev and Next return the numbers of the pages beside this one.

func (p tablePage) Prev() int { return p.Page - 1 }
func (p tablePage) Next() int { return p.Page + 1 }

func (s *snapshot) page(q query) tablePage {
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
		return cmp.Or(cmp.Compare(a.key, b.key), strings.Compare(a.row.text, b.row.text))
	}
	finds, full := q.finds(), false // there are that many, in order
	p := tablePage{}
	for i := range s.rows {
		r := &s.rows[i]
		if !finds(r) {
			continue
		}
		p.Total++
		k := keyed{q.Sort.key(r, s.taken), r}
		if full && compare(k, found[first-1]) >= 0 {
			continue
		}
		if found = append(found, k); len(found) == 2*first { // those that come later are not needed
			slices.SortFunc(found, compare)
			found, full = found[:first], true
		}
	}
	slices.SortFunc(found, compare)
	p.Pages = max(1, (p.Total+q.Size-1)/q.Size)
	p.Page = min(q.Page, p.Pages)
	from := (p.Page - 1) * q.Size
	for _, k := range found[from:min(len(found), from+q.Size)] {
		p.Rows = append(p.Rows, k.row)
	}
	return p
}
