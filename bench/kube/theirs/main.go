// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Theirs keeps a file for each ConfigMap of a namespace, with controller-runtime.
package main

import (
	"context"
	"log"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/reconkernel/reconcile/bench/kube/files"
)

const finalizer = "example.com/file"

type keeper struct {
	client.Client
	dir  files.Dir
	runs atomic.Int64
}

// patchFrom returns what writes the changes made from here on, unless somebody
// else has written the object.
func patchFrom(cm *corev1.ConfigMap) client.Patch {
	return client.MergeFromWithOptions(cm.DeepCopy(), client.MergeFromWithOptimisticLock{})
}

func (k *keeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	k.runs.Add(1)
	var cm corev1.ConfigMap
	if err := k.Get(ctx, req.NamespacedName, &cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cm.DeletionTimestamp.IsZero() {
		if !controllerutil.ContainsFinalizer(&cm, finalizer) {
			return ctrl.Result{}, nil
		}
		if err := k.dir.Clean(ctx, &cm); err != nil {
			return ctrl.Result{}, err
		}
		patch := patchFrom(&cm)
		controllerutil.RemoveFinalizer(&cm, finalizer)
		return ctrl.Result{}, client.IgnoreNotFound(k.Patch(ctx, &cm, patch))
	}
	if !controllerutil.ContainsFinalizer(&cm, finalizer) {
		patch := patchFrom(&cm)
		controllerutil.AddFinalizer(&cm, finalizer)
		if err := k.Patch(ctx, &cm, patch); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, k.dir.Ensure(ctx, &cm)
}

func main() {
	ctrl.SetLogger(logr.FromSlogHandler(slog.Default().Handler()))
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{os.Getenv("NAMESPACE"): {}},
			DefaultTransform:  cache.TransformStripManagedFields(),
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	k := &keeper{Client: manager.GetClient(), dir: files.Dir(os.Getenv("DIR"))}
	err = ctrl.NewControllerManagedBy(manager).
		Named("files").
		For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(k)
	if err != nil {
		log.Fatal(err)
	}
	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
	files.Report(k.runs.Load())
}
