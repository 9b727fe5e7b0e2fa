// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile/internal/servers"
)

// A server is a PostgreSQL server. Another one may have had its port before.
type server struct {
	*servers.Process
	dir string // of its data
}

// newServer returns a server for the data in dir, whose clock is that of the stage. A commit is
// on the disk when it is done, as by default.
func (st *stage) newServer(dir, address string) *server {
	host, port, err := net.SplitHostPort(address)
	must(err)
	args := []string{"-D", dir}
	for _, setting := range []string{
		"listen_addresses=" + host, "port=" + port, "unix_socket_directories=", "max_connections=200", "shared_buffers=64MB",
		"max_wal_size=64MB", "min_wal_size=8MB", "wal_keep_size=64MB", "checkpoint_timeout=30s", "autovacuum_naptime=5s",
	} {
		args = append(args, "-c", setting)
	}
	p := get(program("postgres", args...))
	libraries := get(filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1"))
	if len(libraries) == 0 {
		panic("libfaketime is missing: install what Debian has in the package faketime")
	}
	p.Env = []string{"LD_PRELOAD=" + libraries[0], "FAKETIME_TIMESTAMP_FILE=" + st.clock(), "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"}
	p.Ready = answers(url("postgres", address))
	return &server{p, dir}
}

// clock is the file that the servers read each second.
func (st *stage) clock() string { return filepath.Join(st.dir, "clock") }

// setClock sets the clock of the servers forward.
func (st *stage) setClock(d time.Duration) {
	st.ahead += d
	must(os.WriteFile(st.clock(), fmt.Appendf(nil, "+%f", st.ahead.Seconds()), 0o644))
}

func url(user, address string) string {
	return "postgres://" + user + "@" + address + "/postgres?sslmode=disable"
}

// answers returns a function that connects to url once.
func answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		return c.Close(ctx)
	}
}

// crash ends the server without a checkpoint.
func (s *server) crash() {
	must(syscall.Kill(s.PID(), syscall.SIGQUIT))
	_ = s.Wait() // It ends with an error.
}

// limitFiles sets the greatest size of a file that the server writes, in bytes. PostgreSQL takes
// that for a full disk.
func (s *server) limitFiles(size string) {
	pid := strconv.Itoa(s.PID())
	must(run("prlimit", "--pid", pid, "--fsize="+size+":")) // and of the processes that it starts
	for _, child := range strings.Fields(string(get(os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")))) {
		_ = run("prlimit", "--pid", child, "--fsize="+size+":") // It may have ended.
	}
}

// program returns a program of PostgreSQL or around it. PostgreSQL does not run as root, so root
// starts it as the user postgres.
func program(name string, args ...string) (*servers.Process, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		if len(paths) == 0 {
			return nil, fmt.Errorf("%s is missing: install what Debian has in the packages postgresql and pgbouncer", name)
		}
		path = paths[len(paths)-1]
	}
	p := &servers.Process{Path: path, Args: args, Ready: func(context.Context) error { return nil }}
	if os.Geteuid() == 0 {
		p.User = "postgres"
	}
	return p, nil
}

// run runs a program until it ends.
func run(name string, args ...string) error {
	p, err := program(name, args...)
	if err != nil {
		return err
	}
	if err := errors.Join(p.Start(context.Background()), p.Wait()); err != nil {
		return fmt.Errorf("%s: %w; it printed:\n%s", name, err, p.Output())
	}
	return nil
}
