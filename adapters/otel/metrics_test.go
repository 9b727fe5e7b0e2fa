// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"

	"github.com/reconkernel/reconcile"
	oteladapter "github.com/reconkernel/reconcile/adapters/otel"
)

// The global provider that OpenTelemetry begins with would hand on all that was
// registered before to the first one that is set: queues of bubbles that have ended,
// to TestGlobalProviders.
func TestMain(m *testing.M) {
	otel.SetMeterProvider(noop.NewMeterProvider())
	m.Run()
}

// collect returns the value of each series: for a histogram, count and sum.
func collect(t *testing.T, reader sdkmetric.Reader) map[string]string {
	t.Helper()
	values := make(map[string]string)
	for _, m := range collectMetrics(t, reader) {
		add := func(set attribute.Set, value any) {
			values[m.Name+"{"+text(set.ToSlice())+"}"] = fmt.Sprint(value)
		}
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, fmt.Sprint(p.Count, " in ", p.Sum))
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Value)
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Value)
			}
		default:
			t.Errorf("%s is a %T", m.Name, data)
		}
	}
	return values
}

func collectMetrics(t *testing.T, reader sdkmetric.Reader) []metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.ScopeMetrics) == 0 {
		return nil
	}
	if scope := all.ScopeMetrics[0].Scope.Name; len(all.ScopeMetrics) != 1 || scope != "github.com/reconkernel/reconcile/adapters/otel" {
		t.Errorf("%d scopes, the first is %s", len(all.ScopeMetrics), scope)
	}
	return all.ScopeMetrics[0].Metrics
}

func wantMetrics(t *testing.T, reader sdkmetric.Reader, want map[string]string) {
	t.Helper()
	got := collect(t, reader)
	for _, s := range slices.Sorted(maps.Keys(got)) {
		if got[s] != want[s] {
			t.Errorf("%s is %q, want %q", s, got[s], want[s])
		}
	}
	for _, s := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[s]; !ok {
			t.Errorf("there is no %s", s)
		}
	}
}

// TestMetrics compares all values, at three times.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		q := reconcile.NewQueue[string]()
		r := &reconcile.Reconciler[string]{
			Name: "disks", Queue: q, Workers: 2, Logger: quiet, Timeout: time.Hour,
			Reconcile: func(ctx context.Context, item string) error {
				time.Sleep(time.Second)
				switch item {
				case "failing":
					return kind("quota")
				case "in sync":
					return reconcile.RecheckWithin(24 * time.Hour)
				case "planned":
					return reconcile.RequeueWithin(24 * time.Hour)
				case "stuck":
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			},
			Retry: func(error, int) (time.Duration, bool) { return 24 * time.Hour, true },
		}
		telemetry := &oteladapter.Telemetry[string]{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
		if err := telemetry.Instrument(r); err != nil {
			t.Fatal(err)
		}
		wantMetrics(t, reader, map[string]string{
			"reconcile.run.age.max{messaging.destination.name=disks}":                               "0",
			"reconcile.worker.max{messaging.destination.name=disks}":                                "2",
			"reconcile.item.count{messaging.destination.name=disks reconcile.item.state=ready}":     "0",
			"reconcile.item.count{messaging.destination.name=disks reconcile.item.state=waiting}":   "0",
			"reconcile.item.count{messaging.destination.name=disks reconcile.item.state=recheck}":   "0",
			"reconcile.item.again{messaging.destination.name=disks}":                                "0",
			"reconcile.item.count{messaging.destination.name=disks reconcile.item.state=in flight}": "0",
			"reconcile.item.enqueued{messaging.destination.name=disks}":                             "0",
			"reconcile.item.coalesced{messaging.destination.name=disks}":                            "0",
			"reconcile.item.taken{messaging.destination.name=disks}":                                "0",
			"reconcile.item.requeued{messaging.destination.name=disks}":                             "0",
		})

		// Two at a time: 0 and 0, 1 and 1, 2 seconds.
		for _, item := range []string{"one", "in sync", "failing", "planned", "stuck"} {
			q.Enqueue(item)
		}
		q.Enqueue("stuck")
		end := background(t, r.Run)
		time.Sleep(30 * time.Second)
		q.Enqueue("stuck")
		time.Sleep(30 * time.Second)
		const run = "messaging.process.duration{%smessaging.destination.name=disks messaging.operation.name=reconcile messaging.system=reconcile reconcile.outcome=%s}"
		want := map[string]string{
			fmt.Sprintf(run, "", "succeeded"):                                                       "2 in 2",
			fmt.Sprintf(run, "", "requeued"):                                                        "1 in 1",
			fmt.Sprintf(run, "error.type=quota ", "retrying"):                                       "1 in 1",
			"reconcile.queue.wait_time{messaging.destination.name=disks}":                           "4 in 2",
			"reconcile.run.age.max{messaging.destination.name=disks}":                               "58",
			"reconcile.worker.max{messaging.destination.name=disks}":                                "2",
			"reconcile.item.count{messaging.destination.name=disks reconcile.item.state=ready}":     "0",
			"reconcile.item.count{messaging.destination.name=disks reconcile.item.state=waiting}":   "2",
			"reconcile.item.count{messaging.destination.name=disks reconcile.item.state=recheck}":   "1",
			"reconcile.item.again{messaging.destination.name=disks}":                                "1",
			"reconcile.item.count{messaging.destination.name=disks reconcile.item.state=in flight}": "1",
			"reconcile.item.enqueued{messaging.destination.name=disks}":                             "6",
			"reconcile.item.coalesced{messaging.destination.name=disks}":                            "1",
			"reconcile.item.taken{messaging.destination.name=disks}":                                "5",
			"reconcile.item.requeued{messaging.destination.name=disks}":                             "3",
		}
		wantMetrics(t, reader, want)

		end()
		for s, value := range map[string]string{
			fmt.Sprintf(run, "", "aborted"):                                                         "1 in 58",
			"reconcile.queue.wait_time{messaging.destination.name=disks}":                           "5 in 4",
			"reconcile.run.age.max{messaging.destination.name=disks}":                               "0",
			"reconcile.item.count{messaging.destination.name=disks reconcile.item.state=ready}":     "1",
			"reconcile.item.count{messaging.destination.name=disks reconcile.item.state=in flight}": "0",
			"reconcile.item.requeued{messaging.destination.name=disks}":                             "4",
			"reconcile.item.again{messaging.destination.name=disks}":                                "0",
		} {
			want[s] = value
		}
		wantMetrics(t, reader, want)

		// After Close the queue is measured no more, and what it counted stays.
		counts := func(series string) bool {
			name, _, _ := strings.Cut(series, "{")
			return slices.Contains([]string{
				"messaging.process.duration", "reconcile.queue.wait_time", "reconcile.item.enqueued",
				"reconcile.item.coalesced", "reconcile.item.taken", "reconcile.item.requeued",
			}, name)
		}
		for range 2 {
			if err := telemetry.Close(); err != nil {
				t.Error(err)
			}
		}
		for s := range collect(t, reader) {
			if !counts(s) {
				t.Errorf("after Close there is %s", s)
			}
		}
	})
}

// TestMetricOfConventions checks the one metric that has a name there.
func TestMetricOfConventions(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	ran(t, &oteladapter.Telemetry[string]{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}, reconcile.NewQueue[string]())
	var want messagingconv.ProcessDuration
	for _, m := range collectMetrics(t, reader) {
		if m.Name == want.Name() && m.Unit == want.Unit() && m.Description == want.Description() {
			return
		}
	}
	t.Errorf("no metric %s in %s: %s", want.Name(), want.Unit(), want.Description())
}

// ran instruments a reconciler and has it run one item.
func ran(t *testing.T, telemetry *oteladapter.Telemetry[string], q *reconcile.Queue[string]) {
	t.Helper()
	r := &reconcile.Reconciler[string]{
		Name: "disks", Queue: q, Logger: quiet,
		Reconcile: func(context.Context, string) error { return nil },
	}
	if err := telemetry.Instrument(r); err != nil {
		t.Fatal(err)
	}
	q.Enqueue("a")
	q.Close()
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// An otherQueue is a Dequeuer of another implementation.
type otherQueue struct{ reconcile.Dequeuer[string] }

// TestForeignQueue checks that nothing is said of a queue that tells nothing.
func TestForeignQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		q := reconcile.NewQueue[string]()
		r := &reconcile.Reconciler[string]{
			Name: "far", Queue: otherQueue{q}, Logger: quiet,
			Reconcile: func(context.Context, string) error { return nil },
		}
		telemetry := &oteladapter.Telemetry[string]{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
		if err := telemetry.Instrument(r); err != nil {
			t.Fatal(err)
		}
		q.Enqueue("a")
		q.Close()
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantMetrics(t, reader, map[string]string{
			"messaging.process.duration{messaging.destination.name=far messaging.operation.name=reconcile messaging.system=reconcile reconcile.outcome=succeeded}": "1 in 0",
			"reconcile.run.age.max{messaging.destination.name=far}": "0",
			"reconcile.worker.max{messaging.destination.name=far}":  "1",
		})
	})
}

// An exported keeps all metrics that it exports.
type exported struct {
	metrics []metricdata.Metrics
}

func (e *exported) Temporality(kind sdkmetric.InstrumentKind) metricdata.Temporality {
	return sdkmetric.DefaultTemporalitySelector(kind)
}

func (e *exported) Aggregation(kind sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(kind)
}

func (e *exported) Export(_ context.Context, all *metricdata.ResourceMetrics) error {
	for _, scope := range all.ScopeMetrics {
		e.metrics = append(e.metrics, scope.Metrics...)
	}
	return nil
}

func (e *exported) ForceFlush(context.Context) error { return nil }
func (e *exported) Shutdown(context.Context) error   { return nil }

// TestStatsThatPanic has a queue whose Stats panics. The SDK calls it in a goroutine of its
// own, and recovers nothing: the metrics of the queue are missing, and the others are
// exported.
func TestStatsThatPanic(t *testing.T) {
	var handled error
	defer otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { slog.Error(err.Error()) }))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled = err }))
	var e exported
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(&e, sdkmetric.WithInterval(time.Hour))))
	var queue *struct{ *reconcile.Queue[string] } // nil
	r := &reconcile.Reconciler[string]{Name: "disks", Queue: queue, Reconcile: func(context.Context, string) error { return nil }}
	telemetry := &oteladapter.Telemetry[string]{MeterProvider: meters}
	if err := telemetry.Instrument(r); err != nil {
		t.Fatal(err)
	}
	if err := meters.ForceFlush(t.Context()); err != nil {
		t.Error(err)
	}
	if len(e.metrics) != 2 {
		t.Errorf("%d metrics, want those of the workers and the oldest run", len(e.metrics))
	}
	if handled == nil || !strings.Contains(handled.Error(), "oteladapter: Stats of the queue of reconciler disks: panic: ") {
		t.Errorf("the error handler gets %v, want a panic of Stats", handled)
	}
	if err := errors.Join(telemetry.Close(), meters.Shutdown(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestGlobalProviders has the zero Telemetry use them.
func TestGlobalProviders(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	before := otel.GetMeterProvider()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	defer otel.SetMeterProvider(before)
	ran(t, new(oteladapter.Telemetry[string]), reconcile.NewQueue[string]())
	if len(collect(t, reader)) == 0 {
		t.Error("the global provider has no metrics")
	}
}

// A refusing provider has no metric of that name.
type refusing struct {
	noop.MeterProvider
	name string
}

func (r refusing) Meter(string, ...metric.MeterOption) metric.Meter {
	return refusingMeter{name: r.name}
}

type refusingMeter struct {
	noop.Meter
	name string
}

func (r refusingMeter) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return noop.Float64Histogram{}, r.check(name)
}

func (r refusingMeter) Int64Counter(name string, _ ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return noop.Int64Counter{}, r.check(name)
}

func (r refusingMeter) check(name string) error {
	if name == r.name {
		return fmt.Errorf("%s is refused", name)
	}
	return nil
}

func TestBadInput(t *testing.T) {
	idle := func(context.Context, string) error { return nil }
	good := func() *reconcile.Reconciler[string] {
		return &reconcile.Reconciler[string]{Name: "x", Queue: reconcile.NewQueue[string](), Reconcile: idle}
	}
	used := new(oteladapter.Telemetry[string])
	if err := used.Instrument(good()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name      string
		telemetry *oteladapter.Telemetry[string]
		r         *reconcile.Reconciler[string]
		want      string
	}{
		{"nil reconciler", new(oteladapter.Telemetry[string]), nil, "needs a Reconciler"},
		{"no function", new(oteladapter.Telemetry[string]), &reconcile.Reconciler[string]{}, "Reconciler.Reconcile is nil"},
		{"negative size", &oteladapter.Telemetry[string]{MaxLinked: -1}, good(), "MaxLinked is -1, want 0 (which means 10000) or more"},
		{"used twice", used, good(), "called before"},
		{"refused duration", &oteladapter.Telemetry[string]{MeterProvider: refusing{name: "messaging.process.duration"}}, good(), "messaging.process.duration is refused"},
		{"refused wait", &oteladapter.Telemetry[string]{MeterProvider: refusing{name: "reconcile.queue.wait_time"}}, good(), "reconcile.queue.wait_time is refused"},
		{"refused count", &oteladapter.Telemetry[string]{MeterProvider: refusing{name: "reconcile.item.taken"}}, good(), "reconcile.item.taken is refused"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.telemetry.Instrument(test.r)
			if err == nil || !strings.HasPrefix(err.Error(), "oteladapter: ") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if test.r != nil && test.r.OnResult != nil {
				t.Error("the reconciler was changed all the same")
			}
		})
	}

	// The kernel itself refuses this, with its own words.
	r := &reconcile.Reconciler[string]{Queue: (*reconcile.Queue[string])(nil), Reconcile: idle}
	reader := sdkmetric.NewManualReader()
	telemetry := &oteladapter.Telemetry[string]{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
	if err := telemetry.Instrument(r); err != nil {
		t.Error(err)
	}
	collect(t, reader)
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Queue") {
		t.Errorf("Run without a queue: %v", err)
	}

	defer func() {
		if p := fmt.Sprint(recover()); p != "oteladapter: Enqueuer needs a queue, got nil" {
			t.Errorf("panic %q", p)
		}
	}()
	used.Enqueuer(t.Context(), nil)
}

// A slowHandler takes a minute for each line of the log.
type slowHandler struct{ slog.Handler }

func (slowHandler) Enabled(context.Context, slog.Level) bool { return true }

func (slowHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "run succeeded" {
		time.Sleep(time.Minute)
	}
	return nil
}

// TestSlowLog has the kernel take a minute from the end of Reconcile to OnResult:
// that is not part of the run. It also looks for the exemplar that leads from
// the measurement to the span.
func TestSlowLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		exported := tracetest.NewInMemoryExporter()
		telemetry := &oteladapter.Telemetry[string]{
			TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported)),
			MeterProvider:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
		}
		q := reconcile.NewQueue[string]()
		r := &reconcile.Reconciler[string]{
			Name: "disks", Queue: q, Logger: slog.New(slowHandler{slog.DiscardHandler}),
			Reconcile: func(context.Context, string) error { time.Sleep(time.Second); return nil },
		}
		if err := telemetry.Instrument(r); err != nil {
			t.Fatal(err)
		}
		end := background(t, r.Run)
		q.Enqueue("a")
		time.Sleep(30 * time.Second)
		if age := collect(t, reader)["reconcile.run.age.max{messaging.destination.name=disks}"]; age != "0" {
			t.Errorf("while the end of a run is logged, its age is %s, want 0", age)
		}
		time.Sleep(time.Hour)
		end()
		spans := exported.GetSpans()
		if len(spans) != 1 || spans[0].EndTime.Sub(spans[0].StartTime) != time.Second {
			t.Fatalf("spans %v, want one of a second", spans)
		}
		id := spans[0].SpanContext.SpanID()
		for _, m := range collectMetrics(t, reader) {
			if data, ok := m.Data.(metricdata.Histogram[float64]); ok {
				e := data.DataPoints[0].Exemplars
				if len(e) != 1 || !slices.Equal(e[0].SpanID, id[:]) {
					t.Errorf("%s has the exemplars %v, want the span %v", m.Name, e, id)
				}
			}
		}
	})
}
