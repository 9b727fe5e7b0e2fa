// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter_test

import (
	"context"
	"strconv"
	"testing"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/reconkernel/reconcile"
	oteladapter "github.com/reconkernel/reconcile/adapters/otel"
)

// BenchmarkRun measures one run of a Reconcile that does nothing, with all that
// the kernel does around it: plain; with providers that do nothing; with
// metrics; with metrics and spans that are not sampled; and with all of them.
func BenchmarkRun(b *testing.B) {
	const items = 1024
	names := make([]string, items)
	for i := range names {
		names[i] = "item-" + strconv.Itoa(i)
	}
	var (
		noTraces  = tracenoop.NewTracerProvider()
		noMetrics = metricnoop.NewMeterProvider()
		metrics   = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
		none      = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
		all       = sdktrace.NewTracerProvider()
	)
	for _, c := range []struct {
		name   string
		traces trace.TracerProvider
		meters metric.MeterProvider
	}{
		{"plain", nil, nil},
		{"nothing", noTraces, noMetrics},
		{"metrics", noTraces, metrics},
		{"metrics and unsampled spans", none, metrics},
		{"metrics and spans", all, metrics},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				q := reconcile.NewQueue[string]()
				r := &reconcile.Reconciler[string]{
					Name: "bench", Queue: q, Logger: quiet,
					Reconcile: func(context.Context, string) error { return nil },
				}
				telemetry := &oteladapter.Telemetry[string]{TracerProvider: c.traces, MeterProvider: c.meters}
				if c.meters != nil {
					if err := telemetry.Instrument(r); err != nil {
						b.Fatal(err)
					}
				}
				for _, name := range names {
					q.Enqueue(name)
				}
				q.Close()
				b.StartTimer()
				if err := r.Run(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := telemetry.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/items, "ns/run")
		})
	}
}
