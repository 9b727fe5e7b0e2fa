// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/reconkernel/reconcile"
	oteladapter "github.com/reconkernel/reconcile/adapters/otel"
)

var (
	quiet     = slog.New(slog.DiscardHandler)
	errBroken = errors.New("broken")
)

// A traced is a reconciler whose spans are kept.
type traced[T comparable] struct {
	*oteladapter.Telemetry[T]
	provider *sdktrace.TracerProvider
	exported *tracetest.InMemoryExporter
	end      func()
}

// start instruments r and runs it until the test ends, or end is called.
func start[T comparable](t *testing.T, r *reconcile.Reconciler[T], options ...sdktrace.TracerProviderOption) *traced[T] {
	t.Helper()
	exported := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSyncer(exported))...)
	s := &traced[T]{&oteladapter.Telemetry[T]{TracerProvider: provider}, provider, exported, nil}
	r.Logger = quiet
	if err := s.Instrument(r); err != nil {
		t.Fatal(err)
	}
	s.end = background(t, r.Run)
	synctest.Wait()
	return s
}

// background runs something until the test ends, or the function that it returns,
// which waits for the end, is called.
func background(t *testing.T, run func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	}()
	end = func() {
		cancel()
		<-ended
	}
	t.Cleanup(end)
	return end
}

// event returns a context in a span of a feeder.
func (s *traced[T]) event(name string) (context.Context, trace.SpanContext) {
	ctx, span := s.provider.Tracer("feeder").Start(context.Background(), name)
	span.End()
	return ctx, span.SpanContext()
}

// runs returns the spans of the runs, without those of the feeder.
func (s *traced[T]) runs() (all []tracetest.SpanStub) {
	for _, span := range s.exported.GetSpans() {
		if strings.HasPrefix(span.Name, "reconcile ") {
			all = append(all, span)
		}
	}
	return all
}

// text writes attributes down in order of their keys.
func text(attributes []attribute.KeyValue) string {
	var all []string
	for _, a := range attributes {
		all = append(all, fmt.Sprintf("%s=%s", a.Key, a.Value.String()))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// A kind is an error that names its kind.
type kind string

func (k kind) Error() string     { return "of kind " + string(k) }
func (k kind) ErrorType() string { return string(k) }

// TestSpan has a run end in every way that there is, and compares its span.
func TestSpan(t *testing.T) {
	const always = "messaging.destination.name=disks messaging.operation.name=reconcile messaging.operation.type=process messaging.system=reconcile "
	tests := []struct {
		name      string
		reconcile func(ctx context.Context) error
		retry     reconcile.RetryPolicy
		want      string // attributes
		status    string // description; the code is Error if there is one
	}{
		{
			name:      "well",
			reconcile: func(context.Context) error { return nil },
			want:      "reconcile.failures=0 reconcile.item=a reconcile.outcome=succeeded reconcile.waited=2",
		},
		{
			name: "in sync",
			reconcile: func(context.Context) error {
				return fmt.Errorf("3 of 3: %w", reconcile.RecheckWithin(90*time.Second))
			},
			want: "reconcile.failures=0 reconcile.item=a reconcile.next=90 reconcile.outcome=succeeded reconcile.reason=3 of 3: recheck within 1m30s reconcile.recheck=true reconcile.waited=2",
		},
		{
			name: "planned",
			reconcile: func(context.Context) error {
				return fmt.Errorf("being made: %w", reconcile.RequeueAfter(90*time.Second))
			},
			want: "reconcile.failures=0 reconcile.item=a reconcile.next=90 reconcile.outcome=requeued reconcile.reason=being made: requeue after 1m30s reconcile.waited=2",
		},
		{
			name:      "failed",
			reconcile: func(context.Context) error { return fmt.Errorf("attach: %w", kind("quota")) },
			want:      "error.type=quota reconcile.failures=1 reconcile.item=a reconcile.next=60 reconcile.outcome=retrying reconcile.waited=2",
			status:    "attach: of kind quota",
		},
		{
			name:      "gave up",
			reconcile: func(context.Context) error { return errBroken },
			retry:     reconcile.NoRetry,
			want:      "error.type=*errors.errorString reconcile.failures=1 reconcile.item=a reconcile.outcome=gave_up reconcile.waited=2",
			status:    "broken",
		},
		{
			name:      "terminal",
			reconcile: func(context.Context) error { return fmt.Errorf("attach: %w", reconcile.Terminal(kind("forbidden"))) },
			want:      "error.type=forbidden reconcile.failures=1 reconcile.item=a reconcile.outcome=terminal_error reconcile.waited=2",
			status:    "attach: of kind forbidden",
		},
		{
			name:      "timeout",
			reconcile: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			want:      "error.type=timeout reconcile.failures=1 reconcile.item=a reconcile.next=60 reconcile.outcome=retrying reconcile.waited=2",
			status:    "context deadline exceeded",
		},
		{
			name:      "timeout by its cause",
			reconcile: func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
			want:      "error.type=timeout reconcile.failures=1 reconcile.item=a reconcile.next=60 reconcile.outcome=retrying reconcile.waited=2",
			status:    "reconcile: run took longer than its timeout",
		},
		{
			name:      "panic",
			reconcile: func(context.Context) error { panic("oops") },
			want:      "error.type=panic reconcile.failures=1 reconcile.item=a reconcile.next=60 reconcile.outcome=retrying reconcile.waited=2",
			status:    "panic: oops",
		},
		{
			name:      "goexit",
			reconcile: func(context.Context) error { runtime.Goexit(); return nil },
			want:      "error.type=panic reconcile.failures=1 reconcile.item=a reconcile.next=60 reconcile.outcome=retrying reconcile.waited=2",
			status:    "panic: runtime.Goexit called",
		},
		{
			name:      "error that panics",
			reconcile: func(context.Context) error { return bomb{} },
			want:      "error.type=_OTHER reconcile.failures=1 reconcile.item=a reconcile.next=60 reconcile.outcome=retrying reconcile.waited=2",
			status:    "%!v(PANIC=Error method: boom)",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				retry := test.retry
				if retry == nil {
					retry = func(error, int) (time.Duration, bool) { return time.Minute, true }
				}
				s := start(t, &reconcile.Reconciler[string]{
					Name: "disks", Queue: q, Retry: retry, Timeout: 5 * time.Second,
					Reconcile: func(ctx context.Context, item string) error {
						time.Sleep(2 * time.Second)
						if item == "a" {
							return test.reconcile(ctx)
						}
						return nil
					},
				})
				began := time.Now()
				q.Enqueue("before")
				q.Enqueue("a")
				time.Sleep(20 * time.Second)
				s.end()

				runs := s.runs()
				if len(runs) != 2 {
					t.Fatalf("%d spans, want 2", len(runs))
				}
				span := runs[1]
				if span.Name != "reconcile disks" || span.SpanKind != trace.SpanKindConsumer {
					t.Errorf("span %q of kind %v", span.Name, span.SpanKind)
				}
				if got := text(span.Attributes); !same(got, always+test.want) {
					t.Errorf("attributes\n%s, want\n%s", got, always+test.want)
				}
				wantEnd := 4 * time.Second
				if strings.HasPrefix(test.name, "timeout") {
					wantEnd = 7 * time.Second
				}
				if at, end := span.StartTime.Sub(began), span.EndTime.Sub(began); at != 2*time.Second || end != wantEnd {
					t.Errorf("from %v to %v, want 2s to %v", at, end, wantEnd)
				}
				code, events := codes.Unset, 0
				if test.status != "" {
					code, events = codes.Error, 1
				}
				if span.Status.Code != code || span.Status.Description != test.status {
					t.Errorf("status %+v, want %v %q", span.Status, code, test.status)
				}
				if len(span.Events) != events {
					t.Fatalf("events %v, want %d", span.Events, events)
				}
				if events == 1 {
					event := span.Events[0]
					message := "exception.message=" + test.status
					stack := test.name == "panic" || test.name == "goexit"
					if got := text(event.Attributes); event.Name != "exception" || !strings.Contains(got, message) ||
						strings.Contains(got, "exception.stacktrace=") != stack || !event.Time.Equal(span.EndTime) {
						t.Errorf("event %s at %v: %s, want an exception at the end with %q, and a stack: %v", event.Name, event.Time, got, message, stack)
					}
				}
				if scope := (instrumentation.Scope{Name: "github.com/reconkernel/reconcile/adapters/otel", SchemaURL: span.InstrumentationScope.SchemaURL}); span.InstrumentationScope != scope || scope.SchemaURL == "" {
					t.Errorf("scope %+v", span.InstrumentationScope)
				}
			})
		})
	}
}

// same compares two lists of attributes whatever their order.
func same(got, want string) bool {
	sorted := func(s string) string {
		words := strings.Fields(s)
		slices.Sort(words)
		return strings.Join(words, " ")
	}
	return sorted(got) == sorted(want)
}

// TestSpanAborted has a run cut short by the end of Run.
func TestSpanAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		s := start(t, &reconcile.Reconciler[string]{
			Name: "disks", Queue: q,
			Reconcile: func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() },
		})
		q.Enqueue("a")
		time.Sleep(time.Second)
		s.end()
		runs := s.runs()
		if len(runs) != 1 {
			t.Fatalf("%d spans, want 1", len(runs))
		}
		got := text(runs[0].Attributes)
		for _, want := range []string{"reconcile.outcome=aborted", "reconcile.reason=context canceled"} {
			if !strings.Contains(got, want) {
				t.Errorf("attributes %s, want %s", got, want)
			}
		}
		if runs[0].Status.Code != codes.Unset || len(runs[0].Events) != 0 {
			t.Errorf("status %+v, events %v: an aborted run is no failure", runs[0].Status, runs[0].Events)
		}
	})
}

// TestSpanTree checks that what Reconcile does is part of the run's trace, that
// each run has a trace of its own, and that the hooks of the program are called.
func TestSpanTree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[int]()
		var results []int
		var provider *sdktrace.TracerProvider
		r := &reconcile.Reconciler[int]{
			Name: "disks", Queue: q,
			Reconcile: func(ctx context.Context, _ int) error {
				_, span := provider.Tracer("cloud").Start(ctx, "call")
				span.End()
				return nil
			},
			OnResult: func(res reconcile.Result[int]) { results = append(results, res.Item) },
			Logger:   quiet,
		}
		exported := tracetest.NewInMemoryExporter()
		provider = sdktrace.NewTracerProvider(sdktrace.WithSyncer(exported))
		telemetry := &oteladapter.Telemetry[int]{TracerProvider: provider}
		if err := telemetry.Instrument(r); err != nil {
			t.Fatal(err)
		}
		q.Enqueue(1)
		q.Enqueue(2)
		q.Close()
		ctx, span := provider.Tracer("main").Start(t.Context(), "program") // never ends
		if err := r.Run(ctx); err != nil {
			t.Fatal(err)
		}
		all := exported.GetSpans() // call, run, call, run
		if len(all) != 4 {
			t.Fatalf("%d spans, want 4", len(all))
		}
		for i := 0; i < 4; i += 2 {
			call, run := all[i], all[i+1]
			if call.Parent.SpanID() != run.SpanContext.SpanID() || run.Parent.IsValid() ||
				run.SpanContext.TraceID() == span.SpanContext().TraceID() {
				t.Errorf("%s is in %v, want %v; %s is in %v, want none", call.Name, call.Parent.SpanID(), run.SpanContext.SpanID(), run.Name, run.Parent.SpanID())
			}
		}
		if !slices.Equal(results, []int{1, 2}) {
			t.Errorf("OnResult was called for %v, want [1 2]", results)
		}
		if got := text(all[3].Attributes); !strings.Contains(got, "reconcile.item=2 ") {
			t.Errorf("attributes %s, want the item 2", got)
		}
	})
}

// TestSpanNotSampled has a sampler that wants nothing.
func TestSpanNotSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		ran := 0
		s := start(t, &reconcile.Reconciler[string]{
			Name: "disks", Queue: q,
			Reconcile: func(context.Context, string) error {
				ran++
				return errBroken
			},
			Retry: func(_ error, failures int) (time.Duration, bool) { return time.Second, failures < 3 },
		}, sdktrace.WithSampler(sdktrace.NeverSample()))
		q.Enqueue("a")
		time.Sleep(time.Minute)
		s.end()
		if runs := s.runs(); ran != 3 || len(runs) != 0 {
			t.Errorf("%d runs and %d spans, want 3 and none", ran, len(runs))
		}
	})
}
