// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"slices"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

// TestFirstList lists objects whose items are in every state, each twice, as two
// objects of one owner do. Those at rest, in sync or unknown, go behind an event that comes later. No
// run is lost that has to see what was listed, and none is brought forward that is held.
func TestFirstList(t *testing.T) {
	informer := newStub()
	queue := reconcile.NewQueue[name]()
	queue.Background = 10
	item := func(n string) name { return name{Name: n} }
	take := func() string {
		got, err := queue.Dequeue(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return got.Name
	}
	for _, n := range []string{"in flight", "recheck"} {
		queue.Enqueue(item(n))
		take()
	}
	queue.Requeue(item("recheck"), reconcile.RequeueOptions{Delay: time.Hour, Recheck: true})
	queue.EnqueueWithin(item("waiting"), time.Hour)
	queue.EnqueueAfter(item("held"), time.Hour)
	queue.Enqueue(item("ready"))

	handler := informer.into(t, names(informer), queue)
	for range 2 {
		for _, n := range []string{"at rest", "in flight", "recheck", "waiting", "held", "ready"} {
			handler.OnAdd(configMap("", n), true)
		}
	}
	handler.OnUpdate(seen("resynced"), seen("resynced"))
	handler.OnAdd(configMap("", "event"), false)
	if s := queue.State(item("in flight")); !s.Again {
		t.Errorf("the item in flight: %+v, want that it runs again", s)
	}
	if s := queue.State(item("held")); s.Phase != reconcile.PhaseWaiting {
		t.Errorf("the held item: %+v, want that it waits", s)
	}
	var got []string
	for queue.Len() > 0 {
		got = append(got, take())
	}
	if want := []string{"ready", "waiting", "event", "at rest", "recheck", "resynced"}; !slices.Equal(got, want) {
		t.Errorf("taken: %q, want %q", got, want)
	}
}
