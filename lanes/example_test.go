// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package lanes_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/lanes"
)

// A tenant whose run hangs does not hold up the other. They share a gate.
func ExampleLanes() {
	done := make(chan string)
	cloud := &gate.Gate{Every: time.Millisecond, Burst: 10}
	tenants := &lanes.Lanes[string, string]{
		Lane: func(vm string) string { tenant, _, _ := strings.Cut(vm, "/"); return tenant },
		Reconciler: func(tenant string) *reconcile.Reconciler[string] {
			return &reconcile.Reconciler[string]{
				Name: tenant, Timeout: time.Minute, Admit: cloud.Admit,
				Reconcile: func(ctx context.Context, vm string) error {
					if tenant == "big" {
						<-ctx.Done() // it hangs
						return ctx.Err()
					}
					done <- vm
					return nil
				},
			}
		},
		Logger: quiet,
	}
	for i := range 1000 {
		tenants.Enqueue(fmt.Sprint("big/", i))
	}
	tenants.Enqueue("small/1")

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- tenants.Run(ctx) }()
	fmt.Println(<-done, "is done")
	cancel()
	fmt.Println(<-ended)
	for tenant, queue := range tenants.All() {
		if n := queue.Len(); n > 0 {
			fmt.Println(n, "of", tenant, "are left")
		}
	}
	// Output:
	// small/1 is done
	// <nil>
	// 1000 of big are left
}
