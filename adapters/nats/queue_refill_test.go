// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"fmt"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// A store that has no more room than the reserve has none for new items: neither
// while the reserve is there, nor when it was spent a moment ago.
func TestReserveIsNoRoom(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	q, err := NewQueue[string](t.Context(), js, Config{Name: "q", Lease: time.Hour, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer q.end()
	stored := 0
	for ; err == nil; stored++ {
		_, err = js.Publish(t.Context(), fmt.Sprintf("q.i.%d", stored), make([]byte, 10_000))
	}
	if !isFull(err) {
		t.Fatal(err)
	}
	if err := q.refill(t.Context(), true); !isFull(err) {
		t.Errorf("with a reserve: %v, want that the store is full", err)
	}
	q.spend(t.Context())
	if err := q.refill(t.Context(), true); !isFull(err) {
		t.Errorf("with what was spent: %v, want that the store is full", err)
	}
	if err := q.wire.s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // without a reserve, and with one
		if err := q.refill(t.Context(), true); err != nil {
			t.Errorf("with room: %v", err)
		}
	}
}
