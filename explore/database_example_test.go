// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/reconkernel/reconcile/explore"
)

// A connector is a database whose statements and commits are calls of a process. Copy it with
// conn, tx and rows, and give it a database in memory: for a few statements a type as
// jobTable below, otherwise SQLite. If that lets others wait for its locks, the clock of a
// bubble stops: explore then tries no slow calls, and its report says so.
type connector struct {
	driver.Connector
	proc *explore.Process
}

// openDB returns a handle that is closed when the process ends.
func openDB(proc *explore.Process, database driver.Connector) *sql.DB {
	db := sql.OpenDB(connector{database, proc})
	context.AfterFunc(proc.Context(), func() { db.Close() })
	return db
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	return conn{inner, c.proc}, err
}

// A conn passes on what is no statement, such as Close.
type conn struct {
	driver.Conn
	proc *explore.Process
}

func (c conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	err = c.proc.Do(ctx, statement(query, args), func() (err error) {
		result, err = c.Conn.(driver.ExecerContext).ExecContext(context.WithoutCancel(ctx), query, args)
		return err
	})
	return result, err
}

// statement names a call by what it does, so that a plan says for which row.
func statement(query string, args []driver.NamedValue) string {
	for _, a := range args {
		query += fmt.Sprintf(" %v", a.Value)
	}
	return query
}

// QueryContext reads by Read, so the rows may be stale, as from a replica. If your service reads
// the primary, use Do in its place, and return the rows in a variable.
func (c conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	all, err := explore.Read(ctx, c.proc, statement(query, args), func() (rows, error) {
		found, err := c.Conn.(driver.QueryerContext).QueryContext(context.WithoutCancel(ctx), query, args)
		if err != nil {
			return rows{}, err
		}
		defer found.Close()
		all := rows{columns: found.Columns()}
		for {
			values := make([]driver.Value, len(all.columns))
			if err := found.Next(values); errors.Is(err, io.EOF) {
				return all, nil
			} else if err != nil {
				return rows{}, err
			}
			all.values = append(all.values, slices.Clone(values))
		}
	})
	return &all, err
}

func (c conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	inner, err := c.Conn.(driver.ConnBeginTx).BeginTx(context.WithoutCancel(ctx), opts)
	return tx{inner, c.proc}, err
}

// A tx commits by a call.
type tx struct {
	driver.Tx
	proc *explore.Process
}

func (t tx) Commit() error {
	err := t.proc.Do(context.WithoutCancel(t.proc.Context()), "commit", t.Tx.Commit)
	if err != nil {
		_ = t.Tx.Rollback() // does nothing after a commit whose response is lost
	}
	return err
}

// Rows are the rows that a query has found.
type rows struct {
	columns []string
	values  [][]driver.Value
	next    int
}

func (r *rows) Columns() []string { return r.columns }
func (r *rows) Close() error      { return nil }
func (r *rows) Next(values []driver.Value) error {
	if r.next == len(r.values) {
		return io.EOF
	}
	copy(values, r.values[r.next])
	r.next++
	return nil
}

// A jobTable is a database in memory of two tables, and knows three statements.
type jobTable struct {
	status map[string]string // of each job
	log    []string
}

const (
	findNew = "SELECT id FROM jobs WHERE status = 'new' ORDER BY id"
	setDone = "UPDATE jobs SET status = 'done' WHERE id = ? AND status = 'new'"
	addLog  = "INSERT INTO log (id) VALUES (?)"
)

func (d *jobTable) Connect(context.Context) (driver.Conn, error) { return d, nil }
func (d *jobTable) Driver() driver.Driver                        { return nil }
func (d *jobTable) Close() error                                 { return nil }
func (d *jobTable) Begin() (driver.Tx, error)                    { return nil, errors.ErrUnsupported }

func (d *jobTable) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }

func (d *jobTable) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	id := args[0].Value.(string)
	switch {
	case query == addLog:
		d.log = append(d.log, id)
	case query == setDone && d.status[id] == "new":
		d.status[id] = "done"
	default:
		return driver.RowsAffected(0), nil
	}
	return driver.RowsAffected(1), nil
}

func (d *jobTable) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	found := &rows{columns: []string{"id"}}
	for _, id := range slices.Sorted(maps.Keys(d.status)) {
		if d.status[id] == "new" {
			found.values = append(found.values, []driver.Value{id})
		}
	}
	return found, nil
}

func (d *jobTable) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	return &undo{d, maps.Clone(d.status), slices.Clone(d.log)}, nil
}

// An undo is a transaction that knows the tables before it.
type undo struct {
	d      *jobTable
	status map[string]string
	log    []string
}

func (u *undo) Commit() error { u.d = nil; return nil }
func (u *undo) Rollback() error {
	if u.d != nil {
		u.d.status, u.d.log = u.status, u.log
	}
	return nil
}

type noting func(ctx context.Context, db *sql.DB, id string) error

// doJobs makes a machine for each new job, by an id that both systems have, and notes once
// that it has done so.
func doJobs(ctx context.Context, db *sql.DB, makeMachine func(ctx context.Context, id string) error, noteDone noting) {
	for ; ctx.Err() == nil; time.Sleep(time.Minute) {
		for _, id := range newJobs(ctx, db) {
			if makeMachine(ctx, id) == nil {
				_ = noteDone(ctx, db, id) // an error: the next round
			}
		}
	}
}

func newJobs(ctx context.Context, db *sql.DB) (ids []string) {
	found, err := db.QueryContext(ctx, findNew)
	if err != nil {
		return nil
	}
	defer found.Close()
	for found.Next() {
		var id string
		if err := found.Scan(&id); err != nil {
			return nil
		}
		ids = append(ids, id)
	}
	if found.Err() != nil {
		return nil
	}
	return ids
}

func noteDone(ctx context.Context, db *sql.DB, id string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	result, err := tx.ExecContext(ctx, setDone, id)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return err // it was done before
	}
	if _, err := tx.ExecContext(ctx, addLog, id); err != nil {
		return err
	}
	return tx.Commit()
}

// A jobWorld has the two systems.
type jobWorld struct {
	jobTable
	machines map[string]bool
}

func jobs(noteDone noting) explore.Scenario[*jobWorld] {
	return explore.Scenario[*jobWorld]{
		World: func() *jobWorld {
			return &jobWorld{jobTable: jobTable{status: map[string]string{}}, machines: map[string]bool{}}
		},
		Start: func(proc *explore.Process, w *jobWorld) {
			db := openDB(proc, &w.jobTable)
			makeMachine := func(ctx context.Context, id string) error {
				return proc.Do(ctx, "make "+id, func() error { w.machines[id] = true; return nil })
			}
			proc.Go(func(ctx context.Context) error { doJobs(ctx, db, makeMachine, noteDone); return nil })
		},
		Steps: func(env *explore.Environment, w *jobWorld) {
			w.status["a"], w.status["b"] = "new", "new"
			env.Advance(10 * time.Minute)
			w.status["c"] = "new"
			env.Advance(10 * time.Minute)
		},
		State: func(w *jobWorld) string {
			return fmt.Sprint(w.status, slices.Sorted(slices.Values(w.log)), w.machines)
		},
		Plans: 300,
	}
}

// A service with a database handle: each statement and each commit is a call.
func ExampleRead_database() {
	explore.Run(t, jobs(noteDone))
}
