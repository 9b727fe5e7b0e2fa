// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
	"github.com/reconkernel/reconcile/supervise"
)

// TestControllerInATerm has a Controller run in a term, and in one that is over, of
// which the timers have not heard.
func TestControllerInATerm(t *testing.T) {
	for what, over := range map[string]bool{"a term": false, "one that is over": true} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fcache.NewFakeControllerSource()
				defer api.Shutdown()
				api.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
				runs := 0
				c := &kube.Controller[*corev1.ConfigMap]{
					Name:     "configs",
					Informer: cache.NewSharedInformer(api, &corev1.ConfigMap{}, 0),
					Reconcile: func(context.Context, *corev1.ConfigMap) error {
						runs++
						return nil
					},
					With: func(p *kube.Parts) {
						if _, ok := p.Reconciler.Queue.(*reconcile.Queue[cache.ObjectName]); ok {
							t.Error("metrics see the Queue itself, whose Result.Waited they know")
						}
					},
				}
				group := supervise.Group{Logger: quiet}
				group.Add("informers", c.Informers())
				group.Add("configs", c)
				renewed := time.Now()
				if over {
					renewed = renewed.Add(-time.Minute)
				}
				ctx, cancel := context.WithCancel(elect.InTerm(t.Context(), elect.Config{Deadline: 10 * time.Second}, renewed))
				ended := make(chan error, 1)
				go func() { ended <- group.Run(ctx) }()
				synctest.Wait()
				if (runs == 0) != over {
					t.Errorf("%d runs", runs)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
