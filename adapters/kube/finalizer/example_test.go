// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/finalizer"
)

// A Guard reads objects from an informer's cache and writes with a client.
func ExampleGuard() {
	var (
		client typedcorev1.ConfigMapsGetter // of a kubernetes.Interface
		lister listers.ConfigMapLister      // of an informer
		queue  = reconcile.NewQueue[cache.ObjectName]()
		put    = func(ctx context.Context, cm *corev1.ConfigMap) error { return nil } // idempotent
		remove = func(ctx context.Context, cm *corev1.ConfigMap) error { return nil } // so is this
	)
	guard := &finalizer.Guard[cache.ObjectName, *corev1.ConfigMap]{
		Name: finalizer.NameOf("example.com", "", "ConfigMap"),
		Get: func(_ context.Context, n cache.ObjectName) (*corev1.ConfigMap, error) {
			return lister.ConfigMaps(n.Namespace).Get(n.Name)
		},
		Client: func(n cache.ObjectName) kube.Client[*corev1.ConfigMap] {
			return client.ConfigMaps(n.Namespace)
		},
		Ensure: put,
		Clean:  remove,
	}
	workers := &reconcile.Reconciler[cache.ObjectName]{Queue: queue, Reconcile: guard.Reconcile}
	_ = workers // a member of a Group
}
