// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/tracker"
)

// TestKeyValueEvents has one entry of each kind: the initial ones, deleted keys
// among them, then put, delete, purge and expiry.
func TestKeyValueEvents(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b", LimitMarkerTTL: time.Hour})
	put(t, kv, "a", "0")
	put(t, kv, "a", "1")
	put(t, kv, "b", "1")
	put(t, kv, "gone", "1")
	if err := kv.Delete(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	f := run(t, entries(as(t, js, "feeder of a bucket", "b"), "b"))
	f.want("a =1", "b =1", "gone deleted")
	put(t, kv, "a", "2")
	f.want("a =2")
	if err := kv.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	f.want("a deleted")
	if err := kv.Purge(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	f.want("b purged")
	if _, err := kv.Create(t.Context(), "short", []byte("1"), jetstream.KeyTTL(time.Second)); err != nil {
		t.Fatal(err)
	}
	f.want("short =1", "short purged")
	f.stop()
	f.none()
}

// TestKeyValueTTL has a whole bucket whose keys expire.
func TestKeyValueTTL(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b", TTL: time.Second, LimitMarkerTTL: time.Hour})
	f := run(t, entries(as(t, js, "feeder of a bucket", "b"), "b"))
	put(t, kv, "a", "1")
	f.want("a =1", "a purged")
}

// TestKeyValueEntry checks what the key function is given, and that it may say
// no.
func TestKeyValueEntry(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	f := run(t, natsadapter.KeyValue(as(t, js, "feeder of a bucket", "b"), "b", func(e jetstream.KeyValueEntry) (string, bool) {
		h := e.(interface{ Headers() nats.Header }).Headers()
		return fmt.Sprint(e.Bucket(), e.Key(), string(e.Value()), e.Revision(), e.Created().IsZero(), e.Delta(), op(e), h.Get("H")), e.Key() != "no"
	}))
	put(t, kv, "no", "1")
	if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "$KV.b.x.y", Header: nats.Header{"H": {"h"}}, Data: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	f.want(fmt.Sprint("b", "x.y", "v", 2, false, 0, "=", "h"))
	f.stop()
	f.none()
}

// TestKeyValueFilters watches some keys alone.
func TestKeyValueFilters(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	for _, key := range []string{"disk.1", "net.1", "x"} {
		put(t, kv, key, "0")
	}
	one, two := run(t, entries(as(t, js, "feeder of a bucket", "b"), "b", "disk.*")), run(t, entries(as(t, js, "feeder of a bucket", "b"), "b", "disk.>", "x"))
	one.want("disk.1 =0")
	two.want("disk.1 =0", "x =0")
	for _, key := range []string{"net.1", "x", "disk.2"} {
		put(t, kv, key, "1")
	}
	one.want("disk.2 =1")
	two.want("x =1", "disk.2 =1")
}

// TestKeyValueFiltersOverlap has filters of which one covers another, or one twice: no
// server takes them, so they are an error, and nothing that is tried again.
func TestKeyValueFiltersOverlap(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	for _, filters := range [][]string{{"disk.>", "disk.1"}, {"x", "x"}} {
		var primed natsadapter.Primed
		ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
		defer cancel()
		_, list := natsadapter.KeyValueItems(js, "b", named, filters...)(ctx)
		for name, err := range map[string]error{
			"list": list,
			"feed": natsadapter.Prime(&primed, natsadapter.KeyValue(js, "b", named, filters...))(ctx, recorder{}),
			"Wait": primed.Wait(ctx),
		} {
			var api *jetstream.APIError
			if !errors.Is(err, reconcile.ErrTerminal) || !errors.As(err, &api) || !strings.Contains(err.Error(), fmt.Sprintf("%q, %q", filters[0], filters[1])) || strings.Contains(err.Error(), "$KV") {
				t.Errorf("%s of %q: %v, want a terminal error that names the filters", name, filters, err)
			}
		}
	}
	createStream(t, js, "S")
	overlapping := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, FilterSubjects: []string{"S.a", "S.>"}}
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	if err := natsadapter.Consumer(js, "S", overlapping, body)(ctx, recorder{}); !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), `["S.a" "S.>"]`) {
		t.Errorf("Consumer: %v, want a terminal error that names the filters", err)
	}
}

// TestKeyValueManyKeys has more keys than a batch.
func TestKeyValueManyKeys(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	var keys []string
	for i := range 500 {
		keys = append(keys, fmt.Sprint("k", i))
		put(t, kv, keys[i], "")
	}
	f := run(t, natsadapter.KeyValue(as(t, js, "feeder of a bucket", "b"), "b", natsadapter.EntryKey))
	f.want(keys...)
	items, err := natsadapter.KeyValueItems(as(t, js, "feeder of a bucket", "b"), "b", natsadapter.EntryKey)(t.Context())
	if err != nil || !slices.Equal(items, keys) {
		t.Errorf("KeyValueItems returns %d items and %v, want %d and nil", len(items), err, len(keys))
	}
}

// TestKeyValuePanic has a key function that panics on one entry. The log tells
// where in one line.
func TestKeyValuePanic(t *testing.T) {
	var log bytes.Buffer
	js := natstest.New(t).JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	key := func(e jetstream.KeyValueEntry) (string, bool) {
		if e.Key() == "bad" {
			refuse()
		}
		return e.Key(), true
	}
	put(t, kv, "bad", "")
	put(t, kv, "good", "")
	run(t, inGroup(&log, natsadapter.KeyValue(as(t, js, "feeder of a bucket", "b"), "b", key))).want("good")
	if want := regexp.MustCompile(`\[nats_test\.refuse kv_test\.go:\d+ < nats_test\.TestKeyValuePanic\.func\d+ kv_test\.go:\d+\]" member=feeder\n`); !want.MatchString(log.String()) {
		t.Errorf("log:\n%swant %s", log.String(), want)
	}
}

func refuse() { panic("bad") }

// TestKeyValueItems lists before there is a bucket, with and without deleted
// keys, and while the server is away. Entries have headers and no values.
func TestKeyValueItems(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t)
	list := natsadapter.KeyValueItems(as(t, js, "feeder of a bucket", "b"), "b", named)
	want := func(items ...string) {
		t.Helper()
		got, err := list(t.Context())
		if err != nil || !slices.Equal(got, items) {
			t.Errorf("the list is %q, %v; want %q", got, err, items)
		}
	}
	if items, err := list(t.Context()); err == nil || !strings.Contains(err.Error(), "bucket b") {
		t.Errorf("the list of a missing bucket is %q, %v; want an error that names it", items, err)
	}
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	want()
	for _, key := range []string{"a", "b", "c"} {
		put(t, kv, key, "1")
	}
	if err := kv.Delete(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if err := kv.Purge(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	put(t, kv, "d", "1")
	want("a =", "d =")
	s.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if items, err := list(ctx); err == nil {
		t.Errorf("a list without a server is %q, without an error", items)
	}
	s.Start()
	natstest.Eventually(t, func(ctx context.Context) error {
		_, err := list(ctx)
		return err
	})
	want("a =", "d =")
}

// TestKeyValueItemsOverwritten lists a bucket again and again while other processes write
// its keys without a pause: each list ends, and has every key.
func TestKeyValueItemsOverwritten(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t)
	natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	const keys = 8
	all := make(map[string]bool)
	var writes sync.WaitGroup
	defer writes.Wait()
	done := make(chan struct{})
	defer close(done)
	for i := range keys {
		all[fmt.Sprint("k", i)] = true
		writer := s.JetStream(t)
		if _, err := writer.Publish(t.Context(), fmt.Sprint("$KV.b.k", i), nil); err != nil {
			t.Fatal(err)
		}
		writes.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					writer.Publish(context.Background(), fmt.Sprint("$KV.b.k", i), nil)
				}
			}
		})
	}
	list := natsadapter.KeyValueItems(js, "b", natsadapter.EntryKey)
	var longest time.Duration
	for n := range 500 {
		began := time.Now()
		items, err := list(t.Context())
		longest = max(longest, time.Since(began))
		got := make(map[string]bool)
		for _, item := range items {
			got[item] = true
		}
		if err != nil || !maps.Equal(got, all) {
			t.Fatalf("list %d has %d keys %q, %v; want all %d", n, len(got), items, err, keys)
		}
	}
	t.Logf("the longest list took %v", longest)
}

// TestKeyValueItemsBroken loses the connection in the middle of a list, in both
// ways: the list is an error, though it has most keys. One that hangs lasts as
// long as its context.
func TestKeyValueItemsBroken(t *testing.T) {
	s := natstest.New(t)
	p := natstest.NewClientProxy(t, s)
	p.Link(0, 40_000) // so that some keys are still to come
	listed := natstest.JetStream(t, natstest.Connect(t, p.URL(), natstest.In(t, "feeder of a bucket", "b")))
	kv := natstest.CreateKeyValue(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b"})
	const keys = 500
	for i := range keys {
		put(t, kv, fmt.Sprint("k", i), "")
	}
	for _, lose := range []func(){p.Cut, p.Hang} {
		n := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		items, err := natsadapter.KeyValueItems(listed, "b", func(e jetstream.KeyValueEntry) (string, bool) {
			if n++; n == 1 {
				lose()
			}
			return e.Key(), true
		})(ctx)
		cancel()
		if err == nil {
			t.Errorf("a list that broke has %d of %d items and no error", len(items), keys)
		}
		p.Heal()
	}
	natstest.Eventually(t, func(ctx context.Context) error {
		items, err := natsadapter.KeyValueItems(listed, "b", natsadapter.EntryKey)(ctx)
		if err == nil && len(items) != keys {
			t.Errorf("%d items, want %d", len(items), keys)
		}
		return err
	})
}

// TestKeyValueItemsWhileKeysChange replaces keys while a list is read: one that
// was listed already, and then ones that were not yet. What is there is listed.
func TestKeyValueItemsWhileKeysChange(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	var keys []string
	for i := range 200 {
		keys = append(keys, fmt.Sprintf("k%03d", i))
		put(t, kv, keys[i], "")
	}
	first := true
	items, err := natsadapter.KeyValueItems(as(t, js, "feeder of a bucket", "b"), "b", func(e jetstream.KeyValueEntry) (string, bool) {
		if first {
			first = false
			for _, key := range []string{"k000", "k150", "k001", "k199", "k180"} {
				put(t, kv, key, "again")
			}
		}
		return e.Key(), true
	})(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if !slices.Contains(items, key) {
			t.Errorf("the list of %d items has no %s", len(items), key)
		}
	}
}

// TestKeyValueItemsWhileKeysArePurged purges the last keys without a trace while a list
// is read: it ends all the same, with those that stay.
func TestKeyValueItemsWhileKeysArePurged(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	stream, err := js.Stream(t.Context(), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		put(t, kv, fmt.Sprintf("%s.%03d", []string{"stays", "goes"}[i/100], i), "")
	}
	first := true
	items, err := natsadapter.KeyValueItems(as(t, js, "feeder of a bucket", "b"), "b", func(e jetstream.KeyValueEntry) (string, bool) {
		if first {
			first = false
			if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("$KV.b.goes.>")); err != nil {
				t.Error(err)
			}
		}
		return e.Key(), true
	})(t.Context())
	if err != nil || len(items) < 100 || items[99] != "stays.099" {
		t.Errorf("the list has %d items, %v", len(items), err)
	}
}

// TestKeyValueTracker finds a key that is gone without a trace.
func TestKeyValueTracker(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	put(t, kv, "a", "1")
	put(t, kv, "b", "1")
	list := natsadapter.KeyValueItems(as(t, js, "feeder of a bucket", "b"), "b", natsadapter.EntryKey)
	p := &tracker.Tracker[string, struct{}]{
		List: tracker.FromMap(func(ctx context.Context) (map[string]struct{}, error) {
			keys, err := list(ctx)
			all := map[string]struct{}{}
			for _, key := range keys {
				all[key] = struct{}{}
			}
			return all, err
		}),
		Period: time.Hour,
		Resync: time.Millisecond,
	}
	f := run(t, func(ctx context.Context, q reconcile.Enqueuer[string]) error {
		p.Queue = q
		return p.Run(ctx)
	})
	f.want("offered a", "offered b")
	if err := js.DeleteKeyValue(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	put(t, natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"}), "b", "2")
	p.Trigger()
	f.want("offered b", "a")
}

func TestKeyValueMisuse(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	type key = func(jetstream.KeyValueEntry) (string, bool)
	for _, c := range []struct {
		js      jetstream.JetStream
		bucket  string
		key     key
		filters []string
		want    string
	}{
		{nil, "b", natsadapter.EntryKey, nil, "needs a JetStream"},
		{js, "", natsadapter.EntryKey, nil, `the bucket is named "", want letters, digits`},
		{js, "a.b", natsadapter.EntryKey, nil, `the bucket is named "a.b", want letters, digits`},
		{js, "b", nil, nil, "bucket b needs a key function"},
		{js, "b", natsadapter.EntryKey, []string{"a", ""}, `the filter is "", want a key or a pattern`},
		{js, "b", natsadapter.EntryKey, []string{"a.>.b"}, `the filter is "a.>.b", want`},
		{js, "b", natsadapter.EntryKey, []string{"a*"}, `the filter is "a*", want`},
		{js, "b", natsadapter.EntryKey, []string{"a b"}, `the filter is "a b", want`},
	} {
		err := natsadapter.KeyValue(c.js, c.bucket, c.key, c.filters...)(t.Context(), recorder{})
		if err == nil || !strings.Contains(err.Error(), "KeyValue") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("KeyValue(%q, %q): %v, want %q", c.bucket, c.filters, err, c.want)
		}
		_, err = natsadapter.KeyValueItems(c.js, c.bucket, c.key, c.filters...)(t.Context())
		if err == nil || !strings.Contains(err.Error(), "KeyValueItems") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("KeyValueItems(%q, %q): %v, want %q", c.bucket, c.filters, err, c.want)
		}
	}
}
