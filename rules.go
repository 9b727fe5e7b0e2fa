// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"math"
	"time"
)

// This file holds the rules of a [Queue]: what becomes of the next run of an
// item when something is asked for it, and when it is given back. An item in
// flight follows the same rules as one at rest.
//
//	              none          ready    within 2h   held 2h    in flight, and next none / ready / within 2h / held 2h
//	Offer         ready (*)     –        –           –          –        –      –          –
//	Enqueue       ready         –        ready       –          ready    –      ready      –
//	EnqueueAfter  held 1h       –        held 1h     –          held 1h  –      held 1h    –
//	EnqueueWithin within 1h     –        within 1h   –          within   –      within 1h  –
//	EnqueueNow    ready         –        ready       ready      now      now    now        now
//
//	given back by                                               none     ready  within 2h  held 2h   now
//	Done                                                        –        ready  within 2h  held 2h   ready
//	Requeue 3h                                                  within   ready  within 2h  held 2h   ready
//	Requeue 3h, Hold                                            held 3h  held   held 3h    held 3h   ready
//
// A dash changes nothing. (*) If the queue has a Background: ready there, out of
// which Enqueue and EnqueueNow take it to the other ready items; for all else it
// is ready. All functions here are called with the lock held.

// admit takes in an item that has no record.
func (q *Queue[T]) admit(hash uint32, item T, ask nextRun, d time.Duration) {
	q.enqueued++
	now := q.now()
	i, r := q.records.insert(hash, item)
	if ask.delayed() {
		r.since = now
		q.waits(r)
		q.delay(i, r, ask, later(now, d), now)
		return
	}
	if len(q.delays) > 0 {
		q.promote(now)
	}
	if ask == runNone && q.Background > 0 {
		q.background(i, r, now)
	} else {
		q.makeReady(i, r, now, now)
	}
}

// meet applies a verb to an item that has a record.
func (q *Queue[T]) meet(i uint32, r *record[T], ask nextRun, d time.Duration) {
	hastens := r.run == runWithin && ask != runNone || r.run == runHeld && ask == runNow
	leaves := r.run == runOffered && (ask == runReady || ask == runNow)
	var now int64
	if hastens || leaves || r.run == runNone && ask.delayed() {
		now = q.now()
		q.promote(now) // it may be due, and even taken; others go before it
	}
	switch {
	case r.run == runNone && ask != runNone: // in flight
		q.enqueued++
		if ask.delayed() {
			q.delay(i, r, ask, later(now, d), now)
		} else {
			r.run = ask
			q.again++
			q.changed(i)
		}
	case r.run.delayed() && hastens:
		q.coalesced++
		q.hasten(i, r, ask, later(now, d), now)
	case leaves: // the background
		q.coalesced++
		q.unlist(r)
		q.offered--
		r.run, r.turn = runReady, 0
		q.list(i, r, q.front.prev)
	default:
		q.coalesced++
		if ask == runNow && r.running {
			r.run = runNow
		}
	}
}

// hasten applies a verb to a delayed next run.
func (q *Queue[T]) hasten(i uint32, r *record[T], ask nextRun, due, now int64) {
	pending := q.delays[r.prev].due
	switch ask {
	case runReady, runNow:
		q.undelay(r)
		if r.running {
			r.run = ask
			q.again++
			q.changed(i)
		} else {
			q.waitsNoMore(r)
			q.makeReady(i, r, now, now)
		}
	case runHeld: // on runWithin, whose time was promised first
		if due < pending {
			q.undelay(r)
			q.delay(i, r, runHeld, due, now)
		} else if due == pending {
			r.run = runHeld
		}
	case runWithin:
		if due < pending {
			q.undelay(r)
			q.delay(i, r, runWithin, due, now)
		}
	}
}

// unread stands for the time where it is read only if it is needed.
const unread = math.MinInt64

// held returns the record of an item in flight, or 0 and nil. It looks at the
// guess first, which for a worker is where its item was taken, and for others
// where the last item was: that spares it the hash and, in a big queue, the cache
// miss of finding it. A wrong guess costs the hash with the lock held.
func (q *Queue[T]) held(guess uint32, item T) (uint32, *record[T]) {
	if r := q.records.peek(guess); r != nil && r.running && r.item == item {
		return guess, r
	}
	i := q.records.find(q.hashLocked(item), item)
	if r := q.records.at(i); r.running {
		return i, r
	}
	return 0, nil
}

// hashLocked is hash with the lock held, which it gives up if it panics.
func (q *Queue[T]) hashLocked(item T) uint32 {
	hashed := false
	defer func() {
		if !hashed {
			q.mu.Unlock()
		}
	}()
	hash := q.hash(item)
	hashed = true
	return hash
}

// done gives back an item that needs no run but the one that it may have.
func (q *Queue[T]) done(i uint32, r *record[T], now int64) {
	if r.run == runNone {
		q.goes(i)
		q.inFlight--
		q.records.remove(i)
		return
	}
	r.failed = nil
	q.rest(i, r, q.settled(now))
}

// requeue gives back an item that runs again as w says. An item whose run was
// aborted keeps the count of its failures.
func (q *Queue[T]) requeue(i uint32, r *record[T], w *Wait, now int64, aborted bool) {
	q.requeued++
	if !aborted {
		r.fail(w.Err)
	}
	now = q.settled(now)
	if r.run != runNow {
		q.decide(i, r, w, now)
	}
	q.rest(i, r, now)
}

// settled returns the time at which an item is given back, with all that is due
// before it made ready.
func (q *Queue[T]) settled(now int64) int64 {
	if now == unread {
		now = q.now()
	}
	if len(q.delays) > 0 {
		q.promote(now)
	}
	return now
}

// rest puts an item in flight to where its next run says.
func (q *Queue[T]) rest(i uint32, r *record[T], now int64) {
	r.running, r.turn = false, 0
	q.inFlight--
	if q.watchers != nil {
		q.rests(i, r)
	}
	switch {
	case r.run == runNone: // dropped, because the queue is closed
		q.goes(i)
		q.records.remove(i)
	case r.run.delayed():
		r.since = now
		q.waits(r)
	default:
		q.again--
		q.makeReady(i, r, now, now)
	}
}

// decide replaces the next run of an item in flight by what w asks for, if w
// says so.
func (q *Queue[T]) decide(i uint32, r *record[T], w *Wait, now int64) {
	due := later(now, w.Delay)
	switch {
	case w.Delay <= 0: // and r.run may be anything but runNow
		if r.run.delayed() {
			q.undelay(r)
			r.run = runNone
		}
		if r.run == runNone {
			r.run = runReady
			q.again++
		}
		return
	case !w.Hold && (r.run == runReady || r.run.delayed() && q.delays[r.prev].due <= due):
		return
	case w.Hold && r.run.delayed() && q.delays[r.prev].due == due:
		r.run = runHeld
		return
	case r.run.delayed():
		q.undelay(r)
	case r.run == runReady:
		q.again--
	}
	r.run = runNone
	if q.closed {
		return
	}
	if w.Hold {
		q.delay(i, r, runHeld, due, now)
	} else {
		q.delay(i, r, runWithin, due, now)
	}
}

// waits counts an item that begins to wait for its next run.
func (q *Queue[T]) waits(r *record[T]) {
	q.waiting++
	if r.failed != nil {
		q.retrying++
	}
}

func (q *Queue[T]) waitsNoMore(r *record[T]) {
	q.waiting--
	if r.failed != nil {
		q.retrying--
	}
}

// fail counts a failure, or resets the count if err is nil.
func (r *record[T]) fail(err error) {
	switch {
	case err == nil:
		r.failed = nil
	case r.failed == nil:
		r.failed = &failure{1, err}
	default:
		r.failed.count++
		r.failed.err = err
	}
}

// makeReady makes an item at rest ready since that time: it goes to the
// consumer that waits longest, or to the tail.
func (q *Queue[T]) makeReady(i uint32, r *record[T], since, now int64) {
	r.since = since
	r.run = runReady
	if q.consumers.head != nil {
		q.hand(i, r, now)
		return
	}
	q.list(i, r, q.front.prev)
}

// background is makeReady for an item that was offered.
func (q *Queue[T]) background(i uint32, r *record[T], now int64) {
	r.since = now
	r.run = runOffered
	if q.consumers.head != nil {
		q.hand(i, r, now)
		return
	}
	q.listOffered(i, r, q.back.prev)
}

// listOffered is list for an item that was offered.
func (q *Queue[T]) listOffered(i uint32, r *record[T], behind uint32) {
	if q.offered == 0 {
		q.inRow = 0
	}
	q.offered++
	q.list(i, r, behind)
}

// list puts a record into a list of ready items, behind the one given.
func (q *Queue[T]) list(i uint32, r *record[T], behind uint32) {
	b := q.records.at(behind)
	r.prev, r.next = behind, b.next
	q.records.at(b.next).prev = i
	b.next = i
	q.ready++
}

// unlist takes a record out of the list of ready items that it is in.
func (q *Queue[T]) unlist(r *record[T]) {
	q.records.at(r.prev).next = r.next
	q.records.at(r.next).prev = r.prev
	q.ready--
}
