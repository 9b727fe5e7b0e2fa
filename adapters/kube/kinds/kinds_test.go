// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kinds_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kinds"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// patience bounds what never ends if something is broken. An informer that
// fails tries again after up to a minute.
const patience = 5 * time.Minute

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// An item of a queue that several kinds share.
type item struct{ kind, name string }

func of(kind string) *kube.Source[item] {
	return &kube.Source[item]{Name: kind, Keys: func(obj metav1.Object) iter.Seq[item] {
		return slices.Values([]item{{kind, obj.GetName()}})
	}}
}

// want takes items until the one that is wanted, and returns those before it.
func want(t *testing.T, q *reconcile.Queue[item], wanted item) (before []item) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, fmt.Errorf("no %v", wanted))
	defer cancel()
	for {
		got, err := q.Dequeue(ctx)
		if err != nil {
			t.Fatalf("%v; before it came %v", err, before)
		}
		q.Done(got)
		if got == wanted {
			return before
		}
		before = append(before, got)
	}
}

func serve(t *testing.T, k *kinds.Kinds, gvr schema.GroupVersionResource, q reconcile.Enqueuer[item], s *kube.Source[item]) (stop func()) {
	t.Helper()
	stop, err := kinds.Serve(k, gvr, q, s)
	if err != nil {
		t.Fatal(err)
	}
	return stop
}

func synced(t *testing.T, k *kinds.Kinds, gvr schema.GroupVersionResource) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := k.Synced(ctx, gvr); err != nil {
		t.Fatal(err)
	}
}

// unsynced waits until Synced says why there is nothing of a kind. What it says
// before the first answer of the server is of no interest.
func unsynced(t *testing.T, k *kinds.Kinds, gvr schema.GroupVersionResource, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	kubetest.Eventually(t, func() error {
		if err := k.Synced(ctx, gvr); err == nil || !strings.Contains(err.Error(), why) {
			return fmt.Errorf("Synced: %v, want %q", err, why)
		}
		return nil
	})
}

// object is an object of a kind of the tests.
func object(kind, name string) string {
	return fmt.Sprintf("{apiVersion: kinds.example.com/v1, kind: %s, metadata: {name: %s}}", kind, name)
}

// TestServe serves a kind while running, a second one beside it, and stops the
// first: the second is not disturbed.
func TestServe(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		var link kubetest.Link
		k := &kinds.Kinds{Informer: kinds.Dynamic(kubetest.Dynamic(t, link.Config(s.Admin())), ns, 0)}
		kubetest.Run(t, k)
		q := reconcile.NewQueue[item]()

		s.Kubectl(t, "create", "configmap", "a", "-n", ns)
		stop := serve(t, k, configMaps, q, of("configmaps"))
		want(t, q, item{"configmaps", "a"})

		serve(t, k, secrets, q, of("secrets"))
		synced(t, k, secrets)
		s.Kubectl(t, "create", "secret", "generic", "b", "-n", ns)
		want(t, q, item{"secrets", "b"})
		watches := link.Requests()["WATCH secrets"]

		stop()
		stop()
		if got := k.Served(); len(got) != 1 || got[secrets] != 1 {
			t.Errorf("served: %v, want secrets alone", got)
		}
		if err := k.Synced(t.Context(), configMaps); err == nil || err.Error() != "kinds: configmaps.v1 is not served" {
			t.Errorf("Synced of what was stopped: %v", err)
		}
		s.Kubectl(t, "create", "configmap", "late", "-n", ns)
		s.Kubectl(t, "create", "secret", "generic", "c", "-n", ns)
		if before := want(t, q, item{"secrets", "c"}); len(before) > 0 {
			t.Errorf("got %v of a kind that was stopped", before)
		}
		if got := link.Requests()["WATCH secrets"]; got != watches {
			t.Errorf("the secrets were watched again: %d watches, want %d", got, watches)
		}
	})
}

// TestSharedWatch serves two queues with one watch, which ends with the second,
// and begins anew for a third.
func TestSharedWatch(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		var link kubetest.Link
		k := &kinds.Kinds{Informer: kinds.Dynamic(kubetest.Dynamic(t, link.Config(s.Admin())), ns, 0)}
		kubetest.Run(t, k)
		s.Kubectl(t, "create", "configmap", "a", "-n", ns)

		q1, q2, q3 := reconcile.NewQueue[item](), reconcile.NewQueue[item](), reconcile.NewQueue[item]()
		stop1 := serve(t, k, configMaps, q1, of("x"))
		want(t, q1, item{"x", "a"})
		s.Kubectl(t, "create", "configmap", "seen", "-n", ns)
		want(t, q1, item{"x", "seen"}) // the watch has begun, also if there was a list before it
		requests := link.Requests()
		second := of("y")
		stop2 := serve(t, k, configMaps, q2, second)
		if got := k.Served()[configMaps]; got != 2 {
			t.Errorf("%d are served, want 2", got)
		}
		want(t, q2, item{"y", "a"}) // all there are
		stop1()
		s.Kubectl(t, "create", "configmap", "b", "-n", ns)
		want(t, q2, item{"y", "b"})
		if got := link.Requests(); got["WATCH configmaps"] != requests["WATCH configmaps"] || got["LIST configmaps"] != requests["LIST configmaps"] {
			t.Errorf("requests: %v, want %v: one watch for both", got, requests)
		}
		if q1.Len() != 0 {
			t.Error("a queue that is no longer served got an item")
		}
		if second.Informer.IsStopped() {
			t.Error("the watch ended with the first")
		}
		stop2()
		if got := k.Served(); len(got) != 0 || !second.Informer.IsStopped() {
			t.Errorf("served: %v, want none, and the watch ended", got)
		}
		serve(t, k, configMaps, q3, of("z"))
		want(t, q3, item{"z", "b"})
		s.Kubectl(t, "create", "configmap", "c", "-n", ns)
		want(t, q3, item{"z", "c"}) // by the watch
		if got := link.Requests()["WATCH configmaps"]; got <= requests["WATCH configmaps"] {
			t.Error("no watch for the third")
		}
	})
}

// TestReplace replaces who is served: the new one has all objects again, and the
// watch goes on.
func TestReplace(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		var link kubetest.Link
		k := &kinds.Kinds{Informer: kinds.Dynamic(kubetest.Dynamic(t, link.Config(s.Admin())), ns, 0)}
		kubetest.Run(t, k)
		for _, n := range []string{"a", "b", "c"} {
			s.Kubectl(t, "create", "configmap", n, "-n", ns)
		}
		q := reconcile.NewQueue[item]()
		stop := serve(t, k, configMaps, q, of("old"))
		synced(t, k, configMaps)
		for range 3 {
			got, err := q.Dequeue(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			q.Done(got)
		}
		s.Kubectl(t, "create", "configmap", "d", "-n", ns)
		want(t, q, item{"old", "d"}) // the watch has begun, also if there was a list before it
		requests := link.Requests()
		renewed := of("new")
		serve(t, k, configMaps, q, renewed)
		stop()
		synced(t, k, configMaps)
		var got []string
		for i := range q.All() {
			got = append(got, i.kind+" "+i.name)
		}
		slices.Sort(got)
		if want := []string{"new a", "new b", "new c", "new d"}; !slices.Equal(got, want) {
			t.Errorf("ready: %q, want %q", got, want)
		}
		if now := link.Requests(); now["WATCH configmaps"] != requests["WATCH configmaps"] {
			t.Errorf("%d watches, want %d", now["WATCH configmaps"], requests["WATCH configmaps"])
		}
		items, err := renewed.List(t.Context())
		if err != nil || len(items) != 4 {
			t.Errorf("List: %v, %v, want 4 items", items, err)
		}
	})
}

// TestManyAtOnce serves and stops kinds from many goroutines.
func TestManyAtOnce(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		k := &kinds.Kinds{Informer: kinds.Dynamic(kubetest.Dynamic(t, s.Admin()), ns, 0)}
		stop := kubetest.Run(t, k)
		s.Kubectl(t, "create", "configmap", "a", "-n", ns)
		s.Kubectl(t, "create", "secret", "generic", "a", "-n", ns)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				gvr := []schema.GroupVersionResource{configMaps, secrets}[i%2]
				for range 10 {
					q := reconcile.NewQueue[item]()
					stop, err := kinds.Serve(k, gvr, q, of("x"))
					if err != nil {
						t.Error(err)
						return
					}
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					if _, err := q.Dequeue(ctx); err != nil {
						t.Error(err)
					}
					cancel()
					stop()
				}
			})
		}
		wg.Wait()
		if got := k.Served(); len(got) != 0 {
			t.Errorf("served: %v, want none", got)
		}
		stop()
		if _, err := kinds.Serve(k, secrets, reconcile.NewQueue[item](), of("x")); err == nil || !strings.Contains(err.Error(), "Kinds.Run has ended") {
			t.Errorf("Serve after Run: %v", err)
		}
	})
}
