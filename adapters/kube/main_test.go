// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/internal/record"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// patience bounds what never ends if something is broken. An informer whose
// server went away tries again after up to a minute.
const patience = 5 * time.Minute

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

type name = cache.ObjectName

// A heard is an Enqueuer that tells what it was called with.
type heard[T comparable] struct {
	mu    sync.Mutex // guards what follows
	calls []string
	more  chan struct{} // closed when there are more
}

func newHeard[T comparable]() *heard[T] { return &heard[T]{more: make(chan struct{})} }

func (h *heard[T]) call(verb string, item T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf("%s %v", verb, item))
	close(h.more)
	h.more = make(chan struct{})
}

func (h *heard[T]) Enqueue(item T)                       { h.call("enqueue", item) }
func (h *heard[T]) EnqueueNow(item T)                    { h.call("now", item) }
func (h *heard[T]) Offer(item T)                         { h.call("offer", item) }
func (h *heard[T]) EnqueueAfter(item T, _ time.Duration) { h.call("after", item) }

// wait returns what it was called with up to the call that is wanted, and
// forgets that.
func (h *heard[T]) wait(t testing.TB, call string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		h.mu.Lock()
		more := h.more
		if i := slices.Index(h.calls, call); i >= 0 {
			before := slices.Clone(h.calls[:i+1])
			h.calls = h.calls[i+1:]
			h.mu.Unlock()
			return before
		}
		got := slices.Clone(h.calls)
		h.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("got %q, want %q", got, call)
		}
	}
}

// seen waits for a call, and forgets nothing.
func (h *heard[T]) seen(t testing.TB, call string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		h.mu.Lock()
		got, more := slices.Clone(h.calls), h.more
		h.mu.Unlock()
		if slices.Contains(got, call) {
			return
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("got %q, want %q among them", got, call)
		}
	}
}

// drain returns what it was called with, and forgets it.
func (h *heard[T]) drain() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = nil
	return calls
}

func typed(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func typedInformer(t testing.TB, config *rest.Config, ns string, resync time.Duration) cache.SharedIndexInformer {
	return informers.NewSharedInformerFactoryWithOptions(typed(t, config), resync, informers.WithNamespace(ns)).
		Core().V1().ConfigMaps().Informer()
}

func dynamicInformer(t testing.TB, config *rest.Config, ns string, gvr schema.GroupVersionResource) cache.SharedIndexInformer {
	t.Helper()
	return dynamicinformer.NewFilteredDynamicInformer(kubetest.Dynamic(t, config), gvr, ns, 0, cache.Indexers{}, nil).Informer()
}

func metadataInformer(t testing.TB, config *rest.Config, ns string, gvr schema.GroupVersionResource) cache.SharedIndexInformer {
	t.Helper()
	c, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return metadatainformer.NewFilteredMetadataInformer(c, gvr, ns, 0, cache.Indexers{}, nil).Informer()
}

// names is a Source of the names that an informer sees.
func names(informer cache.SharedInformer) *kube.Source[name] {
	return &kube.Source[name]{Name: "names", Informer: informer, Keys: kube.Name}
}

// feed runs an informer and a source of it, and returns what the source says
// after it has synced.
func feed[T comparable](t testing.TB, s *kube.Source[T]) *heard[T] {
	t.Helper()
	h := newHeard[T]()
	kubetest.Run(t, kube.Run(s.Informer))
	kubetest.Run(t, reconcile.Feed(h, s.Feed))
	synced(t, s)
	return h
}

func synced[T comparable](t testing.TB, s *kube.Source[T]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.Synced(ctx); err != nil {
		t.Fatal(err)
	}
}

// bounded returns a context for what is to return by itself.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func configMap(ns, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func create(t testing.TB, c kubernetes.Interface, cm *corev1.ConfigMap) *corev1.ConfigMap {
	t.Helper()
	cm, err := c.CoreV1().ConfigMaps(cm.Namespace).Create(t.Context(), cm, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

// start starts a process of the server again, if it does not run.
func start(t testing.TB, p *kubetest.Process) {
	t.Helper()
	if err := p.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// A lines keeps what is logged, and is done when a text is in it.
type lines struct {
	slog.Handler
	record.Text
	want string
	done func()
}

func newLines(want string, done func()) *lines {
	l := &lines{want: want, done: done}
	l.Handler = slog.NewTextHandler(l, nil)
	return l
}

func (l *lines) Write(p []byte) (int, error) {
	n, err := l.Text.Write(p)
	if strings.Contains(l.String(), l.want) {
		l.done()
	}
	return n, err
}

var fooResource = schema.GroupVersionResource{Group: "samplecontroller.example.com", Version: "v1", Resource: "foos"}
