// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"testing"
	"time"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// A round trip takes more than half of what a request may.
func TestQueueWithALongRoundTrip(t *testing.T) {
	s := natstest.New(t)
	js := natstest.OverLink(t, s, 300*time.Millisecond, 0, natstest.In(t, "creator", "q"))
	q, err := queue.New[string](t.Context(), js, queue.Config{Name: "q", Lease: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, q)
	enqueue(t, q, "x")
	mustTake(t, q, "x")
	q.Done("x")
	flush(t, q)
}

// A reserve takes longer than other requests may.
func TestReserveOverASlowLink(t *testing.T) {
	s := natstest.New(t)
	js := natstest.OverLink(t, s, 50*time.Millisecond, 200_000, natstest.In(t, "creator", "q"))
	q, err := queue.New[string](t.Context(), js, queue.Config{Name: "q", Lease: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, q)
	stream, err := s.JetStream(t).Stream(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetLastMsgForSubject(t.Context(), "$KV.queue=q.r")
	if err != nil || len(m.Data) != 256<<10 {
		t.Errorf("the reserve is %+v, %v; want 256 KiB", m, err)
	}
}
