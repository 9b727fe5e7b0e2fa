// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// An Object is a pointer to the Go type of a kind: *corev1.ConfigMap, one of yours
// (see package custom), *unstructured.Unstructured.
type Object interface {
	metav1.Object
	runtime.Object
}

// A Client reads and patches the objects of one kind, in one namespace if the
// kind has namespaces. A typed client, such as
// kubernetes.Interface.CoreV1().ConfigMaps(namespace), is one; [Untyped] makes
// one of a dynamic client and of one for metadata.
type Client[O metav1.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (O, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (O, error)
}

// Untyped makes a Client of a dynamic.ResourceInterface, with O
// *unstructured.Unstructured, or of a metadata.ResourceInterface, with O
// *metav1.PartialObjectMetadata.
func Untyped[O metav1.Object](c interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions, subresources ...string) (O, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (O, error)
},
) Client[O] {
	return untyped[O]{c.Get, c.Patch}
}

type untyped[O metav1.Object] struct {
	get   func(context.Context, string, metav1.GetOptions, ...string) (O, error)
	patch func(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (O, error)
}

// Get reads an object.
func (u untyped[O]) Get(ctx context.Context, name string, opts metav1.GetOptions) (O, error) {
	return u.get(ctx, name, opts)
}

// Patch changes an object.
func (u untyped[O]) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (O, error) {
	return u.patch(ctx, name, pt, data, opts, subresources...)
}
