// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter_test

import (
	"context"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/reconkernel/reconcile"
	oteladapter "github.com/reconkernel/reconcile/adapters/otel"
)

// A message asks for a run, and the span of the run is linked to that of the
// message. A program exports its spans by OTLP; this one keeps them in memory.
func Example() {
	ctx := context.Background()
	exported := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(exported))

	q := reconcile.NewQueue[string]()
	r := &reconcile.Reconciler[string]{
		Name:      "disks",
		Queue:     q,
		Reconcile: func(context.Context, string) error { return nil },
		Logger:    slog.New(slog.DiscardHandler),
	}
	telemetry := oteladapter.Telemetry[string]{TracerProvider: provider}
	if err := telemetry.Instrument(r); err != nil {
		fmt.Println(err)
		return
	}

	receive, span := provider.Tracer("example").Start(ctx, "receive")
	telemetry.Enqueuer(receive, q).Enqueue("disk-1")
	span.End()

	q.Close() // so that Run returns when it has run them all
	if err := r.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}

	for _, s := range exported.GetSpans() {
		if s.Name == "receive" {
			continue
		}
		attributes := attribute.NewSet(s.Attributes...)
		item, _ := attributes.Value("reconcile.item")
		outcome, _ := attributes.Value("reconcile.outcome")
		fmt.Println(s.Name, item.AsString(), outcome.AsString())
		for _, link := range s.Links {
			fmt.Println("  because of the message:", link.SpanContext.SpanID() == span.SpanContext().SpanID())
		}
	}

	// Output:
	// reconcile disks disk-1 succeeded
	//   because of the message: true
}
