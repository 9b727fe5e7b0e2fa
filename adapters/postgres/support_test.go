// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile/adapters/postgres/internal/pgtest"
	"github.com/reconkernel/reconcile/internal/record"
	"github.com/reconkernel/reconcile/internal/servers"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience bounds a test that hangs.
const patience = time.Minute

// setUp returns a pool of the server that the tests share, with the tables.
func setUp(t testing.TB) *pgxpool.Pool {
	t.Helper()
	p := pgtest.Pool(t, pgtest.Shared(t).URL())
	migrate(t, p, "")
	return p
}

func migrate(t testing.TB, p *pgxpool.Pool, schema string) {
	t.Helper()
	if err := Migrate(context.Background(), p, schema); err != nil {
		t.Fatal(err)
	}
}

var names atomic.Int64

// newName returns a name that no other test has.
func newName() string { return fmt.Sprint("q", names.Add(1)) }

// open returns a queue that is closed when the test has ended. It sets an empty name, and a
// lease that a busy machine can renew.
func open(t testing.TB, cfg Config) *Queue[string] {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = newName()
	}
	if cfg.Lease == 0 {
		cfg.Lease = 5 * time.Second
	}
	q, err := New[string](context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_ = q.Close(ctx) // Items may be in flight.
	})
	return q
}

func enqueue(t testing.TB, q *Queue[string], items ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := q.EnqueueContext(ctx, items...); err != nil {
		t.Fatal(err)
	}
}

// take takes an item, which must be this one.
func take(t testing.TB, q *Queue[string], want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if item, err := q.Dequeue(ctx); item != want || err != nil {
		t.Fatalf("Dequeue: %q, %v, want %q", item, err, want)
	}
}

func flush(t testing.TB, q *Queue[string]) {
	t.Helper()
	if err := q.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// begin begins a transaction, which is rolled back when the test has ended.
func begin(t testing.TB, p *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func exec(t testing.TB, p interface { // a pool, or a transaction
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}, sql string, args ...any,
) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tag, err := p.Exec(ctx, sql, args...)
	if err != nil {
		t.Fatalf("%v, of %s", err, sql)
	}
	return tag.RowsAffected()
}

// until asks for a value that only the database shows, until it is the wanted one.
func until[V comparable](t testing.TB, p *pgxpool.Pool, want V, sql string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var got V
	err := servers.Retry(ctx, func(ctx context.Context) error {
		if err := p.QueryRow(ctx, sql, args...).Scan(&got); err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("it is %v, want %v", got, want)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v, of %s", err, sql)
	}
}

// next waits for a value.
func next[V any](t testing.TB, ch <-chan V) V {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// A log is what a logger has written.
type log struct{ record.Text }

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// wait waits until the log has a text.
func (l *log) wait(t testing.TB, text string) {
	t.Helper()
	l.waitFor(t, text, 1)
}

// waitFor waits until the log has a text a number of times.
func (l *log) waitFor(t testing.TB, text string, times int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := servers.Retry(ctx, func(context.Context) error {
		if n := strings.Count(l.String(), text); n < times {
			return fmt.Errorf("the log has %q %d times, want %d:\n%s", text, n, times, l.String())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
