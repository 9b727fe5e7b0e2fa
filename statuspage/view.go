// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"slices"
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
	names   map[T]string
	number  uint32 // counts the snapshots
	release *time.Timer
}

// A snapshot is the state of all items at one time. It is never changed, but for
// what it works out once and keeps.
type snapshot struct {
	taken  time.Time
	base   time.Time // of all times since
	rows   []row
	counts counts
	measures

	mu     sync.Mutex // guards the fields below
	orders map[sorting][]keyed
	cost   time.Duration // to make it and its orders
}

// counts sums up a snapshot. Each item is in order, in flight, ready, waiting or
// idle, as [row.state] says.
type counts struct {
	all, inOrder, inFlight, ready, waiting, held, idle int
	failing, final                                     int // in whatever state

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
	v.last, v.items, v.names = nil, nil, nil
}

// expires returns when there is to be a new snapshot.
func (s *snapshot) expires(interval time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken.Add(max(interval, share*s.cost))
}

func (l *Loop[T]) takeLocked() {
	v, r := &l.view, l.rec
	begin := time.Now()
	var items []T
	var states []reconcile.State
	if l.Queue != nil {
		s := l.Queue.Stats()
		n := s.Ready + s.Waiting + s.InFlight
		items, states = make([]T, 0, n), make([]reconcile.State, 0, n)
		for item, state := range l.Queue.All() {
			items, states = append(items, item), append(states, state)
		}
	}
	v.number++
	lasts := r.lasts(items, v.number)
	others, otherLasts := r.others(v.number)
	names := l.namesLocked(items, others)

	rows := make([]row, 0, len(items)+len(others))
	for i := range items {
		rows = append(rows, newRow(names[i], r.base, states[i], lasts.at(i)))
	}
	for i := range others {
		rows = append(rows, newRow(names[len(items)+i], r.base, reconcile.State{}, &otherLasts[i]))
	}
	r.sample(r.now())
	measures := r.measure()
	end := time.Now()
	v.items = append(items, others...)
	v.last = &snapshot{
		taken:    end,
		base:     r.base,
		rows:     rows,
		counts:   count(rows, measures.now),
		measures: measures,
		orders:   make(map[sorting][]keyed),
		cost:     end.Sub(begin),
	}
}

// namesLocked returns how the items are shown. It asks Format once for each, as
// long as somebody looks.
func (l *Loop[T]) namesLocked(some, more []T) []string {
	v := &l.view
	names := make([]string, 0, len(some)+len(more))
	known := v.names
	v.names = make(map[T]string, len(some)+len(more))
	for _, items := range [2][]T{some, more} {
		for _, item := range items {
			name, ok := known[item]
			if !ok {
				name = l.format(item)
			}
			v.names[item] = name
			names = append(names, name)
		}
	}
	return names
}

// never is a time that does not come.
const never = 1<<63 - 1

func count(rows []row, now time.Duration) counts {
	c := counts{all: len(rows), longestInFlight: now, longestReady: now, firstDue: never, firstLook: never}
	for i := range rows {
		r := &rows[i]
		if r.failing() {
			c.failing++
			c.mostFailures = max(c.mostFailures, r.failures)
			if r.final() {
				c.final++
			}
		}
		switch r.state() {
		case inOrderItems:
			c.inOrder++
			if r.waits() {
				c.firstLook = min(c.firstLook, r.due)
			}
		case inFlightItems:
			c.inFlight++
			c.longestInFlight = min(c.longestInFlight, r.since)
		case readyItems:
			c.ready++
			c.longestReady = min(c.longestReady, r.since)
		case waitingItems:
			c.waiting++
			c.firstDue = min(c.firstDue, r.due)
			if r.hold {
				c.held++
			}
		default:
			c.idle++
		}
	}
	return c
}

// order returns the rows in the order of s. It is worked out once.
func (s *snapshot) order(by sorting) []keyed {
	s.mu.Lock()
	defer s.mu.Unlock()
	order := s.orders[by]
	if order == nil {
		begin := time.Now()
		order = make([]keyed, len(s.rows))
		for i := range s.rows {
			order[i] = keyed{by.key(&s.rows[i], s.now), uint32(i)}
		}
		slices.SortFunc(order, compareKeyed(s.rows))
		s.orders[by] = order
		s.cost += time.Since(begin)
	}
	return order
}

// page returns the rows that a query asks for, how many there are on all pages,
// and the number of the page, which is the last one if there are not so many.
func (s *snapshot) page(q query) (rows []row, total, page int) {
	order := s.order(q.Sort)
	text := q.needle()
	var found []uint32
	for i := range order {
		k := order[i]
		if q.Descending {
			k = order[len(order)-1-i]
		}
		if r := &s.rows[k.row]; q.State.has(r) && r.matches(text) {
			found = append(found, k.row)
		}
	}
	total = len(found)
	page = min(q.Page, max(1, (total+q.Size-1)/q.Size))
	from := (page - 1) * q.Size
	for _, i := range found[from:min(total, from+q.Size)] {
		rows = append(rows, s.rows[i])
	}
	return rows, total, page
}

// lasts is the last run of each of some items, if it is known.
type lasts struct {
	runs  []run
	known []bool
}

func (l lasts) at(i int) *run {
	if !l.known[i] {
		return nil
	}
	return &l.runs[i]
}

// readAtOnce is how many items are looked up in one lock hold.
const readAtOnce = 128

// lasts looks up the last runs of the items, and marks them as seen in that
// snapshot.
func (r *recorder[T]) lasts(items []T, snapshot uint32) lasts {
	l := lasts{make([]run, len(items)), make([]bool, len(items))}
	var of [shardCount][]int
	for i, item := range items {
		n := r.shardNumber(item)
		of[n] = append(of[n], i)
	}
	for n := range r.shards {
		s := &r.shards[n]
		for chunk := range slices.Chunk(of[n], readAtOnce) {
			s.read(func() {
				for _, i := range chunk {
					if e := s.book.find(items[i]); e != nil {
						e.seen = snapshot
						l.runs[i], l.known[i] = *s.book.last(e), true
					}
				}
			})
		}
	}
	return l
}

// others returns the items that are remembered and were not seen in that
// snapshot, and their last runs.
func (r *recorder[T]) others(snapshot uint32) (items []T, runs []run) {
	for n := range r.shards {
		s := &r.shards[n]
		for from, more := uint32(firstEntry), true; more; from += readAtOnce {
			s.read(func() {
				more = from < s.book.entries.len
				for i := from; i < min(from+readAtOnce, s.book.entries.len); i++ {
					if e := s.book.entries.at(i); e.count > 0 && e.seen != snapshot {
						items, runs = append(items, e.item), append(runs, *s.book.last(e))
					}
				}
			})
		}
	}
	return items, runs
}
