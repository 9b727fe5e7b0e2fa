// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/supervise"
)

// TestPrimed starts what waits for three feeders when all that was there was fed,
// also over a slow link, and of an empty bucket; what comes later is not waited
// for.
func TestPrimed(t *testing.T) {
	s := natstest.New(t)
	js := s.JetStream(t)
	fill(t, js, 1000)
	natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "empty"})
	store := createStore(t, js)
	putObject(t, store, "o", "1")
	slow := natstest.OverLink(t, s, 10*time.Millisecond, 50_000)

	var primed natsadapter.Primed
	q := reconcile.NewQueue[string]()
	var group supervise.Group
	group.Add("keys", reconcile.Feed(q, natsadapter.Prime(&primed, natsadapter.KeyValue(slow, "b", natsadapter.EntryKey))))
	group.Add("none", reconcile.Feed(q, natsadapter.Prime(&primed, natsadapter.KeyValue(js, "empty", natsadapter.EntryKey))))
	group.Add("objects", reconcile.Feed(q, natsadapter.Prime(&primed, natsadapter.Objects(js, "b", natsadapter.ObjectName))))
	fed := make(chan int, 1)
	ctx, cancel := context.WithCancel(t.Context())
	group.Add("runs", supervise.After(primed.Wait, reconcile.RunFunc(func(context.Context) error {
		fed <- q.Len()
		cancel()
		return nil
	})))
	if err := group.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if n := <-fed; n != 1001 {
		t.Errorf("it was primed with %d items, want 1001", n)
	}
}

// TestPrimedWaits waits for a feeder that does not run, for a bucket that is not
// there, and again after the feeder ended. Its error says what it waits for.
func TestPrimedWaits(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	var primed natsadapter.Primed
	if err := primed.Wait(t.Context()); err != nil {
		t.Errorf("Wait for no feeder: %v", err)
	}
	feeder := natsadapter.Prime(&primed, entries(as(t, js, "feeder of a bucket", "b"), "b"))
	over := errors.New("over")
	waits := func(want string) {
		t.Helper()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(over)
		if err := primed.Wait(ctx); !errors.Is(err, over) || !strings.Contains(err.Error(), want) {
			t.Errorf("Wait: %v, want one that says %q and wraps the cause", err, want)
		}
	}
	waits("a feeder does not run")
	f := run(t, feeder)
	natstest.Eventually(t, func(context.Context) error {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(over)
		if err := primed.Wait(ctx); !strings.Contains(err.Error(), "bucket b: nats: API error") {
			return err
		}
		return nil
	})
	put(t, natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"}), "a", "1")
	if err := primed.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.stop()
	waits("a feeder does not run")
}

// TestPrimedNever has feeders of which it cannot be known, and ones that cannot
// begin: all say so at once.
func TestPrimedNever(t *testing.T) {
	js := natstest.New(t).JetStream(t)
	for want, feeder := range map[string]reconcile.Feeder[string]{
		"Consumer cannot tell when all existing items were enqueued": natsadapter.Consumer(js, "S", jetstream.ConsumerConfig{Durable: "c"}, body),
		"Subject cannot tell when all existing items were enqueued":  natsadapter.Subject(js.Conn(), "s", "", text),

		"the bucket is named": natsadapter.KeyValue(js, "", natsadapter.EntryKey),
	} {
		var primed natsadapter.Primed
		err := natsadapter.Prime(&primed, feeder)(t.Context(), recorder{})
		if !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), want) {
			t.Errorf("the feeder returns %v, want %q, and a terminal error", err, want)
		}
		if err := primed.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Wait returns %v, want %q", err, want)
		}
	}
}

// TestPrimedDenied has servers that never will: one without JetStream, and one
// that refuses this user. Wait and lists say why, and not that it took too long.
func TestPrimedDenied(t *testing.T) {
	user := &server.User{Username: "u", Password: "p", Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.CREATE.>"}},
	}}
	for name, c := range map[string]struct {
		options server.Options
		want    error
	}{
		"without JetStream":  {server.Options{}, jetstream.ErrJetStreamNotEnabled},
		"without permission": {server.Options{JetStream: true, Users: []*server.User{user}}, nats.ErrPermissionViolation},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.Host, c.options.Port, c.options.StoreDir = "127.0.0.1", -1, t.TempDir()
			c.options.NoLog, c.options.NoSigs = true, true
			s, err := server.NewServer(&c.options)
			if err != nil {
				t.Fatal(err)
			}
			s.Start()
			defer s.WaitForShutdown()
			defer s.Shutdown()
			if !s.ReadyForConnections(natstest.Patience) {
				t.Fatal("the server is not ready")
			}
			js := natstest.JetStream(t, natstest.Connect(t, s.ClientURL(), nats.UserInfo("u", "p")))
			if c.options.JetStream {
				natstest.CreateKeyValue(t, js, jetstream.KeyValueConfig{Bucket: "b"})
			}
			var primed natsadapter.Primed
			f := run(t, natsadapter.Prime(&primed, entries(js, "b")))
			if err := primed.Wait(t.Context()); !errors.Is(err, c.want) || !strings.Contains(err.Error(), "bucket b") {
				t.Errorf("Wait: %v, want %v", err, c.want)
			}
			if _, err := natsadapter.KeyValueItems(js, "b", named)(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("the list: %v, want %v", err, c.want)
			}
			f.stop()
		})
	}
}
