// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile/adapters/postgres"
	"github.com/reconkernel/reconcile/internal/servers"
)

// A stage is what the faults are played on: a server with a standby, a pooler, and workers that
// reach the server through a proxy each.
type stage struct {
	dir     string
	monitor *monitor
	address string // of the server, whichever that is
	spare   string // of the standby
	server  *server
	standby *server
	link    *servers.Proxy // from the standby to the server
	pooled  string         // address of the pooler
	pooler  *servers.Process
	ahead   time.Duration // how far the servers' clock is set forward
	workers []*worker
	nodes   int          // folders of servers so far
	pids    atomic.Int32 // worker processes so far

	setup   *pgxpool.Pool
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
CREATE TABLE actual (item text PRIMARY KEY, version bigint NOT NULL, fence bigint NOT NULL, disorder boolean NOT NULL DEFAULT false) WITH (fillfactor = 50);
CREATE ROLE worker LOGIN;
GRANT ALL ON desired, actual TO worker;
` + grant

// grant gives the role of the workers what a queue needs.
const grant = `
GRANT USAGE ON SCHEMA reconcile TO worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA reconcile TO worker;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA reconcile TO worker;`

func newStage(ctx context.Context, dir string) (st *stage, err error) {
	st = &stage{dir: dir}
	defer func() {
		if err != nil {
			st.close()
		}
	}()
	if st.monitor, err = newMonitor(); err != nil {
		return st, err
	}
	for _, address := range []*string{&st.address, &st.spare} {
		// The ports are held until this process ends.
		if *address, _, err = servers.HoldPort(); err != nil {
			return st, err
		}
	}
	if err = st.writeClock(); err != nil {
		return st, err
	}
	node := st.node()
	if err = initCluster(node); err != nil {
		return st, err
	}
	if st.server, err = newServer(node, st.address, st.clockFile()); err != nil {
		return st, err
	}
	if err = st.server.Start(ctx); err != nil {
		return st, err
	}
	if st.setup, err = pgxpool.New(ctx, url("postgres", st.address)); err != nil {
		return st, err
	}
	if err = postgres.Migrate(ctx, st.setup, ""); err != nil {
		return st, err
	}
	if _, err = st.setup.Exec(ctx, tables); err != nil {
		return st, err
	}
	if err = st.startPooler(ctx); err != nil {
		return st, err
	}
	if st.front, err = servers.NewProxy(st.address); err != nil {
		return st, err
	}
	if st.feeder, st.queue, err = open(ctx, url("worker", st.front.Addr()), ""); err != nil {
		return st, err
	}
	for i := range 4 {
		w := &worker{}
		target := st.address
		if i == 3 {
			target = st.pooled
		}
		if w.proxy, err = servers.NewProxy(target); err != nil {
			return st, err
		}
		w.job = job{Monitor: st.monitor.listener.Addr().String(), URL: url("worker", w.proxy.Addr())}
		if i == 3 {
			w.job.URL += "&default_query_exec_mode=exec"
			w.job.Direct = url("worker", st.address)
		}
		st.workers = append(st.workers, w)
		if err = st.launch(w); err != nil {
			return st, err
		}
	}
	return st, st.startStandby()
}

// node returns the folder of another server.
func (st *stage) node() string {
	st.nodes++
	return filepath.Join(st.dir, fmt.Sprint("node", st.nodes))
}

func (st *stage) launch(w *worker) error {
	w.job.Process = int(st.pids.Add(1))
	text, err := json.Marshal(w.job)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	w.Process = &servers.Process{
		Path: self, Env: []string{environment + "=" + string(text), "GOMAXPROCS=2"},
		Ready: func(context.Context) error { return nil },
	}
	return w.Start(context.Background())
}

func (st *stage) relaunch(w *worker, end func()) {
	end()
	must(st.launch(w))
}

// must ends the referee if what it needs itself does not work.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (st *stage) close() {
	for _, w := range st.workers {
		w.Kill()
		w.proxy.Close()
	}
	if st.pooler != nil {
		st.pooler.Kill()
	}
	for _, s := range []*server{st.server, st.standby} {
		if s != nil {
			s.Kill()
		}
	}
}

func (st *stage) clockFile() string { return filepath.Join(st.dir, "clock") }

// writeClock writes st.ahead to the file that the servers read each second.
func (st *stage) writeClock() error {
	text := fmt.Sprintf("+%f", st.ahead.Seconds())
	return os.WriteFile(st.clockFile(), []byte(text), 0o644)
}

// startPooler starts PgBouncer in transaction mode.
func (st *stage) startPooler(ctx context.Context) error {
	var err error
	if st.pooled, _, err = servers.HoldPort(); err != nil {
		return err
	}
	_, own, err := net.SplitHostPort(st.pooled)
	host, port, err2 := net.SplitHostPort(st.address)
	ini := filepath.Join(st.dir, "pgbouncer.ini")
	text := fmt.Sprintf(poolerSettings, host, port, own)
	if err := errors.Join(err, err2, os.WriteFile(ini, []byte(text), 0o644)); err != nil {
		return err
	}
	if st.pooler, err = program("pgbouncer", ini); err != nil {
		return err
	}
	st.pooler.Ready = answers(url("worker", st.pooled) + "&default_query_exec_mode=exec")
	return st.pooler.Start(ctx)
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

// startStandby copies the server to a standby that follows it over a link.
func (st *stage) startStandby() (err error) {
	if st.link == nil {
		if st.link, err = servers.NewProxy(st.address); err != nil {
			return err
		}
	}
	dir := st.node()
	err = run("pg_basebackup", "-D", dir, "-R", "-X", "stream", "-c", "fast", "-d", url("postgres", st.link.Addr())+"&application_name=standby")
	if err != nil {
		return err
	}
	if st.standby, err = newServer(dir, st.spare, st.clockFile()); err != nil {
		return err
	}
	return st.standby.Start(context.Background())
}
