// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// A queue does all that it does with the permissions that are documented, and
// nobody who has them gets at another stream of the account.
func TestQueuePermissions(t *testing.T) {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, JetStream: true,
		Users: []*server.User{
			{Username: "root", Password: "p"},
			{Username: "creator", Password: "p", Permissions: natstest.Documented(t, "creator", "q")},
			{Username: "u", Password: "p", Permissions: natstest.Documented(t, "worker", "q")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(natstest.Patience) {
		t.Fatal("the server is not ready")
	}
	refused := make(chan error, 1000)
	connect := func(user string) jetstream.JetStream {
		return natstest.JetStream(t, natstest.Connect(t, s.ClientURL(), nats.UserInfo(user, "p"),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })))
	}
	root, nc := connect("root"), connect("u").Conn()
	log := newGauge()
	open := func(user string) *queue.Queue[string] {
		q, err := queue.New[string](t.Context(), connect(user), queue.Config{Name: "q", Lease: time.Second, Logger: log.logger()})
		if err != nil {
			t.Fatal(err)
		}
		closeAtEnd(t, q)
		return q
	}
	if err := open("creator").Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, b := open("u"), open("u")
	enqueue(t, a, "x", "y")
	mustTake(t, a, "x")
	mustTake(t, b, "y")
	b.Requeue("y", reconcile.RequeueOptions{Delay: time.Millisecond})
	mustTake(t, b, "y")
	b.Done("y")
	flush(t, b)
	if _, err := b.Remove(t.Context(), "z"); err != nil {
		t.Error(err)
	}
	if _, err := b.Len(t.Context()); err != nil {
		t.Error(err)
	}
	if all, err := b.All(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("All: %v, %v", all, err)
	}
	if n := members(t, b); n != 2 {
		t.Errorf("Members: %d, want 2", n)
	}
	if err := root.DeleteConsumer(t.Context(), "q", "workers"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, a, "z")
	mustTake(t, b, "z") // so it has made the consumer anew
	a.Done("x")
	b.Done("z")
	flush(t, a)
	flush(t, b)
	for _, q := range []*queue.Queue[string]{a, b} {
		if err := q.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	select {
	case err := <-refused:
		t.Errorf("with the permissions that are documented: %v", err)
	default:
	}

	for _, subject := range []string{
		"other.x",
		"$JS.API.STREAM.CREATE.q", // with sources, republish or more subjects, it reaches the account
		"$JS.API.STREAM.UPDATE.q",
		"$JS.API.STREAM.DELETE.q",
		"$JS.API.STREAM.SNAPSHOT.q", // to a subject of the client's choice
		"$JS.API.STREAM.RESTORE.q",
		"$JS.API.STREAM.INFO.other",
		"$JS.API.STREAM.DELETE.other",
		"$JS.API.STREAM.MSG.GET.other",
		"$JS.API.DIRECT.GET.other",
		"$JS.API.CONSUMER.CREATE.other",
		"$JS.API.CONSUMER.CREATE.other.q.other.x", // a consumer that is called as the queue
		"$JS.API.CONSUMER.DURABLE.CREATE.other.q",
		"$JS.API.CONSUMER.MSG.NEXT.other.workers",
		"$JS.API.CONSUMER.NAMES.other",
		"$JS.API.CONSUMER.INFO.other.workers",
		"$JS.API.CONSUMER.DELETE.other.workers",
		"$JS.ACK.other.workers.1.1.1.1.0",
	} {
		if err := nc.Publish(subject, nil); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-refused:
			if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), strconv.Quote(subject)) {
				t.Errorf("%s: %v, want that it is refused", subject, err)
			}
		case <-time.After(natstest.Patience):
			t.Fatalf("%s is not refused", subject)
		}
	}
}

// The page says that a role with the permissions for consumers has the server publish
// to any subject of the account. If a server prevents that, the page may say so.
func TestConsumerRightsReachTheAccount(t *testing.T) {
	s := natstest.New(t)
	q := newQueue[string](t, s, queue.Config{Name: "q"})
	nc := s.Connect(t)
	heard, err := nc.SubscribeSync("payments")
	if err := errors.Join(err, nc.Flush()); err != nil {
		t.Fatal(err)
	}
	_, err = s.JetStream(t, natstest.In(t, "reader", "q")).CreatePushConsumer(t.Context(), "q",
		jetstream.ConsumerConfig{DeliverSubject: "payments", AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, "x")
	if _, err := heard.NextMsg(natstest.Patience); err != nil {
		t.Error(err)
	}
}

// Who only enqueues and who only looks need less than who runs items.
func TestQueueRoles(t *testing.T) {
	s := natstest.New(t)
	handle := func(role string) *queue.Queue[string] {
		q, err := queue.New[string](t.Context(), s.JetStream(t, natstest.In(t, role, "q")), queue.Config{Name: "q"})
		if err != nil {
			t.Fatalf("%s: %v", role, err)
		}
		closeAtEnd(t, q)
		return q
	}
	handle("creator")
	worker, enqueuer, reader := handle("worker"), handle("enqueuer"), handle("reader")

	enqueue(t, enqueuer, "a", "a", "b")
	mustTake(t, worker, "a")
	enqueue(t, enqueuer, "a") // in flight
	enqueuer.EnqueueAfter("c", time.Hour)
	enqueuer.EnqueueAfter("c", time.Minute)
	enqueuer.Offer("b")
	flush(t, enqueuer)
	if found, err := enqueuer.Remove(t.Context(), "b"); err != nil || !found {
		t.Errorf("Remove: %t, %v", found, err)
	}

	if all, err := reader.All(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("All: %v, %v, want a and c", all, err)
	}
	if n, err := reader.Len(t.Context()); err != nil || n != 2 {
		t.Errorf("Len: %d, %v, want 2", n, err)
	}
	if got := reader.State("a"); got.Phase != reconcile.PhaseInFlight {
		t.Errorf("State: %+v, want it in flight", got)
	}
	if n := members(t, reader); n != 1 {
		t.Errorf("Members: %d, want 1", n)
	}
	if names, err := reader.Unreadable(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("Unreadable: %v, %v", names, err)
	}
}

// Who misses a permission is told so at once, and of what.
func TestQueueErrorNamesTheDeniedPermission(t *testing.T) {
	all := natstest.Documented(t, "creator", "q")
	but := func(denied string) *server.Permissions {
		p := *all
		p.Publish = &server.SubjectPermission{Allow: all.Publish.Allow, Deny: []string{denied}}
		return &p
	}
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, JetStream: true,
		Users: []*server.User{
			{Username: "all", Password: "p", Permissions: all},
			{Username: "blind", Password: "p", Permissions: but("$JS.API.STREAM.INFO.q")},
			{Username: "mute", Password: "p", Permissions: but("$KV.queue=q.i.x")},
			{Username: "deaf", Password: "p", Permissions: &server.Permissions{
				Publish: all.Publish, Subscribe: &server.SubjectPermission{Deny: []string{">"}},
			}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(natstest.Patience) {
		t.Fatal("the server is not ready")
	}
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	log := newGauge()
	open := func(user string) (*queue.Queue[string], error) {
		nc := natstest.Connect(t, s.ClientURL(), nats.UserInfo(user, "p"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		return queue.New[string](ctx, natstest.JetStream(t, nc), queue.Config{Name: "q", Logger: log.logger()})
	}
	a, err := open("all")
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, a)
	for user, subject := range map[string]string{"blind": `"$JS.API.STREAM.INFO.q"`, "deaf": `"_INBOX.`} {
		_, err := open(user)
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("New of %s: %v, want one that wraps %v", user, err, nats.ErrPermissionViolation)
		}
		wantError(t, err, subject)
	}
	q, err := open("mute")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // as the outbox has it, and as it has it already
		err := q.EnqueueContext(ctx, "x")
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("EnqueueContext: %v, want one that wraps %v", err, nats.ErrPermissionViolation)
		}
		wantError(t, err, `"$KV.queue=q.i.x"`)
	}
	log.want(t, "a permission is missing", "q.i.x")
	over, cancel := context.WithCancel(ctx)
	cancel()
	wantError(t, q.Close(over), "1 items not stored [x]")
}
