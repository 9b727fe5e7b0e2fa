// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !nightly

package kube_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/supervise"
)

// TestChildOutOfTheSelection has a controller create a child that the selector of its
// informer leaves out. The next run of the owner waits five seconds, and up to a minute
// for a child whose name the server has made up; after five seconds the error says why.
func TestChildOutOfTheSelection(t *testing.T) {
	for what, test := range map[string]struct {
		child        metav1.ObjectMeta
		least, most  time.Duration
		wantAWarning bool
	}{
		"a name of ours":       {metav1.ObjectMeta{Name: "child"}, 5 * time.Second, 6 * time.Second, true},
		"a name of the server": {metav1.ObjectMeta{GenerateName: "child-"}, 6 * time.Second, 61 * time.Second, false},
	} {
		t.Run(what, func(t *testing.T) {
			apitest.Run(t, func(t *testing.T, s *apitest.Server) {
				ns := s.Namespace(t)
				client := typed(t, s.Admin())
				secrets := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
					o.LabelSelector = "mine=yes"
				})).Core().V1().Secrets().Informer()
				var runs []time.Time
				var owned *kube.Owned[*corev1.Secret]
				second, says := make(chan struct{}), ""
				c := &kube.Controller[*corev1.ConfigMap]{Name: "configs", Informer: typedInformer(t, s.Admin(), ns, 0), Reconcile: func(ctx context.Context, o *corev1.ConfigMap) error {
					runs = append(runs, time.Now())
					if len(runs) > 1 {
						close(second)
						return nil
					}
					_, err := owned.Create(ctx, client.CoreV1().Secrets(ns), o, &corev1.Secret{ObjectMeta: test.child})
					if err == nil {
						err = reconcile.RequeueWithin(time.Second)
					}
					return err
				}, With: func(p *kube.Parts) {
					p.Reconciler.OnResult = func(r reconcile.Result[cache.ObjectName]) {
						if r.Err != nil {
							says = r.Err.Error()
						}
					}
				}}
				owned = kube.Owns[*corev1.Secret](c, secrets, kube.OwnedBy{APIVersion: "v1", Kind: "ConfigMap"})
				create(t, client, configMap(ns, "owner"))
				var group supervise.Group
				group.Add("informers", c.Informers())
				group.Add("configs", c)
				stop := kubetest.Run(t, &group)
				<-second
				stop()
				if took := runs[1].Sub(runs[0]); took < test.least || took > test.most {
					t.Errorf("the second run came after %v, want %v to %v", took, test.least, test.most)
				}
				if named := strings.Contains(says, "selector"); named == test.wantAWarning {
					t.Errorf("the last error is %q", says)
				}
			})
		})
	}
}
