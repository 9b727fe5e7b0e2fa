// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/supervise"
)

// Each ConfigMap is wanted somewhere outside.
func ExampleController() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	api := fcache.NewFakeControllerSource() // in place of an API server
	api.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "prices"}, Data: map[string]string{"apple": "2"}})
	informer := cache.NewSharedInformer(api, &corev1.ConfigMap{}, 0)

	put := func(_ context.Context, config *corev1.ConfigMap) error {
		fmt.Println(config.Name, config.Data)
		cancel()
		return nil
	}
	c := &kube.Controller[*corev1.ConfigMap]{
		Name:      "configs",
		Informer:  informer,
		Reconcile: put,
	}
	var group supervise.Group
	group.Add("informers", c.Informers())
	group.Add("configs", c)
	if err := group.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: prices map[apple:2]
}

// The same by hand, for a queue of one's own.
func ExampleSource() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	api := fcache.NewFakeControllerSource() // in place of an API server
	api.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "prices"}, Data: map[string]string{"apple": "2"}})
	informer := cache.NewSharedInformer(api, &corev1.ConfigMap{}, 0)

	queue := reconcile.NewQueue[cache.ObjectName]()
	configs := &kube.Source[cache.ObjectName]{
		Name:     "configs",
		Informer: informer,
		Keys:     kube.Name,
		Changed: func(old, new metav1.Object) bool {
			return kube.GenerationChanged(old, new) || kube.AnnotationsChanged(old, new, "example.com/suspend")
		},
	}
	reconciler := &reconcile.Reconciler[cache.ObjectName]{
		Queue: queue,
		Reconcile: func(ctx context.Context, name cache.ObjectName) error {
			config, err := kube.Get[*corev1.ConfigMap](informer, name)
			if err != nil {
				return err
			}
			fmt.Println(name, config.Data)
			cancel()
			return nil
		},
		Retry: kube.Retry(nil),
	}

	var group supervise.Group
	group.Add("informer", kube.Run(informer))
	group.Add("configs", reconcile.Feed(queue, configs.Feed))
	group.Add("runs", supervise.After(configs.Synced, reconciler))
	if err := group.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output: shop/prices map[apple:2]
}

// A ConfigMap is owned by a Deployment: by a reference that names it, which Keys
// follows back.
func ExampleOwnedBy() {
	byDeployment := kube.OwnedBy{APIVersion: "apps/v1", Kind: "Deployment"}
	deployment := &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "8d0a"}

	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-config"}}
	if err := byDeployment.Set(config, deployment); err != nil {
		fmt.Println(err)
	}
	for owner := range byDeployment.Keys(config) {
		fmt.Println(owner)
	}
	// Output: shop/web
}

// A Secret belongs to a bucket, which is not in Kubernetes.
func ExampleMark() {
	byBucket := kube.Mark{Key: "example.com/bucket"}

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bucket-key"}}
	if err := byBucket.Set(secret, "eu-west-1/pictures"); err != nil {
		fmt.Println(err)
	}
	for owner := range byBucket.Keys(secret) {
		fmt.Println(owner)
	}
	selector, err := byBucket.Selector("")
	fmt.Println(selector, err)
	// Output:
	// eu-west-1/pictures
	// example.com/bucket <nil>
}
