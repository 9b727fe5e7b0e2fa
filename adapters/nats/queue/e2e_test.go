// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// newQueue returns a handle on a queue, closed when the test ends.
func newQueue[T comparable](t testing.TB, s interface{ URL() string }, cfg queue.Config) *queue.Queue[T] {
	t.Helper()
	js := natstest.JetStream(t, natstest.Connect(t, s.URL(), natstest.In(t, "creator", cfg.Name)))
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience) // three servers may take long to agree
	defer cancel()
	q, err := queue.New[T](ctx, js, cfg)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, q)
	return q
}

// closeAtEnd closes a handle when the test ends.
func closeAtEnd[T comparable](t testing.TB, q *queue.Queue[T]) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		q.Close(ctx)
	})
}

func TestQueueFromEnqueueToDone(t *testing.T) {
	s := natstest.New(t)
	q := newQueue[string](t, s, queue.Config{Name: "work"})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran := make(chan string, 10)
	r := &reconcile.Reconciler[string]{
		Queue: q,
		Reconcile: func(ctx context.Context, item string) error {
			if queue.Fence(ctx) == 0 {
				t.Error("Fence: 0 within a run")
			}
			ran <- item
			return nil
		},
		Workers: 2,
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	want := map[string]bool{"a": true, "b.c": true, "": true, "*> \x00\xff": true}
	for item := range want {
		q.Enqueue(item)
	}
	for range want {
		item := <-ran
		if !want[item] {
			t.Errorf("ran %q", item)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := q.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
