// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// A gauge is a log that a test waits for.
type gauge chan string

func newGauge() gauge { return make(gauge, 10_000) }

func (g gauge) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(lines((chan string)(g)), &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// want waits for a line that has all the parts.
func (g gauge) want(t *testing.T, parts ...string) {
	t.Helper()
	deadline := time.After(natstest.Patience)
	for {
		select {
		case line := <-g:
			found := true
			for _, part := range parts {
				found = found && strings.Contains(line, part)
			}
			if found {
				return
			}
		case <-deadline:
			t.Fatalf("nothing is logged of %q", parts)
		}
	}
}

// drain runs all items that come with some workers until n different ones ran.
// However many that are, and however slow the machine, each is to follow soon.
func drain(t *testing.T, q *queue.Queue[string], n int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran := make(chan string)
	ended := make(chan error, 1)
	r := &reconcile.Reconciler[string]{Queue: q, Workers: 8, Reconcile: func(ctx context.Context, item string) error {
		select {
		case ran <- item:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	go func() { ended <- r.Run(ctx) }()
	seen := make(map[string]bool)
	for len(seen) < n {
		select {
		case item := <-ran:
			seen[item] = true
		case <-time.After(natstest.Patience):
			t.Fatalf("%d of %d items ran", len(seen), n)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A queue with a limit of its own is filled by feeders until nothing more is
// stored, and by then nobody has taken an item. It drains, and what waited for
// room follows.
func TestQueueDrainsAtItsLimit(t *testing.T) {
	t.Run("1 server", func(t *testing.T) {
		drainsAtItsLimit(t, natstest.New(t), queue.Config{Name: "q"})
	})
	t.Run("3 servers", func(t *testing.T) {
		c := natstest.NewCluster(t, 3)
		cfg := queue.Config{Name: "q", Replicas: 3, MaxBytes: 1 << 20}
		js := c.JetStream(t, natstest.In(t, "creator", "q"))
		natstest.Eventually(t, func(ctx context.Context) error { // the leader of the cluster may change once more
			q, err := queue.New[string](ctx, js, cfg)
			if err == nil {
				closeAtEnd(t, q)
			}
			return err
		})
		drainsAtItsLimit(t, c, cfg)
	})
}

func drainsAtItsLimit(t *testing.T, s interface{ URL() string }, cfg queue.Config) {
	cfg.MaxBytes = 1 << 20
	g := newGauge()
	feeder := cfg
	feeder.Logger = g.logger()
	a := newQueue[string](t, s, feeder)
	const items = 600
	for i := range items {
		a.Enqueue(fmt.Sprint(i, strings.Repeat("-", 3000)))
	}
	g.want(t, "level=WARN", "full", "maximum bytes exceeded")
	if got := a.Stats(); !got.Full || got.Outbox == 0 {
		t.Errorf("Stats: %+v, want that it is full, and what waits", got)
	}
	drain(t, newQueue[string](t, s, cfg), items)
	flush(t, a)
	if got := a.Stats(); got.Full || got.Outbox != 0 {
		t.Errorf("Stats: %+v, want that it is full no more, and nothing waits", got)
	}
	g.want(t, "level=INFO", "has room again")
}

// Another stream fills the server. The queue says so in the server's words, and
// drains; a new item waits until there is room, and may be taken back meanwhile.
func TestQueueDrainsAFullServer(t *testing.T) {
	s := natstest.NewSmall(t, 4<<20)
	js := s.JetStream(t)
	g := newGauge()
	a := newQueue[string](t, s, queue.Config{Name: "q", Logger: g.logger()})
	const items = 200
	for i := range items {
		enqueue(t, a, fmt.Sprint(i))
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "other", Subjects: []string{"other"}}); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		fillUp(t, js, fmt.Sprint("fill ", n))
		a.Enqueue("later")
		g.want(t, "level=WARN", "full", "insufficient resources")
		if n == 0 {
			b := newQueue[string](t, s, queue.Config{Name: "q"})
			drain(t, b, items)
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		a.Enqueue("never")
		ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
		if found, err := a.Remove(ctx, "never"); err != nil || !found {
			t.Errorf("Remove of what waits for room: %t, %v", found, err)
		}
		cancel()
		stream, err := js.Stream(t.Context(), "other")
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
		flush(t, a)
		g.want(t, "level=INFO", "has room again")
		if got := a.State("later"); got.Phase != reconcile.PhaseReady {
			t.Errorf("State: %+v, want it ready", got)
		}
		mustTake(t, a, "later")
		a.Done("later")
		flush(t, a)
	}
}

// A lease that cannot be kept as the server is full is not lost in silence.
func TestQueueErrorNamesWhyTheLeaseIsLost(t *testing.T) {
	s := natstest.NewSmall(t, 2<<20)
	js := s.JetStream(t)
	g := newGauge()
	q := newQueue[string](t, s, queue.Config{Name: "q", Lease: time.Second, Logger: g.logger()})
	enqueue(t, q, "x")
	mustTake(t, q, "x")
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "other", Subjects: []string{"other"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	filled := make(chan struct{})
	go func() {
		defer close(filled)
		for ctx.Err() == nil { // also what the reserve was
			js.Publish(ctx, "other", make([]byte, 10_000))
		}
	}()
	g.want(t, "lost the lease", "insufficient resources")
	cancel()
	<-filled
}

// fillUp publishes to the stream until the server refuses.
func fillUp(t *testing.T, js jetstream.JetStream, what string) {
	t.Helper()
	for {
		if _, err := js.Publish(t.Context(), "other", make([]byte, 10_000)); err != nil {
			wantError(t, err, "insufficient resources")
			return
		}
	}
}

// A limit that somebody sets on the stream of a queue deletes nothing that is stored. The
// server stores nothing new instead, and all items run when the limit is gone.
func TestQueueSurvivesALimitSetLater(t *testing.T) {
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"bytes":    func(c *jetstream.StreamConfig) { c.MaxBytes = 4096 },
		"messages": func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 },
	} {
		t.Run(name, func(t *testing.T) {
			s := natstest.New(t)
			js := s.JetStream(t)
			g := newGauge()
			q := newQueue[string](t, s, queue.Config{Name: "q", Lease: time.Second, Logger: g.logger()})
			const n = 300
			for i := range n {
				q.Enqueue(fmt.Sprint("item ", i))
			}
			flush(t, q)
			stream, err := js.Stream(t.Context(), "q")
			if err != nil {
				t.Fatal(err)
			}
			before := stream.CachedInfo().Config
			limited := before
			change(&limited)
			if _, err := js.UpdateStream(t.Context(), limited); err != nil {
				t.Fatal(err)
			}
			q.Enqueue("one more")
			g.want(t, "level=WARN", "store is full", "maximum "+name+" exceeded")
			if _, err := js.UpdateStream(t.Context(), before); err != nil {
				t.Fatal(err)
			}
			drain(t, q, n+1)
		})
	}
}
