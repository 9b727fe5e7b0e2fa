// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/supervise"
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
	var group supervise.Group
	group.Add("informer", kube.Run(informer))
	group.Add("source", reconcile.Feed(queue, source.Feed))
	group.Add("runs", supervise.After(source.Synced, &reconcile.Reconciler[name]{
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

// TestThrottled has the API server refuse requests as too many (429), and then
// break a watch: the informer comes back by itself.
func TestThrottled(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
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
	})
}

// objects is how many TestFlood has.
const objects = 5000

// TestFlood lists 5,000 objects. Each is run; an event that comes after that is run
// before them, because they are in the queue's Background; a poll of
// the informer's list finds them all; and when they are deleted at once, nothing
// is missed.
func TestFlood(t *testing.T) {
	apitest.Run(t, func(t *testing.T, s *apitest.Server) {
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
	})
}
