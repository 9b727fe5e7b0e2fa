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
	"k8s.io/apimachinery/pkg/types"

	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
)

// TestConflict has another controller change the object between the reading of
// it and the writing, as a cache that lags does too.
func TestConflict(t *testing.T) {
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
			apitest.Run(t, func(t *testing.T, s *apitest.Server) {
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
		})
	}
}

// TestConflictAtRemoval has others change the list while ours is removed: Clean
// is not called again, and theirs stay.
func TestConflictAtRemoval(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
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
	})
}

// TestPersistentConflict gives up for now, with an error that says so.
func TestPersistentConflict(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
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
	})
}

// TestPatchFails breaks each request once: nothing is made before our finalizer
// is there, and a clean-up that succeeded is not done again.
func TestPatchFails(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
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
	})
}

// TestLaggingCache has a cache show the object as it was before our finalizer
// was removed: it is not cleaned again, and not made again.
func TestLaggingCache(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
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
	})
}

// TestTakeOverWithALaggingCache has another process clean an object whose deletion the
// cache of this one does not show yet: what Ensure then made is cleaned when the cache
// has caught up, shows another object with that name, or shows that Clean must wait.
func TestTakeOverWithALaggingCache(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		client := clientOf(t, s.Admin(), s.Namespace(t))
		w := new(world)
		before := newGuard(client, w)
		take := func(name string) (alive *corev1.ConfigMap) {
			create(t, client, name, "1")
			run(t, before, name)
			alive, err := client.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			remove(t, client, name)
			run(t, before, name)
			wantCalls(t, w, "ensure clean")
			return alive
		}
		shown := func(g *guard, cm *corev1.ConfigMap) {
			g.Get = func(ctx context.Context, name string) (*corev1.ConfigMap, error) {
				if cm != nil {
					return cm, nil
				}
				return client.Get(ctx, name, metav1.GetOptions{})
			}
		}

		after := newGuard(client, w)
		shown(after, take("gone"))
		run(t, after, "gone")
		wantCalls(t, w, "ensure")
		shown(after, nil)
		w.fail = map[string]error{"clean": errors.New("not now")}
		if err := after.Reconcile(t.Context(), "gone"); err == nil {
			t.Error("Reconcile returned nil, want why Clean failed")
		}
		w.fail = nil
		wantCalls(t, w, "clean")
		run(t, after, "gone")
		run(t, after, "gone")
		wantCalls(t, w, "clean gone gone")
		if len(w.files) != 0 {
			t.Errorf("the files %v are left", w.files)
		}

		shown(after, take("anew"))
		run(t, after, "anew")
		shown(after, nil)
		create(t, client, "anew", "2")
		run(t, after, "anew")
		wantCalls(t, w, "ensure clean ensure")
		if w.files["anew"] != "2" {
			t.Errorf("the files are %v, want anew with 2", w.files)
		}

		// Who takes our finalizer away wants no Clean.
		kept := create(t, client, "stripped", "1", other)
		run(t, after, "stripped")
		remove(t, client, "stripped")
		if _, err := client.Patch(t.Context(), "stripped", types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+other+`"]}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		run(t, after, "stripped")
		if _, err := client.Patch(t.Context(), kept.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		run(t, after, "stripped")
		wantCalls(t, w, "ensure gone")
	})
}

// TestTakeOverOfAnotherObject has another process clean an object, and make what a new
// one of its name asks for. Who had the first one, and is back, takes nothing of that
// away, whatever its cache shows.
func TestTakeOverOfAnotherObject(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		client := clientOf(t, s.Admin(), s.Namespace(t))
		w := new(world)
		for name, shown := range map[string]func(created *corev1.ConfigMap) (*corev1.ConfigMap, error){
			"as-it-is": func(created *corev1.ConfigMap) (*corev1.ConfigMap, error) {
				return client.Get(t.Context(), created.Name, metav1.GetOptions{})
			},
			"without-ours": func(created *corev1.ConfigMap) (*corev1.ConfigMap, error) { return created, nil },
			"not-there": func(created *corev1.ConfigMap) (*corev1.ConfigMap, error) {
				return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), created.Name)
			},
		} {
			here, there := newGuard(client, w), newGuard(client, w)
			create(t, client, name, "1")
			run(t, here, name)
			remove(t, client, name)
			run(t, there, name)
			created := create(t, client, name, "2")
			run(t, there, name)
			wantCalls(t, w, "ensure clean ensure")
			here.Get = func(context.Context, string) (*corev1.ConfigMap, error) { return shown(created) }
			run(t, here, name)
			wantCalls(t, w, "ensure")
		}
	})
}
