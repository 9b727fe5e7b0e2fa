// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/postgres"
	"github.com/reconkernel/reconcile/supervise"
)

// Any number of processes run this: each item is in flight in one of them at most.
func Example() {
	work := func(ctx context.Context, pool *pgxpool.Pool, reconcileVM func(context.Context, string) error) error {
		if err := postgres.Migrate(ctx, pool, ""); err != nil {
			return err
		}
		queue, err := postgres.New[string](ctx, postgres.Config{Pool: pool, Name: "vms"})
		if err != nil {
			return err
		}
		vms := &reconcile.Reconciler[string]{Queue: queue, Reconcile: reconcileVM, Workers: 8}
		err = vms.Run(ctx)
		queue.Close(context.WithoutCancel(ctx)) // gives the items and the lease back
		return err
	}
	_ = work
}

// A transaction that changes a row enqueues its item if and when it is committed.
func ExampleQueue_EnqueueTx() {
	resize := func(ctx context.Context, pool *pgxpool.Pool, queue *postgres.Queue[string], id string, size int) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "UPDATE vm SET size = $2 WHERE id = $1", id, size); err != nil {
				return err
			}
			return queue.EnqueueTx(ctx, tx, id)
		})
	}
	_ = resize
}

// A run that was replaced while its process was frozen cannot write.
func ExampleGuard() {
	reconcileVM := func(ctx context.Context, pool *pgxpool.Pool, id, state string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := postgres.Guard(ctx, tx); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE vm SET state = $2 WHERE id = $1", id, state)
			return err
		})
	}
	_ = reconcileVM
}

// One process of many polls and reconciles. A trigger's notifications are events; what was
// missed while the connection was away is listed.
func ExampleElect() {
	lead := func(ctx context.Context, pool *pgxpool.Pool, list func(context.Context) ([]string, error), reconcileVM func(context.Context, string) error) error {
		return postgres.Elect(postgres.Config{Pool: pool, Name: "vms"}, postgres.EachTerm(func(term *supervise.Group) {
			queue := reconcile.NewQueue[string]()
			poller := &reconcile.Poller[string]{Queue: queue, GetItems: list, Period: time.Minute}
			events := postgres.Listen(pool.Config().ConnConfig, "vms", func(id string) (string, error) { return id, nil }, poller.Trigger)
			term.Add("list", poller)
			term.Add("events", reconcile.Feed(queue, events))
			term.Add("runs", &reconcile.Reconciler[string]{Queue: postgres.Held(queue), Reconcile: reconcileVM})
		})).Run(ctx)
	}
	_ = lead
}
