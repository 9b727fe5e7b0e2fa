// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	synced bool // it was in sync, and its spec is still the same
	drift  bool // it was in sync, and is being mended
}

func (r *row) cannotBe() bool { return r.Status == refused || r.Status == gaveUp }

// Totals count what the board has seen.
type totals struct {
	Wanted, InSync, Pending, Refused int    // assets, now
	UnderWay                         string // and the others, as "creating 4, waiting 2"
	Runs, Retries, Mended, Removed   int    // since the start
}

// A summary is what a board has seen, and what cannot be, by kind and name.
type summary struct {
	totals
	CannotBe []row
}

// A board holds what is wanted of each asset and how far it is: what an API
// server calls spec and status. All methods may be called from any goroutine,
// and none but Wait blocks.
type board struct {
	queue  *reconcile.Queue[cloud.ID]
	moved  func(row)     // told of each change of a status; may be nil
	looked chan struct{} // room for one token: Listed was called

	mu     sync.Mutex // guards the fields below
	want   assets
	rows   map[cloud.ID]*row // of all that is wanted or there
	counts map[status]int    // of rows
	totals totals
	listed bool     // it is known what is there
	final  *summary // of the moment when nothing was left to do; nil before
}

func newBoard(queue *reconcile.Queue[cloud.ID]) *board {
	return &board{queue: queue, looked: make(chan struct{}, 1), rows: map[cloud.ID]*row{}, counts: map[status]int{}}
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
		b.queue.Enqueue(id)
	}
	return len(changed)
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
// changed unseen. Both are enqueued here, before Wait can find the queue idle,
// and because to be offered would not be enough.
func (b *board) Listed(list []cloud.Asset, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listed = b.listed || err == nil
	there := make(map[cloud.ID]cloud.Spec, len(list))
	for _, a := range list {
		there[a.ID] = a.Spec
		if _, wanted := b.want.specs[a.ID]; !wanted && b.rows[a.ID] == nil {
			b.setLocked(row{ID: a.ID, Status: surplus, Changed: time.Now()})
			b.queue.Enqueue(a.ID)
		}
	}
	if err == nil {
		for id, r := range b.rows {
			if spec, ok := there[id]; r.Status == inSync && (!ok || !same(spec, b.want.specs[id])) {
				b.queue.Enqueue(id)
			}
		}
	}
	b.lookedNow()
}

func (b *board) lookedNow() {
	select {
	case b.looked <- struct{}{}:
	default:
	}
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
			b.queue.Enqueue(id)
		}
	}
	return r, moved
}

// setLocked stores a row and keeps the counts.
func (b *board) setLocked(r row) {
	if old := b.rows[r.ID]; old != nil {
		b.countLocked(old, -1)
	}
	if r.Status == removed {
		delete(b.rows, r.ID)
		return
	}
	b.rows[r.ID] = &r
	b.countLocked(&r, 1)
}

func (b *board) countLocked(r *row, n int) {
	b.counts[r.Status] += n
	switch {
	case r.Status == inSync && r.wanted:
		b.totals.InSync += n
	case r.cannotBe():
		b.totals.Refused += n
	}
}

// Wait blocks until nothing is left to do: all items of the queue are settled or
// given up, and it is known what is there. If that cannot be found out, what was
// given up is reason enough to end.
func (b *board) Wait(ctx context.Context) error {
	for {
		select {
		case <-b.looked:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := b.queue.WaitIdle(ctx); err != nil || b.finish() {
			return err
		}
	}
}

// finish keeps the summary if all is over. It looks at the queue again: while the
// lock is held no run can end, so what is settled now is what the rows say.
func (b *board) finish() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.queue.Stats(); s.Ready+s.InFlight+s.Waiting > s.Settled {
		b.lookedNow() // so Wait goes on at once
		return false
	}
	if !b.listed && b.totals.Refused == 0 {
		return false
	}
	s := b.summaryLocked()
	b.final = &s
	return true
}

// Totals returns the counts as they are now.
func (b *board) Totals() totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.totals
	now.Pending = b.counts[pending]
	var others []string
	for _, s := range []status{surplus, pending, creating, updating, removing, waiting, throttled, retrying} {
		if n := b.counts[s]; n > 0 {
			others = append(others, fmt.Sprintf("%s %d", s, n))
		}
	}
	now.UnderWay = strings.Join(others, ", ")
	return now
}

// Final returns the summary of the moment when nothing was left to do, and
// whether that moment came; if not, it is the one of now.
func (b *board) Final() (summary, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.final != nil {
		return *b.final, true
	}
	return b.summaryLocked(), false
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
