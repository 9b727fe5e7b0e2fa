// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package fakecloud_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
)

// A pipes is a listener in memory.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "memory"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// start runs a cloud until stop is called or the test ends, and returns a client
// for the tenant "me".
func start(t *testing.T, config fakecloud.Config) (c *cloud.Client, stop func()) {
	t.Helper()
	if config.Seed == 0 {
		config.Seed = 1
	}
	s, err := fakecloud.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Run(ctx, p); err != nil {
			t.Errorf("the cloud ended with %v", err)
		}
	}()
	transport := &http.Transport{DialContext: p.dial}
	stop = func() {
		transport.CloseIdleConnections()
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return &cloud.Client{URL: "http://cloud", Tenant: "me", HTTP: &http.Client{Transport: transport}}, stop
}

func key(name string) cloud.ID { return cloud.ID{Kind: cloud.Key, Name: name} }

func bucket(name string) cloud.ID { return cloud.ID{Kind: cloud.Bucket, Name: name} }

var plain = cloud.Spec{Region: "us-east"}

// create creates an asset and waits until it is ready, which takes no time in a cloud
// without delays, but for the second after it.
func create(t *testing.T, c *cloud.Client, id cloud.ID, spec cloud.Spec) {
	t.Helper()
	op, err := c.Create(t.Context(), id, spec)
	for done := false; !done; time.Sleep(time.Second) {
		if err != nil {
			t.Fatalf("create %s: %v", id, err)
		}
		synctest.Wait() // the cloud builds beside its answers, and its chaos goes on
		var o cloud.Operation
		o, err = c.Operation(t.Context(), op)
		done = o.Done
	}
}

func wantStatus(t *testing.T, what string, err error, status int) {
	t.Helper()
	got := 200
	if answer := new(cloud.Error); errors.As(err, &answer) {
		got = answer.Status
	} else if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	if got != status {
		t.Errorf("%s: status %d (%v), want %d", what, got, err, status)
	}
}
