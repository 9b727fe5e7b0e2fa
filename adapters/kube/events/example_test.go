// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/events"
)

// Failures become events of their objects, and a reconcile function may record
// its own.
func ExampleRecorder() {
	var (
		client  typedeventsv1.EventsV1Interface // of a kubernetes.Interface
		lister  listers.ConfigMapLister         // of an informer
		workers = &reconcile.Reconciler[types.NamespacedName]{}
		group   reconcile.Group
	)
	recorder := &events.Recorder[types.NamespacedName]{
		Client:     client,
		Controller: "example.com/files",
		Regarding: func(n types.NamespacedName) (runtime.Object, error) {
			return lister.ConfigMaps(n.Namespace).Get(n.Name)
		},
	}
	workers.OnResult = recorder.OnResult
	group.Add("workers", recorder.Around(workers))
}
