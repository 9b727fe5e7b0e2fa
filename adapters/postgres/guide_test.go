// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/postgres"
	"github.com/reconkernel/reconcile/adapters/postgres/internal/pgtest"
	"github.com/reconkernel/reconcile/internal/servers"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/supervise"
)

// The program of docs/guides/postgres.md.

type table struct{ pool *pgxpool.Pool }

// A row is the desired state of a server.
type row struct {
	Name, Size    string
	Deleted, Done bool // the mark; and whether the status is ok, or deleted
}

const query = "SELECT name, size, deleted, status IN ('ok', 'deleted') AS done FROM server"

func (t table) list(ctx context.Context) (map[string]row, error) {
	desired, r := map[string]row{}, row{}
	rows, _ := t.pool.Query(ctx, query) // ForEachRow returns its error
	_, err := pgx.ForEachRow(rows, []any{&r.Name, &r.Size, &r.Deleted, &r.Done}, func() error { desired[r.Name] = r; return nil })
	return desired, err
}

// lookup returns one row. A missing row is an error, so its server is not deleted.
func (t table) lookup(ctx context.Context, name string, _ row) (row, bool, error) {
	rows, _ := t.pool.Query(ctx, query+" WHERE name = $1", name)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
	return r, err == nil, err
}

// report writes the result of a run into the row, if the row is as it was before the run.
func (t table) report(ctx context.Context, r row, result error) error {
	status := "ok"
	switch outcome, _ := reconcile.Classify(result, 1, nil); {
	case outcome.Failed():
		status = result.Error()
	case result != nil:
		return result // it waits
	case r.Deleted:
		status = "deleted"
	}
	return errors.Join(result, pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "UPDATE server SET status = $1 WHERE name = $2 AND size = $3 AND deleted = $4 AND status <> $1", status, r.Name, r.Size, r.Deleted)
		return errors.Join(err, postgres.Guard(ctx, tx))
	}))
}

// set returns the Set of the servers.
func (t table) set(queue reconcile.Enqueuer[string], cloud *cloud) *keep.Set[string, row, string] {
	return &keep.Set[string, row, string]{
		Queue:  queue,
		Period: period,
		Desired: func(ctx context.Context) (map[string]row, error) {
			all, err := t.list(ctx)
			for name, r := range all {
				if r.Deleted && !r.Done { // it may be gone, and then no listing offers it
					queue.Offer(name)
				}
			}
			return all, err
		},
		Actual: cloud.list,
		InSync: func(r row, size string) bool { return r.Done && r.Size == size },
		Absent: func(r row) bool { return r.Deleted },
		Lookup: t.lookup,
		Ensure: func(ctx context.Context, name string, r row) error { return cloud.ensure(ctx, name, r.Size) },
		Delete: cloud.remove,
	}
}

// run is a replica of the service.
func (t table) run(ctx context.Context, cloud *cloud) error {
	leader := postgres.Elect(postgres.Config{Pool: t.pool, Name: "servers"}, postgres.EachTerm(func(term *supervise.Group) {
		queue := reconcile.NewQueue[string]()
		set := t.set(queue, cloud)
		changes := postgres.Listen(t.pool.Config().ConnConfig, "servers", func(name string) (string, error) { return name, nil }, set.Trigger)
		term.Add("listings", set)
		term.Add("changes", reconcile.Feed(queue, changes))
		term.Add("runs", &reconcile.Reconciler[string]{
			Queue: postgres.Held(queue), // runs end when the lease is lost
			Reconcile: func(ctx context.Context, name string) error {
				r, _, _ := t.lookup(ctx, name, row{}) // without a row, report changes none
				err := set.Reconcile(ctx, name)
				if err == nil && r.Deleted {
					err = cloud.gone(ctx, name) // or RequeueWithin: no listing has shown it yet
				}
				return t.report(ctx, r, err)
			},
			Workers: 8, Timeout: time.Minute, Retry: reconcile.Backoff(time.Second, period),
		})
	}))
	return leader.Run(ctx)
}

const period = 100 * time.Millisecond

// A cloud has servers, by name, with their sizes.
type cloud struct {
	mu      sync.Mutex
	servers map[string]string
	full    bool
}

func (c *cloud) list(context.Context) (map[string]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.servers), nil
}

func (c *cloud) ensure(_ context.Context, name, size string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.full {
		return errors.New("no room")
	}
	c.servers[name] = size
	return nil
}

func (c *cloud) remove(_ context.Context, name, _ string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.servers, name)
	return nil
}

func (c *cloud) gone(_ context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, exists := c.servers[name]; exists {
		return reconcile.RequeueWithin(period)
	}
	return nil
}

func (c *cloud) setFull(full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = full
}

// TestGuide runs two replicas of the guide's program on the guide's table: a status for each
// result, no deletion without a mark, and a second leader when the first ends.
func TestGuide(t *testing.T) {
	pool := pgtest.Pool(t, pgtest.New(t).URL()+"&pool_max_conns=16")
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, block := range pgtest.Blocks(t, "../../docs/guides/postgres.md") {
		exec(block)
	}
	if err := postgres.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	until := func(want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := servers.Retry(ctx, func(ctx context.Context) error {
			var got string
			err := pool.QueryRow(ctx, "SELECT COALESCE(string_agg(concat_ws(' ', name, size, status), ', ' ORDER BY name), '') FROM server").Scan(&got)
			if err == nil && got != want {
				err = fmt.Errorf("the table is %q, want %q", got, want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	c := &cloud{servers: map[string]string{}}
	first, stop := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- table{pool}.run(first, c) }()
	exec("INSERT INTO server (name, size) VALUES ('db', 'l'), ('web', 's')")
	until("db l ok, web s ok")
	second, stopSecond := context.WithCancel(t.Context())
	go func() { ended <- table{pool}.run(second, c) }()
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	exec("UPDATE server SET size = 'm' WHERE name = 'web'")
	until("db l ok, web m ok")
	c.setFull(true)
	exec("UPDATE server SET size = 'xl' WHERE name = 'web'")
	until("db l ok, web xl no room")
	c.setFull(false)
	until("db l ok, web xl ok")

	// DeleteAfter is five Periods, and the last row is never deleted: but Lookup says no first.
	exec("DELETE FROM server WHERE name = 'web'")
	exec("UPDATE server SET deleted = true WHERE name = 'db'")
	until("db l deleted")
	exec("INSERT INTO server (name, size, deleted) VALUES ('never', 's', true)")
	until("db l deleted, never s deleted")
	if all, _ := c.list(t.Context()); all["web"] != "xl" || len(all) != 1 {
		t.Errorf("the servers are %v, want web", all)
	}
	stopSecond()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
