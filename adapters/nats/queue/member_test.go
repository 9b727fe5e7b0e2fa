// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// Signs of life that a process could not send, or that got no answer, arrive
// together when the connection is back. They are all of one member, and not of
// several that seem to live for a lease, the oldest of which would be the
// janitor.
func TestOutageCreatesNoMembers(t *testing.T) {
	for _, outage := range []struct {
		name  string
		begin func(*natstest.Proxy)
	}{
		{"cut", (*natstest.Proxy).Cut},
		{"hung", (*natstest.Proxy).Hang},
	} {
		t.Run(outage.name, func(t *testing.T) {
			s := natstest.New(t)
			cable := natstest.NewClientProxy(t, s)
			nc := natstest.Connect(t, cable.URL(), nats.PingInterval(time.Hour), natstest.In(t, "creator", "q"))
			lost, back := nc.StatusChanged(nats.RECONNECTING), nc.StatusChanged(nats.CONNECTED)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			wait := func(status <-chan nats.Status) {
				t.Helper()
				select {
				case <-status:
				case <-ctx.Done():
					t.Fatal("the connection does not change")
				}
			}
			q, err := New[string](t.Context(), natstest.JetStream(t, nc), Config{Name: "q", Lease: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			patience := q.timeout
			q.timeout = 50 * time.Millisecond // nothing comes
			outage.begin(cable)
			if outage.name == "cut" {
				wait(lost)
			}
			for range 3 {
				if q.renew() {
					t.Fatal("renewed, without a connection")
				}
			}
			q.timeout = patience
			cable.Heal()
			if outage.name == "cut" {
				wait(back)
			}
			for !q.renew() {
				if ctx.Err() != nil {
					t.Fatal("not renewed, with a connection")
				}
			}
			if members, err := q.Members(ctx); err != nil || len(members) != 1 {
				t.Errorf("%d members, %v, want 1: %+v", len(members), err, members)
			}
			q.end()
		})
	}
}

// pullsFor has one more Dequeue wait, and returns for how many items each request asks.
func pullsFor(q *Queue[string]) (left []int) {
	q.mu.Lock()
	q.waiters = append(q.waiters, &waiter[string]{told: make(chan struct{})})
	q.mu.Unlock()
	q.pull()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.intake.pulls {
		left = append(left, p.left)
	}
	return left
}

// What was asked for without a connection would be asked for twice when it is
// back.
func TestOutageSendsNoRequests(t *testing.T) {
	s := natstest.New(t)
	nc := s.Connect(t, natstest.In(t, "creator", "q"))
	lost := nc.StatusChanged(nats.RECONNECTING)
	q, err := New[string](t.Context(), natstest.JetStream(t, nc), Config{Name: "q", Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer q.end()
	if !q.renew() {
		t.Fatal("not a member")
	}
	s.Front().Cut()
	select {
	case <-lost:
	case <-time.After(time.Minute):
		t.Fatal("the connection does not change")
	}
	if pulls := pullsFor(q); len(pulls) != 0 {
		t.Errorf("%d requests for messages, want none", len(pulls))
	}
}

// Looking after each other costs each idle member one request, and the janitor one
// for each member, however many they are.
func TestIdleMembersSendOneRequestEach(t *testing.T) {
	const members = 12
	s := natstest.New(t)
	nc := s.Connect(t, natstest.In(t, "creator", "q"))
	js := natstest.JetStream(t, nc)
	var all []*Queue[string]
	for range members {
		q, err := New[string](t.Context(), js, Config{Name: "q", Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer q.end()
		if !q.renew() {
			t.Fatal("not a member")
		}
		all = append(all, q)
	}
	look := func() (janitors int, requests uint64) {
		before := nc.Stats().OutMsgs
		for _, q := range all {
			if ok, _ := q.readMembers(false); ok {
				janitors++
			}
		}
		return janitors, nc.Stats().OutMsgs - before
	}
	look()
	if n, requests := look(); n != 1 || requests > 2*members+1 {
		t.Errorf("%d janitors, and %d requests of %d members, want 1 and at most %d", n, requests, members, 2*members+1)
	}
	// The next one follows when the janitor leaves, and those who minded it mind
	// another.
	all[0].leave()
	all = all[1:]
	look()
	n, requests := look()
	if next, _ := all[0].readMembers(false); n != 1 || !next || requests > 2*members+1 {
		t.Errorf("%d janitors, the next one is it: %t, and %d requests", n, next, requests)
	}
}

// Who comes after many that died needs no lease for each: those are silent that
// stored nothing after what it has stored itself a lease ago.
func TestJanitorAfterManyDeaths(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t, natstest.In(t, "creator", "q"))
	var last *Queue[string]
	for range 5 {
		q, err := New[string](t.Context(), js, Config{Name: "q", Lease: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		defer q.end()
		if !q.renew() {
			t.Fatal("not a member")
		}
		last = q
	}
	if ok, _ := last.readMembers(false); ok {
		t.Error("the janitor, though older ones may live")
	}
	last.others.members, last.others.elder = make(map[string]*seenMember), "" // as if it looked for the first time
	last.member.past[0].at = last.member.past[0].at.Add(-time.Hour)
	if ok, _ := last.readMembers(false); !ok {
		t.Error("not the janitor, though nobody else has shown a sign of life for a lease")
	}
}

// A stream is made anew as its time of creation is on its way.
type madeAnew struct {
	wire
	then func()
}

func (w madeAnew) epoch(ctx context.Context) (uint64, error) {
	n, err := w.wire.epoch(ctx)
	w.then()
	return n, err
}

// Who joins as the stream is made anew has no fences of the old one.
func TestJoinWhileTheStreamIsRecreated(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	cfg := Config{Name: "q", Lease: time.Hour}
	q, err := New[string](t.Context(), js, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer q.end()
	old := q.wire
	q.wire = madeAnew{old, func() {
		if err := js.DeleteStream(t.Context(), "q"); err != nil {
			t.Error(err)
		}
		q, err := New[string](t.Context(), js, cfg)
		if err != nil {
			t.Fatal(err)
		}
		q.end()
	}}
	q.renew()
	q.wire = old
	for !q.renew() {
		if t.Failed() {
			return
		}
	}
	if want, err := q.wire.epoch(t.Context()); err != nil || q.member.epoch != want {
		t.Errorf("the fences of a member begin at %d, want %d, %v", q.member.epoch, want, err)
	}
}

// The queue looks for its stream every two seconds: it does not say each time that
// there is none.
func TestDeletedStreamIsLoggedOnce(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	log := new(logbook)
	q, err := New[string](t.Context(), js, Config{Name: "q", Lease: time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer q.end()
	if err := js.DeleteStream(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		q.recreateConsumer()
	}
	other, err := New[string](t.Context(), js, Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.end()
	for range 3 {
		q.recreateConsumer()
	}
	for _, what := range []string{"was deleted", "has a stream again"} {
		if n := log.lines(what); n != 1 {
			t.Errorf("%d lines have %q, want 1", n, what)
		}
	}
}

// A request costs the server a heartbeat a second. However many Dequeues came to
// wait one after the other, there are few requests, and for half of them at least.
func TestFewRequestsForManyDequeues(t *testing.T) {
	s := natstest.New(t)
	q, err := New[string](t.Context(), s.JetStream(t, natstest.In(t, "creator", "q")), Config{Name: "q", Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer q.end()
	if !q.renew() {
		t.Fatal("not a member")
	}
	for n := 1; n <= 64; n++ {
		asked := 0
		pulls := pullsFor(q)
		for _, left := range pulls {
			asked += left
		}
		if len(pulls) > 7 || 2*asked < n || asked > n {
			t.Fatalf("%d requests for %d items, with %d Dequeues", len(pulls), asked, n)
		}
	}
}
