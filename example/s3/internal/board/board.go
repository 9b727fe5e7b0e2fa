// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package board knows what is wanted of each item of a program and how far it is,
// for those who look at it, and whether anything is left to do.
package board

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/reconkernel/reconcile"
)

// A Row is what the board knows of one item.
type Row[T comparable] struct {
	Item   T
	Status Status
	Tries  int   // failures in a row
	Err    error // what the last run returned

	wanted bool
	there  bool // a run found it there, or tried to change that
	synced bool // it was in sync, and the same is still wanted
	drift  bool // it was in sync, and is being corrected
}

// CannotBe reports whether an item was rejected or is no longer retried.
func (r *Row[T]) CannotBe() bool { return r.Status == Rejected || r.Status == GaveUp }

// Totals count what the board has seen.
type Totals struct {
	Wanted, InSync, Rejected          int // items, now
	Runs, Retries, Corrected, Removed int // since the start
}

// A Summary is what a board has seen, and what cannot be, in order.
type Summary[T comparable] struct {
	Totals
	CannotBe []Row[T]
	Unlisted error // why it is not known what is there, if it is not
}

// A Board holds what is wanted of each item, a W, and how far it is: what an API
// server calls spec and status. All methods may be called from any goroutine,
// and none but Wait blocks.
type Board[T comparable, W any] struct {
	Queue   *reconcile.Queue[T]
	Same    func(a, b W) bool
	Compare func(a, b T) int // the order of items
	Lists   int              // how many may fail before Wait ends without; 0 means 10

	looked chan struct{} // room for one token: Listed was called

	mu       sync.Mutex // guards the fields below
	order    []T        // of what is wanted
	want     map[T]W
	rows     map[T]*Row[T] // of all that is wanted or there
	totals   Totals
	listed   bool        // it is known what is there
	unlisted error       // why not
	failures int         // of lists, before the first good one
	final    *Summary[T] // of the moment when nothing was left to do; nil before
}

// New returns a board that wants nothing.
func New[T comparable, W any](queue *reconcile.Queue[T], same func(a, b W) bool, compare func(a, b T) int) *Board[T, W] {
	return &Board[T, W]{
		Queue: queue, Same: same, Compare: compare,
		looked: make(chan struct{}, 1), rows: map[T]*Row[T]{},
	}
}

// Want puts another version of what is wanted in force, and enqueues what
// differs from the one before. It returns how many that are.
func (b *Board[T, W]) Want(order []T, want map[T]W) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	var changed []T
	for _, item := range order {
		if old, ok := b.want[item]; !ok || !b.Same(old, want[item]) {
			changed = append(changed, item)
		}
	}
	for _, item := range b.order {
		if _, ok := want[item]; !ok {
			changed = append(changed, item)
		}
	}
	b.order, b.want = order, want
	b.totals.Wanted = len(order)
	for _, item := range changed {
		r := Row[T]{Item: item, Status: Surplus}
		if _, r.wanted = want[item]; r.wanted {
			r.Status = Pending
		}
		if old := b.rows[item]; old != nil {
			r.there = old.there
		}
		b.setLocked(r)
		b.Queue.Enqueue(item)
	}
	return len(changed)
}

// Wanted returns what is wanted of an item, if it is.
func (b *Board[T, W]) Wanted(item T) (W, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	want, ok := b.want[item]
	return want, ok
}

// AllWanted lists all that is wanted, for a Poller.
func (b *Board[T, W]) AllWanted(context.Context) ([]T, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.order, nil // it is replaced, never changed
}

// Listed is told all that is there, or why that is not known, and whether it is as
// it is wanted, as far as a list shows. What is there and not wanted gets a row.
// What was in sync and is missing or different now has changed unseen. Both are
// enqueued here, before Wait can find the queue idle, and because to be offered
// would not be enough.
func (b *Board[T, W]) Listed(there []T, same func(i int, want W) bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listed = b.listed || err == nil
	found := make(map[T]bool, len(there))
	for i, item := range there {
		want, wanted := b.want[item]
		found[item] = !wanted || same(i, want)
		if !wanted && b.rows[item] == nil {
			b.setLocked(Row[T]{Item: item, Status: Surplus})
			b.Queue.Enqueue(item)
		}
	}
	if b.unlisted = err; err != nil {
		b.failures++
	} else {
		for item, r := range b.rows {
			if r.Status == InSync && !found[item] {
				b.Queue.Enqueue(item)
			}
		}
	}
	b.lookedNow()
}

func (b *Board[T, W]) lookedNow() {
	select {
	case b.looked <- struct{}{}:
	default:
	}
}

// Result is told how each run ended, before its item goes back to the queue.
func (b *Board[T, W]) Result(result reconcile.Result[T]) {
	if result.Outcome == reconcile.Aborted {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var r Row[T]
	if old := b.rows[result.Item]; old != nil {
		r = *old
	}
	r.Item, r.Status = result.Item, StatusOf(result)
	r.Tries, r.Err = result.Failures, result.Err
	_, r.wanted = b.want[r.Item]

	b.totals.Runs++
	// What was tried counts, even if the answer was lost: it may have worked.
	r.there = r.there || r.Status == InSync || errors.Is(r.Err, Removing)
	r.drift = r.drift || r.synced && (errors.Is(r.Err, Creating) || errors.Is(r.Err, Updating))
	switch r.Status {
	case Retrying:
		b.totals.Retries++
	case InSync:
		if r.drift {
			b.totals.Corrected++
		}
		r.drift, r.synced = false, true
	case Removed:
		if r.there {
			b.totals.Removed++
		}
		r.there = false
	}
	b.setLocked(r)
}

// setLocked stores a row and keeps the counts.
func (b *Board[T, W]) setLocked(r Row[T]) {
	if old := b.rows[r.Item]; old != nil {
		b.countLocked(old, -1)
	}
	if r.Status == Removed {
		delete(b.rows, r.Item)
		return
	}
	b.rows[r.Item] = &r
	b.countLocked(&r, 1)
}

func (b *Board[T, W]) countLocked(r *Row[T], n int) {
	switch {
	case r.Status == InSync && r.wanted:
		b.totals.InSync += n
	case r.CannotBe():
		b.totals.Rejected += n
	}
}

// Wait blocks until nothing is left to do: all items of the queue are settled or
// given up, and it is known what is there. If that cannot be found out, what was
// given up is reason enough to end, and so are as many lists that failed as Lists says.
func (b *Board[T, W]) Wait(ctx context.Context) error {
	for {
		select {
		case <-b.looked:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := b.Queue.WaitIdle(ctx); err != nil || b.finish() {
			return err
		}
	}
}

// finish keeps the summary if all is over. It looks at the queue again: while the
// lock is held no run can end, so what is settled now is what the rows say.
func (b *Board[T, W]) finish() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.Queue.Stats(); s.Ready+s.InFlight+s.Waiting > s.Rechecks {
		b.lookedNow() // so Wait goes on at once
		return false
	}
	if !b.listed && b.totals.Rejected == 0 && b.failures < cmp.Or(b.Lists, 10) {
		return false
	}
	s := b.summaryLocked()
	b.final = &s
	return true
}

// Final returns the summary of the moment when nothing was left to do, and
// whether that moment came; if not, it is the one of now.
func (b *Board[T, W]) Final() (Summary[T], bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.final != nil {
		return *b.final, true
	}
	return b.summaryLocked(), false
}

func (b *Board[T, W]) summaryLocked() Summary[T] {
	s := Summary[T]{Totals: b.totals}
	for _, r := range b.rows {
		if r.CannotBe() {
			s.CannotBe = append(s.CannotBe, *r)
		}
	}
	slices.SortFunc(s.CannotBe, func(x, y Row[T]) int { return b.Compare(x.Item, y.Item) })
	if !b.listed {
		s.Unlisted = b.unlisted
	}
	return s
}
