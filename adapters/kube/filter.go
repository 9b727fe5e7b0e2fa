// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These say which updates matter, in Changed of a [Controller] or a [Source], where
// they are composed with &&, || and !. It is asked only about updates, so that no
// composition of them swallows a deletion or a resync.

// GenerationChanged reports whether the desired state changed: the API server
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

// AnnotationsChanged reports whether one of the annotations of these names
// changed; of any name, if there is none. One that came or went has changed.
func AnnotationsChanged(old, new metav1.Object, names ...string) bool {
	if len(names) == 0 {
		return !maps.Equal(old.GetAnnotations(), new.GetAnnotations())
	}
	return slices.ContainsFunc(names, func(name string) bool {
		was, had := old.GetAnnotations()[name]
		is, has := new.GetAnnotations()[name]
		return was != is || had != has
	})
}
