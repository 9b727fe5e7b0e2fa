// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/elect"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// A post is what one process stands by for.
type post struct {
	config           *rest.Config
	namespace, lease string
	reconcile        func(ctx context.Context, name string) error

	// stands returns whether the process has heard of the object of a name while it
	// stands by. It is set before the process begins to, and nil if it hears of nothing.
	stands func(ctx context.Context, name string) bool
}

// standbys are the ways to stand by that are compared, each prepared: what each
// returns runs until ctx is done.
var standbys = []struct {
	name    string
	prepare func(p *post) (func(context.Context) error, error)
}{
	{"ours", standbyOurs},
	{"theirs", func(p *post) (func(context.Context) error, error) { return standbyTheirs(p, false) }},
	{"theirs, EnableWarmup", func(p *post) (func(context.Context) error, error) { return standbyTheirs(p, true) }},
}

func standbyOurs(p *post) (func(context.Context) error, error) {
	leases, err := typedcoordinationv1.NewForConfig(p.config)
	if err != nil {
		return nil, err
	}
	informer, err := newInformer(p.config, "configmaps", p.namespace, &corev1.ConfigMap{})
	if err != nil {
		return nil, err
	}
	p.stands = func(_ context.Context, name string) bool {
		_, ok, err := informer.GetStore().GetByKey(p.namespace + "/" + name)
		return ok && err == nil
	}
	c := &kube.Controller[*corev1.ConfigMap]{Name: p.lease, Informer: informer, Reconcile: func(ctx context.Context, cm *corev1.ConfigMap) error {
		return p.reconcile(ctx, cm.Name)
	}, Gone: func(ctx context.Context, n cache.ObjectName) error { return p.reconcile(ctx, n.Name) }}
	group := &reconcile.Group{Logger: quiet}
	group.Add("informers", c.Informers())
	group.Add("leader", elect.Elect(elect.Config{Client: leases, Namespace: p.namespace, Name: p.lease, Logger: quiet}, c))
	return group.Run, nil
}

func standbyTheirs(p *post, warm bool) (func(context.Context) error, error) {
	options := managerOptions(p.namespace)
	options.LeaderElection, options.LeaderElectionReleaseOnCancel = true, true
	options.LeaderElectionNamespace, options.LeaderElectionID = p.namespace, p.lease
	manager, err := ctrl.NewManager(p.config, options)
	if err != nil {
		return nil, err
	}
	// What has passed the predicate is on its way into the queue. To ask the cache
	// is not enough: that alone makes it watch, perhaps before the controller does.
	var heard sync.Map
	if warm {
		p.stands = func(_ context.Context, name string) bool {
			_, ok := heard.Load(name)
			return ok
		}
	}
	hear := predicate.NewPredicateFuncs(func(o client.Object) bool {
		heard.Store(o.GetName(), true)
		return true
	})
	err = ctrl.NewControllerManagedBy(manager).
		Named(p.lease).
		For(&corev1.ConfigMap{}, builder.WithPredicates(hear)).
		WithOptions(controller.Options{EnableWarmup: &warm}).
		Complete(ctrlreconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			return ctrl.Result{}, p.reconcile(ctx, req.Name)
		}))
	return manager.Start, err
}

// visits are the runs of a new leader, until each object that is there has had one.
type visits struct {
	mu    sync.Mutex // guards what follows, until done is closed
	gone  int        // runs of objects that are no more
	first time.Time
	left  map[string]bool // objects without a run
	done  chan struct{}
}

func (v *visits) visit(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case len(v.left) == 0:
		return
	case strings.HasPrefix(name, "gone-"):
		v.gone++
		return
	case v.first.IsZero():
		v.first = time.Now()
	}
	if delete(v.left, name); len(v.left) == 0 {
		close(v.done)
	}
}

// standby has processes of all kinds stand by for a Lease each, while objects come
// and go, and then lets them have it, one after the other, the turn-th first. It returns of each how
// many runs were of objects that are gone, and the milliseconds from the Lease to
// the first other run.
func standby(ctx context.Context, s *kubetest.Server, l load, turn int) (map[string]values, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	api, ns, err := namespace(ctx, s)
	if err != nil {
		return nil, err
	}
	leases, err := typedcoordinationv1.NewForConfig(s.Admin())
	if err != nil {
		return nil, err
	}
	create := func(name string) error {
		_, err := api.ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	if err := create("before"); err != nil {
		return nil, err
	}

	posts, seen, stops := make([]*post, len(standbys)), make([]*visits, len(standbys)), make([]func() error, len(standbys))
	for i, kind := range standbys {
		v := &visits{left: map[string]bool{"before": true, "last": true}, done: make(chan struct{})}
		p := &post{config: unlimited(s), namespace: ns, lease: fmt.Sprintf("lease-%d", i), reconcile: func(ctx context.Context, name string) error {
			v.visit(name)
			return pause(ctx, l.Work)
		}}
		holder, seconds := "another", int32(3600)
		if _, err := leases.Leases(ns).Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: p.lease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: time.Now()}},
		}, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
		run, err := kind.prepare(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind.name, err)
		}
		posts[i], seen[i], stops[i] = p, v, background(ctx, fail, run)
		defer stops[i]()
	}
	allStand := func(name string) error {
		for _, p := range posts {
			for p.stands != nil && !p.stands(ctx, name) {
				if err := pause(ctx, 20*time.Millisecond); err != nil {
					return fmt.Errorf("%s stands by without the object %s: %w", p.lease, name, err)
				}
			}
		}
		return nil
	}
	if err := allStand("before"); err != nil {
		return nil, err
	}
	if err := each(l.Gone, func(i int) error {
		name := fmt.Sprintf("gone-%d", i)
		if err := create(name); err != nil {
			return err
		}
		return api.ConfigMaps(ns).Delete(ctx, name, metav1.DeleteOptions{})
	}); err != nil {
		return nil, err
	}
	if err := create("last"); err != nil {
		return nil, err
	}
	if err := allStand("last"); err != nil {
		return nil, err
	}
	if err := pause(ctx, l.Settle); err != nil {
		return nil, err
	}

	of := make(map[string]values)
	for i := range standbys {
		i = (i + turn) % len(standbys)
		kind := standbys[i]
		patch := []byte(`{"spec":{"holderIdentity":"","leaseDurationSeconds":1}}`)
		if _, err := leases.Leases(ns).Patch(ctx, posts[i].lease, mergePatch, patch, metav1.PatchOptions{}); err != nil {
			return nil, err
		}
		v := seen[i]
		select {
		case <-v.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: no run of each object: %w", kind.name, context.Cause(ctx))
		}
		lease, err := leases.Leases(ns).Get(ctx, posts[i].lease, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		late := v.first.Sub(lease.Spec.AcquireTime.Time)
		of[kind.name] = values{"gone": float64(v.gone), "first run": late.Seconds() * 1000}
		if err := stops[i](); err != nil {
			return nil, fmt.Errorf("%s: %w", kind.name, err)
		}
	}
	return of, nil
}
