// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"k8s.io/apimachinery/pkg/runtime"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/events"
	"github.com/reconkernel/reconcile/supervise"
)

// Failures become events of their objects, and a reconcile function may record
// its own.
func ExampleRecorder() {
	var (
		client  typedeventsv1.EventsV1Interface // of a kubernetes.Interface
		lister  listers.ConfigMapLister         // of an informer
		workers = &reconcile.Reconciler[cache.ObjectName]{}
		group   supervise.Group
	)
	recorder := &events.Recorder[cache.ObjectName]{
		Client:     client,
		Controller: "example.com/files",
		Regarding: func(n cache.ObjectName) (runtime.Object, error) {
			return lister.ConfigMaps(n.Namespace).Get(n.Name)
		},
	}
	workers.OnResult = recorder.OnResult
	group.Add("workers", recorder.Around(workers))
}
