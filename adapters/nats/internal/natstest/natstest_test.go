// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natstest_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// eventually tries until a server that starts, or a new leader, does it.
func eventually(t *testing.T, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		err := f(try)
		cancel()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

func put(t *testing.T, kv jetstream.KeyValue, key string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		_, err := kv.Put(ctx, key, []byte(key))
		return err
	})
}

// wantKeys watches for keys. A Get may be answered by a server of the cluster
// that is a moment behind.
func wantKeys(t *testing.T, kv jetstream.KeyValue, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, key := range want {
		watch, err := kv.Watch(ctx, key)
		if err != nil {
			t.Fatalf("watch %s: %v", key, err)
		}
		for found := false; !found; {
			select {
			case e := <-watch.Updates():
				found = e != nil // else that was all, so far
			case <-ctx.Done():
				t.Fatalf("there is no %s", key)
			}
		}
		if err := watch.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestServerKeepsItsData kills, stops and freezes a server; the same connection
// finds the same data behind the same URL.
func TestServerKeepsItsData(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
	if err != nil {
		t.Fatal(err)
	}
	put(t, kv, "a")
	s.Kill()
	s.Start()
	put(t, kv, "b")
	s.Stop()
	s.Start()
	put(t, kv, "c")
	s.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := kv.Get(ctx, "a"); err == nil {
		t.Error("a frozen server answers")
	}
	s.Thaw()
	wantKeys(t, kv, "a", "b", "c")
}

// TestProxy cuts and hangs one client, while another works on.
func TestProxy(t *testing.T) {
	s := natstest.New(t)
	p := natstest.NewClientProxy(t, s)
	lost, back := make(chan struct{}, 1), make(chan struct{}, 1)
	nc := natstest.Connect(t, p.URL(),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { lost <- struct{}{} }),
		nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	other := s.Connect(t)
	p.Cut()
	<-lost
	if err := other.FlushTimeout(10 * time.Second); err != nil {
		t.Error(err)
	}
	p.Heal()
	<-back
	p.Hang()
	if err := nc.FlushTimeout(50 * time.Millisecond); err == nil {
		t.Error("a hanging proxy passes on a ping")
	}
	p.Heal()
	if err := nc.FlushTimeout(10 * time.Second); err != nil {
		t.Error(err)
	}
}

// TestCluster kills one of three servers, and then has all three again.
func TestCluster(t *testing.T) {
	c := natstest.NewCluster(t, 3)
	js := c.JetStream(t)
	var kv jetstream.KeyValue
	eventually(t, func(ctx context.Context) (err error) { // the leader of the cluster may change once more
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "b", Replicas: 3})
		return err
	})
	put(t, kv, "a")
	c.Servers[0].Kill()
	put(t, kv, "b")
	c.Start()
	put(t, kv, "c")
	wantKeys(t, kv, "a", "b", "c")
}
