// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package elect_test

import (
	"context"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/elect"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/supervise"
)

// TestElectInGroup has a Reconciler run under a lease, in a Group with what
// feeds it: the feeder is ended first, and what it enqueues then still runs.
func TestElectInGroup(t *testing.T) {
	t.Parallel()
	kv := leases(t, natstest.New(t).JetStream(t), time.Hour)
	q := reconcile.NewQueue[string]()
	ran := make(chan string, 2)
	var g supervise.Group
	g.Add("reconciler", elect.Elect(kv, "leader", &reconcile.Reconciler[string]{
		Queue: q,
		Reconcile: func(_ context.Context, item string) error {
			ran <- item
			return nil
		},
	}))
	g.Add("feeder", reconcile.RunFunc(func(ctx context.Context) error {
		<-ctx.Done()
		q.Enqueue("last")
		select {
		case <-ran:
		case <-time.After(natstest.Patience):
			t.Error("the Reconciler was ended before the feeder")
		}
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- g.Run(ctx) }()
	q.Enqueue("first")
	natstest.Next(t, ran) // it leads
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
