// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"context"
	"errors"
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
	"github.com/reconkernel/reconcile/refs"
	"github.com/reconkernel/reconcile/supervise"
)

func TestOwnerKey(t *testing.T) {
	header := nats.Header{}
	if err := natsadapter.SetOwner(header, "disk", "d1"); err != nil {
		t.Fatal(err)
	}
	value := []byte(`{"a":[1],"reconcileOwner":{"kind":"disk","key":"d 2"}}`)
	for _, c := range []struct {
		kind   string
		header nats.Header
		value  []byte
		key    string
		ok     bool
	}{
		{"disk", header, nil, "d1", true},
		{"", header, nil, "d1", true},
		{"net", header, nil, "", false},
		{"disk", nil, value, "d 2", true},
		{"disk", nats.Header{}, value, "d 2", true},
		{"net", nil, value, "", false},
		{"disk", header, value, "d1", true},
		{"net", header, value, "", false},
		{"disk", nil, nil, "", false},
		{"disk", nil, []byte("text"), "", false},
		{"disk", nil, []byte(`{"reconcileOwner":{"kind":"disk"}}`), "", false},
		{"disk", nil, []byte(`{"reconcileOwner":1}`), "", false},
	} {
		if key, ok := natsadapter.OwnerKey(c.kind, c.header, c.value); key != c.key || ok != c.ok {
			t.Errorf("OwnerKey(%q, %v, %s) is %q, %t; want %q, %t", c.kind, c.header, c.value, key, ok, c.key, c.ok)
		}
	}
	for _, bad := range []struct{ kind, key string }{{"", "a"}, {"a", ""}, {"a", "b\nc"}, {"a", "b\r"}, {" a", "b"}, {"a", "b "}} {
		if err := natsadapter.SetOwner(header, bad.kind, bad.key); err == nil || !strings.Contains(err.Error(), "want text without line breaks") {
			t.Errorf("SetOwner(%q, %q): %v", bad.kind, bad.key, err)
		}
	}
	if err := natsadapter.SetOwner(nil, "a", "b"); err == nil || !strings.Contains(err.Error(), "needs a header") {
		t.Errorf("SetOwner of a nil header: %v", err)
	}
}

func mustPut(t *testing.T, s *natsadapter.Secondaries, key, value, owner string) {
	t.Helper()
	natstest.Eventually(t, func(ctx context.Context) error {
		_, err := s.Put(ctx, key, []byte(value), owner)
		return err
	})
}

// TestSecondaries feeds the owner of each secondary: of a new, a changed and a
// deleted one, one whose owner is in the value, and both owners of one that
// goes from one to another. What others own, or no one, feeds nothing.
func TestSecondaries(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	mounts := &natsadapter.Secondaries{JS: as(t, js, "keeper of a bucket", "b"), Bucket: "b", Kind: "disk"}
	f := run(t, mounts.Feed)
	put(t, kv, "nobodys", "x")
	mustPut(t, &natsadapter.Secondaries{JS: as(t, js, "keeper of a bucket", "b"), Bucket: "b", Kind: "net"}, "nets", "x", "d1")
	mustPut(t, mounts, "m1", "1", "d1")
	f.want("d1")
	mustPut(t, mounts, "m1", "2", "d1")
	f.want("d1")
	put(t, kv, "m2", `{"reconcileOwner":{"kind":"disk","key":"d2"}}`)
	f.want("d2")
	put(t, kv, "m2", `{"reconcileOwner":{"kind":"disk","key":"d3"}}`)
	f.want("d2", "d3")
	if err := kv.Delete(t.Context(), "m2"); err != nil {
		t.Fatal(err)
	}
	f.want("d3")
	s.Kill()
	s.Start()
	natstest.Eventually(t, func(ctx context.Context) error { return kv.Purge(ctx, "m1") })
	f.want("d1")
	for _, key := range []string{"m1", "m2", "nobodys", "nets"} {
		if err := kv.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	mustPut(t, mounts, "end", "", "d9")
	f.want("d9") // and nothing before it
	// A secondary that loses its owner.
	put(t, kv, "end", "x")
	f.want("d9")
	f.stop()
	f.none()
}

// TestOrphanedSecondaryIsDeleted has a Poller over the secondaries find one whose owner
// is gone, and the reconcile function delete it. Nothing else would: no event is
// seen of either.
func TestOrphanedSecondaryIsDeleted(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	disks := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "disks"})
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "mounts"})
	mounts := &natsadapter.Secondaries{JS: js, Bucket: "mounts", Kind: "disk"}
	put(t, disks, "d1", "")
	mustPut(t, mounts, "m1", "", "d1")
	mustPut(t, mounts, "m2", "", "gone")
	mustPut(t, mounts, "m3", "", "gone")
	q := reconcile.NewQueue[string]()
	ran := make(chan string, 10)
	var group supervise.Group
	group.Add("garbage", &reconcile.Poller[string]{Queue: q, GetItems: mounts.Owners, Period: time.Hour})
	group.Add("disks", &reconcile.Reconciler[string]{
		Queue: q,
		Reconcile: func(ctx context.Context, disk string) error {
			if _, err := disks.Get(ctx, disk); !errors.Is(err, jetstream.ErrKeyNotFound) {
				return err
			}
			owned, err := mounts.Of(ctx, disk)
			for _, m := range owned {
				err = errors.Join(err, kv.Delete(ctx, m.Key(), jetstream.LastRevision(m.Revision())))
			}
			return err
		},
		OnResult: func(r reconcile.Result[string]) { ran <- fmt.Sprint(r.Item, " ", r.Outcome) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- group.Run(ctx) }()
	got := []string{natstest.Next(t, ran), natstest.Next(t, ran)}
	slices.Sort(got)
	if want := []string{"d1 succeeded", "gone succeeded"}; !slices.Equal(got, want) {
		t.Errorf("ran %q, want %q", got, want)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	keys, err := kv.Keys(t.Context())
	if err != nil || !slices.Equal(keys, []string{"m1"}) {
		t.Errorf("the secondaries are %q, %v; want m1", keys, err)
	}
}

// TestSecondariesMissed has secondaries vanish without a trace: the list has
// their owner once more, and then no longer.
func TestSecondariesMissed(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	s := &natsadapter.Secondaries{JS: as(t, js, "keeper of a bucket", "b"), Bucket: "b", Kind: "disk"}
	f := run(t, s.Feed)
	mustPut(t, s, "m1", "", "d1")
	mustPut(t, s, "m2", "", "d2")
	mustPut(t, s, "m3", "", "d2")
	f.want("d1", "d2", "d2")
	if err := js.DeleteKeyValue(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if owners, err := s.Owners(t.Context()); err == nil {
		t.Errorf("the owners in a missing bucket are %q, want an error", owners)
	}
	natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	mustPut(t, s, "m2", "", "d2")
	f.want("d2")
	for _, want := range [][]string{{"d1", "d2"}, {"d2"}} {
		owners, err := s.Owners(t.Context())
		if slices.Sort(owners); err != nil || !slices.Equal(owners, want) {
			t.Errorf("the owners are %q, %v; want %q", owners, err, want)
		}
	}
}

// TestSecondariesOf reads an owner's entries alone while Feed runs, however many
// there are, and sees at once what it has Put itself.
func TestSecondariesOf(t *testing.T) {
	s := natstest.New(t)
	kv := natstest.CreateKeyValue(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b"})
	mounts := &natsadapter.Secondaries{JS: s.JetStream(t, natstest.In(t, "keeper of a bucket", "b")), Bucket: "b", Kind: "disk"}
	want := func(owner string, want ...string) {
		t.Helper()
		owned, err := mounts.Of(t.Context(), owner)
		got := []string{}
		for _, e := range owned {
			got = append(got, e.Key()+"="+string(e.Value()))
		}
		if slices.Sort(got); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s owns %q, %v; want %q", owner, got, err, want)
		}
	}
	big := strings.Repeat("x", 900_000)
	for i := range 10 {
		mustPut(t, mounts, fmt.Sprint("big", i), big, "other")
	}
	mustPut(t, mounts, "m1", "1", "d1")
	put(t, kv, "m2", `{"reconcileOwner":{"kind":"disk","key":"d1"}}`)
	want("d1", "m1=1", `m2={"reconcileOwner":{"kind":"disk","key":"d1"}}`)
	f := run(t, mounts.Feed)
	for range 10 {
		f.want("other")
	}
	f.want("d1", "d1")

	// The rest of the bucket would take minutes over this link.
	fast := s.JetStream(t)
	far := natstest.NewClientProxy(t, s)
	far.Link(0, 50_000)
	mounts.JS = natstest.JetStream(t, natstest.Connect(t, far.URL()))
	want("d1", "m1=1", `m2={"reconcileOwner":{"kind":"disk","key":"d1"}}`)
	mounts.JS = fast
	mustPut(t, mounts, "m3", "3", "d1")
	if err := kv.Delete(t.Context(), "m2"); err != nil {
		t.Fatal(err)
	}
	want("d1", "m1=1", "m3=3")
	mustPut(t, mounts, "m3", "4", "d1")
	want("d1", "m1=1", "m3=4")
	want("nobody")
	f.want("d1", "d1", "d1")
	f.stop()
	want("d1", "m1=1", "m3=4")
}

// TestSecondariesPut refuses to write over what is another's.
func TestSecondariesPut(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b", MaxValueSize: 1000})
	s := &natsadapter.Secondaries{JS: as(t, js, "keeper of a bucket", "b"), Bucket: "b", Kind: "disk"}
	put(t, kv, "stranger", "x")
	mustPut(t, s, "m", "1", "d1")
	for _, key := range []string{"stranger", "m"} {
		if _, err := s.Put(t.Context(), key, nil, "d2"); !errors.Is(err, natsadapter.ErrOwned) || !strings.Contains(err.Error(), "put "+key+" into bucket b") {
			t.Errorf("Put of %s, which is another's: %v", key, err)
		}
	}
	for _, size := range []int{2000, 2 << 20} { // beyond the limit of the bucket, and of the server
		if _, err := s.Put(t.Context(), "large", make([]byte, size), "d1"); !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("Put of %d bytes: %v, want a terminal error", size, err)
		}
	}
	revision, err := s.Put(t.Context(), "m", []byte("2"), "d1")
	if err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(t.Context(), "m")
	if err != nil || e.Revision() != revision || string(e.Value()) != "2" {
		t.Errorf("the secondary is %v, %v; want revision %d", e, err, revision)
	}
	if err := kv.Delete(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, "m", "3", "d2") // it is no one's any more
	owned, err := s.Of(t.Context(), "d2")
	if err != nil || len(owned) != 1 || owned[0].Key() != "m" || string(owned[0].Value()) != "3" {
		t.Errorf("d2 owns %v, %v; want m", owned, err)
	}
}

// TestTertiary runs each primary that looked at an entry of another bucket when
// that changes.
func TestTertiary(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	classes := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "classes"})
	var refs refs.Refs[string, string] // of the disks that look at a class
	refs.Set("d1", "fast")
	refs.Set("d2", "fast", "safe")
	f := run(t, func(ctx context.Context, q reconcile.Enqueuer[string]) error {
		return natsadapter.KeyValue(js, "classes", natsadapter.EntryKey)(ctx, reconcile.Map(q, refs.Of))
	})
	put(t, classes, "slow", "")
	put(t, classes, "fast", "")
	f.wantAll("d1", "d2")
	if err := classes.Delete(t.Context(), "safe"); err != nil {
		t.Fatal(err)
	}
	f.wantAll("d2")
}

func TestSecondariesMisuse(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	for _, c := range []struct {
		js           jetstream.JetStream
		bucket, kind string
		want         string
	}{
		{nil, "b", "k", "Secondaries needs a JetStream"},
		{js, "", "k", `Secondaries: the bucket is named "", want letters`},
		{js, "b", "", "Secondaries.Kind is empty, want"},
	} {
		s := &natsadapter.Secondaries{JS: c.js, Bucket: c.bucket, Kind: c.kind}
		_, owners := s.Owners(t.Context())
		_, of := s.Of(t.Context(), "d")
		_, put := s.Put(t.Context(), "m", nil, "d")
		for _, err := range []error{s.Feed(t.Context(), recorder{}), owners, of, put} {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Secondaries of %q in %q: %v, want %q", c.kind, c.bucket, err, c.want)
			}
		}
	}
	s := &natsadapter.Secondaries{JS: as(t, js, "keeper of a bucket", "b"), Bucket: "b", Kind: "k"}
	if _, err := s.Put(t.Context(), "a b", nil, "d"); err == nil || !strings.Contains(err.Error(), `the key is "a b", want letters`) {
		t.Errorf("Put with a bad key: %v", err)
	}
	if _, err := s.Put(t.Context(), "a", nil, ""); err == nil || !strings.Contains(err.Error(), `the owner is ""`) {
		t.Errorf("Put without an owner: %v", err)
	}
	s.JS, s.Bucket = js, "missing"
	if _, err := s.Put(t.Context(), "a", nil, "d"); err == nil || !strings.Contains(err.Error(), "put a into bucket missing") {
		t.Errorf("Put into a missing bucket: %v", err)
	}
}
