// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
)

// Stats tells what one process's part in a queue holds now, and what it did
// since [New]. What becomes of an item in another process is not known here:
// Again misses it, and an item that was enqueued there keeps its timer until that
// is due. [Queue.All] tells how all items stand.
type Stats struct {
	Outbox   int  // items of which something is not stored yet
	InFlight int  // items taken here and not yet given back for good
	Again    int  // of those in flight: this process asked for a run that follows at once
	Idle     int  // Dequeues that wait
	Timers   int  // waiting items that this process will make ready
	Rechecks int  // of those with a timer: the last run ended well
	Member   bool // the lease is held
	Full     bool // the store is full: in the outbox, items that are not known wait

	Enqueued   uint64 // accepted as new work: the item had no next run
	Coalesced  uint64 // folded into work already known; ignored Offers too
	Taken      uint64 // dequeued
	Requeued   uint64 // given back by Requeue
	LeasesLost uint64 // how often this process lost its lease
	Refused    uint64 // verbs that were ignored, as their item cannot be stored
	Retries    uint64 // writes that had to be tried again, as the server did not answer
	Unreadable uint64 // records and members that were left alone, as no Queue writes such; each time they were read
}

// Stats returns the counts of this process. It never blocks.
func (q *Queue[T]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.counted
	for _, h := range q.held {
		if h.next == nextReady || h.next == nextNow {
			s.Again++
		}
	}
	s.Outbox, s.InFlight, s.Idle = len(q.outbox.slots), len(q.held), len(q.waiters)
	s.Timers, s.Rechecks, s.Member = len(q.timers.known), q.timers.rechecks, q.member.valid()
	s.Full, s.Retries = q.room.full, q.attempts.Load()
	return s
}

// Len returns about how many items are ready: those that the consumer has not
// delivered yet. Some of them wait for a time or are in flight, if that was
// written a moment ago. It asks the server, and takes the same time however many
// items there are.
func (q *Queue[T]) Len(ctx context.Context) (int, error) {
	at, err := q.wire.consumer(ctx)
	return at.pending, err
}

// An Entry is an item that the queue knows.
type Entry[T comparable] struct {
	Item   T
	State  reconcile.State
	Member string // of the process where it is in flight
	Fence  uint64 // of that run
}

// All returns all items that the queue knows: those in flight, then those
// ready, then those that wait, the oldest or the first due first. It reads the
// whole stream, so it takes a time that grows with the number of items, and what
// changes meanwhile may be counted as it was or as it is.
func (q *Queue[T]) All(ctx context.Context) ([]Entry[T], error) {
	type position struct {
		Entry[T]
		seq uint64
	}
	byItem := make(map[T]position)
	read := make(map[string]bool) // subjects
	now := time.Now().UnixNano()
	epoch, err := q.wire.epoch(ctx)
	if err != nil {
		return nil, err
	}
	add := func(item T, s seen, _ time.Time) {
		e := Entry[T]{Item: item, State: s.promoteDue(now).state(), Member: s.owner, Fence: s.fence}
		if e.Fence > 0 {
			e.Fence += epoch
		}
		byItem[item] = position{e, s.seq} // the later of two
		read[q.subject(s.tokens)] = true
	}
	moved, err := q.scan(ctx, add)
	if err == nil && moved {
		err = q.scanMoved(ctx, read, add)
	}
	if err != nil {
		return nil, err
	}
	all := make([]position, 0, len(byItem))
	for _, p := range byItem {
		all = append(all, p)
	}
	rank := map[reconcile.Phase]int{reconcile.PhaseInFlight: 0, reconcile.PhaseReady: 1, reconcile.PhaseWaiting: 2}
	slices.SortFunc(all, func(a, b position) int {
		return cmp.Or(
			cmp.Compare(rank[a.State.Phase], rank[b.State.Phase]),
			a.State.Due.Compare(b.State.Due),
			cmp.Compare(a.seq, b.seq))
	})
	entries := make([]Entry[T], len(all))
	for i := range all {
		entries[i] = all[i].Entry
	}
	return entries, nil
}

// scanMoved calls fn for the records whose subjects are not among those that were read. A
// record that is written again and again moves ahead of each scan; its subject stays.
func (q *Queue[T]) scanMoved(ctx context.Context, read map[string]bool, fn func(item T, s seen, stored time.Time)) error {
	subjects, err := q.wire.patient().subjects(ctx, q.cfg.Name+".i.>")
	if err != nil {
		return err
	}
	for _, subject := range subjects {
		if read[subject] {
			continue
		}
		m, err := q.wire.last(ctx, subject)
		if errors.Is(err, errNoRecord) { // since a moment ago
			continue
		}
		if err != nil {
			return err
		}
		if item, s, ok := q.known(m); ok {
			fn(item, s, time.Time{})
		}
	}
	return nil
}

// Unreadable returns the subjects of the records that are left alone, as this
// queue cannot read them or they are of no item of its own, each with the reason. All
// does not have them. It reads the whole stream, and blocks until it has, or ctx is
// done. With an error comes what it found before that.
func (q *Queue[T]) Unreadable(ctx context.Context) (map[string]error, error) {
	left := make(map[string]error)
	_, err := q.wire.scan(ctx, func(m stored, _ time.Time) {
		if _, _, err := q.decode(m); err != nil {
			left[m.subject] = err
		}
	})
	return left, err
}

// A Member is a process that takes items.
type Member struct {
	ID    string    // as in Entry
	Owner string    // as in Config
	Since time.Time // when its handle was made
	Seen  time.Time // when it last showed a sign of life, by its own clock
	Held  int       // how many items it had in flight then
}

// Members returns the processes that take items, the oldest first. One that
// ended without Close is among them for up to two leases.
func (q *Queue[T]) Members(ctx context.Context) ([]Member, error) {
	var all []Member
	err := q.eachMember(ctx, func(id string, b beat, _ uint64) bool {
		if b.Gone != "" {
			return true
		}
		all = append(all, Member{ID: id, Owner: b.Owner, Since: b.Since.Local(), Seen: b.Seen.Local(), Held: len(b.Held)})
		return true
	})
	return all, err
}
