// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/conditions"
	"github.com/reconkernel/reconcile/adapters/kube/custom"
	"github.com/reconkernel/reconcile/adapters/kube/events"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/supervise"
)

// This is kubernetes/sample-controller, as one writes it here: a Foo asks for a
// Deployment of a name and a size.

type Foo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              FooSpec   `json:"spec"`
	Status            FooStatus `json:"status,omitzero"`
}

type FooSpec struct {
	DeploymentName string `json:"deploymentName"`
	Replicas       *int32 `json:"replicas"`
}

type FooStatus struct {
	AvailableReplicas int32 `json:"availableReplicas"`
}

func (f *Foo) DeepCopyObject() runtime.Object { return custom.DeepCopy(f) }

var errNotOurs = errors.New("is there already, and not managed by this Foo")

// A FooController has what its syncHandler needs.
type FooController struct {
	client      kubernetes.Interface
	foos        *custom.Client[*Foo]
	deployments *kube.Owned[*appsv1.Deployment]
}

// syncHandler makes the Deployment of a Foo what the Foo asks for.
func (c *FooController) syncHandler(ctx context.Context, foo *Foo) error {
	if foo.Spec.DeploymentName == "" {
		return reconcile.Terminal(errors.New("spec.deploymentName is missing")) // until it changes
	}
	deployments := c.client.AppsV1().Deployments(foo.Namespace)
	deployment, err := c.deployments.Get(foo.Namespace, foo.Spec.DeploymentName)
	if apierrors.IsNotFound(err) {
		deployment, err = c.deployments.Create(ctx, deployments, foo, newDeployment(foo))
	}
	if err != nil {
		return err
	}
	if !metav1.IsControlledBy(deployment, foo) {
		return fmt.Errorf("deployment %s %w", deployment.Name, errNotOurs)
	}
	if foo.Spec.Replicas != nil && *foo.Spec.Replicas != *deployment.Spec.Replicas {
		deployment.Spec.Replicas = foo.Spec.Replicas
		if deployment, err = deployments.Update(ctx, deployment, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	_, err = conditions.WriteStatus(ctx, c.foos.In(foo.Namespace), foo, func(foo *Foo) {
		foo.Status.AvailableReplicas = deployment.Status.AvailableReplicas
	})
	return err
}

// Run takes the place of NewController, Run, runWorker, processNextWorkItem,
// enqueueFoo and handleObject there.
func (c *FooController) Run(ctx context.Context, namespace string, workers int) error {
	foos := &kube.Controller[*Foo]{Name: "foos", Informer: c.foos.Informer(namespace, 0), Reconcile: c.syncHandler, Workers: workers}
	deployments := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithNamespace(namespace)).Apps().V1().Deployments()
	c.deployments = kube.Owns[*appsv1.Deployment](foos, deployments.Informer(), kube.OwnedBy{APIVersion: "samplecontroller.example.com/v1", Kind: "Foo"})
	recorder := &events.Recorder[cache.ObjectName]{
		Client:     c.client.EventsV1(),
		Controller: "example.com/sample-controller",
		Regarding: func(ref cache.ObjectName) (runtime.Object, error) {
			return foos.Get(ctx, ref)
		},
		Event: func(r reconcile.Result[cache.ObjectName]) (events.Event, bool) {
			if r.Outcome == reconcile.OutcomeSucceeded {
				return events.Event{Reason: "Synced", Note: "Foo synced successfully"}, true
			}
			event, ok := events.Failures(r)
			if errors.Is(r.Err, errNotOurs) {
				event.Reason = "ErrResourceExists"
			}
			return event, ok
		},
	}
	foos.With = func(p *kube.Parts) { p.Reconciler.OnResult, p.Around = recorder.OnResult, recorder.Around }
	var group supervise.Group
	group.Add("informers", foos.Informers())
	group.Add("foos", foos)
	return group.Run(ctx)
}

func newDeployment(foo *Foo) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": foo.Name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: foo.Namespace, Name: foo.Spec.DeploymentName},
		Spec: appsv1.DeploymentSpec{
			Replicas: foo.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:latest"}}},
			},
		},
	}
}

// TestSampleController has the controller create, correct, resize and create again a
// Deployment, write the status, and leave alone what is not its own.
func TestSampleController(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		gvr := s.Define(t, "Namespaced", "samplecontroller.example.com", "Foo")
		foos, err := custom.NewClient[Foo](s.Admin(), gvr, "Foo")
		if err != nil {
			t.Fatal(err)
		}
		client := typed(t, s.Admin())
		c := &FooController{client: client, foos: foos}
		kubetest.Run(t, reconcile.RunFunc(func(ctx context.Context) error { return c.Run(ctx, ns, 2) }))

		deployments := client.AppsV1().Deployments(ns)
		foo := func(name, deployment string, replicas int32) *Foo {
			return &Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: FooSpec{deployment, &replicas}}
		}
		create := func(foo *Foo) *Foo {
			t.Helper()
			foo, err := foos.In(ns).Create(t.Context(), foo, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return foo
		}
		// replicas waits until a Deployment has so many.
		replicas := func(what, name string, want int32) (d *appsv1.Deployment) {
			t.Helper()
			kubetest.Eventually(t, func() (err error) {
				if d, err = deployments.Get(t.Context(), name, metav1.GetOptions{}); err == nil && *d.Spec.Replicas != want {
					err = fmt.Errorf("%s: %d replicas, want %d", what, *d.Spec.Replicas, want)
				}
				return err
			})
			return d
		}
		patch := func(name, patch string, subresource ...string) {
			t.Helper()
			if _, err := deployments.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...); err != nil {
				t.Fatal(err)
			}
		}

		web := create(foo("web", "nginx", 1))
		if d := replicas("made", "nginx", 1); !metav1.IsControlledBy(d, web) {
			t.Errorf("the deployment has the owners %v", d.OwnerReferences)
		}
		patch("nginx", `{"spec": {"replicas": 5}}`)
		replicas("corrected", "nginx", 1)
		if _, err := foos.In(ns).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec": {"replicas": 2}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		replicas("resized", "nginx", 2)
		patch("nginx", `{"status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}}`, "status")
		kubetest.Eventually(t, func() error {
			foo, err := foos.In(ns).Get(t.Context(), "web", metav1.GetOptions{})
			if err == nil && foo.Status.AvailableReplicas != 2 {
				err = fmt.Errorf("the status is %+v, want 2 available", foo.Status)
			}
			return err
		})
		if err := deployments.Delete(t.Context(), "nginx", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		replicas("made again", "nginx", 2)

		create(foo("thief", "nginx", 7))
		create(foo("nameless", "", 1))
		kubetest.Eventually(t, func() error {
			list, err := client.EventsV1().Events(ns).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			said := make(map[string]bool)
			for _, e := range list.Items {
				said[e.Regarding.Name+" "+e.Reason] = true
			}
			for _, want := range []string{"web Synced", "thief ErrResourceExists", "nameless TerminalError"} {
				if !said[want] {
					return fmt.Errorf("events %v, want %q among them", said, want)
				}
			}
			return nil
		})
		replicas("left alone", "nginx", 2)
	})
}
