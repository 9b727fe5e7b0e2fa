// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/reconkernel/reconcile/adapters/kube/conditions"
	"github.com/reconkernel/reconcile/adapters/kube/object"
)

// Ready says of each object how its last run went.
func ExampleWriter_Ready() {
	var (
		client  dynamic.Interface
		buckets = schema.GroupVersionResource{Group: "storage.example.com", Version: "v1", Resource: "buckets"}
		put     = func(ctx context.Context, bucket *unstructured.Unstructured) error { return nil }
	)
	writer := conditions.Writer[*unstructured.Unstructured]{
		Client: func(b *unstructured.Unstructured) object.Client[*unstructured.Unstructured] {
			return object.Untyped(client.Resource(buckets).Namespace(b.GetNamespace()))
		},
		Set: conditions.Set,
	}
	ensure := writer.Ready(put)
	_ = ensure // Guard.Ensure, or what a reconcile function calls
}
