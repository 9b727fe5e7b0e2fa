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
