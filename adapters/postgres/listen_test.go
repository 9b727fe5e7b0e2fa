// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/postgres/internal/pgtest"
	"github.com/reconkernel/reconcile/internal/servers"
)

// A feed is a Feeder of Listen at work.
type feed struct {
	queue  *reconcile.Queue[string]
	missed chan bool
	log    log
}

func listenTo(t *testing.T, url, channel string) *feed {
	t.Helper()
	connect, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	f := &feed{queue: reconcile.NewQueue[string](), missed: make(chan bool, 100)}
	feeder := Listen(connect, channel, func(payload string) (string, error) {
		if payload == "" {
			return "", errors.New("no name")
		}
		return payload, nil
	}, func() { f.missed <- true })
	ctx, cancel := context.WithCancel(reconcile.WithLogger(context.Background(), f.log.logger()))
	ended := make(chan error)
	go func() { ended <- reconcile.Feed(f.queue, feeder).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("a Feeder whose ctx is done returns %v, want nil", err)
		}
	})
	next(t, f.missed)
	return f
}

func (f *feed) want(t *testing.T, item string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := f.queue.Dequeue(ctx)
	if got != item || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, item)
	}
}

// Each connection calls missed, the first one too, and so does a payload that is no item.
func TestListen(t *testing.T) {
	p := setUp(t)
	f := listenTo(t, pgtest.Shared(t).URL(), "Some Rows")
	exec(t, p, `SELECT pg_notify('Some Rows', 'a')`)
	f.want(t, "a")
	exec(t, p, `SELECT pg_notify('Some Rows', '')`)
	next(t, f.missed)
	if !strings.Contains(f.log.String(), "no name") {
		t.Errorf("the payload is not logged:\n%s", f.log.String())
	}
	if n := exec(t, p, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN "Some Rows"'`); n != 1 {
		t.Fatalf("%d connections listen, want one", n)
	}
	next(t, f.missed)
	exec(t, p, `SELECT pg_notify('Some Rows', 'b')`)
	f.want(t, "b")
}

// A connection whose other end is gone without a word is found within 30 seconds.
func TestListenHalfOpen(t *testing.T) {
	t.Parallel()
	setUp(t)
	proxy, err := servers.NewProxy(pgtest.Shared(t).Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	f := listenTo(t, pgtest.URL(proxy.Addr()), "half")
	proxy.Hang()
	began := time.Now()
	f.log.wait(t, "does not answer")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("found after %v, want 30s at most", took)
	}
	proxy.Heal()
	next(t, f.missed)
}

// A listener whose ctx is done returns nil, also if it has met a time-out as well.
func TestListenEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dial := func(context.Context) (*pgx.Conn, error) { cancel(); return nil, context.DeadlineExceeded }
	if err := listen(ctx, dial, "events", nil, nil); err != nil {
		t.Errorf("listen: %v, want nil", err)
	}
}

func TestListenArguments(t *testing.T) {
	connect := &pgx.ConnConfig{}
	item := func(s string) (string, error) { return s, nil }
	missed := func() {}
	for want, f := range map[string]reconcile.Feeder[string]{
		"needs a *pgx.ConnConfig":       Listen(nil, "x", item, missed),
		`named "", want 1 to 63 bytes`:  Listen(connect, "", item, missed),
		"want 1 to 63 bytes":            Listen(connect, strings.Repeat("x", 64), item, missed),
		"channel x needs two functions": Listen[string](connect, "x", nil, missed),
		"channel y needs two functions": Listen(connect, "y", item, nil),
	} {
		if err := f(t.Context(), reconcile.NewQueue[string]()); !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want a terminal error with %q", err, want)
		}
	}
}
