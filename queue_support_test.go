// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// inBubble runs f with an empty queue in a bubble, and looks at the queue's
// invariants afterwards.
func inBubble(t *testing.T, f func(t *testing.T, q *reconcile.Queue[string])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		f(t, q)
		mustAgree(t, q)
	})
}

// mustAgree checks that the queue keeps its own rules.
func mustAgree[T comparable](t *testing.T, q *reconcile.Queue[T]) {
	t.Helper()
	if err := reconcile.Check(q); err != nil {
		t.Errorf("check: %v", err)
	}
}

// mustTake dequeues an item that is ready.
func mustTake[T comparable](t *testing.T, q *reconcile.Queue[T]) T {
	t.Helper()
	if q.Len() == 0 {
		t.Fatal("nothing is ready to be taken")
	}
	item, err := q.Dequeue(t.Context())
	if err != nil {
		t.Fatalf("Dequeue: %v", err)
	}
	return item
}

// mustTakeAll dequeues the items that are ready and wants them in this order.
func mustTakeAll[T comparable](t *testing.T, q *reconcile.Queue[T], want ...T) {
	t.Helper()
	var got []T
	for q.Len() > 0 {
		got = append(got, mustTake(t, q))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("taken: %v, want %v", got, want)
	}
}

func wantState(t *testing.T, q *reconcile.Queue[string], item string, want reconcile.State) {
	t.Helper()
	got := q.State(item)
	for _, s := range []*reconcile.State{&got, &want} { // so that == compares instants
		s.Since, s.Due = s.Since.Round(0), s.Due.Round(0)
	}
	if got != want {
		t.Errorf("State(%q):\n got %+v\nwant %+v", item, got, want)
	}
}

func wantPhase(t *testing.T, q *reconcile.Queue[string], item string, want reconcile.Phase) {
	t.Helper()
	if got := q.State(item).Phase; got != want {
		t.Errorf("State(%q).Phase: %v, want %v", item, got, want)
	}
}

// dequeued is what a Dequeue in a goroutine of its own returned, and when.
type dequeued[T comparable] struct {
	item T
	err  error
	at   time.Time
}

// startDequeue lets a consumer wait and returns where its answer will be.
func startDequeue[T comparable](ctx context.Context, q *reconcile.Queue[T]) <-chan dequeued[T] {
	c := make(chan dequeued[T], 1)
	go func() {
		item, err := q.Dequeue(ctx)
		c <- dequeued[T]{item, err, time.Now()}
	}()
	synctest.Wait()
	return c
}

// mustWait wants the consumer to be waiting still.
func mustWait[T comparable](t *testing.T, c <-chan dequeued[T]) {
	t.Helper()
	synctest.Wait()
	select {
	case d := <-c:
		t.Fatalf("Dequeue: %v, %v, want it to wait", d.item, d.err)
	default:
	}
}

// mustReturn wants the consumer to have returned.
func mustReturn[T comparable](t *testing.T, c <-chan dequeued[T]) dequeued[T] {
	t.Helper()
	synctest.Wait()
	select {
	case d := <-c:
		return d
	default:
	}
	t.Fatal("Dequeue waits, want it to return")
	return dequeued[T]{}
}
