// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// feedInto runs a feeder of a bucket, whose keys come through the channel.
func feedInto(b *testing.B, js jetstream.JetStream) <-chan string {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	items, ended := make(chan string, 1000), make(chan error, 1)
	go func() { ended <- natsadapter.KeyValue(js, "b", natsadapter.EntryKey)(ctx, recorder{items}) }()
	b.Cleanup(func() {
		cancel()
		for {
			select {
			case <-items: // so that the feeder can end
			case err := <-ended:
				if err != nil {
					b.Error(err)
				}
				return
			}
		}
	})
	return items
}

// BenchmarkKeyValueRestart measures the time from a restarted server that takes
// calls to the item of an entry that was put before.
func BenchmarkKeyValueRestart(b *testing.B) {
	s := natstest.New(b)
	kv, err := s.JetStream(b).CreateKeyValue(b.Context(), jetstream.KeyValueConfig{Bucket: "b"})
	if err != nil {
		b.Fatal(err)
	}
	p := natstest.NewClientProxy(b, s)
	items := feedInto(b, natstest.JetStream(b, natstest.Connect(b, p.URL())))
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		if i > 0 {
			p.Hang()
		}
		key := fmt.Sprint("k", i)
		if _, err := kv.PutString(b.Context(), key, ""); err != nil {
			b.Fatal(err)
		}
		if i > 0 {
			p.Cut()
			s.Kill()
			s.Start()
			p.Heal()
		}
		b.StartTimer()
		for <-items != key {
		}
	}
}

// BenchmarkKeyValueChange measures the time from a put to its item.
func BenchmarkKeyValueChange(b *testing.B) {
	s := natstest.New(b)
	js := s.JetStream(b)
	kv, err := js.CreateKeyValue(b.Context(), jetstream.KeyValueConfig{Bucket: "b"})
	if err != nil {
		b.Fatal(err)
	}
	items := feedInto(b, js)
	for b.Loop() {
		if _, err := kv.PutString(b.Context(), "a", ""); err != nil {
			b.Fatal(err)
		}
		<-items
	}
}

// BenchmarkKeyValueList measures how fast the initial values come.
func BenchmarkKeyValueList(b *testing.B) {
	const keys = 10_000
	s := natstest.New(b)
	js := s.JetStream(b)
	if _, err := js.CreateKeyValue(b.Context(), jetstream.KeyValueConfig{Bucket: "b"}); err != nil {
		b.Fatal(err)
	}
	for i := range keys {
		if _, err := js.PublishAsync(fmt.Sprint("$KV.b.k", i), nil); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
	list := natsadapter.KeyValueItems(js, "b", natsadapter.EntryKey)
	for b.Loop() {
		if items, err := list(b.Context()); err != nil || len(items) != keys {
			b.Fatalf("%d items, %v", len(items), err)
		}
	}
	b.ReportMetric(float64(keys)*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}
