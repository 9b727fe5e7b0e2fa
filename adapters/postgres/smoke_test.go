// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/postgres"
	"github.com/reconkernel/reconcile/adapters/postgres/internal/pgtest"
	"github.com/reconkernel/reconcile/supervise"
)

// TestSmoke shows that the adapter works with a real server: the leader feeds a shared queue
// from a channel, a transaction enqueues an item, and runs get both. The tests of the details
// have the tag nightly. The only bound on the time is the one of go test.
func TestSmoke(t *testing.T) {
	server := pgtest.New(t)
	pool := pgtest.Pool(t, server.URL())
	if err := postgres.Migrate(t.Context(), pool, ""); err != nil {
		t.Fatal(err)
	}
	q, err := postgres.New[string](t.Context(), postgres.Config{Pool: pool, Name: "work"})
	if err != nil {
		t.Fatal(err)
	}
	listens := make(chan bool, 1)
	listen := postgres.Listen(pool.Config().ConnConfig, "sites", func(site string) (string, error) { return site, nil }, func() { listens <- true })

	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan string)
	var group supervise.Group
	group.Add("leader", postgres.Elect(postgres.Config{Pool: pool, Name: "feed", Lease: time.Minute}, reconcile.Feed(q, listen)))
	group.Add("runs", &reconcile.Reconciler[string]{Queue: q, Reconcile: func(ctx context.Context, item string) error {
		ran <- item
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return postgres.Guard(ctx, tx) })
	}})
	ended := make(chan error)
	go func() { ended <- group.Run(ctx) }()
	want := func(item string) {
		t.Helper()
		select {
		case got := <-ran:
			if got != item {
				t.Errorf("item %q was run, want %q", got, item)
			}
		case err := <-ended:
			t.Fatalf("the group ended with %v before item %q was run", err, item)
		}
	}
	<-listens
	if _, err := pool.Exec(t.Context(), "NOTIFY sites, 'a'"); err != nil {
		t.Error(err)
	}
	want("a")
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return q.EnqueueTx(t.Context(), tx, "b") }); err != nil {
		t.Error(err)
	}
	want("b")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := q.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
