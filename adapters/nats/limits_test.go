// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// A consumer is read within each limit that it has, and not by one refused request after the
// other.
func TestConsumerKeepsLimits(t *testing.T) {
	s := natstest.Serve(t, &server.Options{
		JetStream: true, StoreDir: t.TempDir(),
		JetStreamLimits: server.JSLimitOpts{MaxRequestBatch: 10, MaxAckPending: 50},
	})
	js := natstest.JetStream(t, natstest.Connect(t, s.ClientURL()))
	for name, config := range map[string]jetstream.ConsumerConfig{
		"of_the_server":      {},
		"MaxRequestBatch":    {MaxRequestBatch: 1},
		"MaxRequestExpires":  {MaxRequestExpires: time.Second},
		"MaxRequestMaxBytes": {MaxRequestMaxBytes: 1000},
		"MaxWaiting":         {MaxWaiting: 1},
		"MaxAckPending":      {MaxAckPending: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			config.Durable = name
			f := run(t, inGroup(&log, natsadapter.Consumer(as(t, js, "feeder of a stream", name), name, config, body)))
			createStream(t, js, name)
			for i := range 100 {
				publish(t, js, name+".a", fmt.Sprint(i))
				f.want(fmt.Sprint(i))
			}
			f.stop()
			if strings.Count(log.String(), "cannot read") > 3 { // a heartbeat may be late on a slow machine
				t.Errorf("log:\n%s", log.String())
			}
		})
	}
}

// lines are the lines of a log, one by one.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// logging runs a Feeder with a log.
func logging(t *testing.T, f reconcile.Feeder[string]) (*feed, lines) {
	l := make(lines, 1000)
	return run(t, func(ctx context.Context, q reconcile.Enqueuer[string]) error {
		return f(reconcile.WithLogger(ctx, slog.New(slog.NewTextHandler(l, nil))), q)
	}), l
}

// What a consumer waits for is said, with the limit, once, and that it is over.
func TestConsumerSaysWhatItWaitsFor(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	for name, c := range map[string]struct {
		config jetstream.ConsumerConfig
		begin  func(*testing.T, jetstream.Stream, jetstream.Consumer) (end func())
		want   string
	}{
		"paused": {
			begin: func(t *testing.T, s jetstream.Stream, c jetstream.Consumer) func() {
				if _, err := s.PauseConsumer(t.Context(), "c", time.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
				return func() { s.ResumeConsumer(t.Context(), "c") }
			},
			want: "nats consumer resume paused c",
		},
		"pending": {
			config: jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: time.Hour},
			begin: func(t *testing.T, s jetstream.Stream, c jetstream.Consumer) func() {
				publish(t, js, "pending.a", "1")
				publish(t, js, "pending.a", "1")
				msg, err := c.Next()
				if err != nil {
					t.Fatal(err)
				}
				return func() { msg.Nak() }
			},
			want: "its MaxAckPending of 1 is reached",
		},
		"waiting": {
			config: jetstream.ConsumerConfig{MaxWaiting: 1},
			begin: func(t *testing.T, s jetstream.Stream, c jetstream.Consumer) func() {
				sub, err := js.Conn().SubscribeSync("reply")
				if err == nil {
					err = js.Conn().PublishRequest("$JS.API.CONSUMER.MSG.NEXT.waiting.c", "reply", []byte(`{"batch": 1, "expires": 3600000000000}`))
				}
				if err != nil {
					t.Fatal(err)
				}
				return func() { sub.Unsubscribe() }
			},
			want: "its MaxWaiting of 1 is reached",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream := createStream(t, js, name)
			c.config.Durable, c.config.AckPolicy = "c", jetstream.AckExplicitPolicy
			consumer, err := stream.CreateConsumer(t.Context(), c.config)
			if err != nil {
				t.Fatal(err)
			}
			end := c.begin(t, stream, consumer)
			f, log := logging(t, natsadapter.Consumer(as(t, js, "feeder of a stream", name), name, c.config, body))
			if line := natstest.Next(t, log); !strings.Contains(line, c.want) {
				t.Errorf("log: %swant %q", line, c.want)
			}
			end()
			publish(t, js, name+".a", "1")
			f.want("1")
			if line := natstest.Next(t, log); !strings.Contains(line, "reads again") {
				t.Errorf("log: %swant that it reads again", line)
			}
		})
	}
}

// A message that is larger than what one request asks for comes nevertheless.
func TestConsumerLargeMessage(t *testing.T) {
	options := &server.Options{JetStream: true, StoreDir: t.TempDir(), MaxPayload: 8 << 20}
	s := natstest.Serve(t, options)
	js := natstest.JetStream(t, natstest.Connect(t, s.ClientURL()))
	createStream(t, js, "S")
	publish(t, js, "S.small", "1")
	publish(t, js, "S.large", strings.Repeat("x", 6<<20))
	s.Shutdown()
	options.MaxPayload = 1 << 20
	s = natstest.Serve(t, options)
	js = natstest.JetStream(t, natstest.Connect(t, s.ClientURL()))
	f := run(t, natsadapter.Consumer(js, "S", jetstream.ConsumerConfig{Durable: "c"}, func(m jetstream.Msg) (string, bool) { return m.Subject(), true }))
	f.want("S.small")
	f.want("S.large")
}
