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

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile/internal/servers"
)

// A server is a PostgreSQL server on a folder and a port that others may have had before.
type server struct {
	*servers.Process
	dir string // of its data
}

// settings are those of each server. A commit is on the disk when it is done, as by default.
var settings = []string{
	"unix_socket_directories=", "max_connections=200", "max_wal_size=64MB", "min_wal_size=8MB", "wal_keep_size=64MB",
	"checkpoint_timeout=30s", "autovacuum_naptime=5s", "shared_buffers=64MB",
}

// newServer returns a server for the data in dir, which reads how far its clock is ahead from
// the file clock each second.
func newServer(dir, address, clock string) (*server, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	libraries, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil || len(libraries) == 0 {
		return nil, errors.New("libfaketime is missing: install what Debian has in the package faketime")
	}
	args := []string{"-D", dir, "-c", "listen_addresses=" + host, "-c", "port=" + port}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	p, err := program("postgres", args...)
	if err != nil {
		return nil, err
	}
	p.Env = []string{"LD_PRELOAD=" + libraries[0], "FAKETIME_TIMESTAMP_FILE=" + clock, "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"}
	p.Ready = answers(url("postgres", address))
	return &server{p, dir}, nil
}

// answers returns what tells whether one can connect to url.
func answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		c, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		return c.Close(ctx)
	}
}

func url(user, address string) string {
	return "postgres://" + user + "@" + address + "/postgres?sslmode=disable"
}

// crash ends the server without a checkpoint.
func (s *server) crash() {
	_ = syscall.Kill(s.PID(), syscall.SIGQUIT)
	_ = s.Wait() // It ends with an error.
}

// limitFiles sets the greatest size of a file that the server writes, in bytes. PostgreSQL takes
// that for a full disk.
func (s *server) limitFiles(size string) error {
	pid := strconv.Itoa(s.PID())
	children, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	if err != nil {
		return err
	}
	for _, p := range append(strings.Fields(string(children)), pid) {
		if err := run("prlimit", "--pid", p, "--fsize="+size+":"); err != nil && p == pid { // a child may have ended
			return err
		}
	}
	return nil
}

// program returns a program of PostgreSQL, or around it, to be run as the user postgres if this
// process is that of root: PostgreSQL does not accept root.
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

// initCluster makes a database cluster in the new folder dir. The user postgres may do
// everything, and needs no password.
func initCluster(dir string) error {
	return run("initdb", "-D", dir, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1")
}
