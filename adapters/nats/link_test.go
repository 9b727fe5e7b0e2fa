// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
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

// TestKeyValueFar has many keys come from far away at most twice as slowly as
// with nats.go, and a list of them too.
func TestKeyValueFar(t *testing.T) {
	s := natstest.New(t)
	fill(t, s.JetStream(t), 5000)
	js := overLink(t, s, 100*time.Millisecond, 0)
	theirs := watchAll(t, js)
	begin := time.Now()
	f := run(t, natsadapter.KeyValue(js, "b", natsadapter.EntryKey))
	for range 5000 {
		<-f.items
	}
	if ours := time.Since(begin); ours > 2*theirs {
		t.Errorf("a Feeder takes %v, want at most twice as long as WatchAll, %v", ours, theirs)
	}
	begin = time.Now()
	if items, err := natsadapter.KeyValueItems(js, "b", natsadapter.EntryKey)(t.Context()); err != nil || len(items) != 5000 {
		t.Errorf("the list has %d items, %v; want 5000", len(items), err)
	}
	if ours := time.Since(begin); ours > 2*theirs {
		t.Errorf("a list takes %v, want at most twice as long as WatchAll, %v", ours, theirs)
	}
}

// TestListsNoValues lists keys with values so big that they would take a minute.
func TestListsNoValues(t *testing.T) {
	s := natstest.New(t)
	kv := createKV(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b"})
	var keys []string
	for i := range 6 {
		keys = append(keys, fmt.Sprint("k", i))
		if _, err := kv.Put(t.Context(), keys[i], make([]byte, 1_000_000)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), within/2)
	defer cancel()
	items, err := natsadapter.KeyValueItems(overLink(t, s, 0, 100_000), "b", natsadapter.EntryKey)(ctx)
	if err != nil || !slices.Equal(items, keys) {
		t.Errorf("the list is %q, %v; want %q", items, err, keys)
	}
}

// A round trip takes more than half of what a request may.
func TestQueueFarAway(t *testing.T) {
	s := natstest.New(t)
	js := overLink(t, s, 300*time.Millisecond, 0)
	q, err := natsadapter.NewQueue[string](t.Context(), js, natsadapter.Config{Name: "q", Lease: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, q)
	enqueue(t, q, "x")
	mustTake(t, q, "x")
	q.Done("x")
	flush(t, q)
}
