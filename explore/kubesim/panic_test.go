// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubesim_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
	"github.com/reconkernel/reconcile/explore/kubesim"
)

// TestPanicInAnEventHandler has a panic in a goroutine of client-go: the play fails and
// says so, and the test goes on.
func TestPanicInAnEventHandler(t *testing.T) {
	r, err := kubesim.Search(t, kubesim.Scenario{
		Start: func(_ *explore.Process, cfg *rest.Config) kubesim.Runner {
			informer := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(cfg), time.Hour).Core().V1().ConfigMaps().Informer()
			informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { panic("unexpected object") }})
			return reconcile.RunFunc(func(ctx context.Context) error {
				informer.RunWithContext(ctx)
				return nil
			})
		},
		Steps: func(s *kubesim.Environment) {
			s.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
			s.Advance(time.Minute)
		},
		Plans: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"log.Fatalf", "panic in a goroutine of client-go: unexpected object", "panic_test.go"} {
		if r.Found == nil || !strings.Contains(fmt.Sprint(r.Found), want) {
			t.Errorf("found: %v, want %q", r.Found, want)
		}
	}
}
