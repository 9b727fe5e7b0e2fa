// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
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
	// open returns what stores one event, and what stores many at once.
	open func(context.Context, *pgxpool.Pool) (event func(string), batch func([]string))
	// work calls run for each item, in so many workers, until ctx is done.
	work  func(ctx context.Context, pool *pgxpool.Pool, workers int, run func(item string)) error
	left  string // a query for the number of items that have not run
	clear string // a statement that removes all items
}

const defaults = "River, defaults"

var queues = []queue{
	ours("reconcile", 0),
	ours("reconcile, Ahead 64", 64),
	rivers("River, least cool-down", time.Millisecond),
	rivers(defaults, 0),
	skipLocked,
}

func ours(name string, ahead int) queue {
	open := func(ctx context.Context, pool *pgxpool.Pool) (*postgres.Queue[string], error) {
		return postgres.New[string](ctx, postgres.Config{Pool: pool, Name: "bench", Ahead: ahead})
	}
	return queue{
		name:   name,
		left:   "SELECT (SELECT count(*) FROM reconcile.item) + (SELECT count(*) FROM reconcile.event)",
		clear:  "TRUNCATE reconcile.item, reconcile.event",
		create: func(ctx context.Context, pool *pgxpool.Pool) error { return postgres.Migrate(ctx, pool, "") },
		open: func(ctx context.Context, pool *pgxpool.Pool) (func(string), func([]string)) {
			q := get(open(ctx, pool))
			return q.Enqueue, func(items []string) { must(q.EnqueueContext(ctx, items...)) }
		},
		work: func(ctx context.Context, pool *pgxpool.Pool, workers int, run func(string)) error {
			q := get(open(ctx, pool))
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
		name:  name,
		left:  "SELECT count(*) FROM river_job WHERE state <> 'completed'",
		clear: "TRUNCATE river_job",
		create: func(ctx context.Context, pool *pgxpool.Pool) error {
			m := get(rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet}))
			_, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil)
			return err
		},
		open: func(ctx context.Context, pool *pgxpool.Pool) (func(string), func([]string)) {
			c := get(river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet}))
			return func(item string) { get(c.Insert(ctx, job{item}, nil)) }, func(items []string) {
				jobs := make([]river.InsertManyParams, len(items))
				for i, item := range items {
					jobs[i].Args = job{item}
				}
				get(c.InsertManyFast(ctx, jobs))
			}
		},
		work: func(ctx context.Context, pool *pgxpool.Pool, workers int, run func(string)) error {
			all := river.NewWorkers()
			river.AddWorker(all, river.WorkFunc(func(_ context.Context, j *river.Job[job]) error {
				run(j.Args.Item)
				return nil
			}))
			c := get(river.NewClient(riverpgxv5.New(pool), &river.Config{
				Logger: quiet, Workers: all, FetchCooldown: coolDown,
				Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
			}))
			must(c.Start(ctx))
			<-ctx.Done()
			<-c.Stopped()
			return nil
		},
	}
}

// skipLocked is the table that is often written by hand: a worker holds a row in a transaction
// during the run. An idle worker asks each 100 ms.
var skipLocked = queue{
	name:  "SKIP LOCKED",
	left:  "SELECT count(*) FROM job",
	clear: "TRUNCATE job",
	create: func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, "CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, item text NOT NULL UNIQUE)")
		return err
	},
	open: func(ctx context.Context, pool *pgxpool.Pool) (func(string), func([]string)) {
		batch := func(items []string) {
			get(pool.Exec(ctx, "INSERT INTO job (item) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING", items))
		}
		return func(item string) { batch([]string{item}) }, batch
	},
	work: func(ctx context.Context, pool *pgxpool.Pool, workers int, run func(string)) error {
		one := func() (found bool) {
			err := pgx.BeginFunc(context.Background(), pool, func(tx pgx.Tx) error {
				var id int64
				var item string
				err := tx.QueryRow(ctx, "SELECT id, item FROM job ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED").Scan(&id, &item)
				if err != nil {
					return err
				}
				found = true
				run(item)
				_, err = tx.Exec(ctx, "DELETE FROM job WHERE id = $1", id)
				return err
			})
			if err != nil && !errors.Is(err, pgx.ErrNoRows) && ctx.Err() == nil {
				panic(err)
			}
			return found
		}
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for ctx.Err() == nil {
					if !one() {
						time.Sleep(100 * time.Millisecond)
					}
				}
			})
		}
		all.Wait()
		return nil
	},
}
