// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// A nursery makes one child for each parent that has none, with a name that the
// server makes up.
type nursery struct {
	client   typedcorev1.ConfigMapInterface
	children cache.SharedInformer
	own      *kube.Writes[string] // nil means not to look
}

func (n *nursery) reconcile(ctx context.Context, parent string) error {
	if n.own != nil {
		if err := n.own.Seen(parent); err != nil {
			return err
		}
	}
	for _, obj := range n.children.GetStore().List() {
		if obj.(*corev1.ConfigMap).Labels["parent"] == parent {
			return nil
		}
	}
	child, err := n.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: parent + "-", Labels: map[string]string{"parent": parent},
	}}, metav1.CreateOptions{})
	if err == nil && n.own != nil {
		n.own.Add(parent, child)
	}
	return err
}

// TestStaleCache runs each of 50 parents twice before the cache has any of their
// children. Without Writes each has two then, with it one.
func TestStaleCache(t *testing.T) {
	const parents = 50

	for _, careful := range []bool{false, true} {
		t.Run(fmt.Sprintf("careful %t", careful), func(t *testing.T) {
			apitest.Run(t, func(t *testing.T, s *apitest.Server) {
				ns := s.Namespace(t)
				client := typed(t, s.Admin())
				informer := typedInformer(t, s.Admin(), ns, 0)
				catchUp := make(chan struct{})
				if err := informer.SetTransform(func(obj any) (any, error) {
					<-catchUp
					return obj, nil
				}); err != nil {
					t.Fatal(err)
				}
				n := &nursery{client: client.CoreV1().ConfigMaps(ns), children: informer}
				if careful {
					n.own = &kube.Writes[string]{Informer: informer}
				}
				kubetest.Run(t, kube.Run(informer))
				if !cache.WaitForCacheSync(bounded(t).Done(), informer.HasSynced) {
					t.Fatal("no list")
				}
				queue := reconcile.NewQueue[string]()
				results := make(chan reconcile.Result[string], 100*parents)
				kubetest.Run(t, &reconcile.Reconciler[string]{
					Queue: queue, Workers: 4, Reconcile: n.reconcile,
					OnResult: func(r reconcile.Result[string]) { results <- r },
				})
				for range 2 {
					for i := range parents {
						queue.Enqueue(fmt.Sprintf("p%d", i))
					}
					for range parents {
						if r := <-results; r.Outcome != reconcile.OutcomeSucceeded && r.Outcome != reconcile.OutcomeRequeued {
							t.Errorf("%s: %s, %v", r.Item, r.Outcome, r.Err)
						}
					}
				}
				close(catchUp)
				if err := queue.WaitIdle(bounded(t)); err != nil {
					t.Fatal(err)
				}
				list, err := n.client.List(t.Context(), metav1.ListOptions{LabelSelector: "parent"})
				if err != nil {
					t.Fatal(err)
				}
				want := 2 * parents
				if careful {
					want = parents
				}
				if got := len(list.Items); got != want {
					t.Errorf("%d children of %d parents, want %d", got, parents, want)
				}
			})
		})
	}
}

// TestWrites asks what an informer has seen of versions that are older and newer
// than its own, of none, and of one that cannot be compared.
func TestWrites(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		client := typed(t, s.Admin())
		before := create(t, client, configMap(ns, "before"))
		informer := typedInformer(t, s.Admin(), ns, 0)
		own := &kube.Writes[string]{Informer: informer}
		own.Add("x", before)
		var plan reconcile.RequeueError
		if err := own.Seen("x"); !errors.As(err, &plan) || plan.MinDelay > 0 || plan.Recheck || plan.Delay > time.Second {
			t.Errorf("before the first list: %v, want to be asked again soon", err)
		}
		feed(t, names(informer))
		version := func(v string) metav1.Object { return &metav1.ObjectMeta{Name: "a", ResourceVersion: v} }
		own.Add("future", version(before.ResourceVersion+"000"))
		own.Add("future", before) // an answer that comes late
		own.Add("fake", version(""))
		own.Add("strange", version("v1"))
		for item, want := range map[string]bool{"x": true, "unknown": true, "fake": true, "future": false} {
			if err := own.Seen(item); (err == nil) != want {
				t.Errorf("%s is seen: %v, want %t", item, err, want)
			}
		}
		for i := range 5000 {
			own.Add(fmt.Sprint(i), before)
		}
		if n := own.Known(); n > 1100 {
			t.Errorf("writes of %d items are remembered, though the informer has seen them", n)
		}
		if err := own.Seen("future"); err == nil {
			t.Error("a write that was not seen is forgotten")
		}
		if err := own.Seen("strange"); err == nil || errors.As(err, &plan) {
			t.Errorf("a version that is no number: %v, want an error that is no plan", err)
		}
	})
}

// Children have names that the server makes up. Writes keeps a run from making
// another one because the cache has not seen the first.
func ExampleWrites() {
	var (
		client   kubernetes.Interface
		children cache.SharedInformer
		missing  func(name name) *corev1.ConfigMap // by the cache; nil if there is nothing to do
	)
	own := &kube.Writes[name]{Informer: children}
	_ = func(ctx context.Context, name name) error {
		if err := own.Seen(name); err != nil {
			return err // again when the cache has our last write
		}
		child := missing(name)
		if child == nil {
			return nil
		}
		child, err := client.CoreV1().ConfigMaps(name.Namespace).Create(ctx, child, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		own.Add(name, child)
		return nil
	}
}
