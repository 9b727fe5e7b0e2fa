// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/reconkernel/reconcile/adapters/kube/internal/kubetest"
)

// TestConflict has another controller change the object between the reading of
// it and the writing, as a cache that lags does too.
func TestConflict(t *testing.T) {
	s := kubetest.Shared(t)
	for name, test := range map[string]struct {
		meanwhile func(t *testing.T, client configMaps)
		calls     string
		want      []string
	}{
		"another finalizer": {
			func(t *testing.T, client configMaps) { setFinalizers(t, client, "a", other) },
			"ensure",
			[]string{other, ours},
		},
		"other content": {
			func(t *testing.T, client configMaps) { write(t, client, "a", "2") },
			"ensure",
			[]string{ours},
		},
		"deleted, and held by others": {
			func(t *testing.T, client configMaps) {
				setFinalizers(t, client, "a", other)
				remove(t, client, "a")
			},
			"",
			[]string{other},
		},
		"deleted": {
			func(t *testing.T, client configMaps) { remove(t, client, "a") },
			"gone", nil,
		},
		"another one of the same name": {
			func(t *testing.T, client configMaps) {
				remove(t, client, "a")
				create(t, client, "a", "2")
			},
			"ensure",
			[]string{ours},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := clientOf(t, s.Admin(), s.Namespace(t))
			w := new(world)
			g := newGuard(client, w)
			stale := create(t, client, "a", "1")
			test.meanwhile(t, client)
			g.Get = func(context.Context, string) (*corev1.ConfigMap, error) { return stale, nil }
			run(t, g, "a")
			wantCalls(t, w, test.calls)
			if test.want == nil {
				if _, err := client.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Errorf("get: %v, want that it is gone", err)
				}
				return
			}
			wantFinalizers(t, client, "a", test.want...)
			if cm, _ := client.Get(t.Context(), "a", metav1.GetOptions{}); test.calls == "ensure" && w.files["a"] != cm.Data["text"] {
				t.Errorf("Ensure wrote %q, want %q: what the server has", w.files["a"], cm.Data["text"])
			}
		})
	}
}

// TestConflictAtRemoval has others change the list while ours is removed: Clean
// is not called again, and theirs stay.
func TestConflictAtRemoval(t *testing.T) {
	s := kubetest.Shared(t)
	client := clientOf(t, s.Admin(), s.Namespace(t))
	w := new(world)
	h := &hooks{configMaps: client}
	g := newGuard(h, w)
	create(t, client, "a", "1", other, "example.com/third")
	run(t, g, "a")
	remove(t, client, "a")
	h.before = func() error {
		h.before = nil
		setFinalizers(t, client, "a", "example.com/third", ours)
		return nil
	}
	run(t, g, "a")
	wantCalls(t, w, "ensure clean")
	wantFinalizers(t, client, "a", "example.com/third")
}

// TestConflictForEver gives up for now, with an error that says so.
func TestConflictForEver(t *testing.T) {
	s := kubetest.Shared(t)
	client := clientOf(t, s.Admin(), s.Namespace(t))
	w := new(world)
	tries := 0
	h := &hooks{configMaps: client}
	h.before = func() error {
		tries++
		write(t, client, "a", strings.Repeat("x", tries))
		return nil
	}
	g := newGuard(h, w)
	create(t, client, "a", "1")
	err := g.Reconcile(t.Context(), "a")
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "add finalizer "+ours+" to ") {
		t.Errorf("Reconcile: %v, want a conflict, and what was being done", err)
	}
	if tries != 5 {
		t.Errorf("%d tries, want 5", tries)
	}
	wantCalls(t, w, "")
}

// TestPatchFails breaks each request once: nothing is made before our finalizer
// is there, and a clean-up that succeeded is not done again.
func TestPatchFails(t *testing.T) {
	s := kubetest.Shared(t)
	client := clientOf(t, s.Admin(), s.Namespace(t))
	w := new(world)
	h := &hooks{configMaps: client}
	g := newGuard(h, w)
	once := func() error {
		h.before = nil
		return errTest
	}
	fails := func(want string) {
		t.Helper()
		if err := g.Reconcile(t.Context(), "a"); !errors.Is(err, errTest) {
			t.Errorf("Reconcile: %v, want %v", err, errTest)
		}
		wantCalls(t, w, want)
	}
	create(t, client, "a", "1")
	h.before = once
	fails("")
	w.fail = map[string]error{"ensure": errTest}
	fails("ensure")
	w.fail = nil
	run(t, g, "a")
	wantCalls(t, w, "ensure")
	wantFinalizers(t, client, "a", ours)
	remove(t, client, "a")
	h.before = once
	fails("clean")
	wantFinalizers(t, client, "a", ours)
	run(t, g, "a")
	wantCalls(t, w, "")
	run(t, g, "a")
	wantCalls(t, w, "gone")
}

// TestLaggingCache has a cache show the object as it was before our finalizer
// was removed: it is not cleaned again, and not made again.
func TestLaggingCache(t *testing.T) {
	s := kubetest.Shared(t)
	client := clientOf(t, s.Admin(), s.Namespace(t))
	w := new(world)
	g := newGuard(client, w)
	create(t, client, "a", "1")
	run(t, g, "a")
	alive, err := client.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	remove(t, client, "a")
	dying, err := client.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	run(t, g, "a")
	wantCalls(t, w, "ensure clean")
	for _, stale := range []*corev1.ConfigMap{alive, dying, alive, dying} {
		g.Get = func(context.Context, string) (*corev1.ConfigMap, error) { return stale, nil }
		run(t, g, "a")
	}
	wantCalls(t, w, "gone gone") // as the server says of the dying ones
}
