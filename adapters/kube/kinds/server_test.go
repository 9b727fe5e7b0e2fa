// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package kinds_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kinds"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestForbiddenKind serves a kind that the client may not watch.
func TestForbiddenKind(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	k := &kinds.Kinds{Informer: kinds.Dynamic(kubetest.Dynamic(t, s.User("nobody")), ns, 0), SyncTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)}
	kubetest.Run(t, k)
	serve(t, k, secrets, reconcile.NewQueue[item](), of("secrets"))
	unsynced(t, k, secrets, "this client may not list and watch it")
}

// TestMissingKind serves a kind before its CRD is there: a clear error in time,
// service when it comes, also when it went and came again.
func TestMissingKind(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		lates := schema.GroupVersionResource{Group: "kinds.example.com", Version: "v1", Resource: "lates"}
		k := &kinds.Kinds{Informer: kinds.Dynamic(kubetest.Dynamic(t, s.Admin()), ns, 0), SyncTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)}
		kubetest.Run(t, k)
		q := reconcile.NewQueue[item]()
		serve(t, k, lates, q, of("lates"))
		other := serve(t, k, configMaps, q, of("configmaps"))
		defer other()

		unsynced(t, k, lates, "source lates: not synced within 1s: the informer has no list: the API server has no such kind; is its CRD installed?")
		s.Kubectl(t, "create", "configmap", "a", "-n", ns)
		want(t, q, item{"configmaps", "a"})

		s.Define(t, "Namespaced", lates.Group, "Late")
		s.KubectlInput(t, object("Late", "one"), "apply", "-n", ns, "-f", "-")
		want(t, q, item{"lates", "one"})

		// With its CRD, all objects of a kind go.
		s.Kubectl(t, "delete", "crd", "lates.kinds.example.com", "--timeout=5m")
		want(t, q, item{"lates", "one"})
	})
}

// TestVersionThatIsSwitchedOff has the version of a kind be served no longer. The list does
// not go on without a word, with objects that are deleted since.
func TestVersionThatIsSwitchedOff(t *testing.T) {
	t.Parallel()
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	gvr := s.Define(t, "Namespaced", "kinds.example.com", "Old")
	k := &kinds.Kinds{Informer: kinds.Dynamic(kubetest.Dynamic(t, s.Admin()), ns, 0), Logger: slog.New(slog.DiscardHandler)}
	kubetest.Run(t, k)
	q := reconcile.NewQueue[item]()
	source := of("olds")
	defer serve(t, k, gvr, q, source)()
	s.KubectlInput(t, object("Old", "one"), "apply", "-n", ns, "-f", "-")
	want(t, q, item{"olds", "one"})
	s.Kubectl(t, "patch", "crd", "olds.kinds.example.com", "--type=json", "-p", `[
		{"op": "add", "path": "/spec/versions/-", "value": {"name": "v2", "served": true, "storage": false,
			"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		{"op": "replace", "path": "/spec/versions/0/served", "value": false}]`)
	gvr.Version = "v2"
	kubetest.Eventually(t, func() error {
		return kubetest.Dynamic(t, s.Admin()).Resource(gvr).Namespace(ns).Delete(t.Context(), "one", metav1.DeleteOptions{})
	})
	kubetest.Eventually(t, func() error {
		items, err := source.List(t.Context())
		if _, probe := source.Ready(); err == nil || probe == nil {
			return fmt.Errorf("the list is %v, %v, and the probe says %v, want errors", items, err, probe)
		}
		return nil
	})
}
