// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile/adapters/postgres"
	"github.com/reconkernel/reconcile/internal/servers"
)

// A stage is what the faults are played on: a server with a standby, a pooler, and workers that
// reach the server by a proxy each.
type stage struct {
	dir     string
	monitor *monitor
	address string // of the server, whichever that is
	server  *server
	spare   string // the address of the standby
	standby *server
	link    *servers.Proxy // from the standby to the server
	pooler  *servers.Process
	ahead   time.Duration // how far the servers' clock is set forward
	workers []*worker
	nodes   int          // servers so far
	pids    atomic.Int32 // worker processes so far

	admin   *pgxpool.Pool
	feeder  *pgxpool.Pool // of the feeders, as the next two
	queue   *postgres.Queue[string]
	front   *servers.Proxy
	feeding sync.RWMutex // held for reading while an event is made
	events  atomic.Int64
}

// A worker is a process at work, and its way to the database.
type worker struct {
	*servers.Process
	job   job
	proxy *servers.Proxy
}

const tables = `
CREATE TABLE desired (item text PRIMARY KEY, version bigint NOT NULL) WITH (fillfactor = 50);
CREATE TABLE actual (item text PRIMARY KEY, version bigint NOT NULL, fence bigint NOT NULL, process int NOT NULL, disorder boolean NOT NULL DEFAULT false) WITH (fillfactor = 50);
CREATE ROLE worker LOGIN;
GRANT ALL ON desired, actual TO worker;` + grant

// grant gives the role of the workers what a queue needs.
const grant = `
GRANT USAGE ON SCHEMA reconcile TO worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA reconcile TO worker;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA reconcile TO worker;`

func newStage(ctx context.Context, dir string) *stage {
	st := &stage{dir: dir, monitor: newMonitor(), address: port(), spare: port()}
	st.setClock(0)
	node := st.node()
	must(run("initdb", "-D", node, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"))
	st.server = st.newServer(node, st.address)
	must(st.server.Start(ctx))
	st.link = get(servers.NewProxy(st.address))
	st.startStandby()
	st.admin = get(pgxpool.New(ctx, url("postgres", st.address)))
	must(postgres.Migrate(ctx, st.admin, ""))
	get(st.admin.Exec(ctx, tables))
	pooled := st.startPooler(ctx)
	st.front = get(servers.NewProxy(st.address))
	st.feeder, st.queue = open(ctx, job{URL: url("worker", st.front.Addr())})
	for _, target := range []string{st.address, st.address, st.address, pooled} {
		w := &worker{proxy: get(servers.NewProxy(target))}
		w.job = job{Monitor: st.monitor.listener.Addr().String(), URL: url("worker", w.proxy.Addr())}
		if target == pooled {
			w.job.URL += "&default_query_exec_mode=exec"
			w.job.Direct = url("worker", st.address)
		}
		st.workers = append(st.workers, w)
		st.launch(w)
	}
	return st
}

// must ends the referee if what it needs itself does not work.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func get[T any](v T, err error) T {
	must(err)
	return v
}

// port returns an address that is held until this process ends.
func port() string {
	address, _, err := servers.HoldPort()
	must(err)
	return address
}

// node returns the folder of another server.
func (st *stage) node() string {
	st.nodes++
	return filepath.Join(st.dir, fmt.Sprint("node", st.nodes))
}

func (st *stage) launch(w *worker) {
	w.job.Process = int(st.pids.Add(1))
	w.Process = &servers.Process{
		Path: get(os.Executable()), Env: []string{environment + "=" + string(get(json.Marshal(w.job))), "GOMAXPROCS=2"},
		Ready: func(context.Context) error { return nil },
	}
	must(w.Start(context.Background()))
}

func (st *stage) close() {
	for _, w := range st.workers {
		w.Kill()
	}
	st.pooler.Kill()
	st.server.Kill()
	st.standby.Kill()
}

// startPooler starts PgBouncer in transaction mode, and returns its address.
func (st *stage) startPooler(ctx context.Context) string {
	pooled := port()
	_, own, err := net.SplitHostPort(pooled)
	must(err)
	host, port, err := net.SplitHostPort(st.address)
	must(err)
	ini := filepath.Join(st.dir, "pgbouncer.ini")
	must(os.WriteFile(ini, fmt.Appendf(nil, poolerSettings, host, port, own), 0o644))
	st.pooler = get(program("pgbouncer", ini))
	st.pooler.Ready = answers(url("worker", pooled) + "&default_query_exec_mode=exec")
	must(st.pooler.Start(ctx))
	return pooled
}

const poolerSettings = `[databases]
postgres = host=%s port=%s user=worker
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
server_login_retry = 1
`

// startStandby copies the server to a standby that follows it over the link.
func (st *stage) startStandby() {
	dir := st.node()
	must(run("pg_basebackup", "-D", dir, "-R", "-X", "stream", "-c", "fast", "-d", url("postgres", st.link.Addr())+"&application_name=standby"))
	st.standby = st.newServer(dir, st.spare)
	must(st.standby.Start(context.Background()))
}

// feed makes events until the process ends.
func (st *stage) feed(pause time.Duration) {
	ctx := context.Background()
	for {
		time.Sleep(rand.N(2 * pause))
		st.feeding.RLock()
		item := anyItem()
		var err error
		switch rand.IntN(4) {
		case 0: // a trigger, or another language
			err = st.change(ctx, item, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT reconcile.enqueue($1, $2)", queueName, item)
				return err
			})
		case 1:
			err = st.change(ctx, item, func(tx pgx.Tx) error { return st.queue.EnqueueTx(ctx, tx, item) })
		case 2:
			_ = st.change(ctx, item, func(pgx.Tx) error { return nil })
			st.queue.Enqueue(item) // also if it is not known whether the change was committed
		default:
			_ = st.change(ctx, item, func(pgx.Tx) error { return nil })
			for stored := false; !stored; {
				attempt, cancel := context.WithTimeout(ctx, 2*lease)
				stored = st.queue.EnqueueContext(attempt, item) == nil
				cancel()
			}
		}
		if err == nil {
			st.events.Add(1)
		}
		st.feeding.RUnlock()
	}
}

// change commits a change and what enqueue does, now and then late or not at all.
func (st *stage) change(ctx context.Context, item string, enqueue func(pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*lease)
	defer cancel()
	return pgx.BeginFunc(ctx, st.feeder, func(tx pgx.Tx) error {
		err := errors.Join(change(ctx, tx, item), enqueue(tx))
		switch rand.IntN(100) {
		case 0:
			return errors.New("rolled back")
		case 1:
			time.Sleep(rand.N(lease / 4))
		}
		return err
	})
}

// settle stops the feeders and waits until no item has anything left to do. It returns how
// long that took, how many events are lost, how many results were written out of order, and
// how many items are left that do not run.
func (st *stage) settle(ctx context.Context) (quiet time.Duration, lost, disorder, left int) {
	st.feeding.Lock()
	defer st.feeding.Unlock()
	began := time.Now()
	stored, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	must(st.queue.Flush(stored))
	for {
		must(st.admin.QueryRow(ctx, `SELECT (SELECT count(*) FROM desired LEFT JOIN actual USING (item) WHERE actual.version IS DISTINCT FROM desired.version),
			(SELECT count(*) FROM actual WHERE disorder),
			(SELECT count(*) FROM reconcile.item WHERE queue = $1 AND NOT (recheck AND due > now())) + (SELECT count(*) FROM reconcile.event)`, queueName).Scan(&lost, &disorder, &left))
		quiet = time.Since(began)
		if left == 0 || quiet > 10*time.Minute {
			return quiet, lost, disorder, left
		}
		time.Sleep(100 * time.Millisecond)
	}
}
