// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/guard"
)

// A Queue works in the background by a Reconciler and a queue of these tasks. So a task that
// fails is retried with back-off, a task that has to be done at a later time is a
// RequeueWithin, and a task that is asked for during its run is done once more.
type task string

const (
	exchange task = "exchange"         // stores what is in the outbox, and takes what is ready
	renew    task = "renewal of lease" // and frees the items of processes that died
	wake     task = "notification"     // of other processes
	hello    task = "test of LISTEN"   // after each connection that listens
	count    task = "count of items"   // for Stats
)

// do does a task. A connection may hang, so an attempt has a limit, which is short enough for
// another one within the lease. A link may be slow, and an attempt that is cut closes its
// connection; so the limit grows with each failure in a row.
func (q *Queue[T]) do(ctx context.Context, t task) error {
	limit := max(time.Second, q.cfg.Lease/4) << min(q.tasks.State(t).Failures, 5)
	ctx, cancel := context.WithTimeout(ctx, min(limit, maxAttempt))
	defer cancel()
	switch t {
	case renew:
		return q.renew(ctx)
	case wake:
		return q.wake(ctx)
	case hello:
		return q.hello(ctx)
	case count:
		return q.count(ctx)
	}
	return q.exchange(ctx)
}

// maxAttempt is the longest limit of an attempt.
const maxAttempt = 30 * time.Second

// report logs a task that fails at the 1st, 2nd, 4th, 8th … time in a row.
func (q *Queue[T]) report(r reconcile.Result[task]) {
	if n := r.Failures; !r.Outcome.Failed() || n&(n-1) != 0 {
		return
	}
	args := []any{"task", r.Item, "failures", r.Failures, "next", r.Next, "err", r.Err}
	var p *reconcile.PanicError
	if errors.As(r.Err, &p) {
		args = append(args, "stack", string(p.Stack))
	}
	q.cfg.Logger.Warn("postgres: a task of the queue failed and is retried", args...)
}

// An exchanged is what one exchange sends and receives.
type exchanged[T comparable] struct {
	*batch
	lease *lease
	take  int      // how many items to take
	stuck []string // items that may not be taken: their runs here have not ended
	check bool
	merge bool

	known  []string // the items that are in flight here under the lease
	fences []int64  // of known

	locked map[string]bool // give-backs that were not stored
	taken  []*holding[T]
	next   *float64 // seconds until an item is due
	ready  bool     // an item is ready that was not taken
	asked  int64    // how many verbs changed something
	events int      // how many events were merged
}

// exchange is one round trip and one transaction: it stores a batch, and takes items for the
// Dequeues that wait. What comes to the outbox meanwhile goes with the next one.
func (q *Queue[T]) exchange(ctx context.Context) error {
	x := q.begin()
	err := q.prepare(ctx, x)
	if err == nil {
		err = q.send(ctx, x)
	}
	if err != nil {
		q.fail(x)
		return err
	}
	for _, t := range x.taken {
		t.item, t.bad = q.itemOf(t.text)
		if n := t.failures + 1; t.bad != nil && n&(n-1) == 0 {
			q.cfg.Logger.Error("postgres: the text of an item cannot be read; it is tried again later", "item", t.text, "failures", n, "err", t.bad)
		}
	}
	return q.finish(x)
}

// fail takes note of an exchange without an answer, which may have been carried out. Its ops are
// stored again: a give-back has a fence, and a verb then causes at most one run more.
func (q *Queue[T]) fail(x *exchanged[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.check, q.merge = true, true
	q.line = append(x.items, q.line...)
}

func (q *Queue[T]) begin() *exchanged[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	ahead := q.cfg.Ahead
	if time.Since(q.took) > time.Second {
		ahead = 0 // and those taken ahead are given back
	}
	q.keepLocked(q.waiting + ahead)
	x := &exchanged[T]{batch: q.takeLocked(), lease: q.lease, locked: make(map[string]bool)}
	x.stuck = []string{} // nil would be NULL, and ALL of NULL is not true
	if q.lease != nil {
		x.check = q.check
		if !q.closed {
			x.take = max(0, q.waiting+ahead-q.local.Len())
		}
	}
	if x.take > 0 && (q.merge || time.Since(q.merged) >= q.cfg.Poll) {
		x.merge, q.merge, q.merged = true, false, time.Now()
	}
	for s, h := range q.held {
		if h.lease == q.lease {
			x.known, x.fences = append(x.known, s), append(x.fences, h.fence)
		}
		if !x.given[s] {
			x.stuck = append(x.stuck, s)
		}
	}
	return x
}

// prepare does what is rarely needed, in transactions of its own.
func (q *Queue[T]) prepare(ctx context.Context, x *exchanged[T]) error {
	if x.check {
		rows, _ := q.cfg.Pool.Query(ctx, q.in(sqlCheck), q.cfg.Name, x.lease.member, x.known, x.fences)
		gone, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("comparing the runs with the table: %w", err)
		}
		q.checked(gone)
	}
	if x.merge {
		if err := q.cfg.Pool.QueryRow(ctx, q.in(sqlMerge), q.cfg.Name).Scan(&x.events); err != nil {
			return fmt.Errorf("merging events: %w", err)
		}
	}
	return nil
}

// checked ends the runs that were in flight here, and not in the table: rows were deleted, or
// a failover has lost them, and another process may have the item.
func (q *Queue[T]) checked(gone []string) {
	var lost []string
	q.mu.Lock()
	q.check = false
	for _, s := range gone {
		if h := q.held[s]; h.over.Err() == nil { // It runs, and was not lost before.
			h.lose(reconcile.ErrLeaseLost)
			lost = append(lost, s)
		}
	}
	q.mu.Unlock()
	if len(lost) > 0 {
		q.cfg.Logger.Warn("postgres: runs have lost their lease: in the table, their items are not in flight here", "runs", len(lost), "first", lost[0])
	}
}

// send does the round trip.
func (q *Queue[T]) send(ctx context.Context, x *exchanged[T]) error {
	b := new(pgx.Batch)
	if a := &x.asks; len(a.items) > 0 {
		b.Queue(q.in(sqlAsk), q.cfg.Name, a.items, a.verbs, a.delays).QueryRow(func(row pgx.Row) error { return row.Scan(&x.asked) })
	}
	if g := &x.gives; len(g.items) > 0 {
		b.Queue(q.in(sqlGive), q.cfg.Name, g.items, g.owners, g.fences, g.hows, g.delays, g.mins, g.errs).Query(func(rows pgx.Rows) error {
			locked, err := pgx.CollectRows(rows, pgx.RowTo[string])
			for _, s := range locked {
				x.locked[s] = true
			}
			return err
		})
	}
	if x.take > 0 {
		b.Queue(q.in(sqlTake), q.cfg.Name, x.lease.member, x.take, x.stuck).Query(func(rows pgx.Rows) (err error) {
			x.taken, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (*holding[T], error) {
				h := &holding[T]{lease: x.lease}
				return h, row.Scan(&h.text, &h.fence, &h.failures, &h.err, &h.since, &h.pending)
			})
			return err
		})
	}
	b.Queue(q.in(sqlNext), q.cfg.Name).QueryRow(func(row pgx.Row) error { return row.Scan(&x.next, &x.ready) })
	return q.cfg.Pool.SendBatch(ctx, b).Close()
}

// itemOf decodes an item. It calls functions of the user.
func (q *Queue[T]) itemOf(s string) (item T, err error) {
	err = guard.Call(func() (err error) {
		if item, err = q.decode(s); err == nil && q.encode(item) != s {
			err = errors.New("the item that it is decoded to has another text")
		}
		return err
	})
	return item, err
}

// finish takes note of an exchange, and returns when to do the next one.
func (q *Queue[T]) finish(x *exchanged[T]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range x.taken {
		delete(x.locked, t.text) // It was freed meanwhile, so there is nothing to give back any more.
	}
	q.storedLocked(x.batch, x.locked)
	q.stats.Enqueued += uint64(x.asked)
	q.stats.Coalesced += uint64(len(x.asks.items)) - uint64(x.asked)
	for _, t := range x.taken {
		t.over, t.lose = context.WithCancelCause(x.lease.Lost())
		q.held[t.text] = t
		switch {
		case t.bad != nil:
			pause, _ := retryUnread(t.bad, t.failures+1)
			q.giveLocked(t.text, t, giveBackOf(reconcile.RequeueOptions{Delay: pause, MinDelay: pause, Err: t.bad}))
		case q.closed:
			q.abortLocked(t.text)
		default:
			q.local.Enqueue(t.text)
		}
	}
	q.checkDrainedLocked()
	if x.ready && (q.notify || x.check || x.events > 0 || len(x.asks.items) > 0 || len(x.gives.items) > 0) {
		q.tasks.EnqueueAfter(wake, time.Until(q.woke.Add(wakePause)))
	}
	q.notify = false

	pause := q.cfg.Poll
	if q.local.Len() > 0 {
		pause = min(pause, time.Second) // for those taken ahead
	}
	if x.next != nil && *x.next < pause.Seconds() {
		pause = max(time.Millisecond, time.Duration(*x.next*float64(time.Second)))
		q.notify = true // if this process cannot take it then
	}
	switch {
	case x.events > 0: // There may be more.
		q.merge = true
		return reconcile.RequeueWithin(0)
	case len(q.line) > len(x.locked), q.waiting > 0 && x.take > 0 && len(x.taken) == x.take:
		return reconcile.RequeueWithin(0)
	case len(x.locked) > 0:
		return reconcile.RequeueWithin(min(pause, 20*time.Millisecond))
	case q.lease == nil && pause == q.cfg.Poll: // Only a process that takes items polls.
		return nil
	}
	return reconcile.RequeueWithin(pause)
}

// retryUnread is for items that cannot be read: another process may be able to.
var retryUnread = reconcile.Backoff(time.Second, time.Hour)

// wakePause is the least time between two notifications of a process.
const wakePause = 5 * time.Millisecond

func (q *Queue[T]) wake(ctx context.Context) error {
	q.mu.Lock()
	q.woke = time.Now()
	q.mu.Unlock()
	_, err := q.cfg.Pool.Exec(ctx, q.in(sqlWake), q.cfg.Name, q.channel)
	return err
}
