// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/supervise"
)

// TestFakeClientset changes an object of client-go's fake clientset, which gives
// no resource versions, while its item is in back-off: the event shortens that, also
// where Source.Changed asks for a new version.
func TestFakeClientset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(configMap("shop", "prices"))
		source := names(informers.NewSharedInformerFactory(client, 0).Core().V1().ConfigMaps().Informer())
		source.Changed = kube.VersionChanged
		queue := reconcile.NewQueue[name]()
		begin, runs := time.Now(), make(chan time.Duration, 10)
		var group supervise.Group
		group.Add("informer", kube.Run(source.Informer))
		group.Add("configs", reconcile.Feed(queue, source.Feed))
		group.Add("runs", supervise.After(source.Synced, &reconcile.Reconciler[name]{
			Queue: queue,
			Retry: reconcile.Backoff(time.Hour, time.Hour),
			Reconcile: func(context.Context, name) error {
				runs <- time.Since(begin)
				return errors.New("not yet")
			},
		}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- group.Run(ctx) }()
		<-runs
		synctest.Wait() // the watch has begun; what comes before it, a fake loses
		begin = time.Now()
		if _, err := client.CoreV1().ConfigMaps("shop").Update(ctx, configMap("shop", "prices"), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if after := <-runs; after != time.Second { // no event starts a failed item sooner
			t.Errorf("the changed object was run after %v, want 1s", after)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
