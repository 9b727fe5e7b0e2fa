// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package cloudprovider

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/kubesim"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	nodecontroller "k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
)

// A site is an API server, and the machines of a cloud: their addresses, or "stopped".
type site struct {
	*kubesim.Server
	machines map[string]string
}

// Instances is how a process reaches the machines.
type instances struct {
	cloudprovider.Interface // nil: only what follows is asked for
	k                       *explore.Process
	w                       *site
}

func (i instances) Instances() (cloudprovider.Instances, bool)     { return nil, false }
func (i instances) InstancesV2() (cloudprovider.InstancesV2, bool) { return i, true }

func (i instances) look(ctx context.Context, what string, n *v1.Node) (string, error) {
	return explore.Read(ctx, i.k, what+" "+n.Name, func() (string, error) { return i.w.machines[n.Name], nil })
}

func (i instances) InstanceExists(ctx context.Context, n *v1.Node) (bool, error) {
	is, err := i.look(ctx, "exists", n)
	return is != "", err
}

func (i instances) InstanceShutdown(ctx context.Context, n *v1.Node) (bool, error) {
	is, err := i.look(ctx, "is shut down", n)
	return is == "stopped", err
}

func (i instances) InstanceMetadata(ctx context.Context, n *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	is, err := i.look(ctx, "look at", n)
	if err != nil || is == "" {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: "fake://" + n.Name, InstanceType: "small", Zone: "z1", Region: "r1",
		NodeAddresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: is}},
	}, nil
}

// startNodes starts a controller of nodes.
func startNodes(run func(context.Context, coreinformers.NodeInformer, kubernetes.Interface, cloudprovider.Interface) (func(), error)) func(*explore.Process, *site) {
	return func(proc *explore.Process, w *site) {
		proc.Go(func(ctx context.Context) error {
			client, err := kubernetes.NewForConfig(w.Config(proc))
			if err != nil {
				return err
			}
			factory := informers.NewSharedInformerFactory(client, 0)
			nodes := factory.Core().V1().Nodes()
			nodes.Informer()
			c, err := run(ctx, nodes, client, instances{k: proc, w: w})
			if err != nil {
				return err
			}
			factory.Start(ctx.Done())
			defer factory.Shutdown()
			c()
			return nil
		})
	}
}

func nodeController(ctx context.Context, nodes coreinformers.NodeInformer, client kubernetes.Interface, cloud cloudprovider.Interface) (func(), error) {
	c, err := nodecontroller.NewCloudNodeController(nodes, client, cloud, 5*time.Minute, 1, 1)
	return func() { c.RunWithContext(ctx, controllersmetrics.NewControllerManagerMetrics("explore")) }, err
}

func lifecycleController(ctx context.Context, nodes coreinformers.NodeInformer, client kubernetes.Interface, cloud cloudprovider.Interface) (func(), error) {
	c, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, client, cloud, time.Minute, 1)
	return func() { c.Run(ctx, controllersmetrics.NewControllerManagerMetrics("explore")) }, err
}

func newSite() *site {
	return &site{kubesim.NewServer(), map[string]string{}}
}

// state is what counts of the nodes.
func (w *site) state() string {
	var b strings.Builder
	for _, n := range kubesim.List(w.Server, &v1.Node{}) {
		fmt.Fprintf(&b, "%s %v %v %v %v\n", n.Name, n.Labels, n.Spec.ProviderID, taints(n), n.Status.Addresses)
	}
	return b.String()
}

// taints are those of a node, without their times.
func taints(n *v1.Node) string {
	var b strings.Builder
	for _, t := range n.Spec.Taints {
		fmt.Fprint(&b, t.ToString(), " ")
	}
	return b.String()
}

func plans() int {
	if testing.Short() {
		return 50
	}
	return 500
}

// Nodes register with the taint that waits for the cloud, and one gets another address.
func TestNodeController(t *testing.T) {
	explore.Run(t, explore.Scenario[*site]{
		World: newSite,
		Start: startNodes(nodeController),
		Steps: func(env *explore.Environment, w *site) {
			for i, name := range []string{"a", "b"} {
				w.machines[name] = fmt.Sprint("10.0.0.", i)
				w.Create(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{Taints: []v1.Taint{{
					Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: v1.TaintEffectNoSchedule,
				}}}})
				env.Advance(time.Minute)
			}
			w.machines["a"] = "10.0.0.7"
			env.Advance(20 * time.Minute)
		},
		State:   (*site).state,
		Without: []explore.Fault{explore.Stale, explore.StaleWatch},
		Plans:   plans(),
	})
}

// A machine is stopped, started and removed; another one is removed at once.
func TestNodeLifecycleController(t *testing.T) {
	explore.Run(t, explore.Scenario[*site]{
		World: newSite,
		Start: startNodes(lifecycleController),
		Steps: func(env *explore.Environment, w *site) {
			for _, name := range []string{"a", "b", "c"} {
				w.machines[name] = "10.0.0.1"
				add(w.Server, name)
			}
			env.Advance(5 * time.Minute)
			w.machines["a"], w.machines["b"] = "stopped", ""
			ready(w.Server, "a", v1.ConditionUnknown)
			ready(w.Server, "b", v1.ConditionUnknown)
			env.Advance(5 * time.Minute)
			w.machines["a"] = "10.0.0.1"
			ready(w.Server, "a", v1.ConditionTrue)
			env.Advance(5 * time.Minute)
			w.machines["c"] = "stopped"
			ready(w.Server, "c", v1.ConditionUnknown)
			env.Advance(5 * time.Minute)
		},
		State:   (*site).state,
		Without: []explore.Fault{explore.Stale, explore.StaleWatch},
		Plans:   plans(),
	})
}
