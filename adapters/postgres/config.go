// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile"
)

// A Config sets up a [Queue] or a [Candidate]. Pool and Name are required. The zero value of
// every other field is a good default.
type Config struct {
	// Pool is how to reach the database. A queue uses up to four of its connections at a time,
	// for a few milliseconds, and one more to listen. If the runs of the service can use up
	// the pool, give the queue a pool of its own: a lease that waits for a connection is lost.
	Pool *pgxpool.Pool

	// Name is that of the queue, or of the lease of a Candidate: 1 to 32 letters, digits, "_",
	// "-" and ".". All processes that share it use the same Name.
	Name string

	// Schema is the name that Migrate was called with: 1 to 20 lower-case letters, digits and
	// "_", no digit first. Empty means "reconcile".
	Schema string

	// Lease is how long the items of a process stay in flight after its last sign of life; 0
	// means 15 seconds. It is a second to an hour. A process renews its lease four times
	// within it. The contexts of its runs end a quarter of it before another process may have
	// their items.
	Lease time.Duration

	// Poll is how often an idle process looks for items that it was not notified of; 0 means 5
	// seconds. It is 100 milliseconds to an hour.
	Poll time.Duration

	// Ahead is how many items a process may take for which no worker waits yet; 0 means none. It
	// saves waiting for the commit between two runs, for runs that are shorter than a commit;
	// the benchmark in bench/postgres compares 64 with 0. For longer runs it gains nothing. An
	// item that was taken ahead is in flight, so Remove does not stop its run, and an event
	// means one run more. The items are given back if no worker takes one within a second.
	Ahead int

	// Quiet leaves NOTIFY out of EnqueueTx: other processes find its events with their next
	// poll. In PostgreSQL, commits with a NOTIFY wait for each other.
	Quiet bool

	// Direct is how to connect for LISTEN if Pool connects to a pooler that gives each
	// transaction another connection, such as PgBouncer in transaction mode. LISTEN hears
	// nothing there. Nil means a connection of Pool.
	Direct *pgx.ConnConfig

	Logger *slog.Logger // nil means reconcile.Logger of the context of New or Run
}

// version is that of schema.sql.
const version = 1

//go:embed schema.sql
var schema string

// Migrate creates the tables in a schema; empty means "reconcile". Many processes may call it
// at once, and at each start: it changes nothing if they are there. It returns a
// [reconcile.Terminal] error if they are those of a newer version of this package, or if the
// name is not one that [Config.Schema] accepts.
//
// The role needs the right CREATE on the database, but only to create or change the tables.
func Migrate(ctx context.Context, pool *pgxpool.Pool, schemaName string) error {
	in, err := within(schemaName)
	if err != nil {
		return err
	}
	if pool == nil {
		return reconcile.Terminal(errors.New("postgres: Migrate needs a pool, got nil"))
	}
	// In another isolation level, a process that waits for the lock would not see the tables.
	err = pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtext('github.com/reconkernel/reconcile'))"); err != nil {
			return err
		}
		var exists bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", in("reconcile.version")).Scan(&exists); err != nil {
			return err
		}
		if exists {
			return checkVersion(ctx, tx, in)
		}
		_, err := tx.Exec(ctx, in(schema))
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: migrating schema %s: %w", cmp.Or(schemaName, "reconcile"), err)
	}
	return nil
}

// checkVersion returns an error if the tables are not those of this version.
func checkVersion(ctx context.Context, db interface {
	QueryRow(context.Context, string, ...any) pgx.Row
}, in func(string) string,
) error {
	var v int
	err := db.QueryRow(ctx, in("SELECT COALESCE(max(version), 0) FROM reconcile.version")).Scan(&v)
	if err == nil && v != version {
		err = reconcile.Terminal(fmt.Errorf("the tables have version %d, this program needs version %d: update the older one", v, version))
	}
	return err
}

var (
	schemaNames = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,19}$`)
	queueNames  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,32}$`)
)

// within returns a function that puts the name of the schema into a statement. A channel for
// NOTIFY is named by the schema and the queue, in 63 bytes at most.
func within(schemaName string) (func(string) string, error) {
	schemaName = cmp.Or(schemaName, "reconcile")
	if !schemaNames.MatchString(schemaName) {
		return nil, reconcile.Terminal(fmt.Errorf("postgres: the schema is named %q, want 1 to 20 lower-case letters, digits and _, no digit first", schemaName))
	}
	quoted := pgx.Identifier{schemaName}.Sanitize()
	return strings.NewReplacer("'reconcile.'", "'"+schemaName+".'", "reconcile.", quoted+".", "EXISTS reconcile;", "EXISTS "+quoted+";").Replace, nil
}

// check returns cfg with its defaults, or an error that names the wrong field.
func (c Config) check() (Config, error) {
	var err error
	switch {
	case c.Pool == nil:
		err = errors.New("postgres: Config.Pool is nil, want a pool")
	case !queueNames.MatchString(c.Name):
		err = fmt.Errorf("postgres: Config.Name is %q, want 1 to 32 letters, digits and any of _.-", c.Name)
	case c.Lease != 0 && (c.Lease < time.Second || c.Lease > time.Hour):
		err = fmt.Errorf("postgres: Config.Lease is %v, want 1s to 1h, or 0 (which means 15s)", c.Lease)
	case c.Poll != 0 && (c.Poll < 100*time.Millisecond || c.Poll > time.Hour):
		err = fmt.Errorf("postgres: Config.Poll is %v, want 100ms to 1h, or 0 (which means 5s)", c.Poll)
	case c.Ahead < 0 || c.Ahead > maxBatch:
		err = fmt.Errorf("postgres: Config.Ahead is %d, want 0 (which means none) to %d", c.Ahead, maxBatch)
	}
	if err != nil {
		return c, reconcile.Terminal(err)
	}
	c.Lease, c.Poll = cmp.Or(c.Lease, 15*time.Second), cmp.Or(c.Poll, 5*time.Second)
	return c, nil
}

// checkServer returns an error if the server is not one that the queue can work with.
func (c Config) checkServer(ctx context.Context, in func(string) string) error {
	var isolation, encoding string
	err := c.Pool.QueryRow(ctx, "SELECT current_setting('default_transaction_isolation'), current_setting('server_encoding')").Scan(&isolation, &encoding)
	switch {
	case err != nil:
		return fmt.Errorf("postgres: queue %s: %w", c.Name, err)
	case isolation != "read committed":
		return reconcile.Terminal(fmt.Errorf("postgres: queue %s: default_transaction_isolation is %q for Config.Pool, want \"read committed\"", c.Name, isolation))
	case encoding != "UTF8":
		return reconcile.Terminal(fmt.Errorf("postgres: queue %s: the database has the encoding %s, want UTF8", c.Name, encoding))
	}
	err = checkVersion(ctx, c.Pool, in)
	var missing *pgconn.PgError
	if errors.As(err, &missing) && missing.Code == "42P01" { // undefined_table
		return fmt.Errorf("postgres: queue %s: there are no tables in schema %s, call Migrate: %w", c.Name, cmp.Or(c.Schema, "reconcile"), err)
	}
	if err != nil {
		return fmt.Errorf("postgres: queue %s: schema %s: %w", c.Name, cmp.Or(c.Schema, "reconcile"), err)
	}
	return nil
}

// maxItem is the longest text of an item, in bytes: the index has to hold it.
const maxItem = 1000

// checkItem returns an error if PostgreSQL cannot store an item's text.
func checkItem(s string) error {
	if len(s) > maxItem || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return reconcile.Terminal(fmt.Errorf("postgres: item %.60q has %d bytes, want valid UTF-8 without zero bytes, %d bytes at most", s, len(s), maxItem))
	}
	return nil
}

// codecOf returns the functions for strings and integers, or nil.
func codecOf[T comparable]() (func(T) string, func(string) (T, error)) {
	t := reflect.TypeFor[T]()
	zero := reflect.Zero(t)
	switch {
	case t.Kind() == reflect.String:
		return func(item T) string { return reflect.ValueOf(item).String() },
			func(s string) (item T, err error) {
				reflect.ValueOf(&item).Elem().SetString(s)
				return item, nil
			}
	case t.Kind() == reflect.Interface:
	case zero.CanInt():
		return func(item T) string { return strconv.FormatInt(reflect.ValueOf(item).Int(), 10) },
			func(s string) (item T, err error) {
				n, err := strconv.ParseInt(s, 10, t.Bits())
				reflect.ValueOf(&item).Elem().SetInt(n)
				return item, err
			}
	case zero.CanUint():
		return func(item T) string { return strconv.FormatUint(reflect.ValueOf(item).Uint(), 10) },
			func(s string) (item T, err error) {
				n, err := strconv.ParseUint(s, 10, t.Bits())
				reflect.ValueOf(&item).Elem().SetUint(n)
				return item, err
			}
	}
	return nil, nil
}
