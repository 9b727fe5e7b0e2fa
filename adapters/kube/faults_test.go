// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// A mirror is an outside world that a reconcile function keeps like the
// ConfigMaps of an informer.
type mirror struct {
	mu      sync.Mutex // guards what follows
	things  map[string]string
	changed chan struct{} // closed at the next change
}

// run feeds a reconciler from an informer.
func (m *mirror) run(t *testing.T, informer cache.SharedIndexInformer) {
	t.Helper()
	m.things, m.changed = make(map[string]string), make(chan struct{})
	queue := reconcile.NewQueue[name]()
	source := names(informer)
	var group reconcile.Group
	group.Add("informer", kube.Run(informer))
	group.Add("source", reconcile.Feed(queue, source.Feed))
	group.Add("runs", reconcile.After(source.Synced, &reconcile.Reconciler[name]{
		Queue: queue, Workers: 2,
		Reconcile: func(_ context.Context, n name) error {
			v, ok, err := informer.GetStore().GetByKey(n.String())
			if err != nil {
				return err
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if ok {
				obj, err := kube.ObjectOf(v)
				if err != nil {
					return err
				}
				m.things[n.Name] = obj.GetLabels()["value"]
			} else {
				delete(m.things, n.Name)
			}
			close(m.changed)
			m.changed = make(chan struct{})
			return nil
		},
	}))
	kubetest.Run(t, &group)
}

// want waits until the world is as it is wanted.
func (m *mirror) want(t *testing.T, want string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		m.mu.Lock()
		got, changed := fmt.Sprint(m.things), m.changed
		m.mu.Unlock()
		if got == want {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("the world is %s, want %s", got, want)
		}
	}
}

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

// TestThrottled has the API server refuse requests as too many (429), and then
// break a watch: the informer comes back by itself.
func TestThrottled(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	s.Kubectl(t, "create", "configmap", "a", "-n", ns)
	var link kubetest.Link
	var mu sync.Mutex // guards refused
	refused := 0
	tooMany := kubetest.TooManyRequests(0)
	throttle := func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if refused++; refused > 3 {
			return nil, nil
		}
		return tooMany(req)
	}
	link.Fail(throttle)
	h := feed(t, names(typedInformer(t, link.Config(s.Admin()), ns, 0)))
	h.wait(t, "enqueue "+ns+"/a")
	mu.Lock()
	if refused <= 3 {
		t.Errorf("%d requests, want more than 3", refused)
	}
	refused = 0
	mu.Unlock()
	link.Cut()
	s.Kubectl(t, "create", "configmap", "b", "-n", ns)
	h.wait(t, "enqueue "+ns+"/b")
}

// objects is how many TestFlood has.
const objects = 5000

// TestFlood lists 5,000 objects. Each is run; an event that comes after that is run
// before them, because they are in the queue's Background; a poll of
// the informer's list finds them all; and when they are deleted at once, nothing
// is missed.
func TestFlood(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	client := typed(t, s.Admin())
	var wg sync.WaitGroup
	numbers := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range numbers {
				if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), configMap(ns, fmt.Sprintf("o%d", i)), metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range objects {
		numbers <- i
	}
	close(numbers)
	wg.Wait()

	queue := reconcile.NewQueue[name]()
	queue.Background = 20
	source := names(metadataInformer(t, s.Admin(), ns, configMaps))
	var mu sync.Mutex // guards what follows
	runs := make(map[string]int)
	order := 0
	eventAt := 0
	all, gone := make(chan struct{}), make(chan struct{})
	first := make(chan struct{})
	goOn := make(chan struct{})
	reconciler := &reconcile.Reconciler[name]{Queue: queue, Reconcile: func(_ context.Context, n name) error {
		_, there, err := source.Informer.GetStore().GetByKey(n.String())
		if err != nil {
			return err
		}
		mu.Lock()
		order++
		number := order
		if n.Name == "event" && eventAt == 0 { // the first source brings it as well
			eventAt = order
		}
		if there {
			runs[n.Name]++
			if len(runs) == objects+1 && number >= objects+1 {
				select {
				case <-all:
				default:
					close(all)
				}
			}
		} else {
			delete(runs, n.Name)
			if len(runs) == 0 { // both sources may bring the event last
				select {
				case <-gone:
				default:
					close(gone)
				}
			}
		}
		mu.Unlock()
		if number == 1 {
			close(first)
			<-goOn
		}
		return nil
	}}
	kubetest.Run(t, kube.Run(source.Informer))
	kubetest.Run(t, reconcile.Feed(queue, source.Feed))
	synced(t, source)
	kubetest.Run(t, reconciler)
	<-first
	// A second source of the same queue brings the event, so that its way
	// through the informer is over when the runs go on.
	other := names(metadataInformer(t, s.Admin(), ns, configMaps))
	other.Only = func(obj metav1.Object) bool { return obj.GetName() == "event" }
	kubetest.Run(t, kube.Run(other.Informer))
	kubetest.Run(t, reconcile.Feed(queue, other.Feed))
	synced(t, other) // what it lists first is no event
	create(t, client, configMap(ns, "event"))
	kubetest.Eventually(t, func() error {
		if !queue.Has(name{Namespace: ns, Name: "event"}) {
			return errors.New("the event never came")
		}
		return nil
	})
	close(goOn)
	select {
	case <-all:
	case <-time.After(patience):
		t.Fatalf("%d of %d objects were run", len(runs), objects+1)
	}
	mu.Lock()
	if eventAt != 2 {
		t.Errorf("the event was run %dth, want 2nd", eventAt)
	}
	mu.Unlock()
	t.Logf("the event was run %dth of %d", eventAt, objects+1)

	items, err := source.List(t.Context())
	if err != nil || len(items) != objects+1 {
		t.Errorf("List: %d items, %v, want %d", len(items), err, objects+1)
	}
	if err := client.CoreV1().ConfigMaps(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-gone:
	case <-time.After(patience):
		mu.Lock()
		defer mu.Unlock()
		t.Errorf("%d deletions were missed", len(runs))
	}
}
