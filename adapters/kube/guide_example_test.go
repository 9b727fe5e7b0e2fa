// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
	"github.com/reconkernel/reconcile/supervise"
)

// One of many processes does the work, as docs/guides/many-processes.md has
// it.
func Example_guideElect() {
	var leases kubernetes.Interface
	var feed reconcile.Feeder[string]
	var makeVM func(ctx context.Context, vm string) error

	_ = func(ctx context.Context) error {
		var group supervise.Group
		group.Add("vms", elect.Elect(elect.Config{
			Client:    leases.CoordinationV1(), // a clientset of its own: a rate limiter is for all requests of one
			Namespace: "default",
			Name:      "vms",
			Duration:  15 * time.Second, // how long the others wait for a leader that died
		}, elect.EachTerm(func(term *supervise.Group) { // the informer runs outside, everywhere
			queue := reconcile.NewQueue[string]()
			term.Add("desired", reconcile.Feed(queue, feed))
			term.Add("runs", &reconcile.Reconciler[string]{
				Queue:     elect.Held(queue), // runs end when the lease is lost, whatever the grace
				Reconcile: makeVM,
				Grace:     10 * time.Second,
			})
		})))
		return group.Run(ctx)
	}
}
