// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

func object(info *jetstream.ObjectInfo) (string, bool) {
	return fmt.Sprintf("%s %s %t %t", info.Name, info.Description, info.Deleted, info.ModTime.IsZero()), info.Name != "no"
}

func createStore(t *testing.T, js jetstream.JetStream) jetstream.ObjectStore {
	t.Helper()
	var store jetstream.ObjectStore
	natstest.Eventually(t, func(ctx context.Context) (err error) {
		store, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: "b"})
		return err
	})
	return store
}

func putObject(t *testing.T, store jetstream.ObjectStore, name, description string) {
	t.Helper()
	natstest.Eventually(t, func(ctx context.Context) error {
		_, err := store.Put(ctx, jetstream.ObjectMeta{Name: name, Description: description}, strings.NewReader(strings.Repeat("x", 300<<10)))
		return err
	})
}

// TestObjects puts, describes anew and deletes objects, restarts the server, and
// replaces the store.
func TestObjects(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t)
	store := createStore(t, js)
	putObject(t, store, "a", "1")
	putObject(t, store, "no", "1")
	f := run(t, natsadapter.Objects(as(t, js, "feeder of an object store", "b"), "b", object))
	f.want("a 1 false false")
	putObject(t, store, "b", "1")
	f.want("b 1 false false")
	if err := store.UpdateMeta(t.Context(), "a", jetstream.ObjectMeta{Name: "a", Description: "2"}); err != nil {
		t.Fatal(err)
	}
	f.want("a 2 false false")
	if err := store.Delete(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	f.want("b 1 true false")

	items, err := natsadapter.ObjectItems(as(t, js, "feeder of an object store", "b"), "b", natsadapter.ObjectName)(t.Context())
	if slices.Sort(items); err != nil || !slices.Equal(items, []string{"a", "no"}) {
		t.Errorf("ObjectItems returns %q, %v; want a and no", items, err)
	}

	s.Kill()
	s.Start()
	putObject(t, store, "c", "1")
	f.want("c 1 false false")
	if err := js.DeleteObjectStore(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	putObject(t, createStore(t, js), "d", "1")
	f.want("d 1 false false")
	f.stop()
	f.none()
}

// TestObjectsForeignMessage has a message in the store that describes no object.
func TestObjectsForeignMessage(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	store := createStore(t, js)
	f := run(t, natsadapter.Objects(as(t, js, "feeder of an object store", "b"), "b", object))
	if _, err := js.Publish(t.Context(), "$O.b.M.x", []byte("{")); err != nil {
		t.Fatal(err)
	}
	putObject(t, store, "a", "1")
	f.want("a 1 false false")
}

func TestObjectsMisuse(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	for _, c := range []struct {
		js     jetstream.JetStream
		bucket string
		key    func(*jetstream.ObjectInfo) (string, bool)
		want   string
	}{
		{nil, "b", object, "needs a JetStream"},
		{js, "", object, `the bucket is named "", want letters`},
		{js, "b", nil, "bucket b needs a key function"},
	} {
		err := natsadapter.Objects(c.js, c.bucket, c.key)(t.Context(), recorder{})
		if err == nil || !strings.Contains(err.Error(), "Objects") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Objects(%q): %v, want %q", c.bucket, err, c.want)
		}
		_, err = natsadapter.ObjectItems(c.js, c.bucket, c.key)(t.Context())
		if err == nil || !strings.Contains(err.Error(), "ObjectItems") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ObjectItems(%q): %v, want %q", c.bucket, err, c.want)
		}
	}
	if _, err := natsadapter.ObjectItems(as(t, js, "feeder of an object store", "b"), "b", object)(t.Context()); err == nil || !strings.Contains(err.Error(), "object store b") {
		t.Errorf("ObjectItems of a missing store: %v", err)
	}
}
