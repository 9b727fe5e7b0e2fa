// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

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
