// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package finalizer_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// TestForbidden has a user who may read and not patch: nothing is made.
func TestForbidden(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	admin := clientOf(t, s.Admin(), ns)
	create(t, admin, "a", "1")
	s.Kubectl(t, "create", "role", "reader", "-n", ns, "--verb=get", "--resource=configmaps")
	s.Kubectl(t, "create", "rolebinding", "reader", "-n", ns, "--role=reader", "--user=reader")
	client := clientOf(t, s.User("reader"), ns)
	kubetest.Eventually(t, func() error {
		_, err := client.Get(t.Context(), "a", metav1.GetOptions{})
		return err
	})
	w := new(world)
	err := newGuard(client, w).Reconcile(t.Context(), "a")
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "add finalizer") {
		t.Errorf("Reconcile: %v, want forbidden, and what was being done", err)
	}
	wantCalls(t, w, "")
}

// TestKilledServers runs a Reconciler on objects that come, change and go while
// the API server and etcd are killed and started again.
func TestKilledServers(t *testing.T) {
	s := kubetest.Shared(t)

	client := clientOf(t, s.Admin(), s.Namespace(t))
	var mu sync.Mutex
	w := new(world)
	locked := func(f func(context.Context, *corev1.ConfigMap) error) func(context.Context, *corev1.ConfigMap) error {
		return func(ctx context.Context, cm *corev1.ConfigMap) error {
			mu.Lock()
			defer mu.Unlock()
			return f(ctx, cm)
		}
	}
	g := newGuard(client, w)
	g.Ensure, g.Clean, g.Gone = locked(g.Ensure), locked(g.Clean), nil

	const n = 40
	q := reconcile.NewQueue[string]()
	progress := make(chan string, 10*n)
	ctx, stop := context.WithCancel(t.Context())
	var failed atomic.Int64
	workers := &reconcile.Reconciler[string]{
		Queue: q, Reconcile: g.Reconcile, Workers: 4,
		Retry: reconcile.Backoff(50*time.Millisecond, 500*time.Millisecond),
		OnResult: func(r reconcile.Result[string]) {
			if r.Outcome == reconcile.OutcomeSucceeded {
				progress <- r.Item
			} else {
				failed.Add(1)
			}
		},
	}
	var running sync.WaitGroup
	running.Go(func() { _ = workers.Run(ctx) })
	defer running.Wait()
	defer stop()
	all := func(after int, then func()) {
		left := make(map[string]bool)
		for i := range n {
			name := fmt.Sprintf("a%d", i)
			left[name] = true
			q.Enqueue(name)
		}
		for len(left) > 0 {
			select {
			case name := <-progress:
				delete(left, name)
				if after--; after == 0 {
					then()
				}
			case <-time.After(5 * time.Minute):
				t.Fatalf("%d objects are left", len(left))
			}
		}
	}
	restart := func(p *kubetest.Process) func() {
		return func() {
			p.Kill()
			if err := p.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range n {
		create(t, client, fmt.Sprintf("a%d", i), "x", other)
	}
	all(5, restart(s.API))
	for i := range n {
		name := fmt.Sprintf("a%d", i)
		wantFinalizers(t, client, name, other, ours)
		if w.files[name] != "x" {
			t.Errorf("file of %s: %q, want x", name, w.files[name])
		}
		remove(t, client, name)
	}
	all(5, restart(s.Etcd))
	// Some connections of the API server to etcd may still wait to be tried again: the
	// next test is to have one without.
	defer restart(s.API)()
	for i := range n {
		wantFinalizers(t, client, fmt.Sprintf("a%d", i), other)
	}
	if len(w.files) > 0 {
		t.Errorf("%d files are left, want none", len(w.files))
	}
	t.Logf("%d runs failed while the servers were away", failed.Load())
}
