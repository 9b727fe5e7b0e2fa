// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// members returns how many processes take items.
func members[T comparable](t testing.TB, q *queue.Queue[T]) int {
	t.Helper()
	all, err := q.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A Close that gives up while a run goes on leaves the lease as it is: nobody
// else is to start the item before the run has ended, or the lease has.
func TestQueueCloseDuringRun(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q", Lease: time.Hour}
	a, viewer := newQueue[string](t, s, cfg), newQueue[string](t, s, cfg)
	enqueue(t, a, "x")
	mustTake(t, a, "x")
	now, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no more time"))
	wantError(t, a.Close(now), "1 runs in flight", "no more time")
	if n := members(t, viewer); n != 1 {
		t.Errorf("%d members while the run goes on, want 1", n)
	}
	a.Done("x")
	wantError(t, a.Close(now), "1 items not stored")
	if n := members(t, viewer); n != 0 {
		t.Errorf("%d members after the run, want none", n)
	}
}

// Once the connection is closed for good, nothing waits for it any more.
func TestQueueWaitsForNoClosedConnection(t *testing.T) {
	s := natstest.New(t)
	for _, c := range []struct {
		verb string
		do   func(ctx context.Context, q *queue.Queue[string]) error
	}{
		{"EnqueueContext", func(ctx context.Context, q *queue.Queue[string]) error {
			return q.EnqueueContext(ctx, "x")
		}},
		{"Remove", func(ctx context.Context, q *queue.Queue[string]) error {
			_, err := q.Remove(ctx, "x")
			return err
		}},
		{"Flush", func(ctx context.Context, q *queue.Queue[string]) error {
			q.Enqueue("x")
			return q.Flush(ctx)
		}},
		{"Close", func(ctx context.Context, q *queue.Queue[string]) error {
			q.Enqueue("x")
			return q.Close(ctx)
		}},
	} {
		t.Run(c.verb, func(t *testing.T) {
			nc := s.Connect(t, natstest.In(t, "creator", "q"))
			q, err := queue.New[string](t.Context(), natstest.JetStream(t, nc), queue.Config{Name: "q"})
			if err != nil {
				t.Fatal(err)
			}
			nc.Close()
			ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
			defer cancel()
			if err := c.do(ctx, q); !errors.Is(err, nats.ErrConnectionClosed) {
				t.Errorf("%v, want one that wraps %v", err, nats.ErrConnectionClosed)
			}
			if _, err := q.Dequeue(ctx); err == nil || ctx.Err() != nil {
				t.Errorf("Dequeue: %v", err)
			}
			if c.verb != "Close" {
				wantError(t, q.Close(ctx), "queue q", "1 items not stored", "x", "connection closed")
			}
		})
	}
}

// It is so as well for what waits when the connection is closed, and while a
// run goes on.
func TestQueueConnectionClosedDuringRun(t *testing.T) {
	s := natstest.New(t)
	nc := s.Connect(t, natstest.In(t, "creator", "q"))
	q, err := queue.New[string](t.Context(), natstest.JetStream(t, nc), queue.Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, "x")
	mustTake(t, q, "x")
	run := q.Lease(t.Context(), "x")
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	s.Front().Hang()
	waiting := make(chan error, 2)
	go func() { waiting <- q.EnqueueContext(ctx, "y") }()
	go func() { waiting <- q.Close(ctx) }()
	nc.Close()
	for range 2 { // EnqueueContext may come after Close
		if err := <-waiting; !errors.Is(err, nats.ErrConnectionClosed) && err != reconcile.ErrClosed {
			t.Errorf("%v, want one that wraps %v", err, nats.ErrConnectionClosed)
		}
	}
	select {
	case <-run.Done():
	case <-ctx.Done():
		t.Error("the run goes on")
	}
}
