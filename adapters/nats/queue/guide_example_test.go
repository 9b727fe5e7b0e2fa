// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
	"github.com/reconkernel/reconcile/supervise"
)

// All of many processes do the work: see README.md.
func Example_guideQueue() {
	var js jetstream.JetStream
	var makeVM func(ctx context.Context, vm string) error

	_ = func(ctx context.Context) error {
		q, err := queue.New[string](ctx, js, queue.Config{Name: "vms"}) // was: reconcile.NewQueue[string]()
		if err != nil {
			return err
		}
		var group supervise.Group
		group.Add("desired", reconcile.Feed(q, natsadapter.KeyValue(js, "desired", natsadapter.EntryKey)))
		group.Add("vms", &reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: makeVM,
			Workers:   8, // in each process
		})
		err = group.Run(ctx)
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return errors.Join(err, q.Close(closing)) // gives back what it holds
	}
}
