// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package supervise runs the members of a service together and ends them in order: first
// what feeds the queues, then the Reconcilers.
//
//	var g supervise.Group
//	g.Add("events", supervise.Restart(nil, reconcile.Feed(queue, subscribe)))
//	g.Add("zones", &reconcile.Reconciler[string]{Queue: queue, Reconcile: reconcileZone})
//	err := g.Run(ctx)
//
// A service with one queue needs no Group. keep.Set.Run runs all that it needs, and a
// Poller beside a Reconciler are two goroutines.
package supervise
