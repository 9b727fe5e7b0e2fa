// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package promadapter shows queues and reconcilers to Prometheus.
//
// Tell a [Collector] of each [reconcile.Reconciler] with [Instrument], and
// register it; that is all:
//
//	var metrics promadapter.Collector
//	if err := promadapter.Instrument(&metrics, &reconciler); err != nil {
//		return err
//	}
//	prometheus.MustRegister(&metrics)
//
// The series have the names, types, labels, help and buckets of client-go's work
// queues (workqueue_…) and of controller-runtime's controllers
// (controller_runtime_…), so that dashboards and alerts made for those serve
// here as well. What those have no name for is called reconcile_….
//
// Where the two differ in what they count:
//
//   - An aborted run, one cut short by a shutdown or a lost lease, is in the
//     workqueue_… series and in none of controller_runtime_….
//   - The error result has the runs that are to be retried, that gave up and
//     that are terminal; requeue has those that asked for the next run at once.
//   - The success result has the runs that returned RecheckWithin; controller-runtime
//     counts a run that asks for a recheck as requeue_after.
//   - workqueue_adds_total counts work when it is accepted, also if its time
//     comes later.
//   - workqueue_retries_total counts items given back to run again, also at once
//     or because they were aborted, and not those that a feeder added for later.
//   - workqueue_queue_duration_seconds starts when an item becomes ready, for
//     one enqueued while in flight when it was given back; it is observed when the
//     run has ended. A queue other than a [reconcile.Queue] has none.
//   - Work begins and ends with Reconcile, without the logging around it.
//   - The label priority is empty, as controller-runtime has it for a queue
//     without priorities.
//
// A run costs a few hundred nanoseconds more and allocates nothing more. A
// scrape takes the same time however many items there are: it looks at counts
// alone, never at the items. No worker ever waits for a scrape.
//
// Beside the package are alerts.yml, rules for Prometheus, and dashboard.json, a
// dashboard for Grafana.
package promadapter
