// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"context"
	"fmt"
	"testing"
	"time"

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
	fill(b, js, keys)
	list := natsadapter.KeyValueItems(js, "b", natsadapter.EntryKey)
	for b.Loop() {
		if items, err := list(b.Context()); err != nil || len(items) != keys {
			b.Fatalf("%d items, %v", len(items), err)
		}
	}
	b.ReportMetric(float64(keys)*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
}

// BenchmarkKeyValueFar compares a Feeder and a list with nats.go's WatchAll, over
// links of some delay for the way there and back: x is how many times as long
// they take.
func BenchmarkKeyValueFar(b *testing.B) {
	const keys = 20_000
	s := natstest.New(b)
	fill(b, s.JetStream(b), keys)
	for _, rtt := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 1200 * time.Millisecond} {
		b.Run(rtt.String(), func(b *testing.B) {
			js := natstest.OverLink(b, s, rtt/2, 0)
			var theirs, feeder, list time.Duration
			for b.Loop() { // one after the other, so that all meet the same load
				theirs += watchAll(b, js)

				begin := time.Now()
				ctx, cancel := context.WithCancel(b.Context())
				items, ended := make(chan string, keys), make(chan error, 1)
				go func() { ended <- natsadapter.KeyValue(js, "b", natsadapter.EntryKey)(ctx, recorder{items}) }()
				for range keys {
					<-items
				}
				feeder += time.Since(begin)
				cancel()
				if err := <-ended; err != nil {
					b.Fatal(err)
				}

				begin = time.Now()
				if got, err := natsadapter.KeyValueItems(js, "b", natsadapter.EntryKey)(b.Context()); err != nil || len(got) != keys {
					b.Fatalf("%d items, %v", len(got), err)
				}
				list += time.Since(begin)
			}
			b.ReportMetric(float64(theirs.Milliseconds())/float64(b.N), "ms/WatchAll")
			b.ReportMetric(float64(feeder)/float64(theirs), "x/Feeder")
			b.ReportMetric(float64(list)/float64(theirs), "x/list")
		})
	}
}

// watchAll returns how long nats.go takes for all keys of bucket b, of which it
// knows the name.
func watchAll(tb testing.TB, js jetstream.JetStream) time.Duration {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), natstest.Patience)
	defer cancel()
	begin := time.Now()
	kv, err := js.KeyValue(ctx, "b")
	if err != nil {
		tb.Fatal(err)
	}
	watch, err := kv.WatchAll(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	for e := range watch.Updates() {
		if e == nil {
			break
		}
	}
	took := time.Since(begin)
	if err := watch.Stop(); err != nil {
		tb.Fatal(err)
	}
	return took
}

// fill makes a bucket with so many keys.
func fill(tb testing.TB, js jetstream.JetStream, keys int) {
	tb.Helper()
	if _, err := js.CreateKeyValue(tb.Context(), jetstream.KeyValueConfig{Bucket: "b"}); err != nil {
		tb.Fatal(err)
	}
	for i := range keys {
		if _, err := js.PublishAsync(fmt.Sprint("$KV.b.k", i), []byte("value"), jetstream.WithStallWait(natstest.Patience)); err != nil {
			tb.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
}
