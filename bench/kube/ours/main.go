// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Ours keeps a file for each ConfigMap of a namespace, with this library.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/finalizer"
	"github.com/reconkernel/reconcile/bench/kube/files"
)

func main() {
	namespace, dir := os.Getenv("NAMESPACE"), files.Dir(os.Getenv("DIR"))
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	lw := cache.NewListWatchFromClient(client.RESTClient(), "configmaps", namespace, fields.Everything())
	informer := cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{})
	_ = informer.SetTransform(func(v any) (any, error) { // fails only once it runs
		if cm, ok := v.(*corev1.ConfigMap); ok {
			cm.ManagedFields = nil
		}
		return v, nil
	})
	c := &kube.Controller[*corev1.ConfigMap]{Name: "files", Informer: informer, Workers: 4}
	guard := &finalizer.Guard[cache.ObjectName, *corev1.ConfigMap]{
		Name:   "example.com/file",
		Get:    c.Get,
		Client: func(n cache.ObjectName) kube.Client[*corev1.ConfigMap] { return client.ConfigMaps(n.Namespace) },
		Ensure: dir.Ensure,
		Clean:  dir.Clean,
	}
	c.ByName = guard.Reconcile
	var runs atomic.Int64
	c.With = func(p *kube.Parts) { p.Reconciler.OnResult = func(reconcile.Result[cache.ObjectName]) { runs.Add(1) } }
	var group reconcile.Group
	group.Add("informers", c.Informers())
	group.Add("files", c)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := group.Run(ctx); err != nil {
		log.Fatal(err)
	}
	files.Report(runs.Load())
}
