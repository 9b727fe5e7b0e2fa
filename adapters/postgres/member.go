// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/held"
	"github.com/reconkernel/reconcile/supervise"
)

// errDied is the failure of a run whose process had no lease any more.
const errDied = "the process died during the run"

// startTaking starts what only a process needs that takes items: its lease, and LISTEN.
func (q *Queue[T]) startTaking() {
	q.tasks.Enqueue(renew)
	q.group.Add("listen", supervise.Restart(retryListen, reconcile.RunFunc(func(ctx context.Context) error {
		return listen(ctx, q.dial, q.channel, q.listens, q.hears)
	})))
}

// dial returns a connection that can LISTEN.
func (q *Queue[T]) dial(ctx context.Context) (*pgx.Conn, error) {
	if q.cfg.Direct != nil {
		return pgx.ConnectConfig(ctx, q.cfg.Direct)
	}
	conn, err := q.cfg.Pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Hijack(), nil
}

// listens is called when a connection listens: events may have come before.
func (q *Queue[T]) listens() {
	q.mu.Lock()
	q.heard, q.asked = false, false
	q.mu.Unlock()
	q.tasks.EnqueueNow(hello)
	q.woken(true)
}

// hears is called for each notification.
func (q *Queue[T]) hears(payload string) {
	q.mu.Lock()
	q.heard = true
	q.mu.Unlock()
	q.woken(payload == "event")
}

// woken is called when there may be something to take.
func (q *Queue[T]) woken(events bool) {
	q.mu.Lock()
	q.merge = q.merge || events
	idle := q.waiting > q.local.Len()
	q.mu.Unlock()
	if idle {
		q.tasks.Enqueue(exchange)
	}
}

// helloWait is how long a notification of our own may take.
const helloWait = 5 * time.Second

// hello finds out whether this process hears notifications.
func (q *Queue[T]) hello(ctx context.Context) error {
	q.mu.Lock()
	heard, asked := q.heard, q.asked
	q.asked = true
	q.mu.Unlock()
	switch {
	case heard:
		return nil
	case asked:
		q.cfg.Logger.Warn("postgres: LISTEN hears nothing, so items of other processes wait for the next poll; if Config.Pool connects to a pooler of transactions, set Config.Direct",
			"channel", q.channel, "poll", q.cfg.Poll)
		return nil
	}
	if _, err := q.cfg.Pool.Exec(ctx, sqlHello, q.channel); err != nil {
		q.mu.Lock()
		q.asked = false
		q.mu.Unlock()
		return err
	}
	return reconcile.RequeueAfter(helloWait)
}

// renew renews the lease, or begins one, and frees the items of members that have none. Here
// a lease is good for three quarters of its time, from before the request on: the last
// quarter is for the runs to end.
func (q *Queue[T]) renew(ctx context.Context) error {
	q.mu.Lock()
	l := q.lease
	q.mu.Unlock()
	if l != nil && l.Over() {
		q.lose(l)
		l = nil
	}
	micros := q.cfg.Lease.Microseconds()
	sent := time.Now()
	if l == nil {
		id := rand.Int64()
		if _, err := q.cfg.Pool.Exec(ctx, q.in(sqlJoin), id, q.cfg.Name, processName(), micros); err != nil {
			return err
		}
		l = &lease{id, held.NewTerm(sent.Add(q.cfg.Lease * 3 / 4))}
		q.mu.Lock()
		q.lease = l
		q.mu.Unlock()
		context.AfterFunc(l.Lost(), func() { q.lose(l) }) // now, because it may be over already
		q.tasks.Enqueue(exchange)
	} else {
		renewed, err := q.cfg.Pool.Exec(ctx, q.in(sqlRenew), l.member, micros)
		if err != nil {
			return err
		}
		if renewed.RowsAffected() == 0 || !l.Extend(sent.Add(q.cfg.Lease*3/4)) {
			l.End()
			return reconcile.RequeueWithin(0)
		}
	}
	freed, err := q.cfg.Pool.Exec(ctx, q.in(sqlReap), q.cfg.Name, errDied, q.maxHold)
	if err != nil {
		return fmt.Errorf("freeing the items of processes that died: %w", err)
	}
	n := freed.RowsAffected()
	q.mu.Lock()
	q.check = true // An exchange whose answer was lost may have been carried out late. It notifies others, too.
	if n > 0 || len(q.held) > 0 {
		q.tasks.Enqueue(exchange)
	}
	q.mu.Unlock()
	if n > 0 {
		q.cfg.Logger.Warn("postgres: processes died during runs; their items run again", "items", n)
	}
	return reconcile.RequeueAfter(q.cfg.Lease / 4)
}

// lose forgets a lease that has ended. Its items stay held here until they are given back.
func (q *Queue[T]) lose(l *lease) {
	q.mu.Lock()
	ours := q.lease == l
	if ours {
		q.lease = nil
	}
	runs := len(q.held)
	q.mu.Unlock()
	if ours && q.life.Err() == nil {
		q.cfg.Logger.Warn("postgres: the lease is lost, because it was not renewed in time", "runs", runs)
		q.tasks.EnqueueNow(renew)
	}
}

func processName() string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}
