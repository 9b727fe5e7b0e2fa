// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package pgtest starts real PostgreSQL servers for tests.
package pgtest

import (
	"context"
	"os"
	"regexp"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reconkernel/reconcile/internal/servers"
)

// A Server is a PostgreSQL server on loopback that can be stopped, killed, paused and
// started again on the same port, with the same data.
type Server struct{ *servers.Postgres }

// Open starts a server, see [servers.NewPostgres]. Close it when done.
func Open(settings ...string) (*Server, error) {
	p, err := servers.NewPostgres(append([]string{"shared_buffers=32MB"}, settings...)...)
	if err != nil {
		return nil, err
	}
	if err := p.Start(context.Background()); err != nil {
		p.Close()
		return nil, err
	}
	return &Server{p}, nil
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

// Blocks returns the SQL of a page of the docs, block by block.
func Blocks(t testing.TB, page string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllSubmatch(text, -1) {
		blocks = append(blocks, string(block[1]))
	}
	return blocks
}
