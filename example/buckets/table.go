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

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/postgres"
)

// A row is the desired state of a bucket. The zero row is a bucket without settings.
type row struct {
	Name string
	bucket
	Deleted bool // the mark: it must not exist
	Done    bool // the status is ok, or deleted
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

const query = "SELECT name, versioning, team, deleted, status IN ('ok', 'deleted') AS done FROM bucket"

// list returns all rows.
func (t table) list(ctx context.Context) (map[string]row, error) {
	rows, _ := t.pool.Query(ctx, query) // CollectRows returns its error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[row])
	desired := make(map[string]row, len(all))
	for _, r := range all {
		desired[r.Name] = r
	}
	return desired, err
}

// lookup returns the row of one bucket. A bucket without a row is an error, and not a bucket
// to delete: rows get lost, in a restore from a backup or by a DELETE without its WHERE.
func (t table) lookup(ctx context.Context, name string, _ row) (row, bool, error) {
	rows, _ := t.pool.Query(ctx, query+" WHERE name = $1", name)
	r, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[row])
	if errors.Is(err, pgx.ErrNoRows) {
		err = errors.New("the table has no row of it; insert it again or, if the bucket must go, with deleted = true")
	}
	return r, err == nil, err
}

// report writes the result of a run of a row into its status, and returns the result. If the
// row has changed since it was read, it writes nothing: that change is an event.
func (t table) report(ctx context.Context, r row, result error) error {
	status := "ok"
	outcome, _ := reconcile.Classify(result, 1, nil)
	switch {
	case outcome.Failed():
		status = result.Error()
	case result != nil:
		return result // it waits
	case r.Deleted:
		status = "deleted"
	}
	err := pgx.BeginFunc(ctx, t.pool, func(tx pgx.Tx) error {
		if err := postgres.Guard(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE bucket SET status = $1 WHERE name = $2 AND versioning = $3 AND team = $4 AND deleted = $5 AND status <> $1",
			status, r.Name, r.Versioning, r.Team, r.Deleted)
		return err
	})
	if err != nil {
		err = fmt.Errorf("writing the status: %w", err)
	}
	return errors.Join(result, err)
}
