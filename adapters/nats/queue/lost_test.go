// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// A server that loses its last messages with the power gives their sequences to others. A
// run that ends then leaves the record of another item alone, though it has the sequence
// that the record of the run had.
func TestDoneLeavesOtherRecordsAloneAfterAPowerLoss(t *testing.T) {
	s := natstest.New(t)
	open := func() *Queue[string] {
		q, err := New[string](t.Context(), s.JetStream(t, natstest.In(t, "creator", "q")), Config{Name: "q", Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			q.end()
			q.running.Wait()
		})
		return q
	}
	q := open()
	if err := q.EnqueueContext(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	s.Snapshot(t)
	s.Start()
	if item, err := q.Dequeue(t.Context()); item != "x" || err != nil {
		t.Fatal(item, err)
	}
	q.mu.Lock()
	seq := q.held["x"].seq
	q.mu.Unlock()
	s.Kill()
	s.Restore(t)
	s.Start()

	other := open()
	item, at := "", uint64(0)
	for i := 0; at < seq; i++ {
		item = fmt.Sprint("y", i)
		if err := other.EnqueueContext(t.Context(), item); err != nil {
			t.Fatal(err)
		}
		m, err := other.wire.last(t.Context(), other.subject(item))
		if err != nil {
			t.Fatal(err)
		}
		at = m.seq
	}
	if at != seq {
		t.Fatalf("the server stored %s at %d, want %d as the claim of x", item, at, seq)
	}
	q.Done("x")
	if err := q.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := other.State(item); s.Phase != reconcile.PhaseReady {
		t.Errorf("after the end of the run of x, %s is %v, want it ready", item, s.Phase)
	}
}
