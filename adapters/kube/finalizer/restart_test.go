// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/metadata"

	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/finalizer"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// TestRestartAnywhere ends the process at each point where it can end: before a
// request, after a request whose answer it does not see, before and after each
// call. A new one goes on. In the end the outside is as wanted, and Clean was never
// left out.
func TestRestartAnywhere(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		client := clientOf(t, s.Admin(), s.Namespace(t))
		died := errors.New("process ended")
		points := 0
		for end := 0; ; end++ {
			name := fmt.Sprintf("a%d", end)
			w := new(world)
			point := 0
			step := func() error {
				if point++; point-1 == end {
					return died
				}
				return nil
			}
			mortal := func(f func(context.Context, *corev1.ConfigMap) error) func(context.Context, *corev1.ConfigMap) error {
				return func(ctx context.Context, cm *corev1.ConfigMap) error {
					if err := step(); err != nil {
						return err
					}
					if !slices.Contains(cm.Finalizers, ours) {
						t.Errorf("end at %d: called for an object without our finalizer", end)
					}
					return errors.Join(f(ctx, cm), step())
				}
			}
			live := func() {
				for restarts := 0; ; restarts++ {
					g := newGuard(&hooks{client, step, step}, w)
					g.Ensure, g.Clean = mortal(g.Ensure), mortal(g.Clean)
					err := g.Reconcile(t.Context(), name)
					if err == nil {
						return
					}
					if !errors.Is(err, died) || restarts > 0 {
						t.Fatalf("end at %d: %v", end, err)
					}
				}
			}
			create(t, client, name, "x", other)
			live()
			live() // the event of our own patch
			if w.files[name] != "x" {
				t.Errorf("end at %d: the file has %q, want x; calls %q", end, w.files[name], w.calls)
			}
			wantFinalizers(t, client, name, other, ours)
			remove(t, client, name)
			live()
			if _, ok := w.files[name]; ok {
				t.Errorf("end at %d: the file is still there; calls %q", end, w.calls)
			}
			wantFinalizers(t, client, name, other)
			if !slices.Contains(w.calls, "clean") {
				t.Errorf("end at %d: Clean was left out; calls %q", end, w.calls)
			}
			points = point
			if point <= end {
				break
			}
		}
		// Two patches and three calls, each with a point before and after.
		if points != 10 {
			t.Errorf("the process could end at %d points, want 10", points)
		}
	})
}

// TestThrottled has the API server send requests away for a while.
func TestThrottled(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
		ns := s.Namespace(t)
		var link kubetest.Link
		client := clientOf(t, link.Config(s.Admin()), ns)
		create(t, client, "a", "1")
		w := new(world)
		g := newGuard(client, w)
		var refused atomic.Int64
		link.Fail(func(req *http.Request) (*http.Response, error) {
			if req.Method == http.MethodPatch && refused.Add(1) <= 3 {
				return kubetest.TooManyRequests(0)(req)
			}
			return nil, nil
		})
		for range 10 { // the client tries again by itself, or the retry policy does
			if err := g.Reconcile(t.Context(), "a"); err == nil {
				break
			} else if !apierrors.IsTooManyRequests(err) {
				t.Fatal(err)
			}
		}
		wantCalls(t, w, "ensure")
		if refused.Load() != 4 {
			t.Errorf("%d requests to patch, want 4: three that were sent away and one that was not", refused.Load())
		}
	})
}

// TestUntyped has objects without a namespace, and clients that know no type.
func TestUntyped(t *testing.T) {
	t.Run("dynamic", func(t *testing.T) {
		apitest.Run(t, func(t *testing.T, s *apitest.Server) {
			gvr := s.Define(t, "Cluster", "finalizer.example.com", "Widget")
			testUntyped(t, s, "a", kube.Untyped[*unstructured.Unstructured](kubetest.Dynamic(t, s.Admin()).Resource(gvr)))
		})
	})
	t.Run("metadata", func(t *testing.T) {
		apitest.Run(t, func(t *testing.T, s *apitest.Server) {
			gvr := s.Define(t, "Cluster", "finalizer.example.com", "Widget")
			client, err := metadata.NewForConfig(s.Admin())
			if err != nil {
				t.Fatal(err)
			}
			testUntyped(t, s, "b", kube.Untyped[*metav1.PartialObjectMetadata](client.Resource(gvr)))
		})
	})
}

func testUntyped[O metav1.Object](t *testing.T, s *apitest.Server, name string, client kube.Client[O]) {
	var calls []string
	note := func(call string) func(context.Context, O) error {
		return func(context.Context, O) error {
			calls = append(calls, call)
			return nil
		}
	}
	g := &finalizer.Guard[string, O]{
		Name:   finalizer.NameOf("example.com", "finalizer.example.com", "Widget"),
		Get:    func(ctx context.Context, name string) (O, error) { return client.Get(ctx, name, metav1.GetOptions{}) },
		Client: func(string) kube.Client[O] { return client },
		Ensure: note("ensure"), Clean: note("clean"),
	}
	manifest := "{apiVersion: finalizer.example.com/v1, kind: Widget, metadata: {name: " + name + "}, spec: {size: 1}}"
	for i, step := range []struct {
		do   func()
		want string
	}{
		{func() { s.KubectlInput(t, manifest, "create", "-f", "-") }, "ensure"},
		{func() { s.Kubectl(t, "delete", "widgets.finalizer.example.com", name, "--wait=false") }, "clean"},
		{func() {}, ""},
	} {
		calls = nil
		step.do()
		if err := g.Reconcile(t.Context(), name); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if got := strings.Join(calls, " "); got != step.want {
			t.Errorf("step %d: calls %q, want %q", i, got, step.want)
		}
	}
}
