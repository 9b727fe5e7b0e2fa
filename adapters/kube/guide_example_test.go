// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubeadapter_test

import (
	"context"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	kubeadapter "github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
)

// A controller of deployments: docs/guides/from-controller-runtime.md links here.
func Example_guideDeployments() {
	var client kubernetes.Interface // such as kubernetes.NewForConfig returns
	var fn func(ctx context.Context, name cache.ObjectName) error

	_ = func(ctx context.Context) error {
		factory := informers.NewSharedInformerFactory(client, 0)
		deployments := &kubeadapter.Source[cache.ObjectName]{
			Name:     "deployments",
			Informer: factory.Apps().V1().Deployments().Informer(),
			Keys:     kubeadapter.Name, // For
			Changed:  kubeadapter.GenerationChanged,
		}
		replicas := &kubeadapter.Source[cache.ObjectName]{
			Name:     "replica sets",
			Informer: factory.Apps().V1().ReplicaSets().Informer(),
			Keys:     kubeadapter.OwnedBy{APIVersion: "apps/v1", Kind: "Deployment"}.Keys, // Owns
		}

		queue := reconcile.NewQueue[cache.ObjectName]()
		var group reconcile.Group
		for _, s := range []*kubeadapter.Source[cache.ObjectName]{deployments, replicas} {
			group.Add(s.Name+", the informer", kubeadapter.Run(s.Informer))
			group.Add(s.Name, reconcile.Feed(queue, s.Feed))
		}
		group.Add("runs", reconcile.After(kubeadapter.AllSynced(deployments, replicas), &reconcile.Reconciler[cache.ObjectName]{
			Queue:     queue,
			Reconcile: fn,
			Workers:   4,
		}))
		return group.Run(ctx)
	}
}

// One of many processes does the work, as docs/guides/leaders-and-shards.md has
// it.
func Example_guideElect() {
	var client kubernetes.Interface
	var feed reconcile.Feeder[string]
	var makeVM func(ctx context.Context, vm string) error

	_ = func(ctx context.Context) error {
		var group reconcile.Group
		group.Add("vms", elect.Elect(elect.Config{
			Client:    client.CoordinationV1(),
			Namespace: "default",
			Name:      "vms",
			Duration:  15 * time.Second, // how long the others wait for a leader that died
		}, elect.EachTerm(func(term *reconcile.Group) { // the informer runs outside, everywhere
			queue := reconcile.NewQueue[string]()
			term.Add("wishes", reconcile.Feed(queue, feed))
			term.Add("runs", &reconcile.Reconciler[string]{
				Queue:     elect.Held(queue), // runs end when the lease is lost, whatever the grace
				Reconcile: makeVM,
				Grace:     10 * time.Second,
			})
		})))
		return group.Run(ctx)
	}
}
