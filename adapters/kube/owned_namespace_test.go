// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// TestChildWithoutNamespaceIsRejected has an owner in a namespace own an object of a kind
// that has none: it is refused, and nothing stays, whether the cache is filled or not.
func TestChildWithoutNamespaceIsRejected(t *testing.T) {
	for what, filled := range map[string]bool{"a cache that is filled": true, "an empty cache": false} {
		t.Run(what, func(t *testing.T) {
			apitest.Run(t, func(t *testing.T, s *apitest.Server) {
				ns := s.Namespace(t)
				client := typed(t, s.Admin())
				owner := create(t, client, configMap(ns, "owner"))
				spaces := informers.NewSharedInformerFactory(client, 0).Core().V1().Namespaces().Informer()
				c := &kube.Controller[*corev1.ConfigMap]{Name: "configs"}
				owned := kube.Owns[*corev1.Namespace](c, spaces, kube.OwnedBy{APIVersion: "v1", Kind: "ConfigMap"})
				if filled {
					kubetest.Run(t, kube.Run(spaces))
					kubetest.Eventually(t, func() error {
						if !spaces.HasSynced() {
							return errors.New("not synced")
						}
						return nil
					})
				}
				for range 2 {
					_, err := owned.Create(t.Context(), client.CoreV1().Namespaces(), owner, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}})
					if !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), "its kind has no namespaces") {
						t.Errorf("Create: %v, want a terminal error that says so", err)
					}
				}
				list, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for _, made := range list.Items {
					if strings.HasPrefix(made.Name, "made-") && made.DeletionTimestamp == nil {
						t.Errorf("%s is there", made.Name)
					}
				}
			})
		})
	}
}
