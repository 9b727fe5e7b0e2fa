// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package kube makes controllers of Kubernetes objects, and the parts of them.
//
// A [Controller] is the usual case: a function that is called with an object of a
// kind when that, or what it owns, has changed.
//
//	c := &kube.Controller[*corev1.ConfigMap]{Name: "configs", Informer: informer, Reconcile: put}
//	group.Add("informers", c.Informers())
//	group.Add("configs", c)
//
// For items of another type, the parts are put together by hand. A [Source] is what
// an informer sees. Its Feed is a [reconcile.Feeder], its Synced is for
// [supervise.After], its List for a [reconcile.Poller]:
//
//	pods := kube.Source[cache.ObjectName]{Name: "pods", Informer: informer, Keys: kube.Name}
//	queue := reconcile.NewQueue[cache.ObjectName]()
//	group.Add("informer", kube.Run(informer))
//	group.Add("pods", reconcile.Feed(queue, pods.Feed))
//	group.Add("pods, the runs", supervise.After(pods.Synced, reconciler))
//
// The informer may be of any kind: typed, dynamic, of metadata alone. Keys makes
// items of any type of an object: its name with [Name], that of its owner with
// [OwnedBy] or [Mark], or what a function of yours says.
//
// # Events and observations
//
// An object that appears, changes or is deleted is an event:
// [reconcile.Enqueuer.Enqueue]. An update is an event of the items of the old and
// of the new object, so an object that changes its owner enqueues both owners. A
// deletion that the watch has missed is an event after the next list. An object
// that is listed again with the same resource version, as by a resync, is an
// observation: [reconcile.Enqueuer.Offer], which leaves back-off and scheduled runs
// as they are. An object in the first list of an informer is offered if its item is
// unknown, in sync or ready, so that it goes to the Background of the queue.
// Otherwise it is an event.
//
// Source.Only selects objects and Source.Changed selects updates. Of the selected
// objects, no filter drops an appearance, a deletion or its beginning, a replacement
// by another object of the same name, or a resync.
//
// # Packages beside this one
//
// This package imports client-go's tools/cache and no more. What needs more, or
// is something else, is in a package of its own: kinds that come and go at run
// time in kinds, typed clients of custom resources in custom, finalizers in
// finalizer, the status and its conditions in conditions, leader election in
// elect, events about runs in events.
package kube
