// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
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

// reads notes what JetStream is asked for from now on, of what reading takes. The
// function that it returns says how often each was asked for.
func reads(t *testing.T, s *natstest.Server) (asked func() map[string]int) {
	t.Helper()
	nc := s.Connect(t)
	sub, err := nc.SubscribeSync("$JS.API.>")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() map[string]int {
		t.Helper()
		if err := nc.Flush(); err != nil { // what came before has come here
			t.Fatal(err)
		}
		count := make(map[string]int)
		for n, _, _ := sub.Pending(); n > 0; n-- {
			msg, err := sub.NextMsg(natstest.Patience)
			if err != nil {
				t.Fatal(err)
			}
			for _, what := range []string{"STREAM.INFO", "STREAM.MSG.GET", "DIRECT.GET", "CONSUMER.CREATE", "CONSUMER.MSG.NEXT"} {
				if strings.HasPrefix(msg.Subject, "$JS.API."+what+".") {
					count[what]++
				}
			}
		}
		return count
	}
}

// wantReads checks how often JetStream was asked for what reading takes.
func wantReads(t *testing.T, asked func() map[string]int, want map[string]int) {
	t.Helper()
	if got := asked(); !maps.Equal(got, want) {
		t.Errorf("it asked for %v, want %v: no round trip more", got, want)
	}
}

// TestKeyValueSlowLinks has all keys come over slow links once: what takes long is
// not begun anew.
func TestKeyValueSlowLinks(t *testing.T) {
	for _, l := range slowLinks {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := natstest.New(t)
			kv := natstest.CreateKeyValue(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b"})
			var keys []string
			value := bytes.Repeat([]byte("x"), l.size)
			for i := range 3 {
				keys = append(keys, fmt.Sprint("k", i))
				if _, err := kv.Put(t.Context(), keys[i], value); err != nil {
					t.Fatal(err)
				}
			}
			asked := reads(t, s)
			f := run(t, natsadapter.KeyValue(natstest.OverLink(t, s, l.delay, l.rate, natstest.In(t, "feeder of a bucket", "b")), "b", natsadapter.EntryKey))
			f.want(keys...)
			put(t, kv, "later", string(value))
			f.want("later")
			wantReads(t, asked, map[string]int{"CONSUMER.CREATE": 1, "STREAM.INFO": 1})
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
			js := natstest.OverLink(t, s, l.delay, l.rate, natstest.In(t, "feeder of a stream", "S"))
			f := run(t, natsadapter.Consumer(js, "S", jetstream.ConsumerConfig{Durable: "c"}, func(msg jetstream.Msg) (string, bool) {
				return msg.Subject(), true
			}))
			f.wantAll(subjects...)
			settled(t, stream, "c")
		})
	}
}

// TestKeyValueFar has many keys come from far away with two round trips, and a list of them
// with one: what the stream is, it asks beside.
func TestKeyValueFar(t *testing.T) {
	s := natstest.New(t)
	fill(t, s.JetStream(t), 5000)
	js := natstest.OverLink(t, s, 100*time.Millisecond, 0, natstest.In(t, "feeder of a bucket", "b"))
	asked := reads(t, s)
	f := run(t, natsadapter.KeyValue(js, "b", natsadapter.EntryKey))
	for range 5000 {
		<-f.items
	}
	wantReads(t, asked, map[string]int{"CONSUMER.CREATE": 1, "STREAM.INFO": 1})
	asked = reads(t, s)
	if items, err := natsadapter.KeyValueItems(js, "b", natsadapter.EntryKey)(t.Context()); err != nil || len(items) != 5000 {
		t.Errorf("the list has %d items, %v; want 5000", len(items), err)
	}
	wantReads(t, asked, map[string]int{"CONSUMER.CREATE": 1, "STREAM.INFO": 1})
}

// TestListsNoValues lists keys with values so big that they would take a minute.
func TestListsNoValues(t *testing.T) {
	s := natstest.New(t)
	kv := natstest.CreateKeyValue(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b"})
	var keys []string
	for i := range 6 {
		keys = append(keys, fmt.Sprint("k", i))
		if _, err := kv.Put(t.Context(), keys[i], make([]byte, 1_000_000)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience/2)
	defer cancel()
	items, err := natsadapter.KeyValueItems(natstest.OverLink(t, s, 0, 100_000, natstest.In(t, "feeder of a bucket", "b")), "b", natsadapter.EntryKey)(ctx)
	if err != nil || !slices.Equal(items, keys) {
		t.Errorf("the list is %q, %v; want %q", items, err, keys)
	}
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
