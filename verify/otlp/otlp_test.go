// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectmetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collecttrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/reconkernel/reconcile"
	oteladapter "github.com/reconkernel/reconcile/adapters/otel"
)

// A collector is a server for OTLP that keeps what it is sent.
type collector struct {
	mu      sync.Mutex
	spans   []*tracepb.ResourceSpans
	metrics []*metricspb.ResourceMetrics
}

type traceService struct {
	collecttrace.UnimplementedTraceServiceServer
	*collector
}

func (s traceService) Export(_ context.Context, r *collecttrace.ExportTraceServiceRequest) (*collecttrace.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spans = append(s.spans, r.ResourceSpans...)
	return &collecttrace.ExportTraceServiceResponse{}, nil
}

type metricsService struct {
	collectmetrics.UnimplementedMetricsServiceServer
	*collector
}

func (s metricsService) Export(_ context.Context, r *collectmetrics.ExportMetricsServiceRequest) (*collectmetrics.ExportMetricsServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics = append(s.metrics, r.ResourceMetrics...)
	return &collectmetrics.ExportMetricsServiceResponse{}, nil
}

// serveGRPC serves OTLP over gRPC, and returns exporters that send to it.
func serveGRPC(ctx context.Context, t *testing.T, c *collector) (sdktrace.SpanExporter, sdkmetric.Exporter) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collecttrace.RegisterTraceServiceServer(server, traceService{collector: c})
	collectmetrics.RegisterMetricsServiceServer(server, metricsService{collector: c})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	addr := listener.Addr().String()
	spans, err1 := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(addr), otlptracegrpc.WithInsecure())
	metrics, err2 := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpoint(addr), otlpmetricgrpc.WithInsecure())
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return spans, metrics
}

// serveHTTP serves OTLP over HTTP, compressed, and returns exporters that send to
// it.
func serveHTTP(ctx context.Context, t *testing.T, c *collector) (sdktrace.SpanExporter, sdkmetric.Exporter) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", answer(t, traceService{collector: c}.Export))
	mux.HandleFunc("POST /v1/metrics", answer(t, metricsService{collector: c}.Export))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	spans, err1 := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(server.URL+"/v1/traces"), otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
	metrics, err2 := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(server.URL+"/v1/metrics"), otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return spans, metrics
}

// A message is a pointer to a generated struct.
type message[Q any] interface {
	*Q
	proto.Message
}

// answer returns a handler for requests to one service.
func answer[Q any, P message[Q], A proto.Message](t *testing.T, export func(context.Context, P) (A, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		request := P(new(Q))
		body, err := gzip.NewReader(r.Body)
		if err == nil {
			var data []byte
			data, err = io.ReadAll(body)
			err = errors.Join(err, proto.Unmarshal(data, request))
		}
		if err != nil || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s %s: %v, %v", r.Method, r.URL, r.Header, err)
			return
		}
		response, err1 := export(r.Context(), request)
		data, err2 := proto.Marshal(response)
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, err3 := w.Write(data)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Error(err)
		}
	}
}

// TestOTLP runs a failing item and a good one, with the processors and exporters
// that a program uses, and looks at what arrives at the other end.
func TestOTLP(t *testing.T) {
	for _, protocol := range []struct {
		name  string
		serve func(context.Context, *testing.T, *collector) (sdktrace.SpanExporter, sdkmetric.Exporter)
	}{
		{"grpc", serveGRPC},
		{"http", serveHTTP},
	} {
		t.Run(protocol.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c := new(collector)
			spans, metrics := protocol.serve(ctx, t, c)
			traces := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans))
			meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(metrics)))

			q := reconcile.NewQueue[string]()
			r := &reconcile.Reconciler[string]{
				Name: "disks", Queue: q, Retry: reconcile.NoRetry,
				Logger: slog.New(slog.DiscardHandler),
				Reconcile: func(_ context.Context, disk string) error {
					if disk == "bad" {
						return errors.New("no such disk")
					}
					return nil
				},
			}
			telemetry := &oteladapter.Telemetry[string]{TracerProvider: traces, MeterProvider: meters}
			if err := telemetry.Instrument(r); err != nil {
				t.Fatal(err)
			}
			message, span := traces.Tracer("test").Start(ctx, "receive")
			telemetry.Enqueuer(message, q).Enqueue("good")
			telemetry.Enqueuer(message, q).Enqueue("bad")
			span.End()
			q.Close()
			if err := r.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(traces.Shutdown(ctx), meters.Shutdown(ctx)); err != nil {
				t.Fatal(err)
			}
			c.checkSpans(t)
			c.checkMetrics(t)
		})
	}
}

func (c *collector) checkSpans(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	var receive *tracepb.Span
	runs := make(map[string]*tracepb.Span)
	for _, resource := range c.spans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				if scope.Scope.Name == "test" {
					receive = span
				} else {
					runs[value(span.Attributes, "reconcile.item")] = span
				}
			}
		}
	}
	if receive == nil || len(runs) != 2 {
		t.Fatalf("the span of the message: %v; of runs: %v", receive, runs)
	}
	for item, want := range map[string]struct {
		outcome string
		status  tracepb.Status_StatusCode
		message string
		events  int
	}{
		"good": {"succeeded", tracepb.Status_STATUS_CODE_UNSET, "", 0},
		"bad":  {"gave_up", tracepb.Status_STATUS_CODE_ERROR, "no such disk", 1},
	} {
		span := runs[item]
		if span == nil {
			t.Fatalf("no span of %s", item)
		}
		if span.Name != "reconcile disks" || span.Kind != tracepb.Span_SPAN_KIND_CONSUMER ||
			value(span.Attributes, "reconcile.outcome") != want.outcome ||
			span.Status.GetCode() != want.status || span.Status.GetMessage() != want.message || len(span.Events) != want.events {
			t.Errorf("the span of %s is %v", item, span)
		}
		if len(span.Links) != 1 || !bytes.Equal(span.Links[0].SpanId, receive.SpanId) || !bytes.Equal(span.Links[0].TraceId, receive.TraceId) {
			t.Errorf("the span of %s is linked to %v, want %x", item, span.Links, receive.SpanId)
		}
	}
}

func (c *collector) checkMetrics(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	got := make(map[string]*metricspb.Metric)
	for _, resource := range c.metrics {
		for _, scope := range resource.ScopeMetrics {
			for _, m := range scope.Metrics {
				got[m.Name] = m // the last is the newest
			}
		}
	}
	points := got["messaging.process.duration"].GetHistogram().GetDataPoints()
	runs := make(map[string]uint64)
	for _, p := range points {
		runs[value(p.Attributes, "reconcile.outcome")+" "+value(p.Attributes, "error.type")] += p.Count
	}
	if len(runs) != 2 || runs["succeeded "] != 1 || runs["gave_up *errors.errorString"] != 1 {
		t.Errorf("messaging.process.duration: %v", points)
	}
	taken := got["reconcile.item.taken"].GetSum()
	if len(taken.GetDataPoints()) != 1 || taken.DataPoints[0].GetAsInt() != 2 || !taken.IsMonotonic {
		t.Errorf("reconcile.item.taken: %v", taken)
	}
	states := got["reconcile.item.count"].GetSum()
	if len(states.GetDataPoints()) != 4 || states.IsMonotonic {
		t.Errorf("reconcile.item.count: %v", states)
	}
}

func value(attributes []*commonpb.KeyValue, key string) string {
	for _, a := range attributes {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}
