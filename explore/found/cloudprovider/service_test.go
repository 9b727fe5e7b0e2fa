// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package cloudprovider explores the service controller of k8s.io/cloud-provider, which
// makes the load balancers of most clouds.
package cloudprovider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/kubesim"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/controllers/service"
	"k8s.io/component-base/featuregate"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
)

// A world is an API server, and the load balancers of a cloud with their ports.
type world struct {
	*kubesim.Server
	balancers map[string]balancer
}

type balancer struct{ ports, nodes string }

// A cloud is how a process reaches the load balancers.
type cloud struct {
	cloudprovider.Interface // nil: only what follows is asked for
	k                       *explore.Process
	w                       *world
}

func (c cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }
func (c cloud) HasClusterID() bool                               { return true }

func (c cloud) GetLoadBalancerName(_ context.Context, _ string, s *v1.Service) string { return s.Name }

func (c cloud) GetLoadBalancer(ctx context.Context, _ string, s *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	there, err := explore.Read(ctx, c.k, "get balancer "+s.Name, func() (bool, error) { return c.w.balancers[s.Name] != balancer{}, nil })
	return status(s), there, err
}

func (c cloud) EnsureLoadBalancer(ctx context.Context, _ string, s *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	return status(s), c.k.Do(ctx, "ensure balancer "+s.Name, func() error {
		c.w.balancers[s.Name] = balancer{ports(s), hosts(nodes)}
		return nil
	})
}

func (c cloud) UpdateLoadBalancer(ctx context.Context, _ string, s *v1.Service, nodes []*v1.Node) error {
	return c.k.Do(ctx, "update balancer "+s.Name, func() error { // the hosts alone
		c.w.balancers[s.Name] = balancer{c.w.balancers[s.Name].ports, hosts(nodes)}
		return nil
	})
}

func (c cloud) EnsureLoadBalancerDeleted(ctx context.Context, _ string, s *v1.Service) error {
	return c.k.Do(ctx, "delete balancer "+s.Name, func() error { delete(c.w.balancers, s.Name); return nil })
}

func status(s *v1.Service) *v1.LoadBalancerStatus {
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: s.Name + ".example.org"}}}
}

func ports(s *v1.Service) string {
	var b strings.Builder
	for _, p := range s.Spec.Ports {
		fmt.Fprint(&b, p.Port, " ")
	}
	return b.String()
}

func hosts(nodes []*v1.Node) string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func start(proc *explore.Process, w *world) {
	proc.Go(func(ctx context.Context) error {
		client, err := kubernetes.NewForConfig(w.Config(proc))
		if err != nil {
			return err
		}
		factory := informers.NewSharedInformerFactory(client, 10*time.Minute)
		c, err := service.New(cloud{k: proc, w: w}, client, factory.Core().V1().Services(), factory.Core().V1().Nodes(), "cluster", featuregate.NewFeatureGate())
		if err != nil {
			return err
		}
		factory.Start(ctx.Done())
		defer factory.Shutdown()
		c.Run(ctx, 2, controllersmetrics.NewControllerManagerMetrics("explore"))
		return nil
	})
}

func desired(name string, ports ...int32) *v1.Service {
	s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer}}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: fmt.Sprint("p", p), Port: p, Protocol: v1.ProtocolTCP})
	}
	return s
}

// add makes a node that is ready.
func add(s *kubesim.Server, name string) {
	s.Create(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{ProviderID: "fake://" + name}})
	ready(s, name, v1.ConditionTrue)
}

// ready is what a kubelet does.
func ready(s *kubesim.Server, name string, is v1.ConditionStatus) {
	kubesim.Update(s, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, func(n *v1.Node) {
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: is}}
	})
}

func TestServiceController(t *testing.T) {
	plans := 500
	if testing.Short() {
		plans = 100
	}
	explore.Run(t, explore.Scenario[*world]{
		World: func() *world {
			w := &world{kubesim.NewServer(), map[string]balancer{}}
			add(w.Server, "n1")
			return w
		},
		Start: start,
		Steps: func(env *explore.Environment, w *world) {
			for _, name := range []string{"a", "b"} {
				w.Create(desired(name, 80))
			}
			env.Advance(5 * time.Minute)
			kubesim.Update(w.Server, desired("a"), func(s *v1.Service) { s.Spec = desired("a", 80, 443).Spec })
			add(w.Server, "n2")
			env.Advance(5 * time.Minute)
			w.Delete(desired("b"))
			env.Advance(5 * time.Minute)
		},
		State: func(w *world) string {
			var b strings.Builder
			for _, name := range slices.Sorted(maps.Keys(w.balancers)) {
				fmt.Fprintf(&b, "%s: %v\n", name, w.balancers[name])
			}
			for _, s := range kubesim.List(w.Server, &v1.Service{}) {
				fmt.Fprintf(&b, "service %s: %v %v\n", s.Name, s.Finalizers, s.Status.LoadBalancer)
			}
			return b.String()
		},
		Without: []explore.Fault{explore.Stale, explore.StaleWatch},
		Plans:   plans,
	})
}

func TestMain(m *testing.M) {
	kubesim.Silence()
	m.Run()
}
