// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/adapters/kube/events"
	"github.com/reconkernel/reconcile/example/s3/bucket"
	"github.com/reconkernel/reconcile/gate"
)

const (
	selector = "s3.example.com/wish=true" // the label of the ConfigMaps that are wishes
	wishKey  = "wish"                     // which of their data is the wish, in YAML or JSON
)

// Control keeps the S3 buckets as the ConfigMaps of a namespace say, until ctx is
// done. A ConfigMap with the label wishes for the bucket of its own name. Told
// hears of each run.
//
// The controller is the one that the file feeds. What is another is where its
// events come from, and where it looks up a wish: in the cache of the informer.
// What is wrong with a wish is told in an event of its ConfigMap.
func control(ctx context.Context, client kubernetes.Interface, store *bucket.Store, o options, told func(reconcile.Result[string])) error {
	informer := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(o.namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = selector }),
	).Core().V1().ConfigMaps().Informer()
	wishes := &kube.Source[string]{
		Name:     "wishes",
		Informer: informer,
		Keys:     kube.Key(func(cm metav1.Object) (string, bool) { return cm.GetName(), true }),
	}
	recorder := &events.Recorder[string]{Client: client.EventsV1(), Controller: "example.com/s3", Regarding: o.regarding(informer)}
	c := &bucket.Controller{Store: store, Owner: o.Owner, Recheck: o.Recheck, Wish: o.wishFrom(informer)}
	queue := reconcile.NewQueue[string]()
	var group reconcile.Group
	// A cache that is not whole would let buckets look as if nobody wished for them.
	group.Add("buckets", reconcile.After(wishes.Synced, recorder.Around(&reconcile.Reconciler[string]{
		Name:      "buckets",
		Queue:     queue,
		Reconcile: c.Reconcile,
		OnResult: func(r reconcile.Result[string]) {
			recorder.OnResult(r)
			told(r)
		},
		Workers:       o.Workers,
		Timeout:       30 * time.Second,
		Grace:         2 * time.Second,
		Retry:         reconcile.Backoff(200*time.Millisecond, 10*time.Second).Limit(o.Retries),
		RecheckJitter: 0.1,
		Admit:         (&gate.Gate{Pause: bucket.Pause}).Admit, // nobody asks a store that has too much to do
	})))
	group.Add("informer", kube.Run(informer))
	group.Add("wishes", reconcile.Feed(queue, wishes.Feed))
	group.Add("wished", reconcile.After(wishes.Synced, &reconcile.Poller[string]{
		Name: "wished", Queue: queue, Period: o.Poll, Jitter: 0.1, GetItems: wishes.List,
	}))
	group.Add("existing", &reconcile.Poller[string]{
		Name: "existing", Queue: queue, Period: o.Poll, Jitter: 0.1, Vanished: true, GetItems: store.List,
	})
	return group.Run(ctx)
}

// wishFrom looks up wishes. A wish that cannot be read is refused until there is
// a better one, and its bucket stays as it is.
func (o options) wishFrom(informer cache.SharedInformer) func(context.Context, string) (bucket.Wish, bool, error) {
	return func(_ context.Context, name string) (bucket.Wish, bool, error) {
		cm, err := kube.Get[*corev1.ConfigMap](informer, cache.ObjectName{Namespace: o.namespace, Name: name})
		if apierrors.IsNotFound(err) {
			return bucket.Wish{}, false, nil
		}
		if err != nil {
			return bucket.Wish{}, false, err
		}
		source := fmt.Sprintf("the ConfigMap %s/%s", o.namespace, name)
		text, ok := cm.Data[wishKey]
		if !ok {
			return bucket.Wish{}, true, reconcile.Terminal(fmt.Errorf("%s: %s is missing among its data; want the wish there, {} for a bare bucket", source, wishKey))
		}
		wish, err := bucket.ParseOne(source, name, []byte(text))
		return wish, true, reconcile.Terminal(err)
	}
}

// regarding finds the ConfigMap that the events about a bucket belong to.
func (o options) regarding(informer cache.SharedInformer) func(string) (runtime.Object, error) {
	return func(name string) (runtime.Object, error) {
		return kube.Get[*corev1.ConfigMap](informer, cache.ObjectName{Namespace: o.namespace, Name: name})
	}
}
