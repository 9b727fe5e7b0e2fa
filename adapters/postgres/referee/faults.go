// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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

// A fault breaks something and repairs it.
type fault struct {
	name string
	play func(*lane)
}

// A lane plays faults one after the other, with choices of its own.
type lane struct {
	*stage
	rand *rand.Rand
}

// below returns a time from 0 to just below d.
func (l *lane) below(d time.Duration) time.Duration { return time.Duration(l.rand.Int64N(int64(d))) }

// Each list is a lane of its own: one breaks clients, the other the server.
var (
	clientFaults = []fault{
		{"kill -9 a worker", func(l *lane) { w := l.anyWorker(); l.relaunch(w, w.Kill) }},
		{"terminate a worker", func(l *lane) { w := l.anyWorker(); l.relaunch(w, w.Stop) }},
		{"stop a worker for two leases", (*lane).freeze},
		{"cut connections", (*lane).cut},
		{"cut off for two leases", func(l *lane) { l.block((*servers.Proxy).Hang) }},
		{"half-open connections", func(l *lane) { l.block((*servers.Proxy).Deafen) }},
		{"slow connections", (*lane).slow},
		{"kill -9 the pooler", (*lane).killPooler},
		{"end sessions", (*lane).endSessions},
	}
	serverFaults = []fault{
		{"fast restart", func(l *lane) { l.restart(l.server.Stop) }},
		{"immediate restart", func(l *lane) { l.restart(l.server.crash) }},
		{"server down for two leases", func(l *lane) {
			l.restart(func() { l.server.crash(); time.Sleep(2 * lease) })
		}},
		{"long transaction", (*lane).longTransaction},
		{"full disk", (*lane).fillDisk},
		{"role without rights", (*lane).revoke},
		{"another version of the schema", (*lane).newerSchema},
		{"clock set forward", (*lane).setClock},
		{"failover that loses nothing", func(l *lane) { l.failover(true) }},
		{"failover that loses commits", func(l *lane) { l.failover(false) }},
	}
)

func (l *lane) anyWorker() *worker { return l.workers[l.rand.IntN(len(l.workers))] }

// anyProxy returns the proxy of a worker, or that of the feeders.
func (l *lane) anyProxy() *servers.Proxy {
	if n := l.rand.IntN(len(l.workers) + 1); n < len(l.workers) {
		return l.workers[n].proxy
	}
	return l.front
}

func (l *lane) freeze() {
	w := l.anyWorker()
	defer l.monitor.excuse(w.job.Process, frozen)()
	w.Pause()
	time.Sleep(3*lease/2 + l.below(lease))
	w.Resume()
}

func (l *lane) cut() {
	p := l.anyProxy()
	for range 1 + l.rand.IntN(5) {
		p.Cut()
		time.Sleep(l.below(lease / 8))
		p.Heal()
		time.Sleep(l.below(lease / 8))
	}
}

func (l *lane) block(how func(*servers.Proxy)) {
	p := l.anyProxy()
	how(p)
	time.Sleep(l.below(2 * lease))
	p.Heal()
}

// slow has somebody connect again over a link with a long round trip, and after a while over
// a quick one.
func (l *lane) slow() {
	p := l.anyProxy()
	p.Link(l.below(lease/8), 20_000+l.rand.IntN(200_000))
	p.Cut()
	p.Heal()
	time.Sleep(l.below(3 * lease))
	p.Link(0, 0)
	p.Cut()
	p.Heal()
}

func (l *lane) killPooler() {
	l.pooler.Kill()
	time.Sleep(l.below(lease))
	must(l.pooler.Start(context.Background()))
}

func (l *lane) endSessions() {
	l.try("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'worker' AND random() < 0.7")
}

// try runs a statement as the administrator, until it succeeds.
func (l *lane) try(sql string) {
	must(l.ask(func(ctx context.Context) error { _, err := l.setup.Exec(ctx, sql); return err }))
}

// ask calls f until it returns nil, for a minute.
func (l *lane) ask(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return servers.Retry(ctx, f)
}

func (l *lane) restart(stop func()) {
	stop()
	time.Sleep(l.below(lease / 4))
	must(l.server.Start(context.Background()))
}

// longTransaction keeps a snapshot open that has an event in it.
func (l *lane) longTransaction() {
	_ = pgx.BeginTxFunc(context.Background(), l.setup, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		err := change(context.Background(), tx, anyItem(), func(item string) error { return l.queue.EnqueueTx(context.Background(), tx, item) })
		time.Sleep(2*lease + l.below(3*lease))
		return err
	})
}

// fillDisk has files grow no more, which PostgreSQL takes for a full disk, and enqueues more
// items than there is room for.
func (l *lane) fillDisk() {
	l.try("INSERT INTO desired SELECT repeat('x', 200) || i, 1 FROM generate_series(1, 6000) i ON CONFLICT (item) DO UPDATE SET version = desired.version + 1")
	must(l.server.limitFiles("1048576"))
	for i := range 6000 {
		l.queue.Enqueue(strings.Repeat("x", 200) + strconv.Itoa(i+1))
	}
	time.Sleep(lease + l.below(lease))
	must(l.server.limitFiles("unlimited"))
}

// revoke takes a right from the workers.
func (l *lane) revoke() {
	right := []string{"SELECT", "INSERT", "UPDATE", "DELETE", "ALL"}[l.rand.IntN(5)]
	table := []string{"item", "member", "event"}[l.rand.IntN(3)]
	l.try("REVOKE " + right + " ON reconcile." + table + " FROM worker")
	time.Sleep(l.below(2 * lease))
	l.try(grant)
}

// newerSchema migrates, as each new process does, and has a later release migrate after that:
// workers at work go on, and one that starts says what is wrong and begins when it can.
func (l *lane) newerSchema() {
	must(l.ask(func(ctx context.Context) error { return postgres.Migrate(ctx, l.setup, "") }))
	l.try("INSERT INTO reconcile.version VALUES (99)")
	w := &worker{job: job{Monitor: l.workers[0].job.Monitor, URL: url("worker", l.address)}}
	must(l.launch(w))
	must(l.ask(func(context.Context) error {
		if out := w.Output(); !strings.Contains(out, "version 99") {
			return fmt.Errorf("a worker that met the tables of version 99 printed %q", out)
		}
		return nil
	}))
	time.Sleep(l.below(lease))
	l.try("DELETE FROM reconcile.version WHERE version = 99")
	time.Sleep(l.below(lease))
	w.Stop()
}

// setClock sets the database's clock forward by more than a lease: each lease ends at once, and
// two processes may run an item until the first has noticed.
func (l *lane) setClock() {
	end := l.monitor.excuse(0, clock)
	l.ahead += lease + l.below(10*lease)
	must(l.writeClock())
	time.Sleep(lease)
	end()
}

// failover has the standby take the place of the server. It lacks the commits of the time
// before, unless each of them has waited for it.
func (l *lane) failover(synchronous bool) {
	if synchronous {
		l.try("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
		l.try("SELECT pg_reload_conf()")
		must(l.ask(func(ctx context.Context) error {
			var state string
			err := l.setup.QueryRow(ctx, "SELECT sync_state FROM pg_stat_replication").Scan(&state)
			if err == nil && state != "sync" {
				err = fmt.Errorf("the standby is %s", state)
			}
			return err
		}))
		time.Sleep(l.below(lease))
	} else {
		defer l.monitor.forgetFences()
		defer l.monitor.excuse(0, failover)()
		l.link.Cut()
		time.Sleep(l.below(lease / 2))
	}
	l.server.crash()
	l.link.Cut()
	l.standby.Stop()
	old := l.server
	var err error
	l.server, err = newServer(l.standby.dir, l.address, l.clockFile())
	must(err)
	must(l.server.Start(context.Background()))
	l.try("SELECT pg_promote()")
	l.try("ALTER SYSTEM RESET synchronous_standby_names") // the standby has copied it
	l.try("SELECT pg_reload_conf()")
	if !synchronous {
		l.relist()
		time.Sleep(5 * lease / 4)
	}
	l.link.Heal()
	must(os.RemoveAll(old.dir))
	must(l.startStandby())
}

// relist enqueues each item whose actual state is not the desired one, as a service does
// after a restore.
func (l *lane) relist() {
	must(l.ask(func(ctx context.Context) error {
		rows, _ := l.setup.Query(ctx, "SELECT item FROM desired LEFT JOIN actual USING (item) WHERE actual.version IS DISTINCT FROM desired.version")
		items, err := pgx.CollectRows(rows, pgx.RowTo[string])
		for _, item := range items {
			l.queue.Enqueue(item)
		}
		return err
	}))
}
