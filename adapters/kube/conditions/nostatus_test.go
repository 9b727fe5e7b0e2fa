// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/conditions"
	"github.com/reconkernel/reconcile/adapters/kube/custom"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
)

const noStatus = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "bares.nostatus.example.com"},
	"spec": {"group": "nostatus.example.com", "scope": "Namespaced", "names": {"plural": "bares", "singular": "bare", "kind": "Bare"},
	"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}`

// TestStatusOfAKindWithoutStatus has a kind without the subresource status, and a version
// of it that is not served. Neither 404 says that the object is gone.
func TestStatusOfAKindWithoutStatus(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		file := filepath.Join(t.TempDir(), "crd.json")
		if err := os.WriteFile(file, []byte(noStatus), 0o600); err != nil {
			t.Fatal(err)
		}
		s.CRDs(t, file)
		ns := s.Namespace(t)
		client := func(version string) *custom.Client[*Thing] {
			gvr := schema.GroupVersionResource{Group: "nostatus.example.com", Version: version, Resource: "bares"}
			c, err := custom.NewClient[Thing](s.Admin(), gvr, "Bare")
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		things, other := client("v1").In(ns), client("v2").In(ns)
		s.KubectlInput(t, `{"apiVersion": "nostatus.example.com/v1", "kind": "Bare", "metadata": {"name": "a", "namespace": "`+ns+`"}}`, "create", "-f", "-")
		thing, err := things.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change := func(thing *Thing, _ metav1.Condition) { thing.Status.URL = "here" }
		err = conditions.Report(t.Context(), things, thing, nil, change)
		if !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), "no subresource status") {
			t.Errorf("without a status: %v, want a terminal error that says so", err)
		}
		err = conditions.Report(t.Context(), other, thing, nil, change)
		if err == nil || errors.Is(err, reconcile.ErrTerminal) || apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "does not serve this kind") {
			t.Errorf("of a version that is not served: %v, want an error that says so and is retried", err)
		}
		if err := things.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := conditions.Report(t.Context(), things, thing, nil, change); err != nil {
			t.Errorf("of one that is gone: %v, want nil", err)
		}
	})
}
