// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"time"
)

// This file has a [Queue] go on when the server stores nothing more, because the
// stream, its account or the server is at its limit.
//
// To run an item that is known takes writes, each over a record that goes, so it
// takes hardly any room, but some. A message that says nothing, NAME.r, keeps that
// room. Who is refused such a write deletes it, which needs no room. Items that
// are not known wait in the outboxes from when one was refused, or when NAME.r is
// seen to be gone, until it is there again.

// reserveSize is how long NAME.r is, unless the server takes no such message.
const reserveSize = 256 << 10

type room[T comparable] struct {
	full    bool // items that are not known wait
	said    bool // that was logged
	parked  []T  // whose slot is parked, and maybe others
	keeping bool // keepReserve is under way
	checked time.Time
	grown   int // bytes stored since
	spent   time.Time
}

func (q *Queue[T]) reserveSubject() string { return q.cfg.Name + ".r" }

// filled notes that a message was refused by a full store.
func (q *Queue[T]) filled(err error) {
	q.mu.Lock()
	if !q.room.full && q.life.Err() == nil {
		q.room.full = true
		q.running.Go(q.awaitRoom)
	}
	first := !q.room.said
	q.room.said = true
	q.mu.Unlock()
	if first {
		q.cfg.Logger.Warn("store is full: new items stay in the outbox, stored items are still processed",
			"queue", q.cfg.Name, "err", err)
	}
}

// spend makes room for what cannot wait, if there is a reserve.
func (q *Queue[T]) spend(ctx context.Context) {
	const pause = 50 * time.Millisecond // for the server to count what was deleted
	q.mu.Lock()
	soon := time.Since(q.room.spent) < pause
	if !soon {
		q.room.spent = time.Now()
	}
	q.mu.Unlock()
	if soon {
		return
	}
	if err := q.wire.purge(ctx, q.reserveSubject()); err != nil {
		q.troubled(err, "making room")
	}
}

// refill sees to it that there is a reserve, and that there is room besides: it
// stores a longer one first, or with probe, beside one that is there, another message
// for a moment. A process that took a store for one with room, when it has no more
// than the reserve, would take what another spends in the same moment, however long
// that one needs to use it. What cannot fit by the limit of the stream is not sent.
func (q *Queue[T]) refill(ctx context.Context, probe bool) error {
	free, there, err := q.wire.room(ctx, q.reserveSubject())
	if err != nil {
		return err
	}
	slow := q.wire.patient() // a reserve is long, and a link may be slow
	size := min(reserveSize, max(1, (slow.largest()-recordRoom)*4/5))
	if there {
		if !probe {
			return nil
		}
		if free < int64(size/4) {
			return errFull
		}
		beside := q.cfg.Name + ".p"
		_, err := slow.publishBriefly(ctx, beside, 0, make([]byte, size/4))
		if err == nil {
			err = q.wire.purge(ctx, beside)
		}
		return err
	}
	if free < int64(size*5/4) {
		return errFull
	}
	longer := make([]byte, size*5/4)
	_, err = slow.publish(ctx, q.reserveSubject(), 0, longer)
	if errors.Is(err, errConflict) && !probe { // there is one since a moment ago
		return nil
	}
	if err == nil {
		err = q.wire.purge(ctx, q.reserveSubject())
	}
	if err == nil {
		_, err = slow.publish(ctx, q.reserveSubject(), 0, longer[:size])
	}
	return err
}

// awaitRoom lets the items that wait go on when there is a reserve again. A limit of
// the account or the server does not show, so long messages find out, ever more
// seldom.
func (q *Queue[T]) awaitRoom() {
	const often, seldom = time.Second, 8 * time.Second
	again := often
	for {
		select {
		case <-q.life.Done():
			return
		case <-time.After(again):
		}
		if err := q.refill(q.life, true); err != nil {
			q.troubled(err, "keeping a reserve")
			if again = min(2*again, seldom); err == errFull || !isFull(err) {
				again = often
			}
			continue
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.room.full = false
		for _, item := range q.room.parked {
			if s := q.outbox.slots[item]; s != nil {
				q.unparkLocked(item, s)
			}
		}
		q.room.parked = nil
		return
	}
}

func (q *Queue[T]) unparkLocked(item T, s *slot) {
	if s.parked {
		s.parked = false
		q.outbox.line = append(q.outbox.line, item)
		q.startSenderLocked()
	}
}

// parkLocked puts a batch back that waits for room.
func (q *Queue[T]) parkLocked(item T, s *slot, b *batch) {
	b.base = nil
	if s.batch != nil {
		b.join(s.batch)
	}
	s.batch, s.parked = b, true
	q.room.parked = append(q.room.parked, item)
	if !q.room.full { // since a moment ago
		q.unparkLocked(item, s)
	}
}

// grown notes that a record of so many bytes was stored, of an item that was not
// known. Now and then, and after a part of the reserve, it looks whether others use
// that.
func (q *Queue[T]) grown(size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.room.said && !q.room.full {
		q.room.said = false
		go q.cfg.Logger.Info("the store has room again", "queue", q.cfg.Name)
	}
	q.room.grown += size
	if time.Since(q.room.checked) < time.Second && q.room.grown < reserveSize/4 || q.room.keeping || q.life.Err() != nil {
		return
	}
	q.room.keeping, q.room.checked, q.room.grown = true, time.Now(), 0
	q.running.Go(func() {
		if err := q.keepReserve(q.life); isFull(err) {
			q.filled(err)
		}
		q.mu.Lock()
		q.room.keeping = false
		q.mu.Unlock()
	})
}

// keepReserve is refill that sends nothing long if there is a reserve.
func (q *Queue[T]) keepReserve(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, slowAnswer)
	defer cancel()
	return q.refill(ctx, false)
}

func (q *Queue[T]) isFull() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.room.full
}
