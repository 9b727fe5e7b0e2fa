// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"testing"
	"time"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// A queue that is closed has no timer that keeps it in memory.
func TestCloseStopsTheTimer(t *testing.T) {
	s := natstest.New(t)
	q, err := NewQueue[string](t.Context(), s.JetStream(t), Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	q.schedule("x", seen{record: record{next: nextHeld, due: time.Now().Add(time.Hour).UnixNano()}, seq: 1})
	timer := q.timers.timer
	if timer == nil {
		t.Fatal("no timer for what waits")
	}
	if err := q.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if timer.Stop() {
		t.Error("the timer was not stopped")
	}
}

// What is due once the connection is closed for good is the business of others:
// it is nothing that Close has to name.
func TestNothingIsDueWithoutConnection(t *testing.T) {
	nc := natstest.New(t).Connect(t)
	q, err := NewQueue[string](t.Context(), natstest.JetStream(t, nc), Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	waits := seen{record: record{next: nextHeld, due: time.Now().Add(time.Hour).UnixNano()}, seq: 1, tokens: "x"}
	q.schedule("x", waits)
	nc.Close()
	q.fail(errClosedConn(nc))
	q.timers.heap[0].due = 1
	q.ring()
	q.reclaim("x", waits)
	if err := q.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
