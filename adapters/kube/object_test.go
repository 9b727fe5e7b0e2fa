// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubeadapter_test

import (
	"iter"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	kubeadapter "github.com/reconkernel/reconcile/adapters/kube"
)

// TestGet looks up an object by name and by two indexes: one that is there, one
// that is not, and one of another type.
func TestGet(t *testing.T) {
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.ConfigMap{}, 0, cache.Indexers{})
	sizes := func(obj metav1.Object) iter.Seq[int] { return slices.Values([]int{len(obj.GetName()), 7}) }
	bySize, err := kubeadapter.Index[*corev1.ConfigMap](informer, "size", sizes)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := kubeadapter.Index[*corev1.Secret](informer, "secrets", kubeadapter.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubeadapter.Index[*corev1.ConfigMap](informer, "size", sizes); err == nil {
		t.Error("two indexes of one name: no error")
	}
	config := configMap("shop", "abc")
	if err := informer.GetStore().Add(config); err != nil {
		t.Fatal(err)
	}
	if got, err := kubeadapter.Get[*corev1.ConfigMap](informer, name{Namespace: "shop", Name: "abc"}); got != config || err != nil {
		t.Errorf("Get: %v, %v", got, err)
	}
	if _, err := kubeadapter.Get[*corev1.ConfigMap](informer, name{Namespace: "shop", Name: "b"}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of one that is not there: %v", err)
	}
	if _, err := kubeadapter.Get[*corev1.Secret](informer, name{Namespace: "shop", Name: "abc"}); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("Get of another type: %v", err)
	}
	for size, want := range map[int][]*corev1.ConfigMap{3: {config}, 7: {config}, 1: nil} {
		if got, err := bySize(size); !slices.Equal(got, want) || err != nil {
			t.Errorf("of size %d: %v, %v", size, got, err)
		}
	}
	if _, err := secrets(name{Namespace: "shop", Name: "abc"}); err == nil || !strings.Contains(err.Error(), "want a *v1.Secret") {
		t.Errorf("the index of another type: %v", err)
	}
}
