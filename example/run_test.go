// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/example/internal/fakecloud"
	"github.com/reconkernel/reconcile/example/internal/programtest"
)

// The program closes all its connections to a cloud that goes on.
func TestNoConnectionIsLeft(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, err := fakecloud.Open(fakecloud.Config{Dir: t.TempDir(), Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	counted := &countingListener{Listener: l}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, counted) }()

	var out programtest.Buffer
	if code := run(t.Context(), []string{"-cloud", "http://" + l.Addr().String()}, &out, &out); code != 0 {
		t.Errorf("exit code %d; it printed\n%s", code, out.String())
	}
	select {
	case <-counted.none():
	case <-time.After(30 * time.Second): // half the time after which idle ones are closed
		t.Error("30s after the end of the program, connections are open")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A countingListener knows how many connections are open.
type countingListener struct {
	net.Listener
	mu     sync.Mutex // guards the fields below
	open   int
	closed chan struct{} // closed when none is open; nil if nobody asked
}

// none returns a channel that is closed when no connection is open.
func (l *countingListener) none() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	closed := make(chan struct{})
	l.closed = closed
	l.countLocked(0)
	return closed
}

func (l *countingListener) count(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countLocked(n)
}

func (l *countingListener) countLocked(n int) {
	l.open += n
	if l.open == 0 && l.closed != nil {
		close(l.closed)
		l.closed = nil
	}
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.count(1)
	return &countedConn{Conn: c, done: sync.OnceFunc(func() { l.count(-1) })}, nil
}

type countedConn struct {
	net.Conn
	done func()
}

func (c *countedConn) Close() error {
	defer c.done()
	return c.Conn.Close()
}
