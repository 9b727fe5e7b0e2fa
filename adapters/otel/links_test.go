// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/reconkernel/reconcile"
	oteladapter "github.com/reconkernel/reconcile/adapters/otel"
)

// linked writes down what a run is linked to, by the names of the spans.
func linked(names map[trace.SpanID]string, run tracetest.SpanStub) string {
	var all []string
	for _, link := range run.Links {
		all = append(all, names[link.SpanContext.SpanID()]+" ("+text(link.Attributes)+")")
	}
	return strings.Join(all, ", ")
}

const (
	byEvent = " (reconcile.cause=event)"
	byRun   = " (reconcile.cause=previous run)"
)

// TestLinks goes through the ways for a run to be asked for. Each step happens
// and is followed by a second; a run takes ten.
func TestLinks(t *testing.T) {
	type telemetry = oteladapter.Telemetry[string]
	tests := []struct {
		name    string
		results []error // of the runs, then nil
		do      func(q *reconcile.Queue[string], feed func(event string) reconcile.Enqueuer[string], ctx func(event string) context.Context, tel *telemetry)
		want    []string // links of each run
	}{
		{
			name: "no span",
			do: func(q *reconcile.Queue[string], _ func(string) reconcile.Enqueuer[string], _ func(string) context.Context, tel *telemetry) {
				tel.Enqueuer(context.Background(), q).Enqueue("a")
				tel.Link(context.Background(), "a")
			},
			want: []string{""},
		},
		{
			name: "event",
			do: func(_ *reconcile.Queue[string], feed func(string) reconcile.Enqueuer[string], _ func(string) context.Context, _ *telemetry) {
				feed("e1").Enqueue("a")
			},
			want: []string{"e1" + byEvent},
		},
		{
			name: "events of a run that goes on are for the next",
			do: func(_ *reconcile.Queue[string], feed func(string) reconcile.Enqueuer[string], _ func(string) context.Context, _ *telemetry) {
				feed("e1").Enqueue("a")
				synctest.Wait()
				feed("e2").Enqueue("a")
				feed("e3").Enqueue("a")
			},
			want: []string{"e1" + byEvent, "e2" + byEvent + ", e3" + byEvent},
		},
		{
			name: "one event twice",
			do: func(_ *reconcile.Queue[string], feed func(string) reconcile.Enqueuer[string], _ func(string) context.Context, _ *telemetry) {
				q := feed("e1")
				q.EnqueueAfter("a", time.Second)
				q.Enqueue("a")
			},
			want: []string{"e1" + byEvent},
		},
		{
			name: "a later event, a held item",
			do: func(_ *reconcile.Queue[string], feed func(string) reconcile.Enqueuer[string], _ func(string) context.Context, _ *telemetry) {
				feed("e1").EnqueueAfter("a", time.Minute)
				feed("e2").Enqueue("a")
			},
			want: []string{"e1" + byEvent + ", e2" + byEvent},
		},
		{
			name:    "retries",
			results: []error{errBroken, errBroken},
			do: func(_ *reconcile.Queue[string], feed func(string) reconcile.Enqueuer[string], _ func(string) context.Context, _ *telemetry) {
				feed("e1").Enqueue("a")
			},
			want: []string{"e1" + byEvent, "run 1" + byRun, "run 2" + byRun},
		},
		{
			name:    "a look at what is in sync",
			results: []error{reconcile.RecheckWithin(time.Minute)},
			do: func(_ *reconcile.Queue[string], feed func(string) reconcile.Enqueuer[string], _ func(string) context.Context, _ *telemetry) {
				feed("e1").Enqueue("a")
			},
			want: []string{"e1" + byEvent, "run 1" + byRun},
		},
		{
			name:    "planned, and an event comes sooner",
			results: []error{reconcile.RequeueWithin(time.Hour)},
			do: func(_ *reconcile.Queue[string], feed func(string) reconcile.Enqueuer[string], _ func(string) context.Context, _ *telemetry) {
				feed("e1").Enqueue("a")
				time.Sleep(20 * time.Second)
				feed("e2").Enqueue("a")
			},
			want: []string{"e1" + byEvent, "run 1" + byRun + ", e2" + byEvent},
		},
		{
			name:    "terminal",
			results: []error{reconcile.Terminal(errBroken)},
			do: func(q *reconcile.Queue[string], feed func(string) reconcile.Enqueuer[string], _ func(string) context.Context, _ *telemetry) {
				feed("e1").Enqueue("a")
				time.Sleep(20 * time.Second)
				q.Enqueue("a")
			},
			want: []string{"e1" + byEvent, ""},
		},
		{
			name: "an offer that is news, and one that is not",
			do: func(_ *reconcile.Queue[string], feed func(string) reconcile.Enqueuer[string], _ func(string) context.Context, _ *telemetry) {
				feed("e1").Offer("a")
				feed("e2").Offer("a")
				synctest.Wait()
				feed("e3").Offer("a")
				feed("e4").Enqueue("a")
			},
			want: []string{"e1" + byEvent, "e4" + byEvent},
		},
		{
			name: "an offer to a queue that does not tell what it knows",
			do: func(q *reconcile.Queue[string], _ func(string) reconcile.Enqueuer[string], ctx func(string) context.Context, tel *telemetry) {
				all := reconcile.Filter(q, func(string) bool { return true })
				tel.Enqueuer(ctx("e1"), all).Offer("a")
			},
			want: []string{""},
		},
		{
			name: "through a filter and a map",
			do: func(_ *reconcile.Queue[string], feed func(string) reconcile.Enqueuer[string], _ func(string) context.Context, _ *telemetry) {
				owner := func(int) iter.Seq[string] { return slices.Values([]string{"a"}) }
				odd := func(n int) bool { return n%2 == 1 }
				reconcile.Filter(reconcile.Map(feed("e1"), owner), odd).Enqueue(1)
				reconcile.Filter(reconcile.Map(feed("e2"), owner), odd).Enqueue(2)
			},
			want: []string{"e1" + byEvent},
		},
		{
			name: "by hand",
			do: func(q *reconcile.Queue[string], _ func(string) reconcile.Enqueuer[string], ctx func(string) context.Context, tel *telemetry) {
				tel.Link(ctx("e1"), "a")
				q.EnqueueNow("a")
			},
			want: []string{"e1" + byEvent},
		},
		{
			name: "no more than eight",
			do: func(_ *reconcile.Queue[string], feed func(string) reconcile.Enqueuer[string], _ func(string) context.Context, _ *telemetry) {
				for i := range 20 {
					feed(fmt.Sprint(i)).EnqueueAfter("a", time.Second)
				}
			},
			want: []string{strings.Join([]string{"0", "1", "2", "3", "4", "5", "6", "7"}, byEvent+", ") + byEvent},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				runs := 0
				s := start(t, &reconcile.Reconciler[string]{
					Name: "disks", Queue: q,
					Reconcile: func(context.Context, string) error {
						runs++
						time.Sleep(10 * time.Second)
						if runs > len(test.results) {
							return nil
						}
						return test.results[runs-1]
					},
				})
				names := make(map[trace.SpanID]string)
				ctx := func(event string) context.Context {
					ctx, span := s.event(event)
					names[span.SpanID()] = event
					return ctx
				}
				feed := func(event string) reconcile.Enqueuer[string] { return s.Enqueuer(ctx(event), q) }
				test.do(q, feed, ctx, s.Telemetry)
				time.Sleep(30 * time.Minute)
				s.end()

				var got []string
				for i, run := range s.runs() {
					got = append(got, linked(names, run))
					names[run.SpanContext.SpanID()] = fmt.Sprintf("run %d", i+1)
				}
				if !slices.Equal(got, test.want) {
					t.Errorf("the runs are linked to\n%q, want\n%q", got, test.want)
				}
			})
		})
	}
}

// TestLinksOfFeeder has a feeder that gives the trace of each message.
func TestLinksOfFeeder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		s := start(t, &reconcile.Reconciler[string]{
			Name: "disks", Queue: q,
			Reconcile: func(context.Context, string) error { return nil },
		})
		type message struct {
			ctx  context.Context
			disk string
		}
		messages := make(chan message)
		var feeder reconcile.Feeder[string] = func(ctx context.Context, q reconcile.Enqueuer[string]) error {
			for {
				select {
				case m := <-messages:
					s.Enqueuer(m.ctx, q).Enqueue(m.disk)
				case <-ctx.Done():
					return nil
				}
			}
		}
		end := background(t, reconcile.Feed(q, feeder).Run)
		names := make(map[trace.SpanID]string)
		for _, disk := range []string{"a", "b"} {
			ctx, span := s.event("message of " + disk)
			names[span.SpanID()] = disk
			messages <- message{ctx, disk}
		}
		synctest.Wait()
		end()
		s.end()
		for i, run := range s.runs() {
			disk := []string{"a", "b"}[i]
			if got := linked(names, run); got != disk+byEvent {
				t.Errorf("the run of %s is linked to %q", disk, got)
			}
		}
	})
}
