// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want one with %q", parts)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q, want one with %q", err, part)
		}
	}
}

func TestQueueConfigErrors(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t)
	for _, c := range []struct {
		cfg   queue.Config
		parts []string
	}{
		{queue.Config{}, []string{"Config.Name", "empty"}},
		{queue.Config{Name: "a.b"}, []string{"Config.Name", `"a.b"`, "letters"}},
		{queue.Config{Name: strings.Repeat("a", 101)}, []string{"Config.Name", "101", "100"}},
		{queue.Config{Name: "q", Lease: time.Millisecond}, []string{"Config.Lease", "1ms", "a second"}},
		{queue.Config{Name: "q", Lease: -time.Second}, []string{"Config.Lease", "-1s"}},
		{queue.Config{Name: "q", Replicas: 6}, []string{"Config.Replicas", "6", "1 to 5"}},
		{queue.Config{Name: "q", MaxBytes: -1}, []string{"Config.MaxBytes", "-1", "1048576"}},
		{queue.Config{Name: "q", MaxBytes: 1000}, []string{"Config.MaxBytes", "1000"}},
		{queue.Config{Name: "q", Replicas: -1}, []string{"Config.Replicas", "-1"}},
		{queue.Config{Name: "q", Replicas: 3}, []string{"stream q", "replicas"}}, // one server cannot
	} {
		_, err := queue.New[string](t.Context(), js, c.cfg)
		wantError(t, err, c.parts...)
	}
	_, err := queue.New[string](t.Context(), nil, queue.Config{Name: "q"})
	wantError(t, err, "JetStream", "nil")
	_, err = queue.New[float64](t.Context(), js, queue.Config{Name: "q"})
	wantError(t, err, "queue.New[float64]", "queue.NewFunc")
	_, err = queue.NewFunc[float64](t.Context(), js, queue.Config{Name: "q"}, nil, nil)
	wantError(t, err, "nil")
}

// A stream of another purpose is left alone, and the error says what is wrong
// with it.
func TestQueueRejectsOtherStreams(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t)
	good := func(name string) jetstream.StreamConfig {
		return jetstream.StreamConfig{Name: name, Subjects: []string{"$KV.queue=" + name + ".>"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true, Discard: jetstream.DiscardNew, Metadata: map[string]string{"reconcile.protocol": "1", "reconcile.item": "string"}}
	}
	for name, c := range map[string]struct {
		change func(*jetstream.StreamConfig)
		parts  []string
	}{
		"subjects": {func(c *jetstream.StreamConfig) { c.Subjects = []string{"$KV.queue=subjects.i.>"} }, []string{"Subjects is [$KV.queue=subjects.i.>]", "want [$KV.queue=subjects.>]"}},
		"limit":    {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 2 }, []string{"MaxMsgsPerSubject is 2, want 1"}},
		"age":      {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, []string{"MaxAge is 1h0m0s, want 0s"}},
		"bytes":    {func(c *jetstream.StreamConfig) { c.MaxBytes = 1e6 }, []string{"MaxBytes"}},
		"messages": {func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 }, []string{"MaxMsgs is 10"}},
		"ttl":      {func(c *jetstream.StreamConfig) { c.AllowMsgTTL = false }, []string{"AllowMsgTTL", "is false, want true", "2.11"}},
		"direct":   {func(c *jetstream.StreamConfig) { c.AllowDirect = true }, []string{"AllowDirect is true, want false"}},
		"discard":  {func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, []string{"Discard is DiscardOld, want DiscardNew"}},
		"memory":   {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, []string{"Storage is Memory, want File"}},
		"work":     {func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }, []string{"Retention is WorkQueue, want Limits"}},
		"two":      {func(c *jetstream.StreamConfig) { c.MaxAge, c.MaxMsgs = time.Hour, 10 }, []string{"MaxAge", "MaxMsgs"}},
		"deny":     {func(c *jetstream.StreamConfig) { c.DenyDelete = true }, []string{"DenyDelete is true"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good(name)
			c.change(&cfg)
			before, err := js.CreateStream(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			_, err = queue.New[string](t.Context(), js, queue.Config{Name: name})
			wantError(t, err, append(c.parts, "stream "+name)...)
			after, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := fmt.Sprintf("%+v", after.CachedInfo().Config), fmt.Sprintf("%+v", before.CachedInfo().Config); got != want {
				t.Errorf("the stream is now %s, want %s", got, want)
			}
		})
	}
	t.Run("good", func(t *testing.T) {
		if _, err := js.CreateStream(t.Context(), good("good")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := queue.New[string](t.Context(), js, queue.Config{Name: "good"}); err != nil {
				t.Error(err)
			}
		}
		// All processes must agree about the lease.
		_, err := queue.New[string](t.Context(), js, queue.Config{Name: "good", Lease: time.Minute})
		wantError(t, err, "consumer workers of stream good", "AckWait (which is Config.Lease) is 10s, want 1m0s")
	})
	t.Run("consumer", func(t *testing.T) {
		if _, err := js.CreateStream(t.Context(), good("consumer")); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateConsumer(t.Context(), "consumer", jetstream.ConsumerConfig{Durable: "workers", MaxDeliver: 3, AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
			t.Fatal(err)
		}
		_, err := queue.New[string](t.Context(), js, queue.Config{Name: "consumer"})
		wantError(t, err, "MaxDeliver is 3, want -1", "FilterSubject")
	})
}

// A server may limit the batches of all consumers. A limit that no request of a queue
// reaches is fine.
func TestQueueWithALimitOfTheServer(t *testing.T) {
	for limit, want := range map[int][]string{500: nil, 499: {"MaxRequestBatch", "is 499", "500 or more"}} {
		s := natstest.Serve(t, &server.Options{JetStream: true, StoreDir: t.TempDir(), JetStreamLimits: server.JSLimitOpts{MaxRequestBatch: limit}})
		q, err := queue.New[string](t.Context(), natstest.JetStream(t, natstest.Connect(t, s.ClientURL())), queue.Config{Name: "q"})
		if want != nil {
			wantError(t, err, want...)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
		defer cancel()
		const workers = 700
		var waiting sync.WaitGroup
		for range workers {
			waiting.Go(func() {
				item, err := q.Dequeue(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				q.Done(item)
			})
		}
		for i := range workers {
			q.Enqueue(fmt.Sprint(i))
		}
		waiting.Wait()
		if err := q.Close(ctx); err != nil {
			t.Error(err)
		}
	}
}

// A server that is too old is refused before it can drop an option that it does
// not know. This one says that it is old, and no more.
func TestQueueRejectsOldServers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "INFO {\"server_id\":\"X\",\"version\":\"2.11.4\",\"proto\":1,\"headers\":true,\"max_payload\":1048576}\r\n")
		for lines := bufio.NewScanner(c); lines.Scan(); {
			if lines.Text() == "PING" {
				fmt.Fprintf(c, "PONG\r\n")
			}
		}
	}()
	nc, err := nats.Connect("nats://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_, err = queue.New[string](t.Context(), natstest.JetStream(t, nc), queue.Config{Name: "q"})
	wantError(t, err, "nats-server 2.11.4", "2.12.0 or later")
}

func TestNewWithoutAnswer(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t)
	s.Front().Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := queue.New[string](ctx, js, queue.Config{Name: "q"})
	wantError(t, err, "stream q", "deadline")
}

// The server of the Linux distribution drops options that it does not know, so
// that the stream looks well.
func TestQueueRejectsTheServerOfTheDistribution(t *testing.T) {
	js := natstest.NewOld(t).JetStream(t)
	_, err := queue.New[string](t.Context(), js, queue.Config{Name: "q"})
	wantError(t, err, "nats-server 2.", "2.12.0 or later")
	if _, err := js.Stream(t.Context(), "q"); err != jetstream.ErrStreamNotFound {
		t.Errorf("looking for the stream: %v, want %v", err, jetstream.ErrStreamNotFound)
	}
}

// As the replicas of a service do that is deployed for the first time.
func TestManyProcessesCreateTheQueueAtOnce(t *testing.T) {
	c := natstest.NewCluster(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for round := range 5 {
		var all sync.WaitGroup
		for range 8 {
			js := c.JetStream(t)
			all.Go(func() {
				q, err := queue.New[string](ctx, js, queue.Config{Name: fmt.Sprint("q", round), Replicas: 3})
				if err != nil {
					t.Errorf("round %d: %v", round, err)
					return
				}
				if err := q.Close(ctx); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		all.Wait()
	}
}

// A stillDeleting server has, at first, something of another stream where the files
// of a new one are to be.
type stillDeleting struct {
	jetstream.JetStream
	at string
}

func (j stillDeleting) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (jetstream.Stream, error) {
	s, err := j.JetStream.CreateStream(ctx, cfg)
	os.Remove(j.at)
	return s, err
}

func TestQueueIsCreatedOnceItsNameIsFree(t *testing.T) {
	dir := t.TempDir()
	s, err := natstest.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	streams := filepath.Join(dir, "jetstream", "$G", "streams")
	if err := os.MkdirAll(streams, 0o700); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(streams, "q")
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	q, err := queue.New[string](t.Context(), stillDeleting{s.JetStream(t), at}, queue.Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A server that is not there yet is waited for, and not taken for one that is too old.
func TestQueueWaitsForItsConnection(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t)
	lost := js.Conn().StatusChanged(nats.RECONNECTING)
	s.Kill()
	<-lost
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	cancel()
	if _, err := queue.New[string](ctx, js, queue.Config{Name: "q"}); !errors.Is(err, context.Canceled) {
		t.Errorf("without a connection, and no time to wait: %v, want %v", err, context.Canceled)
	}
	var starts sync.WaitGroup
	defer starts.Wait()
	starts.Go(s.Start)
	q, err := queue.New[string](t.Context(), js, queue.Config{Name: "q"})
	if err != nil {
		t.Fatalf("as the server starts: %v", err)
	}
	closeAtEnd(t, q)
	js.Conn().Close()
	_, err = queue.New[string](t.Context(), js, queue.Config{Name: "q"})
	if !errors.Is(err, nats.ErrConnectionClosed) {
		t.Errorf("on a closed connection: %v, want %v", err, nats.ErrConnectionClosed)
	}
}

// The stream says what items the queue has and how its processes speak. Who has
// other items or speaks otherwise is refused, and the error names both.
func TestQueueRejectsOtherItemTypes(t *testing.T) {
	type site struct{ Region, Domain string }
	type wider struct {
		Region, Domain string
		Port           int16
	}
	type swapped struct{ Domain, Region string }
	js := natstest.New(t).JetStream(t)
	cfg := queue.Config{Name: "q"}
	if _, err := queue.New[site](t.Context(), js, cfg); err != nil {
		t.Fatal(err)
	}
	const have = "{Region string, Domain string}"
	_, err := queue.New[wider](t.Context(), js, cfg)
	wantError(t, err, "stream q", have, "{Region string, Domain string, Port int}")
	_, err = queue.New[swapped](t.Context(), js, cfg)
	wantError(t, err, have, "{Domain string, Region string}")
	_, err = queue.New[[2]uint8](t.Context(), js, cfg)
	wantError(t, err, have, "[2]uint")
	_, err = queue.NewFunc(t.Context(), js, cfg, func(f float64) string { return "" }, func(string) (float64, error) { return 0, nil })
	wantError(t, err, have, "of NewQueueFunc")
	type same site
	if _, err := queue.New[same](t.Context(), js, cfg); err != nil {
		t.Error(err)
	}

	stream, err := js.Stream(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	other := stream.CachedInfo().Config
	for protocol, want := range map[string]string{"77": "protocol 77, and this one speaks 1", "": "does not say in its metadata"} {
		other.Metadata["reconcile.protocol"] = protocol
		if _, err := js.UpdateStream(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		_, err = queue.New[site](t.Context(), js, cfg)
		wantError(t, err, "stream q", want)
	}
}
