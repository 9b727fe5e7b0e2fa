// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package virtualkubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/virtual-kubelet/virtual-kubelet/errdefs"
	"github.com/virtual-kubelet/virtual-kubelet/node"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/found/internal/foundtest"
	"github.com/reconkernel/reconcile/explore/kubesim"
)

// A world is an API server, and a provider on which pods run.
type world struct {
	*kubesim.Server
	pods map[string]*v1.Pod // by name
}

// A provider is how a process reaches the pods. It reports no status of them.
type provider struct {
	proc *explore.Process
	pods map[string]*v1.Pod
}

func (p provider) run(ctx context.Context, verb string, pod *v1.Pod) error {
	return p.proc.Do(ctx, verb+" "+pod.Name, func() error {
		running := pod.DeepCopy()
		running.Status = v1.PodStatus{Phase: v1.PodRunning}
		p.pods[pod.Name] = running
		return nil
	})
}

func (p provider) CreatePod(ctx context.Context, pod *v1.Pod) error { return p.run(ctx, "create", pod) }

func (p provider) UpdatePod(ctx context.Context, pod *v1.Pod) error { return p.run(ctx, "update", pod) }

func (p provider) DeletePod(ctx context.Context, pod *v1.Pod) error {
	return p.proc.Do(ctx, "delete "+pod.Name, func() error {
		if p.pods[pod.Name] == nil {
			return errdefs.NotFound("no such pod")
		}
		delete(p.pods, pod.Name)
		return nil
	})
}

func (p provider) GetPod(ctx context.Context, _, name string) (*v1.Pod, error) {
	return explore.Read(ctx, p.proc, "get "+name, func() (*v1.Pod, error) {
		if p.pods[name] == nil {
			return nil, errdefs.NotFound("no such pod")
		}
		return p.pods[name].DeepCopy(), nil
	})
}

func (p provider) GetPodStatus(ctx context.Context, namespace, name string) (*v1.PodStatus, error) {
	pod, err := p.GetPod(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	return &pod.Status, nil
}

func (p provider) GetPods(ctx context.Context) ([]*v1.Pod, error) {
	return explore.Read(ctx, p.proc, "list", func() (all []*v1.Pod, _ error) {
		for _, name := range slices.Sorted(maps.Keys(p.pods)) {
			all = append(all, p.pods[name].DeepCopy())
		}
		return all, nil
	})
}

func (provider) NotifyPods(context.Context, func(*v1.Pod)) {}

func start(proc *explore.Process, w *world) {
	proc.Go(func(ctx context.Context) error {
		client, err := kubernetes.NewForConfig(w.Config(proc))
		if err != nil {
			return err
		}
		factory := informers.NewSharedInformerFactory(client, time.Minute)
		core := factory.Core().V1()
		pods, err := node.NewPodController(node.PodControllerConfig{
			PodClient: client.CoreV1(), Provider: provider{proc, w.pods}, EventRecorder: record.NewFakeRecorder(10_000),
			PodInformer: core.Pods(), ConfigMapInformer: core.ConfigMaps(), SecretInformer: core.Secrets(), ServiceInformer: core.Services(),
		})
		if err != nil {
			return err
		}
		factory.Start(ctx.Done())
		defer factory.Shutdown()
		return pods.Run(ctx, 1)
	})
}

func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       v1.PodSpec{NodeName: "virtual", Containers: []v1.Container{{Name: "main", Image: "main"}}},
	}
}

func scenario() explore.Scenario[*world] {
	return explore.Scenario[*world]{
		World: func() *world { return &world{kubesim.NewServer(), map[string]*v1.Pod{}} },
		Start: start,
		Steps: func(env *explore.Environment, w *world) {
			w.Create(pod("a"))
			w.Create(pod("b"))
			env.Advance(10 * time.Minute)
			w.Delete(pod("b"))
			env.Advance(10 * time.Minute)
		},
		State: func(w *world) string { return fmt.Sprint("pods: ", slices.Sorted(maps.Keys(w.pods))) },
		Plans: 300,
	}
}

// TestLostEvent finds that a pod stays if the watch misses its deletion: the handler ignores
// the object with which an informer reports that after its next list.
func TestLostEvent(t *testing.T) {
	foundtest.Find(t, scenario(), "event pods DELETED default/b #1: lost")
}

// TestOutage finds that a deletion that fails at a start too is not tried again until the
// next start.
func TestOutage(t *testing.T) {
	s := scenario()
	steps := s.Steps
	s.Steps = func(env *explore.Environment, w *world) {
		steps(env, w)
		env.Redeploy() // makes up for what TestLostEvent finds
		env.Advance(10 * time.Minute)
	}
	foundtest.Find(t, s, "call delete b #1: outage")
}

func TestMain(m *testing.M) {
	kubesim.Silence()
	m.Run()
}
