// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubeadapter_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/reconkernel/reconcile"
)

// TestPace keeps the initial list and resyncs back while the queue is long,
// lets an event pass them, and brings nothing twice.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		informer := newStub()
		source := names(informer)
		source.Pace = 2
		queue := reconcile.NewQueue[name]()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- source.Feed(ctx, queue) }()
		handler := <-informer.handlers

		wantReady := func(want string) {
			t.Helper()
			synctest.Wait()
			got := ""
			for item, state := range queue.All() {
				if state.Phase == reconcile.Ready {
					got += item.Name
				}
			}
			if got != want {
				t.Errorf("ready: %q, want %q", got, want)
			}
		}
		take := func(want string) {
			t.Helper()
			item, err := queue.Dequeue(ctx)
			if err != nil || item.Name != want {
				t.Errorf("took %s, %v, want %s", item.Name, err, want)
			}
			queue.Done(item)
		}
		for _, n := range []string{"a", "b", "c", "d", "e"} {
			handler.OnAdd(configMap("", n), true)
		}
		wantReady("ab")
		handler.OnUpdate(seen("a"), seen("a")) // a resync of what is ready
		handler.OnUpdate(seen("f"), seen("f"))
		handler.OnDelete(configMap("", "e")) // passes c and d
		wantReady("abe")
		take("a")
		time.Sleep(2 * time.Millisecond)
		wantReady("be")
		take("b")
		time.Sleep(2 * time.Millisecond)
		wantReady("ec")
		take("e")
		take("c")
		time.Sleep(2 * time.Millisecond)
		wantReady("da") // a was taken meanwhile, so its resync is news
		take("d")
		time.Sleep(2 * time.Millisecond)
		wantReady("af")
		take("a")
		take("f")
		time.Sleep(time.Hour)
		wantReady("")

		// What is kept back is an event if it was listed, and an observation if
		// it was resynced.
		item := func(n string) name { return name{Name: n} }
		queue.EnqueueWithin(item("listed"), time.Hour)
		queue.EnqueueWithin(item("seen"), time.Hour)
		handler.OnUpdate(seen("seen"), seen("seen"))
		handler.OnAdd(configMap("", "listed"), true)
		wantReady("listed")
		if got := fmt.Sprint(queue.State(item("seen")).Phase); got != "waiting" {
			t.Errorf("an object that was seen again is %s, want waiting", got)
		}
		// One that was listed stays an event though it is seen again.
		queue.Enqueue(item("x"))
		queue.EnqueueWithin(item("both"), time.Hour)
		handler.OnAdd(configMap("", "both"), true)
		handler.OnUpdate(seen("both"), seen("both"))
		wantReady("listedx")
		take("listed")
		time.Sleep(2 * time.Millisecond)
		wantReady("xboth")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// seen is an object of a version.
func seen(name string) *corev1.ConfigMap {
	cm := configMap("", name)
	cm.ResourceVersion = "1"
	return cm
}
