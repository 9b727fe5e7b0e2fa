// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect_test

import (
	"context"

	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
)

// The feeder is warm before; the workers are those of the leader alone.
func ExampleElect() {
	var (
		client  coordinationv1.LeasesGetter // of a kubernetes.Interface
		queue   = reconcile.NewQueue[string]()
		watch   reconcile.Feeder[string]
		synced  func(ctx context.Context) error
		workers = &reconcile.Reconciler[string]{Queue: elect.Held(queue)}
		group   reconcile.Group
	)
	leader := elect.Config{Client: client, Namespace: "default", Name: "buckets"}
	group.Add("watch", reconcile.Feed(queue, watch))
	group.Add("workers", reconcile.After(synced, elect.Elect(leader, workers)))
}
