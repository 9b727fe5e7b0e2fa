// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
	"github.com/reconkernel/reconcile/adapters/kube/internal/apitest"
	"github.com/reconkernel/reconcile/adapters/kube/internal/leasetest"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
	"github.com/reconkernel/reconcile/supervise"
)

// TestStandby creates and deletes 1,000 objects while a process waits to lead.
// When it does, its queue has none of them, only what is there.
func TestStandby(t *testing.T) {
	apitest.Run(t, func(t *testing.T, server *apitest.Server) {
		ns := server.Namespace(t)
		client, err := kubernetes.NewForConfig(server.Admin())
		if err != nil {
			t.Fatal(err)
		}
		leader := elect.Config{
			Client: client.CoordinationV1(), Namespace: ns, Name: "lease", Logger: quiet,
			Duration: time.Minute, Period: 2 * time.Second, // no term is to be lost on a slow machine
		}

		leads := make(chan struct{})
		other := elect.Elect(leader, reconcile.RunFunc(func(ctx context.Context) error {
			close(leads)
			<-ctx.Done()
			return nil
		}))
		stopOther := kubetest.Run(t, other)
		<-leads

		configs := &kube.Source[cache.ObjectName]{
			Informer: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ns)).Core().V1().ConfigMaps().Informer(),
			Keys:     kube.Name,
		}
		seen, ran := make(chan struct{}), make(chan string, 2000)
		if _, err := configs.Informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			if obj.(*corev1.ConfigMap).Name == "last" {
				close(seen)
			}
		}}); err != nil {
			t.Fatal(err)
		}
		var group supervise.Group
		group.Add("informer", kube.Run(configs.Informer))
		group.Add("leader", elect.Elect(leader, elect.EachTerm(func(term *supervise.Group) {
			queue := reconcile.NewQueue[cache.ObjectName]()
			term.Add("configs", reconcile.Feed(queue, configs.Feed))
			term.Add("workers", supervise.After(configs.Synced, &reconcile.Reconciler[cache.ObjectName]{
				Queue: elect.Held(queue),
				Reconcile: func(_ context.Context, name cache.ObjectName) error {
					ran <- name.Name
					return nil
				},
			}))
		})))
		kubetest.Run(t, &group)

		configMaps := client.CoreV1().ConfigMaps(ns)
		create := func(name string) error {
			_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 125 {
					name := fmt.Sprintf("o%d-%d", i, j)
					if err := errors.Join(create(name), configMaps.Delete(t.Context(), name, metav1.DeleteOptions{})); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := create("last"); err != nil {
			t.Fatal(err)
		}
		<-seen

		stopOther()
		var runs []string
		for !slices.Contains(runs, "last") {
			runs = append(runs, <-ran)
		}
		if len(runs) != 1 {
			t.Errorf("%d runs of the new leader up to that of the one object there is, want 1", len(runs))
		}
	})
}

// TestSecondTerm loses the lease and gets it back: what a term is made of is made
// again. A Group that is not would never run again, so it is refused at once.
func TestSecondTerm(t *testing.T) {
	bubble(t, func(t *testing.T, f *field) {
		begin := time.Now()
		client := &leasetest.LeaseClient{Before: func(context.Context) error {
			if at := time.Since(begin); at > 21*time.Second && at < time.Minute {
				return errBroken
			}
			return nil
		}}
		term := elect.EachTerm(func(term *supervise.Group) {
			queue := reconcile.NewQueue[string]()
			term.Add("feed", reconcile.Feed(queue, func(ctx context.Context, q reconcile.Enqueuer[string]) error {
				q.Enqueue("x")
				<-ctx.Done()
				return nil
			}))
			term.Add("workers", &reconcile.Reconciler[string]{Queue: elect.Held(queue), Logger: quiet, Reconcile: func(_ context.Context, item string) error {
				f.note("a", "runs "+item)
				return nil
			}})
		})
		f.run(supervise.Restart(reconcile.Backoff(time.Second, time.Second), elect.Elect(f.config("a", client), term)))
		time.Sleep(2 * time.Minute)
		if got, want := f.took(), "a runs x 0s, a runs x 1m"; !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}

		err := elect.Elect(f.config("b", new(leasetest.LeaseClient)), new(supervise.Group)).Run(t.Context())
		if !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), "EachTerm") {
			t.Errorf("Elect of a Group: %v, want a terminal error that names EachTerm", err)
		}
		err = elect.EachTerm(nil).Run(t.Context())
		if !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), "got nil") {
			t.Errorf("EachTerm of nil: %v, want a terminal error", err)
		}
	})
}
