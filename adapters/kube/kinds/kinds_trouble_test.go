// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kinds_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kinds"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// TestSlowKind serves a kind whose list does not come. Meanwhile another one is
// served, synced and stopped, and the slow one can be stopped too.
func TestSlowKind(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		var link kubetest.Link
		release := make(chan struct{})
		held := kubetest.Held(release)
		asked := make(chan struct{}, 100)
		link.Fail(func(req *http.Request) (*http.Response, error) {
			if !strings.HasSuffix(req.URL.Path, "/secrets") {
				return nil, nil
			}
			asked <- struct{}{}
			return held(req)
		})
		k := &kinds.Kinds{Informer: kinds.Dynamic(kubetest.Dynamic(t, link.Config(s.Admin())), ns, 0)}
		kubetest.Run(t, k)
		q := reconcile.NewQueue[item]()
		stopSlow := serve(t, k, secrets, q, of("secrets"))
		slow := of("slow")
		serve(t, k, secrets, q, slow)
		<-asked

		s.Kubectl(t, "create", "configmap", "a", "-n", ns)
		stop := serve(t, k, configMaps, q, of("configmaps"))
		synced(t, k, configMaps)
		want(t, q, item{"configmaps", "a"})
		stop()
		stopSlow()

		s.Kubectl(t, "create", "secret", "generic", "b", "-n", ns)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("no patience"))
		if err := k.Synced(ctx, secrets); err == nil || !strings.Contains(err.Error(), "no patience") {
			t.Errorf("Synced of a slow kind: %v, want the cause of ctx", err)
		}
		close(release)
		want(t, q, item{"slow", "b"})
	})
}

// TestPanicOfOneKind has the function of one kind panic; the others go on, and
// it is fed again.
func TestPanicOfOneKind(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		k := &kinds.Kinds{Informer: kinds.Dynamic(kubetest.Dynamic(t, s.Admin()), ns, 0)}
		kubetest.Run(t, k)
		s.Kubectl(t, "create", "configmap", "a", "-n", ns)
		q := reconcile.NewQueue[item]()
		first := true
		serve(t, k, configMaps, q, &kube.Source[item]{Keys: func(obj metav1.Object) iter.Seq[item] {
			if first {
				first = false
				panic("of a user")
			}
			return slices.Values([]item{{"again", obj.GetName()}})
		}})
		serve(t, k, secrets, q, of("secrets"))
		want(t, q, item{"again", "a"})
		s.Kubectl(t, "create", "secret", "generic", "b", "-n", ns)
		want(t, q, item{"secrets", "b"})
	})
}

// TestBadInput gives Serve and Run what they cannot work with.
func TestBadInput(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		inner := kinds.Dynamic(kubetest.Dynamic(t, s.Admin()), "", 0)
		k := &kinds.Kinds{Informer: inner}
		q := reconcile.NewQueue[item]()
		used := of("x")
		used.Informer = inner(configMaps)
		for _, test := range []struct {
			k    *kinds.Kinds
			gvr  schema.GroupVersionResource
			q    reconcile.Enqueuer[item]
			s    *kube.Source[item]
			want string
		}{
			{nil, configMaps, q, of("x"), "needs Kinds with an Informer"},
			{&kinds.Kinds{}, configMaps, q, of("x"), "needs Kinds with an Informer"},
			{k, schema.GroupVersionResource{Resource: "pods"}, q, of("x"), `needs a version and a resource, got "" and "pods"`},
			{k, configMaps, nil, of("x"), "needs a queue, got nil"},
			{k, configMaps, q, nil, "needs a Source with Keys"},
			{k, configMaps, q, &kube.Source[item]{}, "needs a Source with Keys"},
			{k, configMaps, q, used, "has an informer already"},
			{&kinds.Kinds{Informer: func(schema.GroupVersionResource) cache.SharedIndexInformer { return nil }}, configMaps, q, of("x"), "Kinds.Informer returned nil"},
		} {
			if _, err := kinds.Serve(test.k, test.gvr, test.q, test.s); !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Serve: %v, want a terminal error with %q", err, test.want)
			}
		}
		if err := new(kinds.Kinds).Run(t.Context()); err == nil || !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("Run without Informer: %v, want a terminal error", err)
		}
	})
}

// TestSecondRun runs Kinds that run already: it is refused, and the first goes on.
func TestSecondRun(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		k := &kinds.Kinds{Informer: kinds.Dynamic(kubetest.Dynamic(t, s.Admin()), ns, 0)}
		kubetest.Run(t, k)
		q := reconcile.NewQueue[item]()
		s.Kubectl(t, "create", "configmap", "a", "-n", ns)
		serve(t, k, configMaps, q, of("configmaps"))
		want(t, q, item{"configmaps", "a"})
		if err := k.Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), "Run was called before") {
			t.Errorf("Run a second time: %v, want a terminal error that says so", err)
		}
		s.Kubectl(t, "create", "secret", "generic", "b", "-n", ns)
		serve(t, k, secrets, q, of("secrets"))
		want(t, q, item{"secrets", "b"})
	})
}
