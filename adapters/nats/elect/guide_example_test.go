// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect_test

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/elect"
	"github.com/reconkernel/reconcile/supervise"
)

// One of many processes does the work: see docs/guides/many-processes.md.
func Example_guideElect() {
	var js jetstream.JetStream // of a connection to a server
	var makeVM func(ctx context.Context, vm string) error

	_ = func(ctx context.Context) error {
		leases, err := js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: "leases",
			TTL:    15 * time.Second, // how long the others wait for a leader that died
		})
		if err != nil {
			return err
		}
		queue := reconcile.NewQueue[string]()
		var group supervise.Group
		group.Add("desired", reconcile.Feed(queue, natsadapter.KeyValue(js, "vms", natsadapter.EntryKey)))
		group.Add("vms", elect.Elect(leases, "vms", &reconcile.Reconciler[string]{
			Queue:     elect.Held(queue), // runs end when the lease is lost, whatever the grace
			Reconcile: makeVM,
		}))
		return group.Run(ctx)
	}
}
