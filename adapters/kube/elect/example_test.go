// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect_test

import (
	"context"
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
	"github.com/reconkernel/reconcile/supervise"
)

// The informer is warm before; the queue and all around it are the leader's alone.
func ExampleEachTerm() {
	var (
		client   coordinationv1.LeasesGetter // of a kubernetes.Interface that nothing else uses
		informer cache.SharedInformer
		run      func(ctx context.Context, name cache.ObjectName) error
		group    supervise.Group
	)
	buckets := &kube.Source[cache.ObjectName]{Informer: informer, Keys: kube.Name}
	leader := elect.Config{Client: client, Name: "buckets"} // in the namespace of the pod
	group.Add("informer", kube.Run(informer))
	group.Add("leader", elect.Elect(leader, elect.EachTerm(func(term *supervise.Group) {
		queue := reconcile.NewQueue[cache.ObjectName]()
		workers := &reconcile.Reconciler[cache.ObjectName]{Queue: elect.Held(queue), Reconcile: run, Retry: kube.Retry(nil)}
		term.Add("watch", reconcile.Feed(queue, buckets.Feed))
		term.Add("workers", supervise.After(buckets.Synced, workers))
	})))
}

// A process is ready when its cache is, though another may lead.
func ExampleCandidate_IsLeader() {
	var (
		leader   *elect.Candidate // of Elect
		informer cache.SharedInformer
		mux      http.ServeMux
	)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !informer.HasSynced() {
			http.Error(w, "the cache has no list yet", http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		leads := 0
		if leader.IsLeader() {
			leads = 1
		}
		fmt.Fprintf(w, "leader_election_master_status{name=\"buckets\"} %d\n", leads)
	})
}
