// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/postgres"
)

// A job is what a worker process has in its environment.
type job struct {
	Process int
	Monitor string // its address
	URL     string // of the database, or of a pooler
	Direct  string // of the database, if URL is that of a pooler
}

// What all processes agree on.
const (
	queueName = "referee"
	lease     = 4 * time.Second
	slots     = 8 // runs at once in a worker
	hot       = 20
	cold      = 2000
)

// anyItem returns one of a few items that always have events, or one of many.
func anyItem() string {
	if rand.IntN(3) == 0 {
		return fmt.Sprintf("hot-%d", rand.IntN(hot))
	}
	return fmt.Sprintf("cold-%d", rand.IntN(cold))
}

// open returns a pool and a queue. While the database cannot be reached, it tries again.
func open(ctx context.Context, j job) (*pgxpool.Pool, *postgres.Queue[string]) {
	cfg := get(pgxpool.ParseConfig(j.URL))
	cfg.MaxConns = slots + 6
	cfg.ConnConfig.ConnectTimeout = 2 * time.Second
	c := postgres.Config{Pool: get(pgxpool.NewWithConfig(ctx, cfg)), Name: queueName, Lease: lease, Poll: 2 * time.Second}
	if j.Direct != "" {
		c.Direct = get(pgx.ParseConfig(j.Direct))
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		q, err := postgres.New[string](attempt, c)
		cancel()
		if err == nil || ctx.Err() != nil {
			return c.Pool, q
		}
		slog.Warn("no queue yet", "err", err)
		time.Sleep(100 * time.Millisecond)
	}
}

// work is what a worker process does, until SIGTERM.
func work(j job) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	go dial(j).watch()
	pool, q := open(ctx, j)
	if q == nil {
		return nil
	}
	leads := make(chan struct{})
	go func() {
		defer close(leads)
		lead(ctx, dial(j), postgres.Config{Pool: pool, Name: queueName, Lease: lease, Poll: 2 * time.Second})
	}()
	clients := make(chan *client, slots)
	for range slots {
		clients <- dial(j)
	}
	r := reconcile.Reconciler[string]{
		Queue: q, Workers: slots, Retry: reconcile.Backoff(50*time.Millisecond, time.Second), Logger: slog.New(slog.DiscardHandler),
		Reconcile: func(ctx context.Context, item string) error {
			c := <-clients
			defer func() { clients <- c }()
			return reconcileItem(ctx, c, pool, q, item)
		},
	}
	err := r.Run(ctx)
	<-leads
	stop, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	return errors.Join(err, q.Close(stop))
}

// lead is a candidate until ctx is done. A term is as a run of an item of its own. Some end before
// their lease does.
func lead(ctx context.Context, c *client, cfg postgres.Config) {
	candidate := postgres.Elect(cfg, reconcile.RunFunc(func(ctx context.Context) error {
		fence := postgres.Fence(ctx)
		c.notify(call{Op: "enter", Item: "leader", Fence: fence})
		defer c.notify(call{Op: "leave", Item: "leader", Fence: fence})
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(4 * lease)):
		}
		return nil
	}))
	for ctx.Err() == nil {
		if err := candidate.Run(ctx); err != nil {
			slog.Warn("no candidate", "err", err)
			time.Sleep(100 * time.Millisecond)
		}
	}
}

// reconcileItem reads the version of the item that is desired, and writes it as the actual one.
func reconcileItem(ctx context.Context, c *client, pool *pgxpool.Pool, q *postgres.Queue[string], item string) error {
	fence := postgres.Fence(ctx)
	c.notify(call{Op: "enter", Item: item, Fence: fence})
	leave := sync.OnceFunc(func() { c.notify(call{Op: "leave", Item: item, Fence: fence}) })
	defer leave()
	var version int64
	if err := pool.QueryRow(ctx, "SELECT COALESCE(max(version), 0) FROM desired WHERE item = $1", item).Scan(&version); err != nil {
		return err
	}
	write := func(ctx context.Context) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := postgres.Guard(ctx, tx); err != nil {
				return err
			}
			// A run may write twice, if it does not know whether it has written.
			_, err := tx.Exec(ctx, `INSERT INTO actual AS a (item, version, fence, process) VALUES ($1, $2, $3, $4) ON CONFLICT (item) DO UPDATE
				SET version = excluded.version, fence = excluded.fence, process = excluded.process, disorder = a.disorder OR a.version > excluded.version
					OR a.fence > excluded.fence OR a.fence = excluded.fence AND a.process <> excluded.process`, item, version, fence, c.process)
			if other := anyItem(); err == nil && rand.IntN(20) == 0 {
				err = errors.Join(change(ctx, tx, other), q.EnqueueTx(ctx, tx, other))
			}
			return err
		})
		if errors.Is(err, reconcile.ErrLeaseLost) {
			c.notify(call{Op: "refused", Item: item, Fence: fence})
		}
		return err
	}
	length := rand.N(8 * time.Millisecond)
	if rand.IntN(10) == 0 {
		length = rand.N(lease / 2)
	}
	select {
	case <-time.After(length):
	case <-ctx.Done():
	}
	err := write(ctx)
	if ctx.Err() != nil {
		leave()
		// Another process may run the item. This one writes late, and Guard must refuse that.
		time.Sleep(rand.N(lease))
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
		defer cancel()
		_ = write(late)
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	switch n := rand.IntN(100); {
	case n < 4:
		return errors.New("an error now and then")
	case n < 7:
		return reconcile.RequeueAfter(rand.N(400 * time.Millisecond))
	case n < 10:
		return reconcile.RequeueWithin(rand.N(400 * time.Millisecond))
	case n < 12:
		return reconcile.RecheckWithin(time.Hour)
	}
	return nil
}

// change makes a new version of an item.
func change(ctx context.Context, tx pgx.Tx, item string) error {
	_, err := tx.Exec(ctx, "INSERT INTO desired AS d (item, version) VALUES ($1, 1) ON CONFLICT (item) DO UPDATE SET version = d.version + 1", item)
	return err
}
