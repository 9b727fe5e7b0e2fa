// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

func text(msg *nats.Msg) (string, bool) {
	switch s := string(msg.Data); s {
	case "panic":
		panic(s)
	default:
		return s, s != "no"
	}
}

// heard publishes until the Feeder enqueues: nobody tells when a subscription
// has reached the server. It returns what the Feeder enqueued before.
func (f *feed) heard(nc *nats.Conn, subject, data string) (before []string) {
	f.t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(natstest.Patience)
	for {
		if err := nc.Publish(subject, []byte(data)); err != nil {
			f.t.Fatal(err)
		}
		for waiting := true; waiting; {
			select {
			case got := <-f.items:
				if got == data {
					return before
				}
				before = append(before, got)
			case <-again.C:
				waiting = false
			case <-deadline:
				f.t.Fatalf("still without %q", data)
			}
		}
	}
}

// heardOnly waits for an item, and allows for no other one before it than these.
func (f *feed) heardOnly(want string, others ...string) {
	f.t.Helper()
	deadline := time.After(natstest.Patience)
	for {
		select {
		case got := <-f.items:
			if got == want {
				return
			}
			if !slices.Contains(others, got) {
				f.t.Errorf("item %q, want %q", got, want)
			}
		case <-deadline:
			f.t.Fatalf("still without %q", want)
		}
	}
}

// TestSubject has a message for an item, one for none, one that is too much for
// the key function, and a connection that is lost.
func TestSubject(t *testing.T) {
	s := natstest.New(t)
	p := natstest.NewClientProxy(t, s)
	back := make(chan struct{}, 1)
	nc := natstest.Connect(t, p.URL())
	f := run(t, natsadapter.Subject(nc, "a.*", "", text))
	run(t, reconcileFeeder(natsadapter.OnReconnect(nc, func() { back <- struct{}{} })))
	other := s.Connect(t)
	f.heard(other, "a.x", "ready")
	for _, data := range []string{"no", "panic", "1"} {
		if err := other.Publish("a.y", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	f.heardOnly("1", "ready")
	p.Cut()
	p.Heal()
	f.heard(other, "a.x", "2")
	s.Kill()
	s.Start()
	f.heard(other, "a.x", "3")
	select {
	case <-back:
	case <-time.After(natstest.Patience):
		t.Error("OnReconnect does not say that the connection is back")
	}
	f.stop()
}

func reconcileFeeder(r reconcile.Runner) reconcile.Feeder[string] {
	return func(ctx context.Context, _ reconcile.Enqueuer[string]) error { return r.Run(ctx) }
}

// TestSubjectGroup has two processes of one group: each message reaches one.
func TestSubjectGroup(t *testing.T) {
	s := natstest.New(t)
	one := run(t, natsadapter.Subject(s.Connect(t), "a", "g", text))
	two := run(t, natsadapter.Subject(s.Connect(t), "a", "g", text))
	nc := s.Connect(t)
	one.heard(nc, "a", "ready")
	two.heard(nc, "a", "ready")
	const n = 50
	for range n {
		if err := nc.Publish("a", []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	// Of these, both subscriptions have handled all that came before.
	got := slices.Concat(one.heard(nc, "a", "end"), two.heard(nc, "a", "end"))
	if got = slices.DeleteFunc(got, func(s string) bool { return s != "x" }); len(got) != n {
		t.Errorf("%d messages reached someone, want each of %d to reach one", len(got), n)
	}
}

// TestSubjectDenied subscribes without the right to: the Feeder says so.
func TestSubjectDenied(t *testing.T) {
	may := &server.Permissions{Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}}}
	s := natstest.Serve(t, &server.Options{Users: []*server.User{{Username: "u", Password: "p", Permissions: may}}})
	nc := natstest.Connect(t, s.ClientURL(), nats.UserInfo("u", "p"))
	for _, group := range []string{"", "g"} {
		err := natsadapter.Subject(nc, "orders.*", group, text)(t.Context(), recorder{})
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), "subject orders.*") {
			t.Errorf("Subject with the group %q: %v, want a denied permission", group, err)
		}
	}
}

func TestSubjectMisuse(t *testing.T) {
	nc := natstest.New(t).Connect(t)
	for _, c := range []struct {
		nc             *nats.Conn
		subject, group string
		key            func(*nats.Msg) (string, bool)
		want           string
	}{
		{nil, "a", "", text, "needs a connection, got nil"},
		{nc, "", "", text, `the subject is "", want parts`},
		{nc, "a..b", "", text, `the subject is "a..b", want parts`},
		{nc, "a b", "", text, `the subject is "a b", want parts`},
		{nc, "a", "g h", text, `the group is "g h", want a name`},
		{nc, "a", "", nil, "subject a needs a key function, got nil"},
	} {
		err := natsadapter.Subject(c.nc, c.subject, c.group, c.key)(t.Context(), recorder{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Subject(%q, %q): %v, want %q", c.subject, c.group, err, c.want)
		}
	}
	for _, r := range []reconcile.Runner{natsadapter.OnReconnect(nil, func() {}), natsadapter.OnReconnect(nc, nil)} {
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "needs a connection and a function") {
			t.Errorf("OnReconnect: %v, want an error that says what is missing", err)
		}
	}
	nc.Close()
	if err := natsadapter.Subject(nc, "a", "", text)(t.Context(), recorder{}); err == nil || !strings.Contains(err.Error(), "subject a: ") {
		t.Errorf("Subject with a closed connection: %v", err)
	}
	if err := natsadapter.OnReconnect(nc, func() {}).Run(t.Context()); err == nil {
		t.Error("OnReconnect with a closed connection returns nil")
	}
}
