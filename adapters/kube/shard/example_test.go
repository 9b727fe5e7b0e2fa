// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"

	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/shard"
)

// Each process runs what it owns, and is told of what it gains.
func ExampleShards() {
	var (
		client coordinationv1.LeasesGetter // of a kubernetes.Interface
		queue  = reconcile.NewQueue[string]()
		watch  reconcile.Feeder[string]
		list   func(ctx context.Context) ([]string, error) // of all items, from the cache of the watch
		synced func(ctx context.Context) error
		run    func(ctx context.Context, item string) error
		group  reconcile.Group
	)
	shards := &shard.Shards[string]{Client: client, Namespace: "default", Name: "buckets"}
	workers := &reconcile.Reconciler[string]{Queue: shards.Queue(queue), Reconcile: run}
	group.Add("watch", reconcile.Feed(reconcile.Filter(queue, shards.Owns), watch))
	group.Add("gained", reconcile.Feed(queue, shards.Gained(list)))
	group.Add("shards", reconcile.After(synced, shards))
	group.Add("workers", workers)
}
