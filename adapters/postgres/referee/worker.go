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
	Direct  string // of the database for LISTEN, or nothing
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

// below returns a time from 0 to just below d.
func below(d time.Duration) time.Duration { return rand.N(d) }

// open returns a pool and a queue. While the database cannot be reached, it tries again.
func open(ctx context.Context, url, direct string) (*pgxpool.Pool, *postgres.Queue[string], error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = slots + 6
	cfg.ConnConfig.ConnectTimeout = 2 * time.Second
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	c := postgres.Config{Pool: pool, Name: queueName, Lease: lease, Poll: 2 * time.Second}
	if direct != "" {
		if c.Direct, err = pgx.ParseConfig(direct); err != nil {
			return nil, nil, err
		}
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		q, err := postgres.New[string](attempt, c)
		cancel()
		if err == nil || ctx.Err() != nil {
			return pool, q, err
		}
		slog.Warn("no queue yet", "err", err)
		time.Sleep(100 * time.Millisecond)
	}
}

// work is what a worker process does, until SIGTERM.
func work(j job) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)).With("process", j.Process))
	watcher, err := dial(j.Monitor, j.Process)
	if err != nil {
		return err
	}
	go watcher.watch()
	pool, q, err := open(ctx, j.URL, j.Direct)
	if err != nil {
		return err
	}
	clients := make(chan *client, slots)
	for range slots {
		c, err := dial(j.Monitor, j.Process)
		if err != nil {
			return err
		}
		clients <- c
	}
	r := reconcile.Reconciler[string]{
		Queue: q, Workers: slots, Retry: reconcile.Backoff(50*time.Millisecond, time.Second),
		Logger: slog.New(slog.DiscardHandler),
		Reconcile: func(ctx context.Context, item string) error {
			c := <-clients
			defer func() { clients <- c }()
			return reconcileItem(ctx, c, pool, q, item)
		},
	}
	err = r.Run(ctx)
	stop, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	return errors.Join(err, q.Close(stop))
}

// reconcileItem reads the version of the item that was desired last, and writes that it has been done.
func reconcileItem(ctx context.Context, c *client, pool *pgxpool.Pool, q *postgres.Queue[string], item string) error {
	fence := postgres.Fence(ctx)
	c.notify(call{Op: "enter", Item: item, Fence: fence})
	inside := true
	leave := func() {
		if inside {
			c.notify(call{Op: "leave", Item: item, Fence: fence})
		}
		inside = false
	}
	defer leave()
	var version int64
	if err := pool.QueryRow(ctx, "SELECT COALESCE((SELECT version FROM desired WHERE item = $1), 0)", item).Scan(&version); err != nil {
		return err
	}
	length := below(8 * time.Millisecond)
	if rand.IntN(50) == 0 {
		length = below(lease / 2)
	}
	select {
	case <-time.After(length):
	case <-ctx.Done():
		// What has begun goes on elsewhere. This one writes all the same, late, and it is
		// Guard that must refuse it.
		leave()
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease)
		defer cancel()
		_ = write(late, c, pool, q, item, fence, version)
		return context.Cause(ctx)
	}
	if err := write(ctx, c, pool, q, item, fence, version); err != nil {
		return err
	}
	switch n := rand.IntN(100); {
	case n < 4:
		return errors.New("an error now and then")
	case n < 7:
		return reconcile.RequeueAfter(below(400 * time.Millisecond))
	case n < 10:
		return reconcile.RequeueWithin(below(400 * time.Millisecond))
	case n < 12:
		return reconcile.RecheckWithin(time.Hour)
	}
	return nil
}

// write commits the result of a run only while the item is in flight here. A newer one is
// never overwritten by an older one.
func write(ctx context.Context, c *client, pool *pgxpool.Pool, q *postgres.Queue[string], item string, fence, version int64) error {
	var disorder bool
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := postgres.Guard(ctx, tx); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `INSERT INTO actual AS a (item, version, fence) VALUES ($1, $2, $3)
			ON CONFLICT (item) DO UPDATE SET version = excluded.version, fence = excluded.fence, disorder = a.fence >= excluded.fence OR a.version > excluded.version
			RETURNING disorder`, item, version, fence).Scan(&disorder)
		if err != nil || rand.IntN(20) > 0 {
			return err
		}
		return change(ctx, tx, anyItem(), func(other string) error { return q.EnqueueTx(ctx, tx, other) })
	})
	switch {
	case errors.Is(err, reconcile.ErrLeaseLost):
		c.notify(call{Op: "refused", Item: item, Fence: fence})
	case err == nil && disorder:
		c.notify(call{Op: "broken", Item: item, Text: fmt.Sprintf("%s: the result of fence %d, version %d, was written after a later one", item, fence, version)})
	}
	return err
}

// change has a transaction make a new version of an item, and enqueue the item.
func change(ctx context.Context, tx pgx.Tx, item string, enqueue func(string) error) error {
	_, err := tx.Exec(ctx, "INSERT INTO desired AS d (item, version) VALUES ($1, 1) ON CONFLICT (item) DO UPDATE SET version = d.version + 1", item)
	if err != nil {
		return err
	}
	return enqueue(item)
}
