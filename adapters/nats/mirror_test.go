// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// TestMirrorIsRejected has buckets whose messages have the subjects of another one. A
// feeder of those, what waits for it, a list and a Put end with an error that says so.
func TestMirrorIsRejected(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	put(t, natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "a"}), "k", "1")
	natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "mirror", Mirror: &jetstream.StreamSource{Name: "a"}})
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KV_copy", Subjects: []string{"$KV.copy.>"}, MaxMsgsPerSubject: 1, AllowDirect: true, AllowRollup: true,
		Sources: []*jetstream.StreamSource{{Name: "KV_a"}},
	}); err != nil {
		t.Fatal(err)
	}
	for bucket, want := range map[string]string{"mirror": "it is a mirror of stream KV_a", "copy": "it copies stream KV_a"} {
		check := func(what string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "bucket "+bucket) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s of bucket %s: %v, want %q", what, bucket, err, want)
			}
		}
		var primed natsadapter.Primed
		check("the feeder", natsadapter.Prime(&primed, entries(js, bucket))(t.Context(), recorder{make(chan string, 10)}))
		check("Wait", primed.Wait(t.Context()))
		_, err := natsadapter.KeyValueItems(js, bucket, natsadapter.EntryKey)(t.Context())
		check("the list", err)
		s := &natsadapter.Secondaries{JS: js, Bucket: bucket, Kind: "disk"}
		_, err = s.Of(t.Context(), "d1")
		check("Of", err)
		_, err = s.Put(t.Context(), "k", nil, "d1")
		check("Put", err)
	}
	// nats.go adds the transform to a bucket with Sources.
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "sum", Sources: []*jetstream.StreamSource{{Name: "a"}}})
	f := run(t, entries(js, kv.Bucket()))
	f.want("k =1")
}

// TestListWithUnreadableEntries has entries and objects of which the list knows no item:
// it returns the others, and an error.
func TestListWithUnreadableEntries(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	kv := natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
	put(t, kv, "bad", "1")
	put(t, kv, "good", "1")
	items, err := natsadapter.KeyValueItems(js, "b", func(e jetstream.KeyValueEntry) (string, bool) {
		if e.Key() == "bad" {
			panic("bad")
		}
		return e.Key(), true
	})(t.Context())
	if len(items) != 1 || err == nil || !strings.Contains(err.Error(), "panicked") {
		t.Errorf("the list of a bucket is %q, %v; want one item and an error", items, err)
	}
	store := createStore(t, js)
	putObject(t, store, "a", "1")
	if _, err := js.Publish(t.Context(), "$O.b.M.x", []byte("{")); err != nil {
		t.Fatal(err)
	}
	items, err = natsadapter.ObjectItems(js, "b", natsadapter.ObjectName)(t.Context())
	if len(items) != 1 || err == nil || !strings.Contains(err.Error(), "$O.b.M.x describes no object") {
		t.Errorf("the list of a store is %q, %v; want one item and an error", items, err)
	}
}
