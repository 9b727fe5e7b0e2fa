// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// A member checks thousands of records over a slow link: what they take keeps no beat
// waiting, so the lease is not lost.
func TestCheckOfManyRecordsOverASlowLink(t *testing.T) {
	s := natstest.New(t)
	fast := newQueue[string](t, s, queue.Config{Name: "q", Lease: 4 * time.Second})
	for i := range 2000 {
		fast.EnqueueAfter(fmt.Sprintf("%s%d", strings.Repeat("x", 100), i), time.Hour)
	}
	enqueue(t, fast, "z")
	mustTake(t, fast, "z") // the consumer has passed the others
	fast.Done("z")
	flush(t, fast)
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	if err := fast.Close(ctx); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	js := natstest.OverLink(t, s, 20*time.Millisecond, 50_000, natstest.In(t, "creator", "q"))
	slow, err := queue.New[string](t.Context(), js, queue.Config{Name: "q", Lease: 4 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, slow)
	enqueue(t, slow, "y")
	mustTake(t, slow, "y")
	run := slow.Lease(t.Context(), "y")
	select {
	case <-run.Done():
		t.Errorf("after a run that takes long: %v\n%s", context.Cause(run), log.String())
	case <-time.After(25 * time.Second):
	}
}

// A server that takes shorter messages than before ends the connection of whoever sends
// a longer one, for good. The error says why.
func TestConnectionEndedByTheServer(t *testing.T) {
	options := &server.Options{JetStream: true, StoreDir: t.TempDir(), MaxPayload: 1 << 20}
	s := natstest.Serve(t, options)
	nc := natstest.Connect(t, s.ClientURL())
	q, err := queue.New[string](t.Context(), natstest.JetStream(t, nc), queue.Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	shorter := options.Clone()
	shorter.Port, shorter.MaxPayload = s.Addr().(*net.TCPAddr).Port, 32<<10
	if err := s.ReloadOptions(shorter); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	err = q.EnqueueContext(ctx, strings.Repeat("x", 100_000))
	if !errors.Is(err, nats.ErrConnectionClosed) || !strings.Contains(strings.ToLower(err.Error()), "maximum payload") {
		t.Errorf("EnqueueContext: %v, want that the connection is closed, and why", err)
	}
}

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
