// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubeadapter_test

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	kubeadapter "github.com/reconkernel/reconcile/adapters/kube"
)

// A Controller is written as sample-controller is. Its syncHandler stays as it is.
type Controller struct {
	deploymentsLister appslisters.DeploymentLister
	scale             func(ctx context.Context, deployment *appsv1.Deployment) error
}

func (c *Controller) syncHandler(ctx context.Context, objectRef cache.ObjectName) error {
	deployment, err := c.deploymentsLister.Deployments(objectRef.Namespace).Get(objectRef.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.scale(ctx, deployment)
}

// Run takes the place of the handlers, runWorker, processNextWorkItem,
// handleObject and WaitForCacheSync of sample-controller.
func (c *Controller) Run(ctx context.Context, deployments appsinformers.DeploymentInformer, replicaSets appsinformers.ReplicaSetInformer) error {
	own := &kubeadapter.Source[cache.ObjectName]{Name: "deployments", Informer: deployments.Informer(), Keys: kubeadapter.Name}
	children := &kubeadapter.Source[cache.ObjectName]{
		Name:     "replica sets",
		Informer: replicaSets.Informer(),
		Keys:     kubeadapter.OwnedBy{APIVersion: "apps/v1", Kind: "Deployment"}.Keys,
	}
	queue := reconcile.NewQueue[cache.ObjectName]()
	var group reconcile.Group
	group.Add("deployments", kubeadapter.Run(own.Informer))
	group.Add("replica sets", kubeadapter.Run(children.Informer))
	group.Add("feed", reconcile.Feed(queue, own.Feed))
	group.Add("children", reconcile.Feed(queue, children.Feed))
	group.Add("workers", reconcile.After(kubeadapter.AllSynced(own, children), &reconcile.Reconciler[cache.ObjectName]{
		Queue:     queue,
		Reconcile: c.syncHandler,
		Workers:   2,
		Retry:     kubeadapter.Retry(nil),
	}))
	return group.Run(ctx)
}

// A controller as sample-controller is, with its syncHandler unchanged.
func Example_sampleController() {
	var (
		deployments appsinformers.DeploymentInformer // of an informers.SharedInformerFactory
		replicaSets appsinformers.ReplicaSetInformer
		scale       func(ctx context.Context, deployment *appsv1.Deployment) error
	)
	_ = func(ctx context.Context) error {
		c := &Controller{deploymentsLister: deployments.Lister(), scale: scale}
		return c.Run(ctx, deployments, replicaSets)
	}
}
