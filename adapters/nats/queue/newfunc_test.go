// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// A journal is what was logged.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) has(s string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), s)
}

// codecQueue returns a queue of strings with functions of its own.
func codecQueue(t *testing.T, s *natstest.Server, lease time.Duration, log *journal,
	encode func(string) string, decode func(string) (string, error),
) *queue.Queue[string] {
	t.Helper()
	cfg := queue.Config{Name: "q", Lease: lease, Logger: slog.New(slog.NewTextHandler(log, nil))}
	q, err := queue.NewFunc(t.Context(), s.JetStream(t, natstest.In(t, "creator", cfg.Name)), cfg, encode, decode)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, q)
	return q
}

func (j *journal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.Reset()
}

func same(s string) string           { return s }
func plain(s string) (string, error) { return s, nil }

// A panic in the functions of the user costs the item that it is about, says
// which that is, and nothing else.
func TestQueueFuncPanics(t *testing.T) {
	s := natstest.New(t)
	log := new(journal)
	encodes := codecQueue(t, s, 0, log, same, plain)
	q := codecQueue(t, s, 0, log, func(item string) string {
		if item == "bad" {
			panic("cannot encode")
		}
		return item
	}, func(key string) (string, error) {
		if key == "bad" {
			panic("cannot decode")
		}
		return key, nil
	})
	enqueue(t, encodes, "bad", "good") // q is handed both
	mustTake(t, q, "good")
	all, err := q.All(t.Context())
	if err != nil || len(all) != 1 || all[0].Item != "good" {
		t.Errorf("All: %+v, %v, want the good one", all, err)
	}
	q.Done("good")
	flush(t, q)
	if !log.has(`decode`) || !log.has(`\"bad\"`) || !log.has("cannot decode") {
		t.Errorf("the log does not say what could not be decoded, and why: %s", log.text.String())
	}

	wantError(t, q.EnqueueContext(t.Context(), "bad"), "encode", "bad", "cannot encode")
	_, err = q.Remove(t.Context(), "bad")
	wantError(t, err, "encode", "bad", "cannot encode")
	if log.has("cannot encode") {
		t.Error("an error that was returned is logged")
	}
	if state := q.State("bad"); state != (reconcile.State{}) {
		t.Errorf("State: %+v", state)
	}
	for name, verb := range map[string]func(){
		"Enqueue": func() { q.Enqueue("bad") }, "EnqueueAfter": func() { q.EnqueueAfter("bad", 1) },
		"EnqueueWithin": func() { q.EnqueueWithin("bad", 1) }, "EnqueueNow": func() { q.EnqueueNow("bad") },
		"Offer": func() { q.Offer("bad") },
	} {
		log.clear()
		verb()
		if !log.has("cannot encode") || !log.has("level=ERROR") {
			t.Errorf("%s of an item that cannot be encoded: %s", name, log.text.String())
		}
	}
	if n := q.Stats().Outbox; n != 0 {
		t.Errorf("the outbox holds %d items, want none", n)
	}
}

// An item is encoded where it comes in, by a verb or a record, with no lock held:
// the function may call the queue. Signs of life tell of the item without it.
func TestQueueFuncMayCallTheQueue(t *testing.T) {
	s := natstest.New(t)
	var q *queue.Queue[string]
	ask := func() {
		if q != nil {
			q.Stats()
			q.Len(t.Context())
			q.Lease(t.Context(), "another")
		}
	}
	q = codecQueue(t, s, time.Second, new(journal), func(item string) string {
		ask()
		return item
	}, func(key string) (string, error) {
		ask()
		return key, nil
	})
	alive := make(chan []byte, 1000)
	sub, err := s.Connect(t).Subscribe("$KV.queue=q.m.>", func(m *nats.Msg) { alive <- m.Data })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe()
	enqueue(t, q, "x")
	mustTake(t, q, "x")
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	for told := false; !told; {
		select {
		case data := <-alive:
			var beat struct{ Held []struct{ Item string } }
			if err := json.Unmarshal(data, &beat); err != nil {
				t.Fatal(err)
			}
			told = len(beat.Held) == 1 && beat.Held[0].Item == "x"
		case <-ctx.Done():
			t.Fatal("no sign of life tells of the item")
		}
	}
	q.Requeue("x", reconcile.RequeueOptions{Delay: time.Millisecond})
	mustTake(t, q, "x")
	q.Done("x")
	flush(t, q)
}
