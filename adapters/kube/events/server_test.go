// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package events_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/events"
	"github.com/reconkernel/reconcile/adapters/kube/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

// TestOnServer has a real API server take the events of a Reconciler: one event
// for alike failures, with their count, which kubectl shows with the object. The
// server is killed and started again between them.
func TestOnServer(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	core, err := typedcorev1.NewForConfig(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	client, err := typedeventsv1.NewForConfig(s.Admin())
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 300) // makes the note too long for the server
	cm, err := core.ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := &events.Recorder[string]{
		Client: client, Controller: "example.com/test", Interval: time.Millisecond, Logger: quiet,
		Regarding: func(item string) (corev1.ObjectReference, bool) {
			return corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: ns, Name: item, UID: cm.UID}, true
		},
	}
	q := reconcile.NewQueue[string]()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	runs := 0
	go func() {
		ended <- r.Around(&reconcile.Reconciler[string]{
			Queue: q, Logger: quiet, OnResult: r.OnResult, Retry: reconcile.Backoff(time.Millisecond, time.Millisecond),
			Reconcile: func(context.Context, string) error {
				switch runs++; runs {
				case 5:
					s.API.Kill()
					if err := s.API.Start(t.Context()); err != nil {
						t.Error(err)
					}
				case 10:
					if err := counted(ctx, client.Events(ns), 9); err != nil {
						t.Error(err)
					}
					stop()
				}
				return errors.New(strings.Repeat(long, 5))
			},
		}).Run(ctx)
	}()
	q.Enqueue("a")
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	list, err := client.Events(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != 1 {
		t.Fatalf("%d events, want one for all that are alike: %v", len(list.Items), list.Items)
	}
	e := list.Items[0]
	// The tenth run ended after its context, and so counts as aborted.
	if e.Type != "Warning" || e.Reason != "Failed" || e.Series == nil || e.Series.Count != 9 || len(e.Note) != 1024 {
		t.Errorf("got %s %s, series %v, a note of %d bytes; want a Warning Failed, 9 times, 1024 bytes", e.Type, e.Reason, e.Series, len(e.Note))
	}
	if out := s.Kubectl(t, "describe", "configmap", "a", "-n", ns); !strings.Contains(out, "Failed") {
		t.Errorf("kubectl describe does not show it:\n%s", out)
	}
}

// counted waits until the server has an event that came so often.
func counted(ctx context.Context, events typedeventsv1.EventInterface, n int32) error {
	w, err := events.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer w.Stop()
	for change := range w.ResultChan() { // beginning with what is there
		if e, ok := change.Object.(*eventsv1.Event); ok && e.Series != nil && e.Series.Count == n {
			return nil
		}
	}
	return fmt.Errorf("the watch ended before there was an event that came %d times", n)
}
