// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
	"go.opentelemetry.io/otel/trace"

	"github.com/reconkernel/reconcile"
)

// A statser is a queue that tells its counts, such as [reconcile.Queue].
type statser interface{ Stats() reconcile.Stats }

// Metrics measures the runs of one reconciler.
type metrics struct {
	meter      metric.Meter
	duration   metric.Float64Histogram
	wait       metric.Float64Histogram
	waits      bool // whether Result.Waited is known
	attributes []attribute.KeyValue
	queue      metric.MeasurementOption

	// plain has the attributes of the outcomes that are no failures, so that a
	// run that ends well has none to make.
	plain map[reconcile.Outcome][]metric.RecordOption
}

// buckets are those of the conventions, up to what a run may take.
var buckets = metric.WithExplicitBucketBoundaries(
	0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60, 300, 600)

func newMetrics(meter metric.Meter, reconciler string) (*metrics, error) {
	duration, err := messagingconv.NewProcessDuration(meter, buckets)
	if err != nil {
		return nil, err
	}
	wait, err := meter.Float64Histogram("reconcile.queue.wait_time", buckets, metric.WithUnit("s"),
		metric.WithDescription("How long items were ready in the queue before their run."))
	if err != nil {
		return nil, err
	}
	m := &metrics{
		meter:    meter,
		duration: duration.Float64Histogram,
		wait:     wait,
		attributes: []attribute.KeyValue{
			semconv.MessagingSystemKey.String("reconcile"),
			semconv.MessagingOperationName("reconcile"),
			semconv.MessagingDestinationName(reconciler),
		},
		queue: metric.WithAttributeSet(attribute.NewSet(semconv.MessagingDestinationName(reconciler))),
		plain: make(map[reconcile.Outcome][]metric.RecordOption),
	}
	for _, o := range []reconcile.Outcome{reconcile.OutcomeSucceeded, reconcile.OutcomeRequeued, reconcile.OutcomeAborted} {
		m.plain[o] = m.options(outcomeKey.String(string(o)))
	}
	return m, nil
}

func (m *metrics) options(more ...attribute.KeyValue) []metric.RecordOption {
	all := append(m.attributes[:len(m.attributes):len(m.attributes)], more...)
	return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(all...))}
}

// record measures a run.
func (m *metrics) record(span trace.Span, o observation) {
	ctx := context.Background()
	if span.SpanContext().IsSampled() {
		ctx = trace.ContextWithSpan(ctx, span) // for exemplars
	}
	options := m.plain[o.outcome]
	if o.outcome.Failed() {
		options = m.options(outcomeKey.String(string(o.outcome)), o.errorType)
	}
	m.duration.Record(ctx, o.duration.Seconds(), options...)
	if m.waits {
		m.wait.Record(ctx, o.waited.Seconds(), m.queue)
	}
}

// register has the queue and the runs in flight looked at whenever metrics are
// collected, until the returned function is called. That looks at the queue once more,
// so that nothing is lost that was counted since the last collection. The
// counters already have what added says of the queue.
func (m *metrics) register(queue statser, added *[4]uint64, workers int, oldest func() time.Duration) (end func() error, err error) {
	var errs []error
	note := func(err error) { errs = append(errs, err) }
	upDown := func(name, unit, what string) metric.Int64ObservableUpDownCounter {
		c, err := m.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
		note(err)
		return c
	}
	var counts []*count
	counter := func(name, what string, of func(reconcile.Stats) uint64) {
		c, err := m.meter.Int64Counter(name, metric.WithUnit("{item}"), metric.WithDescription(what))
		note(err)
		counts = append(counts, &count{c, of, &added[len(counts)]})
	}
	age, err := m.meter.Float64ObservableGauge("reconcile.run.age.max", metric.WithUnit("s"),
		metric.WithDescription("For how long the oldest run in flight has been going on."))
	note(err)
	limit := upDown("reconcile.worker.max", "{worker}", "How many runs can go on at once.")
	all := []metric.Observable{age, limit}

	items := upDown("reconcile.item.count", "{item}", "Items in the queue, by state.")
	again := upDown("reconcile.item.again", "{item}", "Items in flight whose next run is ready.")
	if queue != nil {
		all = append(all, items, again)
		counter("reconcile.item.enqueued", "Items accepted as new work.", func(s reconcile.Stats) uint64 { return s.Enqueued })
		counter("reconcile.item.coalesced", "Events and observations folded into work that the queue had already.", func(s reconcile.Stats) uint64 { return s.Coalesced })
		counter("reconcile.item.taken", "Items taken from the queue.", func(s reconcile.Stats) uint64 { return s.Taken })
		counter("reconcile.item.requeued", "Items given back to run again.", func(s reconcile.Stats) uint64 { return s.Requeued })
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	in := func(state string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(m.attributes[2], stateKey.String(state)))
	}
	ready, waiting, inFlight := in(reconcile.PhaseReady.String()), in(reconcile.PhaseWaiting.String()), in(reconcile.PhaseInFlight.String())
	recheck := in("recheck") // a state of its own, and not among the waiting
	var mu sync.Mutex        // several readers may collect at once
	stats := func() (s reconcile.Stats, ok bool) {
		// The SDK does not recover a panic of Stats, which would end the process. For an error of
		// a callback, a PeriodicReader drops all metrics of the program.
		defer func() {
			if p := recover(); p != nil {
				otel.Handle(fmt.Errorf("oteladapter: Stats of the queue of reconciler %s: panic: %s", m.attributes[2].Value.AsString(), printed(p, maxText)))
			}
		}()
		s = queue.Stats()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range counts {
			c.add(s, m.queue)
		}
		return s, true
	}
	registration, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveFloat64(age, oldest().Seconds(), m.queue)
		o.ObserveInt64(limit, int64(workers), m.queue)
		if queue == nil {
			return nil
		}
		s, ok := stats()
		if !ok {
			return nil
		}
		o.ObserveInt64(items, int64(s.Ready), ready)
		o.ObserveInt64(items, int64(s.Waiting-s.Rechecks), waiting)
		o.ObserveInt64(items, int64(s.Rechecks), recheck)
		o.ObserveInt64(items, int64(s.InFlight), inFlight)
		o.ObserveInt64(again, int64(s.Again), m.queue)
		return nil
	}, all...)
	if err != nil {
		return nil, err
	}
	return func() error {
		if queue != nil {
			stats()
		}
		return registration.Unregister()
	}, nil
}

// A count is a figure of Stats that only rises. It is a synchronous counter, because one
// that is observed has lost what came after its last collection.
type count struct {
	counter metric.Int64Counter
	of      func(reconcile.Stats) uint64
	added   *uint64
}

// add adds what has come since the last call.
func (c *count) add(s reconcile.Stats, name metric.MeasurementOption) {
	now := c.of(s)
	c.counter.Add(context.Background(), int64(now-*c.added), name)
	*c.added = now
}
