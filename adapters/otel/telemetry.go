// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reconkernel/reconcile"
)

// scope is the name under which spans and metrics are made.
const scope = "github.com/reconkernel/reconcile/adapters/otel"

// A Telemetry traces and measures one reconciler; see [Telemetry.Instrument].
//
// The zero Telemetry is ready, and uses the global providers. Its methods may be
// called from any goroutine, and block no longer than the providers do. A tracer provider
// with sdktrace.WithBatcher does not block; one with WithSyncer blocks the worker until
// the span is exported.
type Telemetry[T comparable] struct {
	TracerProvider trace.TracerProvider // nil means otel.GetTracerProvider()
	MeterProvider  metric.MeterProvider // nil means otel.GetMeterProvider()

	// MaxLinked is of how many items it is remembered who asked for their next
	// run; 0 means 10,000. Beyond it, those are forgotten first that nobody
	// asked for since long.
	MaxLinked int

	once    sync.Once // for memory
	memory  *memory[T]
	flights flights[T]

	// mu guards the fields below.
	mu           sync.Mutex
	instrumented bool
	end          func() error // ends the measuring of the queue; nil if there is none
}

// Instrument adds spans and metrics to r.
//
// It puts itself before r.Reconcile and r.OnResult, which are called as before;
// so set all fields of r first, then call Instrument, then run r. The counts of
// the queue are added if r.Queue has the method Stats, as [reconcile.Queue] has;
// [Telemetry.Close] ends that.
//
// Instrument returns an error and changes nothing if r or r.Reconcile is nil, if
// it was called before, if MaxLinked is negative, or if the MeterProvider
// refuses a metric. For the terms of a leader there is [Telemetry.Instrumented].
func (t *Telemetry[T]) Instrument(r *reconcile.Reconciler[T]) error {
	return t.instrument(r, new([4]uint64))
}

// instrument is Instrument; added is what the counters have of the queue of r.
func (t *Telemetry[T]) instrument(r *reconcile.Reconciler[T], added *[4]uint64) error {
	switch {
	case r == nil:
		return errors.New("oteladapter: Instrument needs a Reconciler, got nil")
	case r.Reconcile == nil:
		return errors.New("oteladapter: Reconciler.Reconcile is nil; set it before Instrument")
	case t.MaxLinked < 0:
		return fmt.Errorf("oteladapter: Telemetry.MaxLinked is %d, want 0 (which means %d) or more", t.MaxLinked, defaultMaxLinked)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.instrumented {
		return errors.New("oteladapter: Instrument was called before; a second Reconciler needs a Telemetry of its own")
	}
	meters := t.MeterProvider
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	name := printed(r.Name, maxText)
	m, err := newMetrics(meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL)), name)
	if err != nil {
		return fmt.Errorf("oteladapter: %w", err)
	}
	queue, _ := r.Queue.(statser)
	if q, ok := r.Queue.(*reconcile.Queue[T]); ok {
		m.waits = true // of another queue, Result.Waited is the time in Admit alone
		if q == nil {
			queue = nil // Run will say so
		}
	}
	if t.end, err = m.register(queue, added, max(1, r.Workers), t.flights.oldest); err != nil {
		return fmt.Errorf("oteladapter: %w", err)
	}
	t.instrumented = true

	tracers := t.TracerProvider
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	s := newSpans(tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)), name)
	memory, run, onResult := t.remembered(), r.Reconcile, r.OnResult
	r.Reconcile = func(ctx context.Context, item T) error {
		f := &flight[T]{start: time.Now()}
		ctx, f.span = s.start(ctx, memory.take(item))
		if f.span.IsRecording() {
			setItem(f.span, item)
		}
		endLost(t.flights.begin(item, f))
		defer t.flights.returned(f) // deferred, for a panic or Goexit
		return run(ctx, item)
	}
	r.OnResult = func(res reconcile.Result[T]) {
		if f := t.flights.end(res.Item); f != nil {
			o := observation{
				outcome: res.Outcome, err: res.Err, failures: res.Failures,
				next: res.Next, waited: res.Waited, duration: res.Duration,
			}
			if o.outcome.Failed() {
				o.errorType = errorType(res.Err)
			}
			m.record(f.span, o)
			if f.span.IsRecording() {
				if o.givenBack() {
					memory.remember(res.Item, trace.Link{SpanContext: f.span.SpanContext(), Attributes: causePreviousRun})
				}
				s.end(f.span, f.end, o)
			}
		}
		if onResult != nil {
			onResult(res)
		}
	}
	return nil
}

// Instrumented returns a Runner that runs r, with spans and metrics meanwhile: Instrument
// before, Close after. So a Telemetry serves one term of a leader after the other, each
// with a Reconciler and a queue of its own. The counters go on rising from term to term,
// and have each term to its end, however short it was. The Runner may run again with the
// same queue, as in supervise.Restart; another Instrumented of that queue would count its
// items again. Without a Close, OpenTelemetry adds up what the queues of all terms hold. An
// error of Instrument is one of its Run.
//
//	term.Add("runs", telemetry.Instrumented(r))
func (t *Telemetry[T]) Instrumented(r *reconcile.Reconciler[T]) reconcile.Runner {
	return instrumented[T]{t, r, new([4]uint64)}
}

type instrumented[T comparable] struct {
	t     *Telemetry[T]
	r     *reconcile.Reconciler[T]
	added *[4]uint64 // of what the queue has counted, by earlier calls of Run
}

// Unwrap lets a Group know what runs in here.
func (i instrumented[T]) Unwrap() reconcile.Runner { return i.r }

// Run does what Instrumented says.
func (i instrumented[T]) Run(ctx context.Context) (err error) {
	var run func(context.Context, T) error
	var onResult func(reconcile.Result[T])
	if i.r != nil {
		run, onResult = i.r.Reconcile, i.r.OnResult
	}
	if err := i.t.instrument(i.r, i.added); err != nil {
		return reconcile.Terminal(err)
	}
	defer func() { // also after a panic of Run
		i.r.Reconcile, i.r.OnResult = run, onResult
		closed := i.t.Close()
		i.t.mu.Lock()
		i.t.instrumented = false
		i.t.mu.Unlock()
		if closed != nil {
			err = errors.Join(err, fmt.Errorf("oteladapter: %w", closed))
		}
	}()
	return i.r.Run(ctx)
}

// endLost ends the spans of runs that the Reconciler did not call OnResult for.
func endLost[T comparable](lost []*flight[T]) {
	for _, f := range lost {
		f.span.End(trace.WithTimestamp(f.end))
	}
}

// Close ends the measuring of the queue, for a reconciler that has ended, and the spans
// of runs without a result. It may be called more than once. The error is the
// MeterProvider's.
func (t *Telemetry[T]) Close() error {
	endLost(t.flights.lost())
	t.mu.Lock()
	end := t.end
	t.end = nil
	t.mu.Unlock()
	if end == nil {
		return nil
	}
	return end()
}

const defaultMaxLinked = 10_000

// remembered returns the memory, which is made when it is first needed: a feeder
// may come before Instrument.
func (t *Telemetry[T]) remembered() *memory[T] {
	t.once.Do(func() {
		t.memory = newMemory[T](cmp.Or(max(0, t.MaxLinked), defaultMaxLinked))
	})
	return t.memory
}

// An observation is a Result, without its item.
type observation struct {
	outcome                reconcile.Outcome
	err                    error
	errorType              attribute.KeyValue // if it failed
	failures               int
	next, waited, duration time.Duration
}

// recheck reports whether the run said that all is well, and asked for a look.
func (o *observation) recheck() bool { return o.outcome == reconcile.OutcomeSucceeded && o.err != nil }

// givenBack reports whether the item runs again without being fed.
func (o *observation) givenBack() bool {
	switch o.outcome {
	case reconcile.OutcomeRequeued, reconcile.OutcomeRetrying, reconcile.OutcomeAborted:
		return true
	}
	return o.recheck()
}

// errorType names the kind of a failure in few words. What it calls is code of
// the user, which may panic.
func errorType(err error) (kind attribute.KeyValue) {
	defer func() {
		if recover() != nil {
			kind = semconv.ErrorTypeOther
		}
	}()
	if _, ok := err.(*reconcile.PanicError); ok {
		return semconv.ErrorTypeKey.String("panic")
	}
	if errors.Is(err, reconcile.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) {
		return semconv.ErrorTypeKey.String("timeout")
	}
	for errors.Is(err, reconcile.ErrTerminal) { // of what is inside
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	return semconv.ErrorTypeKey.String(printed(semconv.ErrorType(err).Value.AsString(), maxText))
}
