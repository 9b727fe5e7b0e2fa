// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package routes has a controller that does what the route controller of
// k8s.io/cloud-provider does: each node has a route for each of its pod CIDRs, and a
// condition that says so. Its tests explore both.
package routes

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/batch"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
)

// A Controller keeps the routes of one cluster. All fields are required.
type Controller struct {
	Routes  cloudprovider.Routes
	Client  kubernetes.Interface
	Nodes   coreinformers.NodeInformer // run by the caller
	Cluster string
	CIDRs   []netip.Prefix // of the cluster: no route outside is touched
	Period  time.Duration  // between looks at all routes
}

// Run keeps the routes until ctx is done.
func (c *Controller) Run(ctx context.Context) error {
	queue := reconcile.NewQueue[string]()
	told := func(o any) {
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			queue.Enqueue(name)
		}
	}
	events, err := c.Nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: told, DeleteFunc: told,
		UpdateFunc: func(old, now any) {
			if a, b := old.(*v1.Node), now.(*v1.Node); !slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs) || !sameAddresses(a.Status.Addresses, b.Status.Addresses) {
				queue.Enqueue(b.Name)
			}
		},
	})
	if err != nil {
		return err
	}
	if !cache.WaitForCacheSync(ctx.Done(), events.HasSynced) {
		return nil
	}
	list := batch.New(50, 10*time.Millisecond, c.listOnce)
	var group reconcile.Group
	group.Add("routes", &reconcile.Reconciler[string]{
		Name: "routes", Queue: queue, Workers: 50, Timeout: time.Minute,
		Reconcile: func(ctx context.Context, name string) error {
			routes, err := list(ctx, name)
			if err != nil {
				return err
			}
			return c.reconcile(ctx, name, routes)
		},
	})
	group.Add("list", &reconcile.Poller[string]{Name: "list", Queue: queue, Period: c.Period, GetItems: c.amiss})
	return group.Run(ctx)
}

// listOnce lists the routes once for many runs.
func (c *Controller) listOnce(ctx context.Context, names []string) ([][]*cloudprovider.Route, error) {
	routes, err := c.Routes.ListRoutes(ctx, c.Cluster)
	return slices.Repeat([][]*cloudprovider.Route{routes}, len(names)), err
}

// amiss returns the nodes of which something is not as it has to be, and "" for the
// routes that lead nowhere.
func (c *Controller) amiss(ctx context.Context) (names []string, err error) {
	nodes, err := c.Nodes.Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	routes, err := c.Routes.ListRoutes(ctx, c.Cluster)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	for _, r := range routes {
		names = append(names, string(r.TargetNode))
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		node, surplus, missing := c.todo(name, routes)
		return len(surplus)+len(missing) == 0 && (node == nil || len(node.Spec.PodCIDRs) == 0 || says(node, condition(true)))
	}), nil
}

// todo says which routes of a node have to go, and for which of its CIDRs there is
// none. A node that is gone is nil.
func (c *Controller) todo(name string, routes []*cloudprovider.Route) (node *v1.Node, surplus []*cloudprovider.Route, missing []string) {
	node, err := c.Nodes.Lister().Get(name)
	if err == nil {
		missing = slices.Clone(node.Spec.PodCIDRs)
	}
	for _, r := range routes {
		if string(r.TargetNode) != name || !c.ours(r) {
			continue
		}
		i := slices.Index(missing, r.DestinationCIDR)
		if i < 0 || r.Blackhole || r.EnableNodeAddresses && !sameAddresses(r.TargetNodeAddresses, node.Status.Addresses) {
			surplus = append(surplus, r)
			continue
		}
		missing = slices.Delete(missing, i, i+1)
	}
	return node, surplus, missing
}

func (c *Controller) reconcile(ctx context.Context, name string, routes []*cloudprovider.Route) error {
	node, surplus, missing := c.todo(name, routes)
	var failed []error
	for _, r := range surplus {
		failed = append(failed, c.Routes.DeleteRoute(ctx, c.Cluster, r))
	}
	created := node != nil && len(node.Spec.PodCIDRs) > 0
	for _, cidr := range missing {
		err := c.Routes.CreateRoute(ctx, c.Cluster, string(node.UID), &cloudprovider.Route{
			TargetNode: types.NodeName(name), TargetNodeAddresses: node.Status.Addresses, DestinationCIDR: cidr,
		})
		failed, created = append(failed, err), created && err == nil
	}
	if want := condition(created); node != nil && !says(node, want) && (len(node.Spec.PodCIDRs) > 0 || len(surplus) > 0) {
		failed = append(failed, c.tell(ctx, name, want))
	}
	return errors.Join(failed...)
}

// condition is what the node says of its routes.
func condition(created bool) v1.NodeCondition {
	if created {
		return v1.NodeCondition{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionFalse, Reason: "RouteCreated", Message: "Each pod CIDR has a route"}
	}
	return v1.NodeCondition{Type: v1.NodeNetworkUnavailable, Status: v1.ConditionTrue, Reason: "NoRouteCreated", Message: "A pod CIDR has no route"}
}

func says(node *v1.Node, want v1.NodeCondition) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == want.Type && c.Status == want.Status && c.Reason == want.Reason
	})
}

func (c *Controller) tell(ctx context.Context, name string, want v1.NodeCondition) error {
	want.LastTransitionTime = metav1.Now()
	want.LastHeartbeatTime = want.LastTransitionTime
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []v1.NodeCondition{want}}})
	if err != nil {
		return err
	}
	_, err = c.Client.CoreV1().Nodes().PatchStatus(ctx, name, patch)
	return err
}

// ours reports whether a route is within the cluster.
func (c *Controller) ours(r *cloudprovider.Route) bool {
	to, err := netip.ParsePrefix(r.DestinationCIDR)
	return err == nil && slices.ContainsFunc(c.CIDRs, to.Overlaps)
}

func sameAddresses(a, b []v1.NodeAddress) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(x v1.NodeAddress) bool { return !slices.Contains(b, x) })
}
