// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// TestClaim claims an item on what several servers may say: the one that hands
// out a record may be ahead of the one that answers.
func TestClaim(t *testing.T) {
	const item = "x"
	setUp := func(t *testing.T) (*Queue[string], seen, *nats.Conn) {
		t.Helper()
		s := natstest.New(t)
		q, err := New[string](t.Context(), s.JetStream(t, natstest.In(t, "creator", "q")), Config{Name: "q", Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(q.end)
		q.cfg.Replicas = 3 // look again after a conflict, as with three servers
		if !q.renew() {
			t.Fatal("not a member")
		}
		if err := q.EnqueueContext(t.Context(), item); err != nil {
			t.Fatal(err)
		}
		m, err := q.wire.last(t.Context(), q.subject(item))
		if err != nil {
			t.Fatal(err)
		}
		_, ready, err := q.decode(m)
		if err != nil || !ready.ready() {
			t.Fatalf("%+v, %v, want a ready record", ready, err)
		}
		return q, ready, s.Connect(t)
	}

	// The server still has the run that ended here a moment ago. It is no new
	// one, though nothing here holds it any more.
	t.Run("a run that is over", func(t *testing.T) {
		q, ready, _ := setUp(t)
		if _, ok := q.writeClaim(item, ready, q.member.id, 1000); !ok {
			t.Fatal("not claimed")
		}
		if again, ok := q.writeClaim(item, ready, q.member.id, 2000); ok {
			t.Errorf("the same run is claimed twice: %+v", again)
		}
	})

	// The claim was stored, though nobody was told, and then there was an event.
	t.Run("a claim that was changed", func(t *testing.T) {
		q, ready, _ := setUp(t)
		claimed := ready.apply(&op{verb: verbClaim, owner: q.member.id, at: 1000})
		fence, err := q.wire.publish(t.Context(), q.subject(item), ready.seq, encodeRecord(&claimed, item, q.newWrite()))
		if err != nil {
			t.Fatal(err)
		}
		if err := q.EnqueueContext(t.Context(), item); err != nil {
			t.Fatal(err)
		}
		got, ok := q.writeClaim(item, ready, q.member.id, 1000)
		if !ok || got.fence != fence || got.next != nextReady {
			t.Errorf("%+v, %t, want the run %d with another to follow", got, ok, fence)
		}
	})

	// A claim of another process does not count before the leader has stored something
	// that depends on it: if our claim was stored and we did not wait to see it,
	// the item would be in flight with nobody.
	t.Run("a server that is behind", func(t *testing.T) {
		q, ready, observer := setUp(t)
		if _, ok := q.writeClaim(item, ready, "another", 1000); !ok {
			t.Fatal("not claimed")
		}
		witnesses, err := listen(observer, "$KV.queue=q.w")
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := q.writeClaim(item, ready, q.member.id, 2000); ok {
			t.Error("claimed, though another has it")
		}
		if _, err := witnesses.NextMsg(time.Minute); err != nil {
			t.Error("it counts at once")
		}
	})

	// What could not be claimed is handed back, in case it can be later.
	t.Run("handed back", func(t *testing.T) {
		q, ready, observer := setUp(t)
		if _, ok := q.writeClaim(item, ready, "another", 1000); !ok {
			t.Fatal("not claimed")
		}
		answers, err := listen(observer, "$JS.ACK.q.answers")
		if err != nil {
			t.Fatal(err)
		}
		q.mu.Lock()
		q.waiters = append(q.waiters, &waiter[string]{told: make(chan struct{})})
		q.mu.Unlock()
		q.claim(item, ready, arrival{reply: "$JS.ACK.q.answers"}, 2000)
		m, err := answers.NextMsg(time.Minute)
		if err != nil || !strings.HasPrefix(string(m.Data), "-NAK") {
			t.Errorf("answer %+v, %v, want a NAK", m, err)
		}
	})
}

// The janitor looks at an item while an event changes its record: the race
// detector sees whether both hold the lock.
func TestAliveWhileItsRecordChanges(t *testing.T) {
	h := &holding{record: record{running: true, owner: "me"}}
	q := &Queue[string]{held: map[string]*holding{"x": h}}
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		for range 1000 {
			q.mu.Lock()
			h.record = record{running: true, owner: "me"}
			q.mu.Unlock()
		}
	}()
	for range 1000 {
		if !q.alive("x", seen{record: record{running: true, owner: "me"}}) {
			t.Fatal("a run that goes on here is not alive")
		}
	}
	<-changed
}

// listen subscribes, and returns when the server knows of it.
func listen(nc *nats.Conn, subject string) (*nats.Subscription, error) {
	sub, err := nc.SubscribeSync(subject)
	if err == nil {
		err = nc.Flush()
	}
	return sub, err
}
