// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// A miscounting server says of each new consumer that nothing is to come. A real one may
// count too few messages, if some are replaced as the consumer is created.
type miscounting struct{ jetstream.JetStream }

func (m miscounting) CreateConsumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	c, err := m.JetStream.CreateConsumer(ctx, stream, cfg)
	return nothingPending{c}, err
}

type nothingPending struct{ jetstream.Consumer }

func (c nothingPending) CachedInfo() *jetstream.ConsumerInfo {
	info := *c.Consumer.CachedInfo()
	info.NumPending = 0
	return &info
}

// A writing stream has a record written before it returns one, so that one is always ahead.
type writing struct {
	jetstream.Stream
	write func()
}

func (w writing) GetMsg(ctx context.Context, seq uint64, opts ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	w.write()
	return w.Stream.GetMsg(ctx, seq, opts...)
}

// All has each item, whatever the server says of its consumer, and also one that is
// written again and again while the others are read.
func TestAllDoesNotRelyOnTheConsumer(t *testing.T) {
	js := natstest.New(t).JetStream(t, natstest.In(t, "creator", "q"))
	q, err := New[string](t.Context(), js, Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	defer q.end()
	within := 1000 * time.Hour
	write := func(item string) {
		if within -= time.Hour; within < 980*time.Hour {
			t.Fatal("the scan follows a record that is always ahead")
		}
		q.EnqueueWithin(item, within) // sooner than before, so that it changes the record
		if err := q.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	items := []string{"a", "b", "c", "d"}
	for _, item := range items {
		write(item)
	}
	w := *q.wire.(*jetWire)
	reader := openQueue[string](q.cfg, &w, q.codec, q.timeout)
	defer reader.end()
	w.js, w.s = miscounting{js}, writing{w.s, func() { write("d") }}
	all, err := reader.All(t.Context())
	var got []string
	for _, e := range all {
		got = append(got, e.Item)
	}
	if slices.Sort(got); err != nil || !slices.Equal(got, items) {
		t.Errorf("All: %q, %v, want %q", got, err, items)
	}
}

// A losing server loses a message of each batch, as if the connection was lost for a moment.
type losing struct{ jetstream.JetStream }

func (l losing) CreateConsumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	c, err := l.JetStream.CreateConsumer(ctx, stream, cfg)
	return losingConsumer{c}, err
}

type losingConsumer struct{ jetstream.Consumer }

func (c losingConsumer) Fetch(n int, opts ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	b, err := c.Consumer.Fetch(n, opts...)
	if err == nil {
		<-b.Messages()
	}
	return b, err
}

// A list whose messages were lost on their way is an error, and not shorter.
func TestAllHasNoGap(t *testing.T) {
	js := natstest.New(t).JetStream(t, natstest.In(t, "creator", "q"))
	q, err := New[string](t.Context(), losing{js}, Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	defer q.end()
	for _, item := range []string{"a", "b", "c"} {
		if err := q.EnqueueContext(t.Context(), item); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := q.All(t.Context()); !errors.Is(err, errLost) {
		t.Errorf("All: %d items, %v; want %v", len(all), err, errLost)
	}
}
