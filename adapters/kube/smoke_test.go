// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package kube_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/finalizer"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/supervise"
)

// TestSmoke shows that the adapter works with a real kube-apiserver: an informer reports
// an object, and a Guard adds its finalizer, and removes it when the object is deleted.
// The tests of the details run in memory, or have the tag nightly. The only bound on the
// time is the one of go test.
func TestSmoke(t *testing.T) {
	server, err := kubetest.Start(t.Context())
	if err != nil {
		t.Fatalf("kube-apiserver was not started, so nothing was tested: %v", err)
	}
	t.Cleanup(server.Close)
	ns := server.Namespace(t)
	client := typed(t, server.Admin()).CoreV1().ConfigMaps(ns)
	source := names(typedInformer(t, server.Admin(), ns, 0))
	calls := make(chan string)
	guard := &finalizer.Guard[name, *corev1.ConfigMap]{
		Name: "example.com/smoke",
		Get: func(ctx context.Context, n name) (*corev1.ConfigMap, error) {
			return client.Get(ctx, n.Name, metav1.GetOptions{})
		},
		Client: func(name) kube.Client[*corev1.ConfigMap] { return client },
		Ensure: func(_ context.Context, o *corev1.ConfigMap) error { calls <- "ensure " + o.Name; return nil },
		Clean:  func(_ context.Context, o *corev1.ConfigMap) error { calls <- "clean " + o.Name; return nil },
	}
	queue := reconcile.NewQueue[name]()
	var group supervise.Group
	group.Add("informer", kube.Run(source.Informer))
	group.Add("source", reconcile.Feed(queue, source.Feed))
	group.Add("guard", supervise.After(source.Synced, &reconcile.Reconciler[name]{Queue: queue, Reconcile: guard.Reconcile}))

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- group.Run(ctx) }()
	create(t, typed(t, server.Admin()), configMap(ns, "a"))
	deleted := false
	for want := "ensure a"; want != ""; {
		select {
		case got := <-calls:
			switch {
			case got == want && got == "clean a":
				want = ""
			case got == want:
				if err := client.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
				want, deleted = "clean a", true
			case !deleted || got != "ensure a": // the event of the finalizer ensures again
				t.Errorf("the Guard called %q, want %q", got, want)
			}
		case err := <-ended:
			t.Fatalf("the group ended with %v before %q was called", err, want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
