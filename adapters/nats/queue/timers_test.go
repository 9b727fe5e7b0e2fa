// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue

import (
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// A queue that is closed has no timer that keeps it in memory.
func TestCloseStopsTheTimer(t *testing.T) {
	s := natstest.New(t)
	q, err := New[string](t.Context(), s.JetStream(t, natstest.In(t, "creator", "q")), Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	q.schedule("x", seen{record: record{next: nextLater, due: time.Now().Add(time.Hour).UnixNano()}, seq: 1})
	if err := q.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := q.timers.clock.Dequeue(t.Context()); err != reconcile.ErrClosed {
		t.Errorf("the timer goes on: %v", err)
	}
}

// What is overdue though it has a timer, as on a machine that slept, is set anew.
func TestOverdueItemRestartsItsTimer(t *testing.T) {
	q, err := New[string](t.Context(), natstest.New(t).JetStream(t, natstest.In(t, "creator", "q")), Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	waits := seen{record: record{next: nextLater, due: time.Now().Add(time.Hour).UnixNano()}, seq: 1, tokens: "x"}
	q.schedule("x", waits)
	waits.due = 1
	q.schedule("x", waits)
	q.mu.Lock()
	if s, ok := q.timers.known["x"]; ok && s.due != 1 {
		t.Error("it waits for a timer that is late")
	}
	q.mu.Unlock()
	if err := q.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// What is due once the connection is closed for good is the business of others:
// it is nothing that Close has to name.
func TestCloseReportsNoDueItemsOfAClosedConnection(t *testing.T) {
	nc := natstest.New(t).Connect(t, natstest.In(t, "creator", "q"))
	q, err := New[string](t.Context(), natstest.JetStream(t, nc), Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	waits := seen{record: record{next: nextLater, due: time.Now().Add(time.Hour).UnixNano()}, seq: 1, tokens: "x"}
	q.schedule("x", waits)
	nc.Close()
	q.fail(q.wire.closed())
	waits.due = 1
	q.timers.known["x"] = waits
	q.ring("x")
	q.reclaim("x", waits)
	if err := q.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The timers are of what waits, as far as this process knows.
func TestStatsOfTimers(t *testing.T) {
	q, err := New[string](t.Context(), natstest.New(t).JetStream(t, natstest.In(t, "creator", "q")), Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	want := func(what string, timers, rechecks, again int) {
		t.Helper()
		if s := q.Stats(); s.Timers != timers || s.Rechecks != rechecks || s.Again != again {
			t.Errorf("%s: %+v, want %d timers, %d rechecks, %d again", what, s, timers, rechecks, again)
		}
	}
	run := func(items ...string) {
		t.Helper()
		for _, item := range items {
			if err := q.EnqueueContext(t.Context(), item); err != nil {
				t.Fatal(err)
			}
		}
		for _, item := range items {
			if got, err := q.Dequeue(t.Context()); got != item || err != nil {
				t.Fatalf("Dequeue: %s, %v, want %s", got, err, item)
			}
		}
	}
	flush := func() {
		t.Helper()
		if err := q.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	run("a", "b", "c")
	q.Requeue("a", reconcile.RequeueOptions{Delay: time.Hour, Recheck: true})
	q.Requeue("b", reconcile.RequeueOptions{Delay: time.Hour, Recheck: true})
	q.Requeue("c", reconcile.RequeueOptions{Delay: time.Hour})
	flush()
	run("x") // delivered after them
	want("three wait", 3, 2, 0)

	q.Enqueue("x")
	q.EnqueueWithin("a", 2*time.Hour) // is no longer only a recheck, and due as before
	flush()
	want("a is asked for again, and x in its run", 3, 1, 1)

	q.Enqueue("b")
	if _, err := q.Remove(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	flush()
	want("b is ready, c is removed", 1, 0, 1)

	q.Done("x")
	flush()
	want("x is ready", 1, 0, 0)

	other, err := New[string](t.Context(), q.wire.(*jetWire).js, Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.EnqueueContext(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, item := range []string{"b", "x", "a"} {
		if got, err := q.Dequeue(t.Context()); got != item || err != nil {
			t.Fatalf("Dequeue: %s, %v, want %s", got, err, item)
		}
		q.Done(item)
	}
	want("a is taken, which another process enqueued", 0, 0, 0)
	if err := other.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := q.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
