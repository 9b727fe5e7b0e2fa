// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package finalizer_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile/adapters/kube"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/reconkernel/reconcile/adapters/kube/finalizer"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

type (
	configMaps = typedcorev1.ConfigMapInterface
	guard      = finalizer.Guard[string, *corev1.ConfigMap]
)

const ours, other = "example.com/file", "example.com/other"

func clientOf(t *testing.T, config *rest.Config, namespace string) configMaps {
	t.Helper()
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.ConfigMaps(namespace)
}

// hooks is a client that calls before and after each request to patch.
type hooks struct {
	configMaps
	before func() error
	after  func() error
}

func (h *hooks) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string) (*corev1.ConfigMap, error) {
	if h.before != nil {
		if err := h.before(); err != nil {
			return nil, err
		}
	}
	cm, err := h.configMaps.Patch(ctx, name, pt, data, opts, sub...)
	if h.after != nil {
		if err := h.after(); err != nil {
			return nil, err
		}
	}
	return cm, err
}

// A world is what a reconcile function makes outside of Kubernetes, and the list
// of calls that made it.
type world struct {
	files map[string]string
	calls []string
	fail  map[string]error // by call
}

func (w *world) called(call string) error {
	w.calls = append(w.calls, call)
	return w.fail[call]
}

func (w *world) ensure(call string) func(context.Context, *corev1.ConfigMap) error {
	return func(_ context.Context, cm *corev1.ConfigMap) error {
		if err := w.called(call); err != nil {
			return err
		}
		if w.files == nil {
			w.files = make(map[string]string)
		}
		w.files[cm.Name] = cm.Data["text"]
		return nil
	}
}

func (w *world) clean(_ context.Context, cm *corev1.ConfigMap) error {
	if err := w.called("clean"); err != nil {
		return err
	}
	delete(w.files, cm.Name)
	return nil
}

func (w *world) gone(context.Context, string) error { return w.called("gone") }

// newGuard returns a Guard with one function for all but the clean-up.
func newGuard(client configMaps, w *world) *guard {
	return &guard{
		Name: ours,
		Get: func(ctx context.Context, name string) (*corev1.ConfigMap, error) {
			return client.Get(ctx, name, metav1.GetOptions{})
		},
		Client: func(string) kube.Client[*corev1.ConfigMap] { return client },
		Ensure: w.ensure("ensure"),
		Clean:  w.clean,
		Gone:   w.gone,
	}
}

func create(t *testing.T, client configMaps, name, text string, finalizers ...string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}, Data: map[string]string{"text": text}}
	cm, err := client.Create(t.Context(), cm, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

func write(t *testing.T, client configMaps, name, text string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"data":{"text":%q}}`, text)
	if _, err := client.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, client configMaps, name string) {
	t.Helper()
	if err := client.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// setFinalizers replaces the list, as another controller might.
func setFinalizers(t *testing.T, client configMaps, name string, list ...string) {
	t.Helper()
	cm, err := client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cm.Finalizers = list
	if _, err := client.Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func wantFinalizers(t *testing.T, client configMaps, name string, want ...string) {
	t.Helper()
	cm, err := client.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Errorf("get %s: %v, want it with the finalizers %q", name, err, want)
		return
	}
	if !slices.Equal(cm.Finalizers, want) {
		t.Errorf("finalizers of %s: got %q, want %q", name, cm.Finalizers, want)
	}
}

func wantCalls(t *testing.T, w *world, want string) {
	t.Helper()
	if got := strings.Join(w.calls, " "); got != want {
		t.Errorf("calls: got %q, want %q", got, want)
	}
	w.calls = nil
}

func run(t *testing.T, g *guard, name string) {
	t.Helper()
	if err := g.Reconcile(t.Context(), name); err != nil {
		t.Errorf("Reconcile(%s): %v", name, err)
	}
}
