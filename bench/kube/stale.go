// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// A nursery is where each parent, a ConfigMap, wants one child, a Secret whose
// name the server makes up.
type nursery struct {
	config    *rest.Config
	namespace string

	mu      sync.Mutex // guards what follows
	runs    int
	parents map[string]bool // that have made a child
	want    int             // of them
	enough  chan struct{}   // closed when there are so many
}

var parentKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

func childOf(parent *corev1.ConfigMap) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		GenerateName: parent.Name + "-", Namespace: parent.Namespace, Labels: labels.Set{"parent": parent.Name},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(parent, parentKind)},
	}}
}

func (n *nursery) began() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runs++
}

func (n *nursery) made(parent string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := len(n.parents)
	n.parents[parent] = true
	if len(n.parents) == n.want && before < n.want {
		close(n.enough)
	}
}

// nurseries are the ways to keep one that are compared, each prepared: what each
// returns runs until ctx is done.
var nurseries = []struct {
	name    string
	prepare func(n *nursery) (func(context.Context) error, error)
}{
	{"ours", func(n *nursery) (func(context.Context) error, error) { return nurseryOurs(n, false) }},
	{"ours, Writes", func(n *nursery) (func(context.Context) error, error) { return nurseryOurs(n, true) }},
	{"theirs", func(n *nursery) (func(context.Context) error, error) { return nurseryTheirs(n, false) }},
	{"theirs, EnableReadYourWritesConsistency", func(n *nursery) (func(context.Context) error, error) { return nurseryTheirs(n, true) }},
}

func nurseryOurs(n *nursery, careful bool) (func(context.Context) error, error) {
	api, err := typedcorev1.NewForConfig(n.config)
	if err != nil {
		return nil, err
	}
	parents, err := newInformer(n.config, "configmaps", n.namespace, &corev1.ConfigMap{})
	if err != nil {
		return nil, err
	}
	children, err := newInformer(n.config, "secrets", n.namespace, &corev1.Secret{})
	if err != nil {
		return nil, err
	}
	parentsByName := listers.NewConfigMapLister(parents.GetIndexer()).ConfigMaps(n.namespace)
	childrenByName := listers.NewSecretLister(children.GetIndexer()).Secrets(n.namespace)
	own := &kube.Writes[cache.ObjectName]{Informer: children}

	queue := reconcile.NewQueue[cache.ObjectName]()
	wishes := &kube.Source[cache.ObjectName]{Informer: parents, Keys: kube.Name}
	owned := &kube.Source[cache.ObjectName]{
		Informer: children, Keys: kube.OwnedBy{APIVersion: "v1", Kind: "ConfigMap"}.Keys,
	}
	workers := &reconcile.Reconciler[cache.ObjectName]{
		Queue: queue, Workers: 4, Retry: kube.Retry(nil), Logger: quiet,
		Reconcile: func(ctx context.Context, name cache.ObjectName) error {
			n.began()
			if careful {
				if err := own.Seen(name); err != nil {
					return err
				}
			}
			parent, err := parentsByName.Get(name.Name)
			if err != nil {
				return client.IgnoreNotFound(err)
			}
			has, err := childrenByName.List(labels.SelectorFromSet(labels.Set{"parent": name.Name}))
			if err != nil || len(has) > 0 {
				return err
			}
			child, err := api.Secrets(n.namespace).Create(ctx, childOf(parent), metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if careful {
				own.Add(name, child)
			}
			n.made(name.Name)
			return nil
		},
	}
	group := &reconcile.Group{Logger: quiet}
	group.Add("parents", kube.Run(parents))
	group.Add("children", kube.Run(children))
	group.Add("wishes", reconcile.Feed(queue, wishes.Feed))
	group.Add("owned", reconcile.Feed(queue, owned.Feed))
	group.Add("workers", reconcile.After(wishes.Synced, reconcile.After(owned.Synced, workers)))
	return group.Run, nil
}

// A nurseryReconciler keeps a nursery with controller-runtime.
type nurseryReconciler struct {
	client.Client
	*nursery
}

func (n nurseryReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	n.began()
	var parent corev1.ConfigMap
	if err := n.Get(ctx, req.NamespacedName, &parent); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var has corev1.SecretList
	err := n.List(ctx, &has, client.InNamespace(req.Namespace), client.MatchingLabels{"parent": req.Name})
	if err != nil || len(has.Items) > 0 {
		return ctrl.Result{}, err
	}
	if err := n.Create(ctx, childOf(&parent)); err != nil {
		return ctrl.Result{}, err
	}
	n.made(req.Name)
	return ctrl.Result{}, nil
}

func nurseryTheirs(n *nursery, careful bool) (func(context.Context) error, error) {
	options := managerOptions(n.namespace)
	options.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: &careful}
	manager, err := ctrl.NewManager(n.config, options)
	if err != nil {
		return nil, err
	}
	err = ctrl.NewControllerManagedBy(manager).
		Named("nursery").
		For(&corev1.ConfigMap{}).
		Owns(&corev1.Secret{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		Complete(nurseryReconciler{manager.GetClient(), n})
	return manager.Start, err
}

// stale has a nursery of one kind whose cache of children lags. Each parent is
// changed three times as soon as it is there. It returns how many children too
// many there are, and the runs.
func stale(ctx context.Context, s *kubetest.Server, prepare func(*nursery) (func(context.Context) error, error), l load) (values, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	api, ns, err := namespace(ctx, s)
	if err != nil {
		return nil, err
	}
	config := unlimited(s)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return late{next, l.Lag} })
	n := &nursery{config: config, namespace: ns, parents: make(map[string]bool), want: 1, enough: make(chan struct{})}
	run, err := prepare(n)
	if err != nil {
		return nil, err
	}
	stop := background(ctx, fail, run)
	defer stop()
	bear := func(i int) error {
		parent := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}
		if _, err := api.ConfigMaps(ns).Create(ctx, parent, metav1.CreateOptions{}); err != nil {
			return err
		}
		for version := range 3 {
			patch := fmt.Appendf(nil, `{"data":{"text":%q}}`, text(i, version))
			if _, err := api.ConfigMaps(ns).Patch(ctx, parent.Name, mergePatch, patch, metav1.PatchOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
	enough := func() error {
		select {
		case <-n.enough:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("not every parent has a child: %w", context.Cause(ctx))
		}
	}

	// The first shows that it runs.
	if err := bear(0); err != nil {
		return nil, err
	}
	if err := enough(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.want, n.enough = l.Parents, make(chan struct{})
	n.mu.Unlock()
	if err := pause(ctx, l.Settle); err != nil {
		return nil, err
	}
	if err := each(l.Parents-1, func(i int) error { return bear(i + 1) }); err != nil {
		return nil, err
	}
	if err := enough(); err != nil {
		return nil, err
	}
	if err := pause(ctx, l.Settle); err != nil {
		return nil, err
	}
	if err := stop(); err != nil {
		return nil, err
	}
	children, err := api.Secrets(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return values{"too many": float64(len(children.Items) - l.Parents), "stale runs": float64(n.runs)}, nil
}

// late has the watches of Secrets come late.
type late struct {
	next http.RoundTripper
	lag  time.Duration
}

func (l late) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err == nil && req.URL.Query().Get("watch") != "" && strings.HasSuffix(req.URL.Path, "/secrets") {
		resp.Body = delayed(resp.Body, l.lag)
	}
	return resp, err
}

// delayed returns body, each part of which comes later than it did.
func delayed(body io.ReadCloser, lag time.Duration) io.ReadCloser {
	type part struct {
		data []byte
		due  time.Time
		err  error
	}
	parts := make(chan part, 1000)
	go func() {
		defer close(parts)
		for {
			data := make([]byte, 32<<10)
			n, err := body.Read(data)
			parts <- part{data[:n], time.Now().Add(lag), err}
			if err != nil {
				return
			}
		}
	}()
	r, w := io.Pipe()
	go func() {
		for p := range parts { // to the end, also when nobody reads any more
			time.Sleep(time.Until(p.due))
			_, _ = w.Write(p.data)
			if p.err != nil {
				_ = w.CloseWithError(p.err)
			}
		}
	}()
	return delayedBody{r, body}
}

type delayedBody struct {
	*io.PipeReader
	body io.Closer
}

func (d delayedBody) Close() error {
	_ = d.PipeReader.Close() // never fails
	return d.body.Close()
}
