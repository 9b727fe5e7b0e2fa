// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package kubetest_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// An API server that is killed and started again still has what was written. In
// a test, Shared takes the place of Start and Close.
func Example() {
	ctx := context.Background()
	server, err := kubetest.Start(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := kubernetes.NewForConfig(server.Admin())
	if err != nil {
		log.Fatal(err)
	}
	namespaces := client.CoreV1().Namespaces()
	if _, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}

	server.API.Kill() // or server.Etcd
	_, err = namespaces.Get(ctx, "a", metav1.GetOptions{})
	fmt.Println("while it is away:", err != nil)
	if err := server.API.Start(ctx); err != nil {
		log.Fatal(err)
	}
	a, err := namespaces.Get(ctx, "a", metav1.GetOptions{})
	fmt.Println(a.Name, err)
	// Output:
	// while it is away: true
	// a <nil>
}
