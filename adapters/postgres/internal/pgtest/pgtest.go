// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package pgtest starts real PostgreSQL servers for tests.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile/internal/servers"
)

// A Server is a PostgreSQL server on loopback that can be stopped, killed, paused and
// started again on the same port, with the same data.
type Server struct {
	*servers.Process
	Addr string // host:port

	dir     string
	release func()
}

// Open starts a server with an empty database, postgres, in which the role postgres may do
// everything. Settings are those of postgresql.conf, such as "max_connections=20". PostgreSQL
// must not run as root, so a root uses the user postgres. Close the server when done.
func Open(settings ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	s := &Server{release: func() {}}
	if s.dir, err = os.MkdirTemp("", "pgtest"); err != nil {
		return nil, err
	}
	if err := s.open(bin, settings); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) open(bin string, settings []string) (err error) {
	if s.Addr, s.release, err = servers.HoldPort(); err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	s.Process = &servers.Process{Path: filepath.Join(bin, "postgres"), Ready: s.ready}
	initdb := exec.Command(filepath.Join(bin, "initdb"), "--pgdata="+filepath.Join(s.dir, "data"), "--username=postgres",
		"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync")
	if os.Getuid() == 0 {
		s.User = "postgres"
		if initdb.SysProcAttr, err = s.handOver(); err != nil {
			return err
		}
	}
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w; it printed:\n%s", err, out)
	}
	s.Args = []string{"-D", filepath.Join(s.dir, "data")}
	// A test kills processes, and not the machine: what is written and not synced is kept.
	for _, c := range append([]string{"port=" + port, "listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=32MB"}, settings...) {
		s.Args = append(s.Args, "-c", c)
	}
	return s.Start(context.Background())
}

// handOver gives the folder to the user of the server.
func (s *Server) handOver() (*syscall.SysProcAttr, error) {
	u, err := user.Lookup(s.User)
	if err != nil {
		return nil, err
	}
	uid, uidErr := strconv.Atoi(u.Uid)
	gid, gidErr := strconv.Atoi(u.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, os.Chown(s.dir, uid, gid)
}

// binaries returns the folder of the newest PostgreSQL.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), "postgres")); err == nil {
				return filepath.Dir(path), nil
			}
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.Join(errors.New("PostgreSQL is missing: install what Debian has in the package postgresql"), err)
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// URL returns a connection string.
func (s *Server) URL() string { return URL(s.Addr) }

// URL returns a connection string for a server behind a proxy.
func URL(addr string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable&connect_timeout=5"
}

// Crash ends the server without a checkpoint, as "immediate" of pg_ctl does, and waits for it.
func (s *Server) Crash() error {
	if err := syscall.Kill(s.PID(), syscall.SIGQUIT); err != nil {
		return err
	}
	_ = s.Wait() // It ends with an error.
	return nil
}

// Close ends the server and removes its data.
func (s *Server) Close() {
	if s.Process != nil {
		s.Kill()
	}
	s.release()
	_ = os.RemoveAll(s.dir) // A child of the server may still be ending.
}

// New starts a server, and closes it when the test has ended.
func New(t testing.TB, settings ...string) *Server {
	t.Helper()
	s, err := Open(settings...)
	if err != nil {
		t.Fatalf("the PostgreSQL server was not started, so nothing was tested: %v", err)
	}
	t.Cleanup(s.Close)
	return s
}

var shared = sync.OnceValues(func() (*Server, error) { return Open("max_connections=200") })

// Main runs the tests of a package, and then ends the server that they shared. It is for
// TestMain.
func Main(m *testing.M) {
	code := m.Run()
	if s, err := shared(); err == nil {
		s.Close()
	}
	os.Exit(code)
}

// Shared returns a server that all tests of a package share, and that none of them may stop. Main
// ends it.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatalf("the PostgreSQL server was not started, so nothing was tested: %v", err)
	}
	return s
}

// Pool returns a pool of connections to url, which is closed when the test has ended.
func Pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
