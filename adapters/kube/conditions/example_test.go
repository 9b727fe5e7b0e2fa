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

// Ready says of each object, which is of a dynamic client, how its last run went.
func ExampleReport() {
	var (
		client  dynamic.Interface
		buckets = schema.GroupVersionResource{Group: "storage.example.com", Version: "v1", Resource: "buckets"}
		put     func(ctx context.Context, bucket *unstructured.Unstructured) error
	)
	ensure := func(ctx context.Context, bucket *unstructured.Unstructured) error {
		resource := object.Untyped(client.Resource(buckets).Namespace(bucket.GetNamespace()))
		return conditions.Report(ctx, resource, bucket, put(ctx, bucket), conditions.Set)
	}
	_ = ensure // Guard.Ensure, or what a reconcile function calls
}
