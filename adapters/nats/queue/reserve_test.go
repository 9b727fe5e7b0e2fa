// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// A store that has no more room than the reserve has none for new items: neither
// while the reserve is there, nor when it was spent a moment ago.
func TestReserveIsNotUsedForNewItems(t *testing.T) {
	js := natstest.New(t).JetStream(t, natstest.In(t, "creator", "q"))
	q, err := New[string](t.Context(), js, Config{Name: "q", Lease: time.Hour, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer q.end()
	stored := 0
	for ; err == nil; stored++ {
		_, err = js.Publish(t.Context(), fmt.Sprintf("$KV.queue=q.i.%d", stored), make([]byte, 10_000))
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
	if err := q.wire.(*jetWire).s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // without a reserve, and with one
		if err := q.refill(t.Context(), true); err != nil {
			t.Errorf("with room: %v", err)
		}
	}
}

// Neither to spend the reserve nor to learn that there is no room takes a message as
// long as the reserve, in either direction: links may be slow, and processes many.
func TestFullStoreSendsNoLongMessages(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t, natstest.In(t, "creator", "q"))
	q, err := New[string](t.Context(), js, Config{Name: "q", Lease: time.Hour, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer q.end()
	other := s.JetStream(t, natstest.In(t, "creator", "q"))
	for n := 0; err == nil; n++ {
		_, err = other.Publish(t.Context(), fmt.Sprintf("$KV.queue=q.i.%d", n), make([]byte, 10_000))
	}
	const little = 10_000
	over := func(what string, do func()) {
		t.Helper()
		before := js.Conn().Stats()
		do()
		after := js.Conn().Stats()
		if in, out := after.InBytes-before.InBytes, after.OutBytes-before.OutBytes; in > little || out > little {
			t.Errorf("%s took %d bytes in and %d out, want at most %d", what, in, out, little)
		}
	}
	refill := func() {
		t.Helper()
		if err := q.refill(t.Context(), true); !isFull(err) {
			t.Errorf("%v, want that the store is full", err)
		}
	}
	over("an attempt with a reserve", refill)
	over("to spend it", func() { q.spend(t.Context()) })
	if _, there, err := q.wire.room(t.Context(), q.reserveSubject()); there || err != nil {
		t.Errorf("the reserve is there: %t, %v", there, err)
	}
	over("an attempt without", refill)
}
