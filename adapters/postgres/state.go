// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile"
)

// askTime is how long the database may take to answer State and All.
const askTime = 10 * time.Second

// State returns the state of the item. For an item that is in flight in this process it does
// not ask the database, and Again knows only the verbs of this process. For others it blocks, up to
// ten seconds, and returns the zero State if the database does not answer.
func (q *Queue[T]) State(item T) (state reconcile.State) {
	s := q.encode(item)
	q.mu.Lock()
	h := q.held[s]
	if h != nil && !h.giving {
		state = reconcile.State{Phase: reconcile.PhaseInFlight, Since: h.since, Pending: h.pending, Failures: h.failures, Err: textError(h.err), Again: h.again}
	}
	q.mu.Unlock()
	if state.Phase == reconcile.PhaseIdle {
		for _, state = range q.states(&s) {
		}
	}
	return state
}

// All returns the items of all processes, in the order of their texts. It blocks while it is
// read, up to ten seconds. If the database does not answer, it ends early, which is logged.
func (q *Queue[T]) All() iter.Seq2[T, reconcile.State] { return q.states(nil) }

func (q *Queue[T]) states(only *string) iter.Seq2[T, reconcile.State] {
	return func(yield func(T, reconcile.State) bool) {
		ctx, cancel := context.WithTimeout(q.life, askTime)
		defer cancel()
		rows, _ := q.cfg.Pool.Query(ctx, q.in(sqlState), q.cfg.Name, only)
		defer rows.Close()
		for rows.Next() {
			s, state, err := scanState(rows)
			if err != nil {
				break // Rows has it too.
			}
			if item, err := q.itemOf(s); err == nil && !yield(item, state) {
				return
			}
		}
		err := rows.Err()
		q.mu.Lock()
		if q.failed++; err == nil {
			q.failed = 0
		}
		n := q.failed
		q.mu.Unlock()
		if err != nil && n&(n-1) == 0 {
			q.cfg.Logger.Warn("postgres: cannot read the states of items", "failures", n, "err", err)
		}
	}
}

func scanState(rows pgx.Rows) (item string, s reconcile.State, err error) {
	var (
		inFlight                bool
		ready                   *bool
		due, notBefore, pending *time.Time
		text                    string
	)
	if err := rows.Scan(&item, &inFlight, &ready, &due, &notBefore, &s.Recheck, &s.Since, &pending, &s.Failures, &text); err != nil {
		return item, s, err
	}
	s.Err = textError(text)
	switch {
	case inFlight:
		s.Phase, s.Again, s.Recheck = reconcile.PhaseInFlight, due != nil, false
	case *ready:
		s.Phase, s.Recheck = reconcile.PhaseReady, false
		if due.After(s.Since) {
			s.Since = *due
		}
	default:
		s.Phase, s.Due = reconcile.PhaseWaiting, *due
		if notBefore != nil {
			s.NotBefore = *notBefore
		}
	}
	switch {
	case s.Recheck:
	case pending != nil:
		s.Pending = *pending
	case due != nil: // a recheck that became due
		s.Pending = *due
	}
	return item, s, nil
}

func textError(s string) error {
	if s == "" {
		return nil
	}
	return errors.New(s)
}

// Stats returns the items of all processes, as they were counted up to some seconds ago, and
// the operations of this one. It never blocks. The items are counted only if Stats was called
// within the last five minutes: the first call returns none.
func (q *Queue[T]) Stats() reconcile.Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	if time.Since(q.counted) > countFor {
		q.tasks.Enqueue(count)
	}
	q.counted = time.Now()
	return q.stats
}

const countFor = 5 * time.Minute

// count counts the items each Poll, or less often if that takes more than a twentieth of the
// time.
func (q *Queue[T]) count(ctx context.Context) error {
	began := time.Now()
	var s reconcile.Stats
	err := q.cfg.Pool.QueryRow(ctx, q.in(sqlStats), q.cfg.Name).Scan(&s.Ready, &s.Waiting, &s.InFlight, &s.Rechecks, &s.Again)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s.Enqueued, s.Coalesced, s.Taken, s.Requeued = q.stats.Enqueued, q.stats.Coalesced, q.stats.Taken, q.stats.Requeued
	q.stats = s
	if time.Since(q.counted) > countFor {
		return nil
	}
	return reconcile.RequeueWithin(max(q.cfg.Poll, 20*time.Since(began)))
}
