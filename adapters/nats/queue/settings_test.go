// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// TestSettingsAreChanged has an operator change the stream and the consumer of a queue
// that runs. The janitor warns and names each field, once a minute, and says when they
// are as before.
func TestSettingsAreChanged(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t, natstest.In(t, "creator", "q"))
	var log bytes.Buffer
	q, err := New[string](t.Context(), js, Config{Name: "q", Lease: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer q.end()
	check := func(want ...string) {
		t.Helper()
		log.Reset()
		q.checkSettings()
		q.checkSettings()
		lines := strings.Count(log.String(), "\n")
		if len(want) == 0 && lines != 0 || len(want) > 0 && lines != 1 {
			t.Errorf("%d lines, want one of each change:\n%s", lines, log.String())
		}
		for _, text := range want {
			if !strings.Contains(log.String(), text) {
				t.Errorf("log:\n%swant %q", log.String(), text)
			}
		}
	}
	check()

	admin := s.JetStream(t)
	stream, err := admin.Stream(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	was := stream.CachedInfo().Config
	is := was
	is.MaxAge = time.Hour
	is.Metadata = map[string]string{protocolKey: "2"}
	update := func(cfg jetstream.StreamConfig) {
		t.Helper()
		if _, err := admin.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	update(is)
	consumer, err := admin.Consumer(t.Context(), "q", consumerName)
	if err != nil {
		t.Fatal(err)
	}
	workers := consumer.CachedInfo().Config
	other := workers
	other.BackOff, other.HeadersOnly, other.MaxRequestBatch = []time.Duration{time.Second}, true, 1
	if _, err := admin.UpdateConsumer(t.Context(), "q", other); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.PauseConsumer(t.Context(), "q", consumerName, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	check("level=WARN", "MaxAge is 1h0m0s, want 0s", protocolKey,
		"BackOff", "HeadersOnly", "MaxRequestBatch", "the consumer is paused")
	check()

	update(was)
	if _, err := admin.UpdateConsumer(t.Context(), "q", workers); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ResumeConsumer(t.Context(), "q", consumerName); err != nil {
		t.Fatal(err)
	}
	check("level=INFO", "as the queue needs them again")
}
