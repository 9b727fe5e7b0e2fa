// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/custom"
	"github.com/reconkernel/reconcile/adapters/kube/finalizer"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
)

// TestKindThatIsNotServed has the API server answer 404 for a kind that it does not
// serve: that is not the end of the object, so nothing outside is cleaned.
func TestKindThatIsNotServed(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		gvr := schema.GroupVersionResource{Group: "gone.example.com", Version: "v1", Resource: "things"}
		things, err := custom.NewClient[metav1.PartialObjectMetadata](s.Admin(), gvr, "Thing")
		if err != nil {
			t.Fatal(err)
		}
		var calls []string
		called := func(what string) error { calls = append(calls, what); return nil }
		g := &finalizer.Guard[string, *metav1.PartialObjectMetadata]{
			Name: ours,
			Get: func(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
				return things.In(ns).Get(ctx, name, metav1.GetOptions{})
			},
			Client: func(string) kube.Client[*metav1.PartialObjectMetadata] { return things.In(ns) },
			Ensure: func(context.Context, *metav1.PartialObjectMetadata) error { return called("ensure") },
			Clean:  func(context.Context, *metav1.PartialObjectMetadata) error { return called("clean") },
			Gone:   func(context.Context, string) error { return called("gone") },
		}
		err = g.Reconcile(t.Context(), "a")
		if err == nil || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "does not serve this kind") || !slices.Equal(calls, nil) {
			t.Errorf("Reconcile: %v, calls %q; want an error that says so, and no call", err, calls)
		}
	})
}
