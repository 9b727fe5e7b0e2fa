// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reconkernel/reconcile"
)

// The attributes of our own.
const (
	itemKey     = attribute.Key("reconcile.item")
	outcomeKey  = attribute.Key("reconcile.outcome")
	failuresKey = attribute.Key("reconcile.failures")
	waitedKey   = attribute.Key("reconcile.waited")
	nextKey     = attribute.Key("reconcile.next")
	recheckKey  = attribute.Key("reconcile.recheck")
	reasonKey   = attribute.Key("reconcile.reason")
	causeKey    = attribute.Key("reconcile.cause")
	stateKey    = attribute.Key("reconcile.item.state")
)

// Spans makes the spans of the runs of one reconciler.
type spans struct {
	tracer  trace.Tracer
	name    string
	options []trace.SpanStartOption // of all of them
}

func newSpans(tracer trace.Tracer, reconciler string) *spans {
	return &spans{
		tracer: tracer,
		name:   "reconcile " + reconciler,
		options: []trace.SpanStartOption{
			trace.WithNewRoot(), // the context of Run may be in a span that lasts as long as the program
			trace.WithSpanKind(trace.SpanKindConsumer),
			trace.WithAttributes(
				semconv.MessagingSystemKey.String("reconcile"),
				semconv.MessagingOperationName("reconcile"),
				semconv.MessagingOperationTypeProcess,
				semconv.MessagingDestinationName(reconciler),
			),
		},
	}
}

// start starts the span of a run.
func (s *spans) start(ctx context.Context, links []trace.Link) (context.Context, trace.Span) {
	options := s.options
	if len(links) > 0 {
		options = append(options[:len(options):len(options)], trace.WithLinks(links...))
	}
	return s.tracer.Start(ctx, s.name, options...)
}

// setItem adds the item to a span that is recorded.
func setItem[T comparable](span trace.Span, item T) {
	span.SetAttributes(itemKey.String(printed(item, maxText)))
}

// end ends the span of a run.
func (s *spans) end(span trace.Span, at time.Time, o observation) {
	defer span.End(trace.WithTimestamp(at))
	attributes := make([]attribute.KeyValue, 0, 7)
	attributes = append(attributes,
		outcomeKey.String(string(o.outcome)),
		failuresKey.Int(o.failures),
		waitedKey.Float64(o.waited.Seconds()),
	)
	if o.recheck() {
		attributes = append(attributes, recheckKey.Bool(true))
	}
	if o.recheck() || o.outcome == reconcile.OutcomeRequeued || o.outcome == reconcile.OutcomeRetrying {
		attributes = append(attributes, nextKey.Float64(o.next.Seconds()))
	}
	switch {
	case o.outcome.Failed():
		text := printed(o.err, maxText)
		attributes = append(attributes, o.errorType)
		event := []attribute.KeyValue{
			semconv.ExceptionType(o.errorType.Value.AsString()),
			semconv.ExceptionMessage(text),
		}
		if p, ok := o.err.(*reconcile.PanicError); ok {
			event = append(event, semconv.ExceptionStacktrace(printed(string(p.Stack), maxStack)))
		}
		span.AddEvent(semconv.ExceptionEventName, trace.WithTimestamp(at), trace.WithAttributes(event...))
		span.SetStatus(codes.Error, text)
	case o.err != nil:
		attributes = append(attributes, reasonKey.String(printed(o.err, maxText)))
	}
	span.SetAttributes(attributes...)
}

// How many bytes of a text a span has. An exporter drops the whole batch if a server
// finds it too long; a server of gRPC accepts 4 MiB.
const (
	maxText  = 2 << 10
	maxStack = 16 << 10
)

// printed returns the first bytes of v as fmt prints it, with U+FFFD in place of what is not
// UTF-8: OTLP has no such strings, and an exporter drops the whole batch with one. It
// survives a panic of a method of v.
func printed(v any, limit int) string {
	text, ok := v.(string)
	if !ok {
		text = sprint(v)
	}
	if len(text) > limit {
		for limit > 0 && !utf8.RuneStart(text[limit]) {
			limit--
		}
		text = text[:limit] + "…"
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

// sprint is fmt.Sprint, which survives a panic, but not one with a value that panics too
// when it is printed.
func sprint(v any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("%%!v(PANIC=%T)", v)
		}
	}()
	return fmt.Sprint(v)
}
