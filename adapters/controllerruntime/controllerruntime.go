// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package controllerruntime runs controllers of adapters/kube inside a manager of
// controller-runtime, beside those that are there: with its cache, its client, its
// leader election and its health checks. So a team with ten moves one.
//
//	informer, err := controllerruntime.Informer(ctx, manager, &batchv1.Job{})
//	jobs := &kube.Controller[*batchv1.Job]{Name: "jobs", Informer: informer, Reconcile: run}
//	err = controllerruntime.Add(manager, jobs.Name, jobs)
//
// A controller that stays on controller-runtime can have a queue of this module: see
// [Queue].
package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/supervise"
)

// Informer returns the informer of the manager's cache for the kind of obj, which the
// manager runs: a Controller with it needs no Informers. If the manager has started, it
// waits until the informer has synced, or ctx is done. A cache that is limited to
// namespaces, be it to one, has informers of another type, which is an error: give such
// a Controller an informer of its own, and add its Informers to the manager.
func Informer(ctx context.Context, m manager.Manager, obj client.Object) (cache.SharedIndexInformer, error) {
	found, err := m.GetCache().GetInformer(ctx, obj)
	if err != nil {
		return nil, fmt.Errorf("controllerruntime: the informer of %T: %w", obj, err)
	}
	informer, ok := found.(cache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("controllerruntime: the informer of %T is a %T, as of a cache that is limited to namespaces, and no informer of client-go", obj, found)
	}
	return informer, nil
}

// A Controller is what [Add] needs: a *[kube.Controller] is one.
type Controller interface {
	reconcile.Runner
	Ready() (says string, err error)
}

// Add has the manager run c while it leads, or from its start if it elects no leader,
// and asks c about /readyz, under the name, if the manager serves that. Its caches are
// whole before c begins. What c logs goes to the manager's logger. When the manager
// ends, it gives c the time of its GracefulShutdownTimeout; a Grace of the Reconciler
// is to be shorter. After a lost election the manager waits for nothing: the process must
// exit as soon as Start has returned. Add is called before the manager starts; after that
// it is an error.
func Add(m manager.Manager, name string, c Controller) error {
	if name == "" || c == nil {
		return errors.New("controllerruntime: Add needs a name and a Controller")
	}
	// First what a manager that has started refuses.
	err := m.AddReadyzCheck(name, func(*http.Request) error {
		_, err := c.Ready()
		return err
	})
	if err != nil {
		return fmt.Errorf("controllerruntime: the check of %s: %w", name, err)
	}
	logger := slog.New(logr.ToSlogHandler(m.GetLogger().WithName(name)))
	err = m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		group := supervise.Group{Logger: logger}
		group.Add(name, c)
		return group.Run(ctx)
	}))
	if err != nil {
		return fmt.Errorf("controllerruntime: add %s: %w", name, err)
	}
	return nil
}

// Client makes of a manager's client what conditions.WriteStatus and a finalizer.Guard
// need, for the objects of a kind in a namespace, or in none. Reader is that of Get,
// which comes after a conflict: manager.GetAPIReader(), as a cache may lag. The objects
// that create returns are new and empty.
func Client[O client.Object](c client.Client, reader client.Reader, namespace string, create func() O) kube.Client[O] {
	return ours[O]{c, reader, namespace, create}
}

type ours[O client.Object] struct {
	client    client.Client
	reader    client.Reader
	namespace string
	create    func() O
}

// Get reads an object. Its options are not used.
func (c ours[O]) Get(ctx context.Context, name string, _ metav1.GetOptions) (O, error) {
	obj := c.create()
	err := c.reader.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: name}, obj)
	return obj, err
}

// Patch changes an object, or its status.
func (c ours[O]) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (O, error) {
	obj := c.create()
	obj.SetNamespace(c.namespace)
	obj.SetName(name)
	patch := client.RawPatch(pt, data)
	switch len(subresources) {
	case 0:
		err := c.client.Patch(ctx, obj, patch, &client.PatchOptions{Raw: &opts})
		return obj, err
	case 1:
		err := c.client.SubResource(subresources[0]).Patch(ctx, obj, patch, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{Raw: &opts}})
		return obj, err
	}
	return obj, fmt.Errorf("controllerruntime: no patch of %q", subresources)
}
