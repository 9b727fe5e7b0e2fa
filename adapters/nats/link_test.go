// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// slowLinks are one on which a message is on its way for longer than heartbeats,
// and one on which an answer takes longer than a second.
var slowLinks = []struct {
	name  string
	delay time.Duration
	rate  int
	size  int // of a message
}{
	{"big messages", 0, 500_000, 900_000},
	{"far away", 700 * time.Millisecond, 0, 100},
}

// overLink returns a JetStream behind a link, see [natstest.Proxy.Link].
func overLink(tb testing.TB, s *natstest.Server, delay time.Duration, rate int) jetstream.JetStream {
	tb.Helper()
	p := natstest.NewClientProxy(tb, s)
	p.Link(delay, rate)
	return natstest.JetStream(tb, natstest.Connect(tb, p.URL()))
}

// watchAll returns how long nats.go takes for all keys of bucket b, of which it
// knows the name.
func watchAll(tb testing.TB, js jetstream.JetStream) time.Duration {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), within)
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

// TestKeyValueSlowLinks has all keys come over slow links in no more than half as
// long again as with nats.go.
func TestKeyValueSlowLinks(t *testing.T) {
	for _, l := range slowLinks {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := natstest.New(t)
			kv := createKV(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b"})
			var keys []string
			value := bytes.Repeat([]byte("x"), l.size)
			for i := range 3 {
				keys = append(keys, fmt.Sprint("k", i))
				if _, err := kv.Put(t.Context(), keys[i], value); err != nil {
					t.Fatal(err)
				}
			}
			theirs := watchAll(t, overLink(t, s, l.delay, l.rate))
			js := overLink(t, s, l.delay, l.rate)
			begin := time.Now()
			f := run(t, natsadapter.KeyValue(js, "b", natsadapter.EntryKey))
			f.want(keys...)
			ours := time.Since(begin)
			t.Logf("a Feeder takes %v, WatchAll %v", ours, theirs)
			if ours > theirs*3/2 {
				t.Errorf("a Feeder takes %v, want at most half as long again as WatchAll, %v", ours, theirs)
			}
			if _, err := kv.Put(t.Context(), "later", value); err != nil {
				t.Fatal(err)
			}
			f.want("later")
			f.stop()
			f.none()
		})
	}
}

// TestConsumerSlowLinks has the same for a consumer: all that is there comes,
// and is acknowledged.
func TestConsumerSlowLinks(t *testing.T) {
	for _, l := range slowLinks {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := natstest.New(t)
			direct := s.JetStream(t)
			stream := createStream(t, direct, "S")
			var subjects []string
			for i := range 3 {
				subjects = append(subjects, fmt.Sprint("S.", i))
				publish(t, direct, subjects[i], strings.Repeat("x", l.size))
			}
			js := overLink(t, s, l.delay, l.rate)
			f := run(t, natsadapter.Consumer(js, "S", jetstream.ConsumerConfig{Durable: "c"}, func(msg jetstream.Msg) (string, bool) {
				return msg.Subject(), true
			}))
			f.wantAll(subjects...)
			settled(t, stream, "c")
		})
	}
}
