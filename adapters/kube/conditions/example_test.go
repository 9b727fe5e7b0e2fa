// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package conditions_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/reconkernel/reconcile/adapters/kube/conditions"
)

// Each Namespace says how its last run went, in a condition.
func ExampleReport() {
	var (
		client kubernetes.Interface
		put    func(ctx context.Context, ns *corev1.Namespace) error
	)
	ensure := func(ctx context.Context, ns *corev1.Namespace) error {
		return conditions.Report(ctx, client.CoreV1().Namespaces(), ns, put(ctx, ns), func(ns *corev1.Namespace, ready metav1.Condition) {
			ns.Status.Conditions = []corev1.NamespaceCondition{{
				Type: "example.com/Ready", Status: corev1.ConditionStatus(ready.Status), Reason: ready.Reason, Message: ready.Message,
			}}
		})
	}
	_ = ensure // Reconcile of a Controller, or Ensure of a Guard
}
