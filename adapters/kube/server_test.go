// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/internal/record"
	"github.com/reconkernel/reconcile/supervise"
)

// TestServerIsKilled kills the API server, and then etcd, under a running
// controller. What changes after they are back arrives, with nothing lost.
func TestServerIsKilled(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	defer start(t, s.API)
	defer start(t, s.Etcd)
	var world mirror
	world.run(t, typedInformer(t, s.Admin(), ns, 0))
	s.Kubectl(t, "create", "configmap", "a", "-n", ns)
	s.Kubectl(t, "create", "configmap", "b", "-n", ns)
	world.want(t, "map[a: b:]")

	s.API.Kill()
	start(t, s.API)
	s.Kubectl(t, "label", "configmap", "a", "value=1", "-n", ns)
	s.Kubectl(t, "delete", "configmap", "b", "-n", ns)
	world.want(t, "map[a:1]")

	s.Etcd.Kill()
	start(t, s.Etcd)
	s.API.Kill()
	start(t, s.API)
	s.Kubectl(t, "label", "configmap", "a", "value=2", "--overwrite", "-n", ns)
	s.Kubectl(t, "create", "configmap", "c", "-n", ns)
	world.want(t, "map[a:2 c:]")
}

// TestExpiredWatch cuts an informer off, changes objects behind its back, and
// restarts the API server, which then answers that what the informer knows is
// too old (410). The new list tells of what came, changed and went, of what
// went by a tombstone; what stayed is offered at most.
func TestExpiredWatch(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	for _, n := range []string{"changes", "goes", "stays"} {
		s.Kubectl(t, "create", "configmap", n, "-n", ns)
	}
	var link kubetest.Link
	informer := typedInformer(t, link.Config(s.Admin()), ns, 0)
	tombstones := make(chan string, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			tombstones <- gone.Key
		}
	}}); err != nil {
		t.Fatal(err)
	}
	if err := informer.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil { // quiet
		t.Fatal(err)
	}
	h := feed(t, names(informer))
	h.drain()

	link.Fail(kubetest.Broken(errors.New("cut off")))
	link.Cut()
	s.Kubectl(t, "delete", "configmap", "goes", "-n", ns)
	s.Kubectl(t, "label", "configmap", "changes", "x=y", "-n", ns)
	s.Kubectl(t, "create", "configmap", "comes", "-n", ns)
	defer start(t, s.API)
	s.API.Kill()
	start(t, s.API)
	link.Fail(nil)

	want := map[string]bool{"enqueue " + ns + "/goes": true, "enqueue " + ns + "/changes": true, "enqueue " + ns + "/comes": true}
	for call := range want {
		h.seen(t, call)
	}
	select {
	case key := <-tombstones:
		if key != ns+"/goes" {
			t.Errorf("a tombstone of %s, want of goes", key)
		}
	case <-time.After(patience):
		t.Error("no tombstone: the watch did not expire")
	}
	for _, call := range h.drain() {
		if !want[call] && call != "offer "+ns+"/stays" {
			t.Errorf("%s: it did not change", call)
		}
	}
}

// TestSlowAPI has the API server answer late: Synced waits, events come when
// they can.
func TestSlowAPI(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	s.Kubectl(t, "create", "configmap", "a", "-n", ns)
	var link kubetest.Link
	release, asked := make(chan struct{}), make(chan struct{}, 100)
	held := kubetest.Held(release)
	link.Fail(func(req *http.Request) (*http.Response, error) {
		asked <- struct{}{}
		return held(req)
	})
	source := names(typedInformer(t, link.Config(s.Admin()), ns, 0))
	source.SyncTimeout = 50 * time.Millisecond
	h := newHeard[name]()
	kubetest.Run(t, kube.Run(source.Informer))
	kubetest.Run(t, reconcile.Feed(h, source.Feed))
	<-asked
	if err := source.Synced(bounded(t)); err == nil || !strings.Contains(err.Error(), "not synced within 50ms") {
		t.Errorf("Synced before there was an answer: %v", err)
	}
	close(release)
	h.wait(t, "enqueue "+ns+"/a")

	// Not an answer for a while, with all connections open.
	s.API.Pause()
	resumed := time.AfterFunc(2*time.Second, s.API.Resume)
	defer resumed.Stop()
	s.Kubectl(t, "create", "configmap", "b", "-n", ns)
	h.wait(t, "enqueue "+ns+"/b")
}

// TestForbidden has a user who may not list: Synced says so in time, and the log
// of the service once. When a role allows it, the same feeder goes on.
func TestForbidden(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	s.Kubectl(t, "create", "configmap", "a", "-n", ns)
	source := names(typedInformer(t, s.User("mallory"), ns, 0))
	source.SyncTimeout = time.Second
	if err := source.Synced(bounded(t)); err == nil || !strings.Contains(err.Error(), "Feed is not running") {
		t.Errorf("Synced without Feed: %v", err)
	}
	h := newHeard[name]()
	var log record.Text
	group := supervise.Group{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	group.Add("informer", kube.Run(source.Informer))
	group.Add("feed", reconcile.Feed(h, source.Feed))
	kubetest.Run(t, &group)
	// What it says before the first answer of the server is of no interest.
	kubetest.Eventually(t, func() error {
		const want = "names: not synced within 1s: the informer has no list: this client may not list and watch it: "
		if err := source.Synced(bounded(t)); err == nil || !strings.Contains(err.Error(), want) || !apierrors.IsForbidden(err) {
			return fmt.Errorf("Synced: %v, want %q", err, want)
		}
		return nil
	})
	why := errors.New("no patience")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := source.Synced(ctx); !errors.Is(err, why) || !apierrors.IsForbidden(err) {
		t.Errorf("Synced with a ctx that is done: %v, want its cause and the failure", err)
	}
	kubetest.Eventually(t, func() error { // it is told to Synced first
		if got := log.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "forbidden") {
			return fmt.Errorf("the log does not say why:\n%s", got)
		}
		return nil
	})
	s.Kubectl(t, "create", "role", "reader", "-n", ns, "--verb=list,watch", "--resource=configmaps")
	s.Kubectl(t, "create", "rolebinding", "mallory", "-n", ns, "--role=reader", "--user=mallory")
	h.wait(t, "enqueue "+ns+"/a")
	if got := log.String(); !strings.Contains(got, "reflector=") {
		t.Errorf("the log has nothing of client-go's:\n%s", got)
	}
}
