// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

func body(msg jetstream.Msg) (string, bool) {
	s := string(msg.Data())
	return s, s != "no"
}

func createStream(t *testing.T, js jetstream.JetStream, name string) jetstream.Stream {
	t.Helper()
	var stream jetstream.Stream
	natstest.Eventually(t, func(ctx context.Context) (err error) {
		stream, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
		return err
	})
	return stream
}

func publish(t *testing.T, js jetstream.JetStream, subject, data string) {
	t.Helper()
	natstest.Eventually(t, func(ctx context.Context) error {
		_, err := js.Publish(ctx, subject, []byte(data))
		return err
	})
}

// settled waits until the consumer has no message that is not acknowledged.
func settled(t *testing.T, stream jetstream.Stream, consumer string) {
	t.Helper()
	natstest.Eventually(t, func(ctx context.Context) error {
		c, err := stream.Consumer(ctx, consumer)
		if err != nil {
			return err
		}
		if i := c.CachedInfo(); i.NumPending > 0 || i.NumAckPending > 0 {
			return fmt.Errorf("%d messages are pending and %d not acknowledged", i.NumPending, i.NumAckPending)
		}
		return nil
	})
}

// TestConsumer begins before there is a stream, and ends with everything
// acknowledged; a message without an item too.
func TestConsumer(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	f := run(t, natsadapter.Consumer(as(t, js, "feeder of a stream", "S"), "S", jetstream.ConsumerConfig{Durable: "c"}, body))
	stream := createStream(t, js, "S")
	for _, data := range []string{"1", "no", "2"} {
		publish(t, js, "S.a", data)
	}
	f.want("1", "2")
	settled(t, stream, "c")
	f.stop()
	publish(t, js, "S.a", "3")
	run(t, natsadapter.Consumer(as(t, js, "feeder of a stream", "S"), "S", jetstream.ConsumerConfig{Durable: "c"}, body)).want("3")
}

// TestConsumerSurvivesRestarts publishes while the server is killed again and
// again: every message is enqueued, once or more.
func TestConsumerSurvivesRestarts(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t)
	stream := createStream(t, js, "S")
	// A short AckWait, for messages whose acknowledgement dies with the server.
	f := run(t, natsadapter.Consumer(as(t, js, "feeder of a stream", "S"), "S", jetstream.ConsumerConfig{Durable: "c", AckWait: time.Second}, body))
	var all []string
	for round, end := range []func(){s.Kill, s.Stop, s.Kill} {
		for i := range 100 {
			data := fmt.Sprintf("%d.%d", round, i)
			all = append(all, data)
			publish(t, js, "S.a", data)
			if i == 50 {
				end()
				s.Start()
			}
		}
	}
	f.wantAll(all...)
	settled(t, stream, "c")
}

// TestConsumerNewStream deletes the stream, and then the consumer alone.
func TestConsumerNewStream(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	createStream(t, js, "S")
	f := run(t, natsadapter.Consumer(as(t, js, "feeder of a stream", "S"), "S", jetstream.ConsumerConfig{Durable: "c"}, body))
	publish(t, js, "S.a", "1")
	f.want("1")
	if err := js.DeleteStream(t.Context(), "S"); err != nil {
		t.Fatal(err)
	}
	stream := createStream(t, js, "S")
	publish(t, js, "S.a", "2")
	f.want("2")
	settled(t, stream, "c")
	if err := stream.DeleteConsumer(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	publish(t, js, "S.a", "3")
	f.wantAll("2", "3") // a new consumer begins with what the stream has
}

// A durable queue takes an item when it says so.
type durable struct {
	recorder
	take func(item string) error
}

func (d durable) EnqueueContext(_ context.Context, item string) error { return d.take(item) }

// TestConsumerAcknowledgesWhatIsTaken has a queue that refuses each item at
// first. The message comes again, and is not acknowledged before the queue has
// it.
func TestConsumerAcknowledgesWhatIsTaken(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	stream := createStream(t, js, "S")
	publish(t, js, "S.a", "1")
	tries := make(chan chan error)
	q := durable{take: func(string) error {
		verdict := make(chan error)
		tries <- verdict
		return <-verdict
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	feeder := natsadapter.Consumer(as(t, js, "feeder of a stream", "S"), "S", jetstream.ConsumerConfig{Durable: "c"}, body)
	go func() { ended <- feeder(ctx, q) }()
	for _, verdict := range []error{errors.New("full"), errors.New("full"), nil} {
		try := <-tries
		c, err := stream.Consumer(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		if n := c.CachedInfo().NumAckPending; n != 1 {
			t.Errorf("%d messages are not acknowledged while the queue has not taken the item, want 1", n)
		}
		try <- verdict
	}
	settled(t, stream, "c")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestConsumerClosedQueue ends a Feeder whose queue is closed, or can store
// nothing any more. It does not ask again and again, and another one has the
// message at once, long before AckWait.
func TestConsumerClosedQueue(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	createStream(t, js, "S")
	publish(t, js, "S.a", "1")
	config := jetstream.ConsumerConfig{Durable: "c", AckWait: time.Hour}
	for _, over := range []error{reconcile.ErrClosed, nats.ErrConnectionClosed} {
		ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
		defer cancel()
		calls := 0
		q := durable{take: func(string) error {
			if calls++; calls == 10 {
				cancel()
			}
			return fmt.Errorf("queue q: %w", over)
		}}
		err := natsadapter.Consumer(as(t, js, "feeder of a stream", "S"), "S", config, body)(ctx, q)
		if !errors.Is(err, over) || !strings.Contains(err.Error(), "consumer c of stream S: ") || calls != 1 {
			t.Errorf("the Feeder asks %d times and returns %v, want once, and an error that wraps %v", calls, err, over)
		}
	}
	run(t, natsadapter.Consumer(as(t, js, "feeder of a stream", "S"), "S", config, body)).want("1")
}

// TestConsumerHandsBack stops a Feeder that has fetched messages and enqueued
// only one of them. Another one has the rest at once, long before AckWait.
func TestConsumerHandsBack(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	stream := createStream(t, js, "S")
	for _, data := range []string{"1", "2", "3"} {
		publish(t, js, "S.a", data)
	}
	config := jetstream.ConsumerConfig{Durable: "c", AckWait: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	began, release := make(chan string, 3), make(chan struct{})
	q := durable{take: func(item string) error {
		began <- item
		<-release
		return nil
	}}
	go func() { ended <- natsadapter.Consumer(as(t, js, "feeder of a stream", "S"), "S", config, body)(ctx, q) }()
	if got := natstest.Next(t, began); got != "1" {
		t.Errorf("the first item is %q", got)
	}
	natstest.Eventually(t, func(ctx context.Context) error { // the others are fetched, and wait behind it
		c, err := stream.Consumer(ctx, "c")
		if err == nil && c.CachedInfo().NumAckPending < 3 {
			err = errors.New("not fetched yet")
		}
		return err
	})
	cancel()
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	run(t, natsadapter.Consumer(as(t, js, "feeder of a stream", "S"), "S", config, body)).wantAll("2", "3")
}

// A message that the key function panics for comes again and again. Its line is written
// at the 1st, 2nd, 4th … delivery.
func TestConsumerPanicIsLoggedRarely(t *testing.T) {
	var log bytes.Buffer
	js := natstest.New(t).JetStream(t)
	createStream(t, js, "S")
	publish(t, js, "S.a", "1")
	var calls atomic.Int32
	run(t, inGroup(&log, natsadapter.Consumer(as(t, js, "feeder of a stream", "S"), "S", jetstream.ConsumerConfig{Durable: "c", AckWait: 100 * time.Millisecond}, func(msg jetstream.Msg) (string, bool) {
		if calls.Add(1) <= 8 {
			panic("bad")
		}
		return body(msg)
	}))).want("1")
	if n := strings.Count(log.String(), "the key function panicked"); n != 4 {
		t.Errorf("%d lines of 8 deliveries, want 4:\n%s", n, log.String())
	}
}

func TestConsumerMisuse(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	stream := createStream(t, js, "S")
	good := jetstream.ConsumerConfig{Durable: "c"}
	for _, config := range []jetstream.ConsumerConfig{
		{Durable: "none", AckPolicy: jetstream.AckNonePolicy},
		{Durable: "all", AckPolicy: jetstream.AckAllPolicy},
		{Durable: "thrice", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 3},
		{Durable: "pinned", AckPolicy: jetstream.AckExplicitPolicy, PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"g"}},
		{Durable: "hurried", AckPolicy: jetstream.AckExplicitPolicy, MaxRequestExpires: 500 * time.Millisecond},
	} {
		if _, err := stream.CreateConsumer(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := js.CreateOrUpdatePushConsumer(t.Context(), "S", jetstream.ConsumerConfig{Durable: "push", DeliverSubject: "d"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		js     jetstream.JetStream
		stream string
		config jetstream.ConsumerConfig
		key    func(jetstream.Msg) (string, bool)
		want   string
	}{
		{nil, "S", good, body, "needs a JetStream"},
		{js, "", good, body, `the stream is named "", want letters`},
		{js, "S", jetstream.ConsumerConfig{}, body, `Durable is "", want letters`},
		{js, "S", jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckAllPolicy}, body, "AckPolicy is AckAll, want AckExplicitPolicy"},
		{js, "S", jetstream.ConsumerConfig{Durable: "c", AckWait: 1}, body, "AckWait is 1ns, want 100ms or more"},
		{js, "S", jetstream.ConsumerConfig{Durable: "c", MaxDeliver: 3}, body, "MaxDeliver is 3, want 0 or -1"},
		{js, "S", jetstream.ConsumerConfig{Durable: "c", PriorityGroups: []string{"g"}}, body, `PriorityGroups are ["g"], want none`},
		{js, "S", jetstream.ConsumerConfig{Durable: "pinned"}, body, `consumer pinned of stream S: its PriorityGroups are ["g"], want none`},
		{js, "S", jetstream.ConsumerConfig{Durable: "hurried"}, body, "consumer hurried of stream S: its MaxRequestExpires is 500ms, want 1s or more"},
		{js, "S", jetstream.ConsumerConfig{Durable: "thrice"}, body, "consumer thrice of stream S: its MaxDeliver is 3, want 0 or -1"},
		{js, "S", jetstream.ConsumerConfig{Durable: strings.Repeat("c", 256)}, body, "are 1 and 256 bytes long, want 255 at most"},
		{js, "S", good, nil, "stream S needs a key function"},
		{js, "S", jetstream.ConsumerConfig{Durable: "none"}, body, "consumer none of stream S: its AckPolicy is AckNone, want AckExplicitPolicy"},
		{js, "S", jetstream.ConsumerConfig{Durable: "all"}, body, "consumer all of stream S: its AckPolicy is AckAll, want AckExplicitPolicy"},
		{js, "S", jetstream.ConsumerConfig{Durable: "push"}, body, "consumer push of stream S: it pushes, want one that is pulled from"},
	} {
		err := natsadapter.Consumer(c.js, c.stream, c.config, c.key)(t.Context(), recorder{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Consumer(%q, %+v): %v, want %q", c.stream, c.config, err, c.want)
		}
	}
}

// A consumer of the last release is used as it is, and each field that config sets and that
// it has otherwise is named, once.
func TestConsumerOfTheLastRelease(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	stream := createStream(t, js, "S")
	begin := time.Now().UTC().Add(-time.Hour)
	was := jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "S.a", Metadata: map[string]string{"of": "us", "by": "me"},
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &begin, BackOff: []time.Duration{time.Second, time.Minute},
		SampleFrequency: "50%", MaxWaiting: 7, MaxAckPending: 5, HeadersOnly: true, MaxRequestBatch: 10,
		MaxRequestExpires: time.Minute, MaxRequestMaxBytes: 1 << 20, InactiveThreshold: time.Hour, Replicas: 1, MemoryStorage: true, Description: "old",
	}
	if _, err := stream.CreateConsumer(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	publish(t, js, "S.a", "")
	differ := func(config jetstream.ConsumerConfig) string {
		config.Durable = "c"
		f, log := logging(t, natsadapter.Consumer(js, "S", config, func(jetstream.Msg) (string, bool) { return "1", true }))
		publish(t, js, "S.a", "")
		f.want("1")
		f.stop()
		select {
		case line := <-log:
			_, line, _ = strings.Cut(line, "differences=")
			return line
		default:
			return ""
		}
	}
	same := was
	same.AckWait, same.MaxDeliver = time.Hour, -1 // BackOff wins
	for _, config := range []jetstream.ConsumerConfig{{}, was, same, {FilterSubjects: []string{"S.a"}, MaxWaiting: -1}} {
		if d := differ(config); d != "" {
			t.Errorf("%+v: %s", config, d)
		}
	}
	later := begin.Add(time.Minute)
	for want, config := range map[string]jetstream.ConsumerConfig{
		`"FilterSubjects is [S.a], want [S.a S.b]"`:                                  {FilterSubjects: []string{"S.b", "S.a"}},
		`"Metadata[\"of\"] is \"us\", want \"them\""`:                                {Metadata: map[string]string{"of": "them"}},
		`"DeliverPolicy is by_start_time, want new; MaxAckPending is 5, want -1"`:    {DeliverPolicy: jetstream.DeliverNewPolicy, MaxAckPending: -1},
		fmt.Sprintf(`"OptStartTime is %v, want %v"`, begin.Round(0), later.Round(0)): {OptStartTime: &later},
		`"AckWait is 1s, want 1m0s; MaxRequestExpires is 1m0s, want 2m0s"`:           {AckWait: time.Minute, MaxRequestExpires: 2 * time.Minute},
	} {
		if d := strings.TrimSpace(differ(config)); d != want {
			t.Errorf("%+v: %s, want %s", config, d, want)
		}
	}
}
