// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/postgres"
)

// A queue is an implementation that is measured. Each method is called in processes of its own
// choice, with a pool of connections to the same database.
type queue struct {
	name   string
	create func(context.Context, *pgxpool.Pool) error // the tables
	// open returns what stores one event, and what stores many.
	open func(context.Context, *pgxpool.Pool) (event func(string), batch func(context.Context, []string) error, err error)
	// work calls run for each item, in so many workers, until ctx is done.
	work   func(ctx context.Context, pool *pgxpool.Pool, workers int, run func(item string)) error
	tables string // of which dead rows are counted
	left   string // a query for the number of items that have not run
}

var queues = []queue{
	ours("reconcile", 0),
	ours("reconcile, Ahead 64", 64),
	rivers("River, least cool-down", time.Millisecond),
	rivers("River, defaults", 0),
	skipLocked,
}

func ours(name string, ahead int) queue {
	open := func(ctx context.Context, pool *pgxpool.Pool) (*postgres.Queue[string], error) {
		return postgres.New[string](ctx, postgres.Config{Pool: pool, Name: "bench", Ahead: ahead})
	}
	return queue{
		name:   name,
		tables: "reconcile",
		left:   "SELECT (SELECT count(*) FROM reconcile.item) + (SELECT count(*) FROM reconcile.event)",
		create: func(ctx context.Context, pool *pgxpool.Pool) error { return postgres.Migrate(ctx, pool, "") },
		open: func(ctx context.Context, pool *pgxpool.Pool) (func(string), func(context.Context, []string) error, error) {
			q, err := open(ctx, pool)
			if err != nil {
				return nil, nil, err
			}
			return q.Enqueue, func(ctx context.Context, items []string) error { return q.EnqueueContext(ctx, items...) }, nil
		},
		work: func(ctx context.Context, pool *pgxpool.Pool, workers int, run func(string)) error {
			q, err := open(ctx, pool)
			if err != nil {
				return err
			}
			r := reconcile.Reconciler[string]{Queue: q, Workers: workers, Reconcile: func(_ context.Context, item string) error {
				run(item)
				return nil
			}}
			if err := r.Run(ctx); err != nil {
				return err
			}
			return q.Close(context.Background())
		},
	}
}

// A job is one of River. It is unique by its item, as an item is in our queue.
type job struct {
	Item string `json:"item" river:"unique"`
}

func (job) Kind() string { return "item" }

func (job) InsertOpts() river.InsertOpts {
	return river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

func rivers(name string, coolDown time.Duration) queue {
	quiet := slog.New(slog.DiscardHandler)
	return queue{
		name:   name,
		tables: "public",
		left:   "SELECT count(*) FROM river_job WHERE state <> 'completed'",
		create: func(ctx context.Context, pool *pgxpool.Pool) error {
			m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
			if err != nil {
				return err
			}
			_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
			return err
		},
		open: func(ctx context.Context, pool *pgxpool.Pool) (func(string), func(context.Context, []string) error, error) {
			c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet})
			if err != nil {
				return nil, nil, err
			}
			event := func(item string) {
				if _, err := c.Insert(ctx, job{item}, nil); err != nil {
					panic(err)
				}
			}
			batch := func(ctx context.Context, items []string) error {
				jobs := make([]river.InsertManyParams, len(items))
				for i, item := range items {
					jobs[i].Args = job{item}
				}
				_, err := c.InsertManyFast(ctx, jobs)
				return err
			}
			return event, batch, nil
		},
		work: func(ctx context.Context, pool *pgxpool.Pool, workers int, run func(string)) error {
			all := river.NewWorkers()
			river.AddWorker(all, river.WorkFunc(func(_ context.Context, j *river.Job[job]) error {
				run(j.Args.Item)
				return nil
			}))
			c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
				Logger: quiet, Workers: all, FetchCooldown: coolDown,
				Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
			})
			if err != nil {
				return err
			}
			if err := c.Start(ctx); err != nil {
				return err
			}
			<-ctx.Done()
			<-c.Stopped()
			return nil
		},
	}
}

// skipLocked is the table that is often written by hand: a worker holds a row in a transaction
// during the run. An idle worker asks each 100 ms.
var skipLocked = queue{
	name:   "SKIP LOCKED",
	tables: "public",
	left:   "SELECT count(*) FROM job",
	create: func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, "CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL UNIQUE)")
		return err
	},
	open: func(ctx context.Context, pool *pgxpool.Pool) (func(string), func(context.Context, []string) error, error) {
		batch := func(ctx context.Context, items []string) error {
			_, err := pool.Exec(ctx, "INSERT INTO job (item) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING", items)
			return err
		}
		event := func(item string) {
			if err := batch(ctx, []string{item}); err != nil {
				panic(err)
			}
		}
		return event, batch, nil
	},
	work: func(ctx context.Context, pool *pgxpool.Pool, workers int, run func(string)) error {
		one := func() (found bool, err error) {
			err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				var id int64
				var item string
				err := tx.QueryRow(ctx, "SELECT id, item FROM job ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED").Scan(&id, &item)
				if err == pgx.ErrNoRows {
					return nil
				}
				if err != nil {
					return err
				}
				found = true
				run(item)
				_, err = tx.Exec(ctx, "DELETE FROM job WHERE id = $1", id)
				return err
			})
			return found, err
		}
		var all sync.WaitGroup
		errs := make([]error, workers)
		for i := range workers {
			all.Go(func() {
				for ctx.Err() == nil {
					found, err := one()
					if err != nil && ctx.Err() == nil {
						errs[i] = fmt.Errorf("a worker ended: %w", err)
						return
					}
					if !found {
						select {
						case <-ctx.Done():
						case <-time.After(100 * time.Millisecond):
						}
					}
				}
			})
		}
		all.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	},
}
