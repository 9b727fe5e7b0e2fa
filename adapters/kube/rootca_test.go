// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/supervise"
)

// This is the root CA publisher of kube-controller-manager, as one writes it here:
// each namespace has a ConfigMap with the certificates to trust.

const (
	caConfigMap = "kube-root-ca.crt"
	caKey       = "ca.crt"
	description = "kubernetes.io/description" // an annotation, which may have any text
)

// A Publisher has what its Reconcile needs.
type Publisher struct {
	client kubernetes.Interface
	rootCA string
	maps   cache.SharedInformer // of ConfigMaps
}

// Group is what a process runs.
func (p *Publisher) Group() *supervise.Group {
	core := informers.NewSharedInformerFactory(p.client, 0).Core().V1()
	p.maps = core.ConfigMaps().Informer()
	c := &kube.Controller[*corev1.Namespace]{Name: "root CA", Informer: core.Namespaces().Informer(), Reconcile: p.Reconcile}
	kube.Watches(c, p.maps, kube.Key(func(cm *corev1.ConfigMap) (cache.ObjectName, bool) {
		return cache.ObjectName{Name: cm.Namespace}, cm.Name == caConfigMap
	}))
	var group supervise.Group
	group.Add("informers", c.Informers())
	group.Add("root CA", c)
	return &group
}

// Reconcile creates or corrects the ConfigMap of a namespace.
func (p *Publisher) Reconcile(ctx context.Context, ns *corev1.Namespace) error {
	if ns.Status.Phase == corev1.NamespaceTerminating {
		return nil
	}
	data := map[string]string{caKey: p.rootCA}
	client := p.client.CoreV1().ConfigMaps(ns.Name)
	cm, err := kube.Get[*corev1.ConfigMap](p.maps, cache.NewObjectName(ns.Name, caConfigMap))
	if apierrors.IsNotFound(err) {
		cm = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: caConfigMap}, Data: data}
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, description, "Certificates of the API server's inside address.")
		_, err = client.Create(ctx, cm, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // the namespace goes away
		}
		return err
	}
	if err != nil || maps.Equal(cm.Data, data) && cm.Annotations[description] != "" {
		return err
	}
	cm.Data = data
	metav1.SetMetaDataAnnotation(&cm.ObjectMeta, description, "Certificates of the API server's inside address.")
	_, err = client.Update(ctx, cm, metav1.UpdateOptions{})
	return err
}

// TestRootCAPublisher has the cases of the tests there: what is there, what a user
// does then, and which requests of the controller follow each.
func TestRootCAPublisher(t *testing.T) {
	ca := func(data, note string) *corev1.ConfigMap {
		cm := configMap("default", caConfigMap)
		cm.Data = map[string]string{caKey: data}
		if note != "" {
			cm.Annotations = map[string]string{description: note}
		}
		return cm
	}
	namespace := func(name string, phase corev1.NamespacePhase) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: phase}}
	}
	more := ca("root", "note")
	more.Data["more"] = "more"
	other, good := configMap("default", "other"), ca("root", "note")
	changed := other.DeepCopy()
	changed.Data = map[string]string{"aa": "bb"}
	there := namespace("default", corev1.NamespaceActive)

	for what, test := range map[string]struct {
		has   []runtime.Object
		first []string // requests at the start
		does  func(context.Context, kubernetes.Interface) error
		then  []string // requests after that, with the user's own
	}{
		"a new namespace": {has: []runtime.Object{}, does: func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Namespaces().Create(ctx, namespace("new", corev1.NamespaceActive), metav1.CreateOptions{})
			return err
		}, then: []string{"create ", "create new"}},
		"another ConfigMap is deleted": {has: []runtime.Object{there, good, other}, does: func(ctx context.Context, c kubernetes.Interface) error {
			return c.CoreV1().ConfigMaps("default").Delete(ctx, "other", metav1.DeleteOptions{})
		}},
		"ours is deleted": {has: []runtime.Object{there, good, other}, does: func(ctx context.Context, c kubernetes.Interface) error {
			return c.CoreV1().ConfigMaps("default").Delete(ctx, caConfigMap, metav1.DeleteOptions{})
		}, then: []string{"create default"}},
		"ours gets a key":             {has: []runtime.Object{there, good}, does: put(more), then: []string{"update default", "update default"}},
		"ours has other data":         {has: []runtime.Object{there, good}, does: put(ca("abc", "note")), then: []string{"update default", "update default"}},
		"another ConfigMap has other": {has: []runtime.Object{there, good, other}, does: put(changed), then: []string{"update default"}},
		"ours loses its description":  {has: []runtime.Object{there, good}, does: put(ca("root", "")), then: []string{"update default", "update default"}},
		"it has another description":  {has: []runtime.Object{there, ca("root", "different")}},
		"it has none":                 {has: []runtime.Object{there, ca("root", "")}, first: []string{"update default"}},
		"a namespace without one":     {has: []runtime.Object{there}, first: []string{"create default"}},
		"a namespace that is going":   {has: []runtime.Object{namespace("default", corev1.NamespaceTerminating)}},
		"a namespace that begins to go": {has: []runtime.Object{there, good}, does: func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Namespaces().UpdateStatus(ctx, namespace("default", corev1.NamespaceTerminating), metav1.UpdateOptions{})
			return err
		}, then: []string{"update "}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(test.has...)
				p := &Publisher{client: client, rootCA: "root"}
				stop := begin(t, p.Group())
				synctest.Wait()
				if got := writes(client); !slices.Equal(got, test.first) {
					t.Errorf("at the start: %q, want %q", got, test.first)
				}
				if test.does != nil {
					if err := test.does(t.Context(), client); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if got := writes(client); !slices.Equal(got, test.then) {
						t.Errorf("then: %q, want %q", got, test.then)
					}
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				for _, cm := range p.maps.GetStore().List() {
					if cm := cm.(*corev1.ConfigMap); cm.Name == caConfigMap && (!maps.Equal(cm.Data, good.Data) || cm.Annotations[description] == "") {
						t.Errorf("in the end there is %v, %v", cm.Data, cm.Annotations)
					}
				}
			})
		})
	}
}

// put updates a ConfigMap.
func put(cm *corev1.ConfigMap) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().ConfigMaps(cm.Namespace).Update(ctx, cm, metav1.UpdateOptions{})
		return err
	}
}

// writes returns the requests that write, and forgets all.
func writes(client *fake.Clientset) (writes []string) {
	for _, a := range client.Actions() {
		if a, ok := a.(clienttesting.CreateAction); ok && (a.GetVerb() == "create" || a.GetVerb() == "update") {
			writes = append(writes, a.GetVerb()+" "+a.GetNamespace())
		}
	}
	client.ClearActions()
	return writes
}
