// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile/adapters/postgres"
)

// A row is the desired state of a bucket. The zero row is a bucket without settings.
type row struct {
	bucket
	Deleted bool // the mark: it must not exist
	OK      bool // the status says that the bucket is in sync
}

// A table has the rows. Its writes are guarded: only the leader's are committed, also if a
// former leader was frozen in the middle of a run.
type table struct{ pool *pgxpool.Pool }

//go:embed schema.sql
var schema string

// create creates the table, and that of the lease of the leader.
func (t table) create(ctx context.Context) error {
	if err := postgres.Migrate(ctx, t.pool, ""); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		// Two replicas may start at once.
		_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('bucket'))")
		if err == nil {
			_, err = tx.Exec(ctx, schema)
		}
		if err != nil {
			return fmt.Errorf("creating the table bucket: %w", err)
		}
		return nil
	})
}

const columns = "SELECT name, versioning, team, deleted, status = 'ok' FROM bucket"

// list returns all rows.
func (t table) list(ctx context.Context) (map[string]row, error) {
	rows, err := t.pool.Query(ctx, columns)
	if err != nil {
		return nil, err
	}
	all := map[string]row{}
	var name string
	var r row
	_, err = pgx.ForEachRow(rows, []any{&name, &r.Versioning, &r.Team, &r.Deleted, &r.OK}, func() error {
		all[name] = r
		return nil
	})
	return all, err
}

var errNoRow = errors.New("the table has no row of it; insert it again or, if the bucket must go, with deleted = true")

// lookup returns the row of one bucket. A bucket without a row is an error, and not a bucket
// to delete: rows get lost, in a restore from a backup or by a DELETE without its WHERE.
func (t table) lookup(ctx context.Context, name string, _ row) (r row, ok bool, err error) {
	err = t.pool.QueryRow(ctx, columns+" WHERE name = $1", name).Scan(&name, &r.Versioning, &r.Team, &r.Deleted, &r.OK)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errNoRow
	}
	return r, err == nil, err
}

// setInSync sets the status to ok, unless the row has changed since it was read. Its change is
// an event then.
func (t table) setInSync(ctx context.Context, name string, r row) error {
	if r.OK {
		return nil
	}
	return t.write(ctx, "UPDATE bucket SET status = 'ok' WHERE name = $1 AND versioning = $2 AND team = $3 AND NOT deleted", name, r.Versioning, r.Team)
}

// setFailed sets the status to an error.
func (t table) setFailed(ctx context.Context, name string, failure error) error {
	return t.write(ctx, "UPDATE bucket SET status = $2 WHERE name = $1 AND status <> $2", name, failure.Error())
}

// setDeleted sets the status of marked rows whose bucket does not exist.
func (t table) setDeleted(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	return t.write(ctx, "UPDATE bucket SET status = 'deleted' WHERE name = ANY($1) AND deleted AND status <> 'deleted'", names)
}

func (t table) write(ctx context.Context, statement string, args ...any) error {
	err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		if err := postgres.Guard(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statement, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}
