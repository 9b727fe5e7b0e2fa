// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kinds_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/kinds"
	"github.com/reconkernel/reconcile/supervise"
)

// A kind is served while the program runs, and later no more.
func ExampleServe() {
	api := fcache.NewFakeControllerSource() // in place of an API server
	api.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "prices"}})
	watches := &kinds.Kinds{Informer: func(schema.GroupVersionResource) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(api, &corev1.ConfigMap{}, 0, nil) // elsewhere: kinds.Dynamic(client, "", 0)
	}}
	queue := reconcile.NewQueue[cache.ObjectName]()
	var group supervise.Group
	group.Add("kinds", watches)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- group.Run(ctx) }()

	gvr := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	configs := &kube.Source[cache.ObjectName]{Keys: kube.Name}
	stop, err := kinds.Serve(watches, gvr, queue, configs)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := watches.Synced(ctx, gvr); err != nil {
		fmt.Println(err)
	}
	name, err := queue.Dequeue(ctx)
	fmt.Println(name, err)
	stop()
	fmt.Println(len(watches.Served()), "kinds served")

	cancel()
	fmt.Println(<-ended)
	// Output:
	// shop/prices <nil>
	// 0 kinds served
	// <nil>
}
