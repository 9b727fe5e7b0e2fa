// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubeadapter

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// These say which updates matter, in [Source].Changed, where they are composed
// with &&, || and !. A Source asks only about updates, so that no composition of
// them swallows a deletion or a resync.

// GenerationChanged reports whether what is wanted changed: the API server
// counts the generation up with each change of the spec, not of the status or
// the labels. An object of a kind that has no generation, as a ConfigMap, counts
// as changed.
func GenerationChanged(old, new metav1.Object) bool {
	return old.GetGeneration() != new.GetGeneration() || new.GetGeneration() == 0
}

// VersionChanged reports whether anything changed at all. An object without a
// resource version, as client-go's fake clientset has them, counts as changed.
func VersionChanged(old, new metav1.Object) bool {
	return old.GetResourceVersion() != new.GetResourceVersion() || new.GetResourceVersion() == ""
}

// LabelsChanged reports whether one of the labels of these names changed; of
// any name, if there is none. One that came or went has changed.
func LabelsChanged(old, new metav1.Object, names ...string) bool {
	return changed(old.GetLabels(), new.GetLabels(), names)
}

// AnnotationsChanged reports whether one of the annotations of these names
// changed; of any name, if there is none. One that came or went has changed.
func AnnotationsChanged(old, new metav1.Object, names ...string) bool {
	return changed(old.GetAnnotations(), new.GetAnnotations(), names)
}

func changed(old, new map[string]string, names []string) bool {
	if len(names) == 0 {
		return !maps.Equal(old, new)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		was, had := old[name]
		is, has := new[name]
		return was != is || had != has
	})
}

// These say which objects matter, for [Source].Only.

// InNamespaces returns a function that reports whether an object is in one of
// the namespaces. The name "" stands for objects that are in none. Without any
// name it panics: it would let nothing through.
func InNamespaces(names ...string) func(metav1.Object) bool {
	if len(names) == 0 {
		panic("kubeadapter: InNamespaces needs a namespace")
	}
	set := make(map[string]struct{}, len(names))
	for _, name := range names {
		set[name] = struct{}{}
	}
	return func(obj metav1.Object) bool {
		_, ok := set[obj.GetNamespace()]
		return ok
	}
}

// Labelled returns a function that reports whether an object's labels match a
// selector, such as "app=web,tier in (a, b),!old". The empty selector matches
// everything.
func Labelled(selector string) (func(metav1.Object) bool, error) {
	s, err := labels.Parse(selector)
	if err != nil {
		return nil, fmt.Errorf("kubeadapter: the label selector %q: %w", selector, err)
	}
	return func(obj metav1.Object) bool { return s.Matches(labels.Set(obj.GetLabels())) }, nil
}
