// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Theirs keeps a file for each ConfigMap of a namespace, with controller-runtime.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = "example.com/file"

type files struct {
	client.Client
	dir  string
	runs atomic.Int64
}

func (f *files) path(cm *corev1.ConfigMap) string { return filepath.Join(f.dir, cm.Name) }

func (f *files) ensure(cm *corev1.ConfigMap) error {
	old, _ := os.ReadFile(f.path(cm))
	if text := cm.Data["text"]; len(old) < len(text) || string(old[:len(text)]) != text {
		return os.WriteFile(f.path(cm), fmt.Appendf(nil, "%s\n%d", text, time.Now().UnixNano()), 0o644)
	}
	return nil
}

func (f *files) clean(cm *corev1.ConfigMap) error {
	if err := os.Remove(f.path(cm)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// patchFrom returns what writes the changes made from here on, unless somebody
// else has written the object.
func patchFrom(cm *corev1.ConfigMap) client.Patch {
	return client.MergeFromWithOptions(cm.DeepCopy(), client.MergeFromWithOptimisticLock{})
}

func (f *files) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	f.runs.Add(1)
	var cm corev1.ConfigMap
	if err := f.Get(ctx, req.NamespacedName, &cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cm.DeletionTimestamp.IsZero() {
		if !controllerutil.ContainsFinalizer(&cm, finalizer) {
			return ctrl.Result{}, nil
		}
		if err := f.clean(&cm); err != nil {
			return ctrl.Result{}, err
		}
		patch := patchFrom(&cm)
		controllerutil.RemoveFinalizer(&cm, finalizer)
		return ctrl.Result{}, client.IgnoreNotFound(f.Patch(ctx, &cm, patch))
	}
	if !controllerutil.ContainsFinalizer(&cm, finalizer) {
		patch := patchFrom(&cm)
		controllerutil.AddFinalizer(&cm, finalizer)
		if err := f.Patch(ctx, &cm, patch); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, f.ensure(&cm)
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
	f := &files{Client: manager.GetClient(), dir: os.Getenv("DIR")}
	err = ctrl.NewControllerManagedBy(manager).
		Named("files").
		For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(f)
	if err != nil {
		log.Fatal(err)
	}
	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("runs", f.runs.Load())
}
