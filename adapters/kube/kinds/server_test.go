// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package kinds_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kinds"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
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
