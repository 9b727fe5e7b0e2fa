// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The series that client-go's work queues and controller-runtime's controllers
// have: their names, labels, help and buckets are those of controller-runtime,
// word by word, because a registry refuses two metrics of one name that differ.
var (
	queueLabels   = []string{"name", "controller"}
	workerLabels  = []string{"controller"}
	depthDesc     = desc("workqueue_depth", "Current depth of workqueue by workqueue and priority", "name", "controller", "priority")
	addsDesc      = desc("workqueue_adds_total", "Total number of adds handled by workqueue", queueLabels...)
	retriesDesc   = desc("workqueue_retries_total", "Total number of items added to the workqueue with a non-zero delay (rate-limited requeues, explicit RequeueAfter or AddAfter calls)", queueLabels...)
	longestDesc   = desc("workqueue_longest_running_processor_seconds", "How many seconds has the longest running processor for workqueue been running.", queueLabels...)
	reconcileDesc = desc("controller_runtime_reconcile_total", "Total number of reconciliations per controller", "controller", "result")
	errorsDesc    = desc("controller_runtime_reconcile_errors_total", "Total number of reconciliation errors per controller", workerLabels...)
	terminalDesc  = desc("controller_runtime_terminal_reconcile_errors_total", "Total number of terminal reconciliation errors per controller", workerLabels...)
	panicsDesc    = desc("controller_runtime_reconcile_panics_total", "Total number of reconciliation panics per controller", workerLabels...)
	timeoutsDesc  = desc("controller_runtime_reconcile_timeouts_total", "Total number of reconciliation timeouts per controller", workerLabels...)
	maxDesc       = desc("controller_runtime_max_concurrent_reconciles", "Maximum number of concurrent reconciles per controller", workerLabels...)
	activeDesc    = desc("controller_runtime_active_workers", "Number of currently used workers per controller", workerLabels...)

	unfinishedDesc = desc("workqueue_unfinished_work_seconds",
		"How many seconds of work has been done that is in progress and hasn't been observed by work_duration. "+
			"Large values indicate stuck threads. "+
			"One can deduce the number of stuck threads by observing the rate at which this increases.", queueLabels...)
)

// The series of our own, for what those have no name for.
var (
	waitingDesc   = desc("reconcile_queue_waiting", "Items in the queue with work left that become ready later: held, within a time, or backing off.", queueLabels...)
	rechecksDesc  = desc("reconcile_queue_rechecks", "Items in the queue that are in sync: the last run succeeded, and the next is a recheck.", queueLabels...)
	inFlightDesc  = desc("reconcile_queue_in_flight", "Items taken from the queue and not yet given back.", queueLabels...)
	againDesc     = desc("reconcile_queue_again", "Items in flight whose next run is ready.", queueLabels...)
	pendingDesc   = desc("reconcile_oldest_pending_seconds", "Seconds since the oldest item that is out of sync was last in sync, or unknown; 0 if all items are in sync.", queueLabels...)
	takenDesc     = desc("reconcile_queue_taken_total", "Items taken from the queue.", queueLabels...)
	coalescedDesc = desc("reconcile_queue_coalesced_total", "Events and observations folded into work that the queue had already.", queueLabels...)
	runsDesc      = desc("reconcile_runs_total", "Runs by outcome, as the log names it.", "controller", "outcome")
	heldDesc      = desc("reconcile_held_total", "Runs after which the item was held: no event brings it back before its time.", workerLabels...)
)

// The series of gates, which several reconcilers may share.
var (
	gateLabels       = []string{"name"}
	gateLimitDesc    = desc("reconcile_gate_limit", "Runs that the gate lets go on at once; +Inf if it has no limit.", gateLabels...)
	gateInFlightDesc = desc("reconcile_gate_in_flight", "Runs that the gate has let in and that have not ended.", gateLabels...)
	gateWaitingDesc  = desc("reconcile_gate_waiting", "Reconcilers that the gate holds back.", gateLabels...)
	gatePausedDesc   = desc("reconcile_gate_paused", "1 while a pause lasts, or runs wait for its probe; otherwise 0.", gateLabels...)
	gatePausesDesc   = desc("reconcile_gate_pauses_total", "How often a pause began while the gate was open.", gateLabels...)
	gateHalvedDesc   = desc("reconcile_gate_halved_total", "Slow results that halved the limit of the gate, or found it at its least.", gateLabels...)
)

var (
	listingDesiredDesc   = desc("reconcile_listing_desired", "Desired things that are listed.", "name")
	listingActualDesc    = desc("reconcile_listing_actual", "Existing things that are listed.", "name")
	listingMissingDesc   = desc("reconcile_listing_missing", "Desired things that do not exist.", "name")
	listingOutOfSyncDesc = desc("reconcile_listing_out_of_sync", "Existing things that are desired, and not in sync.", "name")
	listingSurplusDesc   = desc("reconcile_listing_surplus", "Existing things that are not desired, or are to be deleted.", "name")
	listingAgeDesc       = desc("reconcile_listing_age_seconds", "Time since the last complete listing of both sides, also if it was rejected.", "name")
	listingRejectedDesc  = desc("reconcile_listing_rejected_seconds", "For how long the listings have been rejected, because too many things would be deleted; 0 if the last was not.", "name")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// The buckets of client-go's histograms and of controller-runtime's.
var (
	queueBuckets = prometheus.ExponentialBuckets(10e-9, 10, 12)
	runBuckets   = []float64{
		0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0,
		1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60,
	}
)

func newWaited(name string) prometheus.Histogram {
	return durations("workqueue_queue_duration_seconds",
		"How long in seconds an item stays in workqueue before being requested", queueBuckets,
		prometheus.Labels{"name": name, "controller": name})
}

func newWorked(name string) prometheus.Histogram {
	return durations("workqueue_work_duration_seconds",
		"How long in seconds processing an item from workqueue takes.", queueBuckets,
		prometheus.Labels{"name": name, "controller": name})
}

func newReconciled(name string) prometheus.Histogram {
	return durations("controller_runtime_reconcile_time_seconds",
		"Length of time per reconciliation per controller", runBuckets,
		prometheus.Labels{"controller": name})
}

// durations makes a histogram that is a native one too, as controller-runtime's
// are. The labels are constant, so that a worker has nothing to look up.
func durations(name, help string, buckets []float64, labels prometheus.Labels) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: name, Help: help, ConstLabels: labels,
		Buckets:                         buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	})
}

// newFailures makes the histogram that tells of items that fail again and again
// without naming them.
func newFailures(name string) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:        "reconcile_failures_in_a_row",
		Help:        "After each failed run, how often the item has failed in a row.",
		ConstLabels: prometheus.Labels{"controller": name},
		Buckets:     []float64{1, 2, 3, 5, 10, 20, 50, 100},
	})
}
