// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile/adapters/postgres"
	"github.com/reconkernel/reconcile/internal/servers"
)

// A lane plays faults one after the other, by choices of its own.
type lane struct {
	*stage
	rand *rand.Rand
}

// A fault breaks something and repairs it.
type fault struct {
	name string
	play func(*lane)
}

// Each list is a lane. One breaks clients, the other the server.
var (
	clientFaults = []fault{
		{"kill -9 a worker", func(l *lane) { w := l.anyWorker(); w.Kill(); l.launch(w) }},
		{"terminate a worker", func(l *lane) { w := l.anyWorker(); w.Stop(); l.launch(w) }},
		{"stop a worker for two leases", (*lane).freeze},
		{"reset connections", func(l *lane) { l.disturb((*servers.Proxy).Cut, lease/4) }},
		{"cut off for two leases", func(l *lane) { l.disturb((*servers.Proxy).Hang, 2*lease) }},
		{"half-open connections", func(l *lane) { l.disturb((*servers.Proxy).Deafen, 2*lease) }},
		{"slow connections", (*lane).slow},
		{"kill -9 the pooler", func(l *lane) { l.pooler.Kill(); l.wait(lease); must(l.pooler.Start(context.Background())) }},
		{"end sessions", func(l *lane) {
			l.try("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'worker' AND random() < 0.7")
		}},
	}
	serverFaults = []fault{
		{"fast restart", func(l *lane) { l.server.Stop(); l.restart(lease / 4) }},
		{"immediate restart", func(l *lane) { l.server.crash(); l.restart(lease / 4) }},
		{"server down for up to three leases", func(l *lane) { l.server.crash(); l.restart(3 * lease) }},
		{"long transaction", (*lane).longTransaction},
		{"full disk", (*lane).fillDisk},
		{"role without rights", (*lane).revoke},
		{"another version of the schema", (*lane).newerSchema},
		{"clock set forward", (*lane).moveClock},
		{"failover that loses nothing", func(l *lane) { l.failover(true) }},
		{"failover that loses commits", func(l *lane) { l.failover(false) }},
	}
)

// below returns a time from 0 to just below d.
func (l *lane) below(d time.Duration) time.Duration { return time.Duration(l.rand.Int64N(int64(d))) }

func (l *lane) wait(most time.Duration) { time.Sleep(l.below(most)) }
func (l *lane) anyWorker() *worker      { return l.workers[l.rand.IntN(len(l.workers))] }

// anyProxy returns the proxy of a worker, or that of the feeders.
func (l *lane) anyProxy() *servers.Proxy {
	if n := l.rand.IntN(len(l.workers) + 1); n < len(l.workers) {
		return l.workers[n].proxy
	}
	return l.front
}

// try runs a statement until it succeeds.
func (l *lane) try(sql string) {
	l.until(func(ctx context.Context) error {
		_, err := l.admin.Exec(ctx, sql)
		return err
	})
}

// until calls f until it returns nil, for a minute.
func (l *lane) until(f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	must(servers.Retry(ctx, f))
}

func (l *lane) freeze() {
	w := l.anyWorker()
	defer l.monitor.excuse(w.job.Process, frozen)()
	w.Pause()
	time.Sleep(3*lease/2 + l.below(lease))
	w.Resume()
}

func (l *lane) disturb(how func(*servers.Proxy), most time.Duration) {
	p := l.anyProxy()
	how(p)
	l.wait(most)
	p.Heal()
}

// slow has somebody connect again over a link with a long round trip, and after a while over
// a quick one.
func (l *lane) slow() {
	p := l.anyProxy()
	p.Link(l.below(lease/8), 20_000+l.rand.IntN(200_000))
	p.Cut()
	p.Heal()
	l.wait(3 * lease)
	p.Link(0, 0)
	p.Cut()
	p.Heal()
}

func (l *lane) restart(after time.Duration) {
	l.wait(after)
	must(l.server.Start(context.Background()))
}

// longTransaction keeps a snapshot open, and an event that is not committed.
func (l *lane) longTransaction() {
	ctx := context.Background()
	_ = pgx.BeginTxFunc(ctx, l.admin, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		item := anyItem()
		err := errors.Join(change(ctx, tx, item), l.queue.EnqueueTx(ctx, tx, item))
		time.Sleep(2*lease + l.below(3*lease))
		return err
	})
}

// fillDisk has files grow no more, and enqueues more items than there is room for.
func (l *lane) fillDisk() {
	l.try("INSERT INTO desired SELECT repeat('x', 200) || i, 1 FROM generate_series(1, 6000) i ON CONFLICT (item) DO UPDATE SET version = desired.version + 1")
	l.server.limitFiles("1048576") // A segment of WAL has as much.
	for i := range 6000 {
		l.queue.Enqueue(strings.Repeat("x", 200) + strconv.Itoa(i+1))
	}
	time.Sleep(lease + l.below(lease))
	l.server.limitFiles("unlimited")
}

// revoke takes a right from the workers.
func (l *lane) revoke() {
	right := []string{"SELECT", "INSERT", "UPDATE", "DELETE", "ALL"}[l.rand.IntN(5)]
	table := []string{"item", "member", "event"}[l.rand.IntN(3)]
	l.try("REVOKE " + right + " ON reconcile." + table + " FROM worker")
	l.wait(2 * lease)
	l.try(grant)
}

// newerSchema migrates, as each process does that starts, and then has a later release migrate:
// workers at work go on, and one that starts says what is wrong, and begins when it can.
func (l *lane) newerSchema() {
	l.until(func(ctx context.Context) error { return postgres.Migrate(ctx, l.admin, "") })
	l.try("INSERT INTO reconcile.version VALUES (99)")
	w := &worker{job: job{Monitor: l.workers[0].job.Monitor, URL: url("worker", l.address)}}
	l.launch(w)
	l.until(func(context.Context) error {
		if out := w.Output(); !strings.Contains(out, "version 99") {
			return fmt.Errorf("a worker that met the tables of version 99 printed %q", out)
		}
		return nil
	})
	l.wait(lease)
	l.try("DELETE FROM reconcile.version WHERE version = 99")
	l.wait(lease)
	w.Stop()
}

// moveClock sets the database's clock forward by more than a lease: each lease ends at once, and
// two processes may run an item until the first one has noticed.
func (l *lane) moveClock() {
	defer l.monitor.excuse(0, clock)()
	l.setClock(lease + l.below(10*lease))
	time.Sleep(lease)
}

// failover has the standby take the place of the server. The standby lacks the commits of the
// time before, unless each commit has waited for it.
func (l *lane) failover(synchronous bool) {
	if synchronous {
		l.try("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
		l.try("SELECT pg_reload_conf()")
		l.until(func(ctx context.Context) error {
			var state string
			err := l.admin.QueryRow(ctx, "SELECT sync_state FROM pg_stat_replication").Scan(&state)
			if err == nil && state != "sync" {
				err = fmt.Errorf("the standby is %s", state)
			}
			return err
		})
		l.wait(lease)
	} else {
		defer l.monitor.forgetFences()
		defer l.monitor.excuse(0, lossy)()
		l.link.Cut()
		l.wait(lease / 2)
	}
	l.server.crash()
	l.link.Cut()
	l.standby.Stop()
	must(os.RemoveAll(l.server.dir))
	l.server = l.newServer(l.standby.dir, l.address)
	must(l.server.Start(context.Background()))
	l.try("SELECT pg_promote()")
	l.try("ALTER SYSTEM RESET synchronous_standby_names") // The standby has copied it.
	l.try("SELECT pg_reload_conf()")
	if !synchronous {
		l.relist()
		time.Sleep(5 * lease / 4)
	}
	l.link.Heal()
	l.startStandby()
}

// relist enqueues each item whose actual state is not the desired one, as a service does
// after a restore.
func (l *lane) relist() {
	l.until(func(ctx context.Context) error {
		rows, _ := l.admin.Query(ctx, "SELECT item FROM desired LEFT JOIN actual USING (item) WHERE actual.version IS DISTINCT FROM desired.version")
		items, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, item := range items {
			l.queue.Enqueue(item)
		}
		return err
	})
}
