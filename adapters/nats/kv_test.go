// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// within bounds what a test waits for: far more than it ever takes.
const within = time.Minute

// A feed is a Feeder at work, and what it has enqueued.
type feed struct {
	t      *testing.T
	items  chan string
	cancel context.CancelFunc
	ended  chan error
}

func run(t *testing.T, f reconcile.Feeder[string]) *feed {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &feed{t: t, items: make(chan string, 10000), cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- f(ctx, recorder{r.items}) }()
	t.Cleanup(func() { cancel(); <-r.ended })
	return r
}

// stop ends the Feeder in order.
func (f *feed) stop() {
	f.t.Helper()
	f.cancel()
	err := <-f.ended
	f.ended <- err
	if err != nil {
		f.t.Errorf("a Feeder whose ctx is done returns %v, want nil", err)
	}
}

// want waits for exactly these items, in this order.
func (f *feed) want(items ...string) {
	f.t.Helper()
	deadline := time.After(within)
	for i, want := range items {
		select {
		case got := <-f.items:
			if got != want {
				f.t.Fatalf("item %d is %q, want %q (of %q)", i, got, want, items)
			}
		case err := <-f.ended:
			f.ended <- err
			f.t.Fatalf("the Feeder ended with %v, without %q", err, items[i:])
		case <-deadline:
			f.t.Fatalf("still without %q", items[i:])
		}
	}
}

// wantAll waits for these items in any order, each perhaps several times, and
// for none else.
func (f *feed) wantAll(items ...string) {
	f.t.Helper()
	deadline := time.After(within)
	missing := slices.Clone(items)
	for len(missing) > 0 {
		select {
		case got := <-f.items:
			if !slices.Contains(items, got) {
				f.t.Fatalf("item %q, want one of %q", got, items)
			}
			missing = slices.DeleteFunc(missing, func(s string) bool { return s == got })
		case err := <-f.ended:
			f.ended <- err
			f.t.Fatalf("the Feeder ended with %v, without %q", err, missing)
		case <-deadline:
			f.t.Fatalf("still without %q", missing)
		}
	}
}

// none checks that nothing is left that was enqueued.
func (f *feed) none() {
	f.t.Helper()
	select {
	case got := <-f.items:
		f.t.Errorf("item %q, want none", got)
	default:
	}
}

// A recorder notes what is enqueued; an Offer or an EnqueueAfter is noted as
// such, as no Feeder here is to use them.
type recorder struct{ items chan string }

func (r recorder) Enqueue(item string)                       { r.items <- item }
func (r recorder) Offer(item string)                         { r.items <- "offered " + item }
func (r recorder) EnqueueAfter(item string, d time.Duration) { r.items <- "after " + item }
func name(e jetstream.KeyValueEntry) string                  { return e.Key() + " " + op(e) + string(e.Value()) }
func named(e jetstream.KeyValueEntry) (string, bool)         { return name(e), true }
func entries(js jetstream.JetStream, bucket string, filters ...string) reconcile.Feeder[string] {
	return natsadapter.KeyValue(js, bucket, named, filters...)
}

func op(e jetstream.KeyValueEntry) string {
	switch e.Operation() {
	case jetstream.KeyValuePut:
		return "="
	case jetstream.KeyValueDelete:
		return "deleted"
	case jetstream.KeyValuePurge:
		return "purged"
	}
	return "?"
}

// eventually calls f until it succeeds: a server that starts refuses calls.
func eventually(t *testing.T, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		try, cancel := context.WithTimeout(ctx, within/2)
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

func createKV(t *testing.T, js jetstream.JetStream, config jetstream.KeyValueConfig) jetstream.KeyValue {
	t.Helper()
	var kv jetstream.KeyValue
	eventually(t, func(ctx context.Context) (err error) {
		kv, err = js.CreateKeyValue(ctx, config)
		return err
	})
	return kv
}

func put(t *testing.T, kv jetstream.KeyValue, key, value string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		_, err := kv.PutString(ctx, key, value)
		return err
	})
}

// TestKeyValueEvents has one entry of each kind: the initial ones, deleted keys
// among them, then put, delete, purge and expiry.
func TestKeyValueEvents(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := createKV(t, js, jetstream.KeyValueConfig{Bucket: "b", LimitMarkerTTL: time.Hour})
	put(t, kv, "a", "0")
	put(t, kv, "a", "1")
	put(t, kv, "b", "1")
	put(t, kv, "gone", "1")
	if err := kv.Delete(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	f := run(t, entries(js, "b"))
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
	kv := createKV(t, js, jetstream.KeyValueConfig{Bucket: "b", TTL: time.Second, LimitMarkerTTL: time.Hour})
	f := run(t, entries(js, "b"))
	put(t, kv, "a", "1")
	f.want("a =1", "a purged")
}

// TestKeyValueEntry checks what the key function is given, and that it may say
// no.
func TestKeyValueEntry(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := createKV(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	f := run(t, natsadapter.KeyValue(js, "b", func(e jetstream.KeyValueEntry) (string, bool) {
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
	kv := createKV(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	for _, key := range []string{"disk.1", "net.1", "x"} {
		put(t, kv, key, "0")
	}
	one, two := run(t, entries(js, "b", "disk.*")), run(t, entries(js, "b", "disk.>", "x"))
	one.want("disk.1 =0")
	two.want("disk.1 =0", "x =0")
	for _, key := range []string{"net.1", "x", "disk.2"} {
		put(t, kv, key, "1")
	}
	one.want("disk.2 =1")
	two.want("x =1", "disk.2 =1")
}

// TestKeyValueSurvivesRestarts kills the server, stops it in order, and changes
// keys before the Feeder can be back: it goes on after the last revision, with
// no entry twice.
func TestKeyValueSurvivesRestarts(t *testing.T) {
	s := natstest.New(t)
	p := natstest.NewClientProxy(t, s)
	watched := natstest.JetStream(t, natstest.Connect(t, p.URL()))
	kv := createKV(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b", History: 5})
	put(t, kv, "a", "0")
	put(t, kv, "b", "0")
	f := run(t, entries(watched, "b"))
	f.want("a =0", "b =0")
	for round, end := range []func(){s.Kill, s.Stop, s.Kill} {
		p.Cut()
		end()
		s.Start()
		value := fmt.Sprint(round + 1)
		put(t, kv, "a", value)
		put(t, kv, "a", value+"x")
		eventually(t, func(ctx context.Context) error { return kv.Delete(ctx, "b") })
		p.Heal()
		f.want("a ="+value, "a ="+value+"x", "b deleted")
	}
	f.stop()
	f.none()
}

// TestKeyValueLostConnection loses what was on its way, and then has a network
// that hangs for a while.
func TestKeyValueLostConnection(t *testing.T) {
	s := natstest.New(t)
	p := natstest.NewClientProxy(t, s)
	watched := natstest.JetStream(t, natstest.Connect(t, p.URL(), nats.PingInterval(time.Hour)))
	kv := createKV(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b"})
	f := run(t, entries(watched, "b"))
	put(t, kv, "a", "0")
	f.want("a =0")
	// What was on its way when the connection went is sent again.
	p.Hang()
	put(t, kv, "a", "1")
	put(t, kv, "b", "1")
	p.Cut()
	put(t, kv, "a", "2")
	p.Heal()
	f.want("b =1", "a =2")
	// A connection that hangs and comes back by itself.
	p.Hang()
	put(t, kv, "a", "3")
	p.Heal()
	f.want("a =3")
	f.stop()
	f.none()
}

// TestKeyValueStaleWatch takes the consumer away behind the Feeder's back: the
// watch is stale, though connection, server and bucket are well.
func TestKeyValueStaleWatch(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := createKV(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	f := run(t, entries(js, "b"))
	put(t, kv, "a", "0")
	f.want("a =0")
	stream, err := js.Stream(t.Context(), "KV_b")
	if err != nil {
		t.Fatal(err)
	}
	deleted := 0
	for consumer := range stream.ConsumerNames(t.Context()).Name() {
		deleted++
		if err := stream.DeleteConsumer(t.Context(), consumer); err != nil {
			t.Fatal(err)
		}
	}
	if deleted != 1 {
		t.Fatalf("the Feeder has %d consumers, want 1", deleted)
	}
	put(t, kv, "b", "1")
	f.want("b =1")
	f.stop()
	f.none()
	if names := slices.Collect(chanSeq(stream.ConsumerNames(t.Context()).Name())); len(names) > 0 {
		t.Errorf("the Feeder left the consumers %q", names)
	}
}

func chanSeq[T any](ch <-chan T) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		for v := range ch {
			if !yield(v) {
				return
			}
		}
	}
}

// TestKeyValueNewBucket begins before there is a bucket, and then has it deleted
// and created again, while the connection is there and while it is not. Each
// new bucket is read from its beginning, though it has the same revisions.
func TestKeyValueNewBucket(t *testing.T) {
	s := natstest.New(t)
	p := natstest.NewClientProxy(t, s)
	watched := natstest.JetStream(t, natstest.Connect(t, p.URL()))
	js := s.JetStream(t)
	f := run(t, entries(watched, "b"))
	for round := range 4 {
		if round > 0 {
			if err := js.DeleteKeyValue(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
		}
		if round == 2 {
			p.Cut()
		}
		kv := createKV(t, js, jetstream.KeyValueConfig{Bucket: "b"})
		value := fmt.Sprint(round)
		put(t, kv, "a", value)
		put(t, kv, "b", value)
		if round == 3 { // more than before, so that the last revision says nothing
			for i := range 100 {
				put(t, kv, fmt.Sprint("c", i), value)
			}
		}
		p.Heal()
		f.want("a ="+value, "b ="+value)
	}
}

// TestKeyValueLostRevisions puts the bucket back to an older state, as after a
// loss of power: revisions that were seen are gone and used again, the last one
// among them or not.
func TestKeyValueLostRevisions(t *testing.T) {
	for _, lost := range [][]string{{"b"}, {"b", "c"}} {
		s := natstest.New(t)
		p := natstest.NewClientProxy(t, s)
		watched := natstest.JetStream(t, natstest.Connect(t, p.URL()))
		js := s.JetStream(t)
		kv := createKV(t, js, jetstream.KeyValueConfig{Bucket: "b", History: 5})
		f := run(t, entries(watched, "b"))
		put(t, kv, "a", "1")
		f.want("a =1")
		s.Stop()
		s.Snapshot(t)
		s.Start()
		for _, key := range lost {
			put(t, kv, key, "1")
			f.want(key + " =1")
		}
		p.Cut()
		s.Kill()
		s.Restore(t)
		s.Start()
		put(t, kv, "b", "2") // has the revision of b =1
		p.Heal()
		f.wantAll("a =1", "b =2")
		f.stop()
		f.none()
	}
}

// TestKeyValueManyKeys has more keys than a batch.
func TestKeyValueManyKeys(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := createKV(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	var keys []string
	for i := range 500 {
		keys = append(keys, fmt.Sprint("k", i))
		put(t, kv, keys[i], "")
	}
	f := run(t, natsadapter.KeyValue(js, "b", natsadapter.EntryKey))
	f.want(keys...)
	items, err := natsadapter.KeyValueItems(js, "b", natsadapter.EntryKey)(t.Context())
	if err != nil || !slices.Equal(items, keys) {
		t.Errorf("KeyValueItems returns %d items and %v, want %d and nil", len(items), err, len(keys))
	}
}

// TestKeyValuePanic has a key function that panics on one entry.
func TestKeyValuePanic(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := createKV(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	key := func(e jetstream.KeyValueEntry) (string, bool) {
		if e.Key() == "bad" {
			panic("bad")
		}
		return e.Key(), true
	}
	put(t, kv, "bad", "")
	put(t, kv, "good", "")
	run(t, natsadapter.KeyValue(js, "b", key)).want("good")
}

// TestKeyValueItems lists before there is a bucket, with and without deleted
// keys, and while the server is away.
func TestKeyValueItems(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t)
	list := natsadapter.KeyValueItems(js, "b", named)
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
	kv := createKV(t, js, jetstream.KeyValueConfig{Bucket: "b"})
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
	want("a =1", "d =1")
	s.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if items, err := list(ctx); err == nil {
		t.Errorf("a list without a server is %q, without an error", items)
	}
	s.Start()
	eventually(t, func(ctx context.Context) error {
		_, err := list(ctx)
		return err
	})
	want("a =1", "d =1")
}

// TestKeyValuePoller finds a key that is gone without a trace.
func TestKeyValuePoller(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := createKV(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	put(t, kv, "a", "1")
	put(t, kv, "b", "1")
	p := &reconcile.Poller[string]{
		GetItems: natsadapter.KeyValueItems(js, "b", natsadapter.EntryKey),
		Period:   time.Hour,
		Vanished: true,
	}
	f := run(t, func(ctx context.Context, q reconcile.Enqueuer[string]) error {
		p.Queue = q
		return p.Run(ctx)
	})
	f.want("offered a", "offered b")
	if err := js.DeleteKeyValue(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	put(t, createKV(t, js, jetstream.KeyValueConfig{Bucket: "b"}), "b", "2")
	p.Trigger()
	f.want("offered b", "a")
}

// TestKeyValueClosedConnection ends a Feeder that cannot go on.
func TestKeyValueClosedConnection(t *testing.T) {
	nc := natstest.New(t).Connect(t)
	js := natstest.JetStream(t, nc)
	kv := createKV(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	f := run(t, entries(js, "b"))
	put(t, kv, "a", "1")
	f.want("a =1")
	nc.Close()
	err := <-f.ended
	f.ended <- err
	if err == nil || !strings.Contains(err.Error(), "bucket b: "+nats.ErrConnectionClosed.Error()) {
		t.Errorf("the Feeder returns %v, want one that says the connection is closed", err)
	}
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
