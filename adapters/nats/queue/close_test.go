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

func TestQueueCloseStoresAll(t *testing.T) {
	s := natstest.New(t)
	a := newQueue[int](t, s, queue.Config{Name: "q"})
	for i := range 500 {
		a.Enqueue(i)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Enqueue(1000) // is ignored
	if err := a.EnqueueContext(t.Context(), 1000); err != reconcile.ErrClosed {
		t.Errorf("EnqueueContext after Close: %v, want %v", err, reconcile.ErrClosed)
	}
	if item, err := a.Dequeue(t.Context()); err != reconcile.ErrClosed {
		t.Errorf("Dequeue after Close: %d, %v, want %v", item, err, reconcile.ErrClosed)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Errorf("Close again: %v", err)
	}
	b := newQueue[int](t, s, queue.Config{Name: "q"})
	all, err := b.All(t.Context())
	if err != nil || len(all) != 500 {
		t.Errorf("stored are %d, %v, want 500", len(all), err)
	}
}

func TestQueueCloseReports(t *testing.T) {
	s := natstest.New(t)
	a := newQueue[string](t, s, queue.Config{Name: "q"})
	enqueue(t, a, "run")
	mustTake(t, a, "run")
	run := a.Lease(t.Context(), "run")
	s.Front().Hang()
	a.Enqueue("one")
	a.Enqueue("two")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("no more time"))
	defer cancel()
	err := a.Close(ctx)
	wantError(t, err, "queue q", "2 items not stored", "one", "two", "1 runs in flight", "no more time")
	<-run.Done()
	if cause := context.Cause(run); cause != reconcile.ErrLeaseLost {
		t.Errorf("the run ended with %v, want %v", cause, reconcile.ErrLeaseLost)
	}
}

// Close waits for the items in flight, and ends a Reconciler.
func TestQueueCloseEndsReconcilers(t *testing.T) {
	s := natstest.New(t)
	q := newQueue[string](t, s, queue.Config{Name: "q"})
	inside, outside := make(chan bool), make(chan bool)
	r := reconcile.Reconciler[string]{Queue: q, Workers: 3, Reconcile: func(context.Context, string) error {
		inside <- true
		<-outside
		return nil
	}}
	ended := make(chan error)
	go func() { ended <- r.Run(t.Context()) }()
	enqueue(t, q, "x")
	<-inside
	closed := make(chan error, 1)
	go func() { closed <- q.Close(t.Context()) }()
	for { // until it has begun: then Dequeue says so
		if _, err := q.Dequeue(t.Context()); err == reconcile.ErrClosed {
			break
		}
	}
	select {
	case err := <-closed:
		t.Errorf("Close returned %v while an item is in flight", err)
	default:
	}
	close(outside)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestQueueDequeueCanceled(t *testing.T) {
	s := natstest.New(t)
	q := newQueue[string](t, s, queue.Config{Name: "q"})
	done, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := q.Dequeue(done); err == nil || err.Error() != "enough" {
		t.Errorf("Dequeue: %v, want the cause", err)
	}
	for range 20 { // whoever is first, the item is not lost
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error)
		go func() {
			item, err := q.Dequeue(ctx)
			if err == nil {
				q.Requeue(item, reconcile.RequeueOptions{})
			}
			waiting <- err
		}()
		q.Enqueue("x")
		cancel()
		<-waiting
		mustTake(t, q, "x")
		q.Done("x")
		flush(t, q)
	}
}
