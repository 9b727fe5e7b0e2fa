// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package natsadapter_test

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/elect"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/supervise"
)

// TestSmoke shows that the adapter works with a real server: the leader feeds a queue
// from a bucket, and a run gets the item. The tests of the details have the tag
// nightly. The only bound on the time is the one of go test.
func TestSmoke(t *testing.T) {
	server, err := natstest.Open(t.TempDir())
	if err != nil {
		t.Fatalf("the NATS server was not started, so nothing was tested: %v", err)
	}
	t.Cleanup(server.Close)
	js := server.JetStream(t)
	bucket := func(config jetstream.KeyValueConfig) jetstream.KeyValue {
		kv, err := js.CreateOrUpdateKeyValue(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		return kv
	}
	sites := bucket(jetstream.KeyValueConfig{Bucket: "sites"})
	leases := bucket(jetstream.KeyValueConfig{Bucket: "leases", TTL: time.Minute})
	if _, err := sites.Put(t.Context(), "a", nil); err != nil {
		t.Fatal(err)
	}
	q := reconcile.NewQueue[string]()
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan string)
	var group supervise.Group
	group.Add("leader", elect.Elect(leases, "feed", reconcile.Feed(q, natsadapter.KeyValue(js, "sites", natsadapter.EntryKey))))
	group.Add("runs", &reconcile.Reconciler[string]{Queue: q, Reconcile: func(_ context.Context, item string) error {
		ran <- item
		return nil
	}})
	ended := make(chan error)
	go func() { ended <- group.Run(ctx) }()
	for _, want := range []string{"a", "b"} {
		if want != "a" {
			if _, err := sites.Put(t.Context(), want, nil); err != nil {
				t.Error(err)
			}
		}
		select {
		case got := <-ran:
			if got != want {
				t.Errorf("item %q was run, want %q", got, want)
			}
		case err := <-ended:
			t.Fatalf("the group ended with %v before item %q was run", err, want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
