// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reconkernel/reconcile"
)

// Instrument adds the metrics of a reconciler to c, and those of its queue if
// that is a [Statser]. The name of the reconciler becomes the labels name and
// controller.
//
// It puts itself before r.Reconcile and r.OnResult, which are called as before;
// so set all fields of r first, then call Instrument, then run r. A run costs
// some hundred nanoseconds more, and never waits for a scrape.
//
// Instrument returns an error and changes nothing if c, r or r.Reconcile is
// nil, or if the name is empty, not UTF-8 or taken. For the terms of a leader, in which
// the name is used again, there is [Instrumented].
func Instrument[T comparable](c *Collector, r *reconcile.Reconciler[T]) error {
	switch {
	case c == nil:
		return errors.New("promadapter: Instrument needs a Collector, got nil")
	case r == nil:
		return errors.New("promadapter: Instrument needs a Reconciler, got nil")
	case r.Reconcile == nil:
		return errors.New("promadapter: Reconciler.Reconcile is nil; set it before Instrument")
	}
	queue, _ := r.Queue.(Statser)
	if isNil(queue) {
		queue = nil
	}
	m := newRuns(r.Name, r.Workers)
	m.holdRetries = r.HoldRetries
	if _, ok := r.Queue.(*reconcile.Queue[T]); ok {
		m.waited = newWaited(r.Name) // of another queue, Result.Waited is the time in Admit alone
	}
	if err := c.add(r.Name, queue, m); err != nil {
		return err
	}

	run, onResult := r.Reconcile, r.OnResult
	r.Reconcile = func(ctx context.Context, item T) error {
		f := m.flights.begin()
		defer m.returned(ctx, f) // deferred, for a panic or Goexit
		return run(ctx, item)
	}
	r.OnResult = func(res reconcile.Result[T]) {
		m.count(res.Outcome, res.Err, res.Next)
		m.observe(res.Outcome, res.Failures, res.Waited, res.Duration)
		if onResult != nil {
			onResult(res)
		}
	}
	return nil
}

// Instrumented returns a Runner that runs r, whose metrics are in c meanwhile, and in the
// first scrape after that: [Instrument] before, and the way back after. So each term of a
// leader may have a Reconciler and a queue of the same name, whose counts begin at zero, and
// a process that waits has no series. If a term of the same name begins before that scrape,
// what the earlier one counted since the last scrape is lost. An error of Instrument is one
// of its Run.
//
//	term.Add("runs", promadapter.Instrumented(&metrics, r))
func Instrumented[T comparable](c *Collector, r *reconcile.Reconciler[T]) reconcile.Runner {
	return instrumented[T]{c, r}
}

type instrumented[T comparable] struct {
	c *Collector
	r *reconcile.Reconciler[T]
}

// Unwrap lets a Group know what runs in here.
func (i instrumented[T]) Unwrap() reconcile.Runner { return i.r }

// Run does what Instrumented says.
func (i instrumented[T]) Run(ctx context.Context) error {
	var run func(context.Context, T) error
	var onResult func(reconcile.Result[T])
	if i.r != nil {
		run, onResult = i.r.Reconcile, i.r.OnResult
	}
	if err := Instrument(i.c, i.r); err != nil {
		return reconcile.Terminal(err)
	}
	defer func() {
		i.r.Reconcile, i.r.OnResult = run, onResult
		i.c.mu.Lock()
		defer i.c.mu.Unlock()
		if i.c.ended == nil {
			i.c.ended = make(map[string]bool)
		}
		q, ok := i.r.Queue.(Statser)
		i.c.ended[i.r.Name] = ok && !isNil(q) // otherwise it is of AddQueue
	}()
	return i.r.Run(ctx)
}

// An ending is a way for a run to end: the outcomes, with Requeued told apart as
// controller-runtime does.
type ending uint8

const (
	succeeded ending = iota
	requeuedNow
	requeuedLater
	retrying
	gaveUp
	terminalErrors
	aborted
	endings // how many there are
)

// Runs are the metrics of the runs of one reconciler.
type runs struct {
	name        string
	since       time.Time
	workers     int
	holdRetries bool
	flights     *flights

	// The counters are added to by the workers, each by itself: what a scrape
	// reads of several may be one run apart.
	ended    [endings]atomic.Uint64
	held     atomic.Uint64
	panics   atomic.Uint64
	timeouts atomic.Uint64

	waited             prometheus.Histogram // nil if the queue does not tell
	worked, reconciled prometheus.Histogram
	failures           prometheus.Histogram
}

func newRuns(name string, workers int) *runs {
	return &runs{
		name:       name,
		since:      time.Now(),
		workers:    max(1, workers),
		flights:    newFlights(),
		worked:     newWorked(name),
		reconciled: newReconciled(name),
		failures:   newFailures(name),
	}
}

// returned notes that Reconcile has returned, or was thrown out of.
func (r *runs) returned(ctx context.Context, f *flight) {
	r.flights.end(f)
	if ctx.Err() != nil && context.Cause(ctx) == reconcile.ErrTimeout {
		r.timeouts.Add(1)
	}
}

// count counts a run.
func (r *runs) count(outcome reconcile.Outcome, err error, next time.Duration) {
	end := succeeded
	switch outcome {
	case reconcile.OutcomeSucceeded:
	case reconcile.OutcomeRequeued:
		end = requeuedNow
		if next > 0 {
			end = requeuedLater
		}
	case reconcile.OutcomeRetrying:
		end = retrying
	case reconcile.OutcomeGaveUp:
		end = gaveUp
	case reconcile.OutcomeTerminal:
		end = terminalErrors
	case reconcile.OutcomeAborted:
		end = aborted
	}
	r.ended[end].Add(1)
	if err == nil {
		return
	}
	if end == requeuedLater && planHolds(err) || end == retrying && r.holdRetries && next > 0 {
		r.held.Add(1)
	}
	if _, ok := err.(*reconcile.PanicError); ok { // not errors.As: the kernel's own
		r.panics.Add(1)
	}
}

// planHolds reports whether the next run of a Requeued one is not before its time. The
// policy is known not to have retried a failure beside it.
func planHolds(err error) bool {
	_, w := reconcile.Classify(err, 1, reconcile.NoRetry)
	return w.MinDelay > 0 && w.MinDelay == w.Delay
}

// observe adds a run to the histograms. controller-runtime knows no aborted
// runs: they are left out of its series.
func (r *runs) observe(outcome reconcile.Outcome, failures int, waited, duration time.Duration) {
	if r.waited != nil {
		r.waited.Observe(waited.Seconds())
	}
	seconds := duration.Seconds()
	r.worked.Observe(seconds)
	if outcome.Failed() {
		r.failures.Observe(float64(failures))
	}
	if outcome != reconcile.OutcomeAborted {
		r.reconciled.Observe(seconds)
	}
}

// collect sends the metrics as they are now.
func (r *runs) collect(ch chan<- prometheus.Metric) {
	active, total, oldest := r.flights.now()
	gauge(ch, unfinishedDesc, total.Seconds(), r.name, r.name)
	gauge(ch, longestDesc, oldest.Seconds(), r.name, r.name)
	gauge(ch, activeDesc, float64(active), r.name)
	gauge(ch, maxDesc, float64(r.workers), r.name)

	var n [endings]uint64
	for end := range n {
		n[end] = r.ended[end].Load()
	}
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetricWithCreatedTimestamp(d, prometheus.CounterValue, float64(n), r.since, labels...)
	}
	for outcome, n := range map[reconcile.Outcome]uint64{
		reconcile.OutcomeSucceeded: n[succeeded],
		reconcile.OutcomeRequeued:  n[requeuedNow] + n[requeuedLater],
		reconcile.OutcomeRetrying:  n[retrying],
		reconcile.OutcomeGaveUp:    n[gaveUp],
		reconcile.OutcomeTerminal:  n[terminalErrors],
		reconcile.OutcomeAborted:   n[aborted],
	} {
		count(runsDesc, n, r.name, string(outcome))
	}
	failed := n[retrying] + n[gaveUp] + n[terminalErrors]
	count(reconcileDesc, n[succeeded], r.name, "success")
	count(reconcileDesc, n[requeuedNow], r.name, "requeue")
	count(reconcileDesc, n[requeuedLater], r.name, "requeue_after")
	count(reconcileDesc, failed, r.name, "error")
	count(errorsDesc, failed, r.name)
	count(terminalDesc, n[terminalErrors], r.name)
	count(panicsDesc, r.panics.Load(), r.name)
	count(timeoutsDesc, r.timeouts.Load(), r.name)
	count(heldDesc, r.held.Load(), r.name)

	if r.waited != nil {
		r.waited.Collect(ch)
	}
	r.worked.Collect(ch)
	r.reconciled.Collect(ch)
	r.failures.Collect(ch)
}
