// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/reconkernel/reconcile"
)

var (
	causeEvent       = []attribute.KeyValue{causeKey.String("event")}
	causePreviousRun = []attribute.KeyValue{causeKey.String("previous run")}
)

// Enqueuer returns an Enqueuer that passes on to q, and notes the span that ctx
// is in: the next run of each item is linked to it. It is meant for one event:
//
//	for msg := range messages {
//		ctx := propagator.Extract(ctx, msg.Header)
//		telemetry.Enqueuer(ctx, q).Enqueue(msg.Asset)
//	}
//
// Without a span in ctx it returns q itself. An Offer is noted only if q has the
// method Has, as [reconcile.Queue] has, and does not know the item: otherwise it
// changes nothing. Put [reconcile.Filter] and [reconcile.Map] before Enqueuer,
// not behind it. Enqueuer panics if q is nil.
func (t *Telemetry[T]) Enqueuer(ctx context.Context, q reconcile.Enqueuer[T]) reconcile.Enqueuer[T] {
	if q == nil {
		panic("oteladapter: Enqueuer needs a queue, got nil")
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return q
	}
	known, _ := q.(interface{ Has(item T) bool })
	return &enqueuer[T]{t, trace.LinkFromContext(ctx, causeEvent...), q, known}
}

// Link notes that the span that ctx is in asks for the next run of the item. It
// is for what Enqueuer has no verb for: call it before [reconcile.Queue.EnqueueNow]
// or [reconcile.Queue.EnqueueWithin], or the run may start without. Without a
// span in ctx it does nothing.
func (t *Telemetry[T]) Link(ctx context.Context, item T) {
	if trace.SpanContextFromContext(ctx).IsValid() {
		t.remembered().remember(item, trace.LinkFromContext(ctx, causeEvent...))
	}
}

type enqueuer[T comparable] struct {
	t     *Telemetry[T]
	link  trace.Link
	q     reconcile.Enqueuer[T]
	known interface{ Has(item T) bool } // may be nil
}

func (e *enqueuer[T]) Enqueue(item T) {
	e.t.remembered().remember(item, e.link)
	e.q.Enqueue(item)
}

func (e *enqueuer[T]) EnqueueAfter(item T, d time.Duration) {
	e.t.remembered().remember(item, e.link)
	e.q.EnqueueAfter(item, d)
}

func (e *enqueuer[T]) Offer(item T) {
	if e.known != nil && !e.known.Has(item) {
		e.t.remembered().remember(item, e.link)
	}
	e.q.Offer(item)
}

// linksPerRun is how many causes of one run are kept, the first ones: a burst of
// events is one cause, and the rest are in its traces.
const linksPerRun = 8

// A memory knows for items that are to run who asked for it. An item may never
// run, if it is removed, or if the queue is closed; so old ones are forgotten,
// half of the memory at a time.
type memory[T comparable] struct {
	half int

	// mu guards the fields below. An item is in one of the two maps; neither has
	// more than half.
	mu         sync.Mutex
	young, old map[T][]trace.Link
}

func newMemory[T comparable](size int) *memory[T] {
	return &memory[T]{half: max(1, size/2)}
}

// remember adds a cause for the next run of the item.
func (m *memory[T]) remember(item T, link trace.Link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	links, ok := m.young[item]
	if !ok {
		links = m.old[item]
		delete(m.old, item)
		if m.young == nil || len(m.young) >= m.half {
			m.young, m.old = make(map[T][]trace.Link), m.young
		}
	}
	same := func(l trace.Link) bool { return l.SpanContext.Equal(link.SpanContext) }
	if len(links) < linksPerRun && !slices.ContainsFunc(links, same) {
		links = append(links, link)
	}
	m.young[item] = links
}

// take returns the causes of a run that starts, and forgets them.
func (m *memory[T]) take(item T) []trace.Link {
	m.mu.Lock()
	defer m.mu.Unlock()
	links, ok := m.young[item]
	if ok {
		delete(m.young, item)
	} else if links, ok = m.old[item]; ok {
		delete(m.old, item)
	}
	return links
}
