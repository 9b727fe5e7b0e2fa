// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/cloud"
)

// A row is what the board knows of one asset.
type row struct {
	ID      cloud.ID
	Status  status
	Tries   int           // failures in a row
	Err     error         // what the last run returned
	Next    time.Duration // as it was planned then
	Changed time.Time

	wanted bool
	there  bool // a run found it there, or tried to change that
	stale  bool // another run was asked for since the last one began
	synced bool // it was in sync, and its spec is still the same
	drift  bool // it was in sync, and is being mended
}

// settled reports whether nothing more is to come by itself.
func (r *row) settled() bool {
	return !r.stale && (r.Status == inSync || r.cannotBe())
}

func (r *row) cannotBe() bool { return r.Status == refused || r.Status == gaveUp }

// Totals count what the board has seen.
type totals struct {
	Wanted, InSync, Refused        int // assets, now
	Runs, Retries, Mended, Removed int // since the start
}

// A summary is what a board has seen, and what cannot be, by kind and name.
type summary struct {
	totals
	CannotBe []row
}

// A board holds what is wanted of each asset and how far it is: what an API
// server calls spec and status. All methods may be called from any goroutine,
// and none blocks.
type board struct {
	queue *reconcile.Queue[cloud.ID]
	moved func(row) // told of each change of a status; may be nil

	mu     sync.Mutex // guards the fields below
	want   assets
	rows   map[cloud.ID]*row // of all that is wanted or there
	totals totals
	open   int           // rows that are not settled
	listed error         // nil once it is known what is there
	done   chan struct{} // closed as soon as all rows are settled
	final  summary       // of that moment
}

var errNotYet = errors.New("not yet")

func newBoard(queue *reconcile.Queue[cloud.ID]) *board {
	return &board{queue: queue, rows: map[cloud.ID]*row{}, listed: errNotYet, done: make(chan struct{})}
}

// Want puts another version of what is wanted in force, and enqueues what
// differs from the one before. It returns how many that are.
func (b *board) Want(a assets) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	var changed []cloud.ID
	for _, id := range a.order {
		if old, ok := b.want.specs[id]; !ok || !same(old, a.specs[id]) {
			changed = append(changed, id)
		}
	}
	for _, id := range b.want.order {
		if _, ok := a.specs[id]; !ok {
			changed = append(changed, id)
		}
	}
	b.want = a
	b.totals.Wanted = len(a.order)
	for _, id := range changed {
		r := row{ID: id, Status: surplus, Changed: time.Now()}
		if _, r.wanted = a.specs[id]; r.wanted {
			r.Status = pending
		}
		if old := b.rows[id]; old != nil {
			r.there = old.there
		}
		b.setLocked(r)
		b.againLocked(id)
	}
	b.checkLocked()
	return len(changed)
}

// againLocked enqueues an asset, and notes that what is known of it may be out
// of date until it has run. Both with the lock held, so that the result of an
// older run cannot come in between.
func (b *board) againLocked(id cloud.ID) {
	if old := b.rows[id]; old != nil {
		r := *old
		r.stale = true
		b.setLocked(r)
	}
	b.queue.Enqueue(id)
}

// Wanted returns what is wanted of an asset, if it is.
func (b *board) Wanted(id cloud.ID) (cloud.Spec, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	spec, ok := b.want.specs[id]
	return spec, ok
}

// AllWanted lists all that is wanted, for a Poller.
func (b *board) AllWanted(context.Context) ([]cloud.ID, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.want.order, nil // it is replaced, never changed
}

// Listed is told all that is there, or why that is not known. What is there and
// not wanted gets a row. What was in sync and is missing or different now has
// changed unseen, so it is enqueued: to be offered would not be enough.
func (b *board) Listed(list []cloud.Asset, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.listed != nil {
		b.listed = err
	}
	there := make(map[cloud.ID]cloud.Spec, len(list))
	for _, a := range list {
		there[a.ID] = a.Spec
		if b.rows[a.ID] == nil {
			b.setLocked(row{ID: a.ID, Status: surplus, Changed: time.Now()})
		}
	}
	if err == nil {
		for id, r := range b.rows {
			if spec, ok := there[id]; r.Status == inSync && (!ok || !same(spec, b.want.specs[id])) {
				b.againLocked(id)
			}
		}
	}
	b.checkLocked()
}

// Refused returns why an asset cannot be, or nil if it may still.
func (b *board) Refused(id cloud.ID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.rows[id]; r != nil && r.cannotBe() {
		return r.Err
	}
	return nil
}

// Result is told how each run ended, before its item goes back to the queue. If
// the asset has become one that cannot be, or is one no longer, that concerns
// its dependants: they are enqueued.
func (b *board) Result(result reconcile.Result[cloud.ID], dependants []cloud.ID) {
	if result.Outcome == reconcile.Aborted {
		return
	}
	if r, moved := b.result(result, dependants); moved && b.moved != nil {
		b.moved(r)
	}
}

func (b *board) result(result reconcile.Result[cloud.ID], dependants []cloud.ID) (r row, moved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, known := b.rows[result.Item]
	if known {
		r = *old
	}
	was := r
	r.ID, r.Status = result.Item, statusOf(result)
	r.Tries, r.Err, r.Next = result.Failures, result.Err, result.Next
	_, r.wanted = b.want.specs[r.ID]
	r.stale = b.queue.State(r.ID).Again

	b.totals.Runs++
	// What was tried counts, even if the answer was lost: it may have worked.
	r.there = r.there || r.Status == inSync || errors.Is(r.Err, removing)
	r.drift = r.drift || r.synced && (errors.Is(r.Err, creating) || errors.Is(r.Err, updating))
	switch r.Status {
	case retrying:
		b.totals.Retries++
	case inSync:
		if r.drift {
			b.totals.Mended++
		}
		r.drift, r.synced = false, true
	case removed:
		if r.there {
			b.totals.Removed++
		}
		r.there = false
	}
	// That something is gone is no news if it was not there.
	if moved = r.Status != was.Status && (r.Status != removed || was.there); moved {
		r.Changed = time.Now()
	}
	b.setLocked(r)
	if r.cannotBe() != was.cannotBe() {
		for _, id := range dependants {
			b.againLocked(id)
		}
	}
	b.checkLocked()
	return r, moved
}

// setLocked stores a row and keeps the counts.
func (b *board) setLocked(r row) {
	if old := b.rows[r.ID]; old != nil {
		b.countLocked(old, -1)
	}
	if r.Status == removed && !r.stale {
		delete(b.rows, r.ID)
		return
	}
	b.rows[r.ID] = &r
	b.countLocked(&r, 1)
}

func (b *board) countLocked(r *row, n int) {
	if !r.settled() {
		b.open += n
	}
	switch {
	case r.Status == inSync && r.wanted:
		b.totals.InSync += n
	case r.cannotBe():
		b.totals.Refused += n
	}
}

// Done is closed as soon as nothing is left to do.
func (b *board) Done() <-chan struct{} { return b.done }

func (b *board) checkLocked() {
	if b.open > 0 || b.listed == errNotYet || b.listed != nil && b.totals.Refused == 0 {
		return
	}
	select {
	case <-b.done:
	default:
		b.final = b.summaryLocked()
		close(b.done)
	}
}

// Totals returns the counts as they are now.
func (b *board) Totals() totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.totals
}

// Summary returns what is to be said now.
func (b *board) Summary() summary {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.summaryLocked()
}

// Final returns the summary of the moment when nothing was left to do, and
// whether that moment came; if not, it is the one of now.
func (b *board) Final() (summary, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.done:
		return b.final, true
	default:
		return b.summaryLocked(), false
	}
}

func (b *board) summaryLocked() summary {
	s := summary{totals: b.totals}
	for _, r := range b.rows {
		if r.cannotBe() {
			s.CannotBe = append(s.CannotBe, *r)
		}
	}
	slices.SortFunc(s.CannotBe, byID)
	return s
}

// Rows returns the rows, by kind and name if all fit into the limit; otherwise
// those that need attention, and those that changed last.
func (b *board) Rows(limit int) []row {
	b.mu.Lock()
	defer b.mu.Unlock()
	order := byAttention
	if len(b.rows) <= limit {
		order = byID
	}
	var top []row
	for _, r := range b.rows {
		if len(top) == limit && (limit == 0 || order(*r, top[limit-1]) > 0) {
			continue
		}
		i, _ := slices.BinarySearchFunc(top, *r, order)
		top = slices.Insert(top, i, *r)
		top = top[:min(limit, len(top))]
	}
	return top
}

func byID(a, b row) int {
	return cmp.Or(
		slices.Index(cloud.Kinds(), a.ID.Kind)-slices.Index(cloud.Kinds(), b.ID.Kind),
		cmp.Compare(a.ID.Name, b.ID.Name))
}

func byAttention(a, b row) int {
	class := func(r row) int {
		switch {
		case r.cannotBe():
			return 0
		case r.Status == retrying:
			return 1
		case r.Status == inSync:
			return 4
		case r.Status == pending:
			return 3
		}
		return 2
	}
	return cmp.Or(class(a)-class(b), b.Tries-a.Tries, b.Changed.Compare(a.Changed), byID(a, b))
}
