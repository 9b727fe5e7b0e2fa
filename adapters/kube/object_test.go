// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"iter"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile/adapters/kube"
)

// TestGet looks up an object by name and by two indexes: one that is there, one
// that is not, and one of another type.
func TestGet(t *testing.T) {
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.ConfigMap{}, 0, cache.Indexers{})
	sizes := func(obj metav1.Object) iter.Seq[int] { return slices.Values([]int{len(obj.GetName()), 7}) }
	bySize, err := kube.Index[*corev1.ConfigMap](informer, "size", sizes)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := kube.Index[*corev1.Secret](informer, "secrets", kube.Name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.Index[*corev1.ConfigMap](informer, "size", sizes); err == nil {
		t.Error("two indexes of one name: no error")
	}
	config := configMap("shop", "abc")
	config.Labels = map[string]string{"app": "web"}
	if err := informer.GetStore().Add(config); err != nil {
		t.Fatal(err)
	}
	// What is got may be changed.
	const spoilt = "spoilt"
	got, err := kube.Get[*corev1.ConfigMap](informer, name{Namespace: "shop", Name: "abc"})
	if err != nil || !equality.Semantic.DeepEqual(got, config) {
		t.Fatalf("Get: %v, %v", got, err)
	}
	got.Labels[spoilt] = "yes"
	if _, err := kube.Get[*corev1.ConfigMap](informer, name{Namespace: "shop", Name: "b"}); !apierrors.IsNotFound(err) {
		t.Errorf("Get of one that is not there: %v", err)
	}
	if _, err := kube.Get[*corev1.Secret](informer, name{Namespace: "shop", Name: "abc"}); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("Get of another type: %v", err)
	}
	for size, want := range map[int][]*corev1.ConfigMap{3: {config}, 7: {config}, 1: nil} {
		got, err := bySize(size)
		if !equality.Semantic.DeepEqual(got, want) && len(want) > 0 || len(got) != len(want) || err != nil {
			t.Errorf("of size %d: %v, %v", size, got, err)
		}
		for _, obj := range got {
			obj.Labels[spoilt] = "yes"
		}
	}
	if _, err := secrets(name{Namespace: "shop", Name: "abc"}); err == nil || !strings.Contains(err.Error(), "want a *v1.Secret") {
		t.Errorf("the index of another type: %v", err)
	}
	if config.Labels[spoilt] != "" {
		t.Error("what was got is the store's own object")
	}
}
