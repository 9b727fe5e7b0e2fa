// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package routes

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/kubesim"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/controllers/route"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/features"
)

// A world is an API server, and the routes of a cloud: from CIDR to node.
type world struct {
	*kubesim.Server
	routes map[string]string
}

func newWorld() *world {
	return &world{Server: kubesim.NewServer(), routes: map[string]string{}}
}

// A cloud is how a process reaches the routes.
type cloud struct {
	proc *explore.Process
	w    *world
}

func (c cloud) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	return explore.Read(ctx, c.proc, "list routes", func() ([]*cloudprovider.Route, error) {
		var all []*cloudprovider.Route
		for _, cidr := range slices.Sorted(maps.Keys(c.w.routes)) {
			all = append(all, &cloudprovider.Route{Name: cidr, TargetNode: types.NodeName(c.w.routes[cidr]), DestinationCIDR: cidr})
		}
		return all, nil
	})
}

func (c cloud) CreateRoute(ctx context.Context, _, _ string, r *cloudprovider.Route) error {
	return c.proc.Do(ctx, "create route "+r.DestinationCIDR, func() error {
		c.w.routes[r.DestinationCIDR] = string(r.TargetNode)
		return nil
	})
}

func (c cloud) DeleteRoute(ctx context.Context, _ string, r *cloudprovider.Route) error {
	return c.proc.Do(ctx, "delete route "+r.DestinationCIDR, func() error {
		delete(c.w.routes, r.DestinationCIDR)
		return nil
	})
}

// start starts a controller, with informers that resync in the period that programs
// give them.
func start(run func(context.Context, cloud, kubernetes.Interface, informers.SharedInformerFactory) (func() error, error)) func(*explore.Process, *world) {
	return func(proc *explore.Process, w *world) {
		proc.Go(func(ctx context.Context) error {
			client, err := kubernetes.NewForConfig(w.Config(proc))
			if err != nil {
				return err
			}
			factory := informers.NewSharedInformerFactory(client, 12*time.Hour)
			factory.Core().V1().Nodes().Informer()
			c, err := run(ctx, cloud{proc, w}, client, factory)
			if err != nil {
				return err
			}
			factory.Start(ctx.Done())
			defer factory.Shutdown()
			return c()
		})
	}
}

func theirs(ctx context.Context, c cloud, client kubernetes.Interface, factory informers.SharedInformerFactory) (func() error, error) {
	_, cidr, err := net.ParseCIDR("10.0.0.0/8")
	if err != nil {
		return nil, err
	}
	r, err := route.New(c, client, factory.Core().V1().Nodes(), "cluster", []*net.IPNet{cidr})
	return func() error {
		r.Run(ctx, 10*time.Second, controllersmetrics.NewControllerManagerMetrics("explore"))
		return nil
	}, err
}

func node(name string, cidrs ...string) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{PodCIDRs: cidrs}}
}

// state is what counts: the routes, and what the nodes say of them.
func (w *world) state() string {
	var b strings.Builder
	fmt.Fprintln(&b, "routes:", w.routes)
	for _, n := range kubesim.List(w.Server, &v1.Node{}) {
		for _, c := range n.Status.Conditions {
			fmt.Fprintln(&b, n.Name, c.Type, c.Status, c.Reason)
		}
	}
	return b.String()
}

func scenario(start func(*explore.Process, *world)) explore.Scenario[*world] {
	return explore.Scenario[*world]{
		World: newWorld,
		Start: start,
		Steps: func(env *explore.Environment, w *world) {
			w.Create(node("a", "10.1.0.0/24", "10.2.0.0/24"))
			w.Create(node("b", "10.1.1.0/24"))
			env.Advance(time.Minute)
			w.Delete(node("b"))
			w.Create(node("c", "10.1.2.0/24"))
			env.Advance(time.Minute)
		},
		State:  (*world).state,
		Within: 15 * time.Minute,
		Plans:  150,
	}
}

// watchBased has the route controller act on events of nodes, in place of every 10 s.
func watchBased(t *testing.T, on bool) {
	t.Helper()
	if err := utilfeature.DefaultMutableFeatureGate.Set(fmt.Sprintf("%s=%v", features.CloudControllerManagerWatchBasedRoutesReconciliation, on)); err != nil {
		t.Fatal(err)
	}
}

// TestRoutes finds a fault in the route controller that acts on events: if the creations
// of a route fail until the last event of nodes, the node stays without the route.
func TestRoutes(t *testing.T) {
	for _, test := range []struct {
		name  string
		watch bool
		found string // a part of the state at the end; "" if nothing is found
	}{
		{"every 10 s", false, ""},
		{"by events", true, "+ a NetworkUnavailable True NoRouteCreated"},
	} {
		t.Run(test.name, func(t *testing.T) {
			watchBased(t, test.watch)
			r, err := explore.Search(t, scenario(start(theirs)))
			if err != nil {
				t.Fatal(err)
			}
			if found := fmt.Sprint(r.Found); test.found == "" && r.Found != nil || !strings.Contains(found, test.found) {
				t.Errorf("found %v, want %q", found, test.found)
			}
			if r.Found != nil {
				t.Log(r.Found.Number, r.Found.Plan)
			}
		})
	}
}

func TestMain(m *testing.M) {
	kubesim.Silence()
	if err := features.SetupCurrentKubernetesSpecificFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		panic(err)
	}
	m.Run()
}
