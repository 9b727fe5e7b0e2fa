// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// TestOldServer has all feeders work with an old server, through a kill -9 of it.
func TestOldServer(t *testing.T) {
	s := natstest.NewOld(t)
	js := s.JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	put(t, kv, "a", "0")
	put(t, kv, "x.y", "0")
	watch, some := run(t, entries(js, "b")), run(t, entries(js, "b", "x.>"))
	watch.want("a =0", "x.y =0")
	some.want("x.y =0")
	store := createStore(t, js)
	objects := run(t, natsadapter.Objects(js, "b", object))
	createStream(t, js, "S")
	messages := run(t, natsadapter.Consumer(js, "S", jetstream.ConsumerConfig{Durable: "c"}, body))
	subjects := run(t, natsadapter.Subject(s.Connect(t), "core", "", text))
	mounts := &natsadapter.Secondaries{JS: js, Bucket: "b", Kind: "disk"}
	owners := run(t, mounts.Feed)

	for _, end := range []func(){s.Kill, s.Stop} {
		put(t, kv, "a", "1")
		watch.want("a =1")
		end()
		s.Start()
		put(t, kv, "a", "2")
		put(t, kv, "x.y", "2")
		watch.wantAmong("a =2", "x.y =2")
		some.want("x.y =2")
		natstest.Eventually(t, func(ctx context.Context) error { return kv.Delete(ctx, "x.y") })
		watch.wantAmong("x.y deleted")
		some.want("x.y deleted")
		putObject(t, store, "o", "1")
		objects.want("o 1 false false")
		publish(t, js, "S.a", "1")
		messages.want("1")
		subjects.heard(s.Connect(t), "core", "1")
		mustPut(t, mounts, "m", "", "d1")
		owners.want("d1")
		watch.wantAmong("m =")
	}
	items, err := natsadapter.KeyValueItems(js, "b", named)(t.Context())
	if want := []string{"a =", "m ="}; err != nil || !slices.Equal(items, want) {
		t.Errorf("KeyValueItems returns %q, %v; want %q", items, err, want)
	}

	// Two filters are more than this server knows.
	if _, err := natsadapter.KeyValueItems(js, "b", named, "a", "x.>")(t.Context()); err == nil || !strings.Contains(err.Error(), "one filter at most, want version 2.10") {
		t.Errorf("two filters: %v, want an error that says that there may be one", err)
	}
}
