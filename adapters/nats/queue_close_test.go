// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter_test

import (
	"context"
	"errors"
	"testing"
	"time"

	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// members returns how many processes take items.
func members[T comparable](t testing.TB, q *natsadapter.Queue[T]) int {
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
	cfg := natsadapter.Config{Name: "q", Lease: time.Hour}
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
