// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
)

// TestErrorNamesTheLimiterThatLostTheLease has 300 workers and the lease share a client of 20
// requests a second: the error says why the lease was lost. With a client of its own
// the lease is kept.
func TestErrorNamesTheLimiterThatLostTheLease(t *testing.T) {
	for name, shared := range map[string]bool{"shared client": true, "client of its own": false} {
		t.Run(name, func(t *testing.T) {
			apitest.Run(t, func(t *testing.T, server *apitest.Server) {
				ns, config := server.Namespace(t), server.Admin()
				config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(20, 30)
				client, err := kubernetes.NewForConfig(config)
				if err != nil {
					t.Fatal(err)
				}
				own, err := kubernetes.NewForConfig(server.Admin())
				if err != nil {
					t.Fatal(err)
				}
				leases := own.CoordinationV1()
				if shared {
					leases = client.CoordinationV1()
				}
				err = elect.Elect(elect.Config{Client: leases, Namespace: ns, Name: "lease", Logger: quiet}, reconcile.RunFunc(func(ctx context.Context) error {
					ctx, cancel := context.WithTimeout(ctx, time.Minute)
					defer cancel()
					queue := reconcile.NewQueue[int]()
					for i := range 1500 {
						queue.Enqueue(i)
					}
					workers := &reconcile.Reconciler[int]{Queue: elect.Held(queue), Workers: 300, Logger: quiet, Reconcile: func(ctx context.Context, _ int) error {
						_, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{Limit: 1})
						return err
					}}
					return workers.Run(ctx)
				})).Run(t.Context())
				if lost := errors.Is(err, reconcile.ErrLeaseLost); lost != shared {
					t.Fatalf("Run: %v, want a lost lease: %t", err, shared)
				}
				if shared && !strings.Contains(err.Error(), "the Lease needs a clientset that nothing else uses") {
					t.Errorf("Run: %v, want one that names the limiter", err)
				}
			})
		})
	}
}
