// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
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

// A worker that cannot reach the server is told that its lease is lost before
// anybody else has the item.
func TestQueueLeaseIsLost(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q", Lease: time.Second}
	cable := natstest.NewClientProxy(t, s)
	a, b := newQueue[string](t, cable, cfg), newQueue[string](t, s, cfg)
	enqueue(t, a, "x")
	mustTake(t, a, "x")
	run := a.Lease(t.Context(), "x")
	if run.Err() != nil {
		t.Fatal("the lease is lost at once")
	}
	cable.Hang()
	mustTake(t, b, "x")
	if run.Err() == nil || context.Cause(run) != reconcile.ErrLeaseLost {
		t.Errorf("while another has the item, the context of the run has the cause %v, want %v", context.Cause(run), reconcile.ErrLeaseLost)
	}
	if later := a.Lease(t.Context(), "x"); context.Cause(later) != reconcile.ErrLeaseLost {
		t.Errorf("a lease of a lost item: %v, want %v", context.Cause(later), reconcile.ErrLeaseLost)
	}
	fence := queue.Fence(b.Lease(t.Context(), "x"))
	if old := queue.Fence(run); old >= fence {
		t.Errorf("Fence: %d, then %d", old, fence)
	}
	kv := natstest.CreateKeyValue(t, s.JetStream(t), jetstream.KeyValueConfig{Bucket: "b"})
	for range 2 { // the first creates the key
		if err := putFenced(b.Lease(t.Context(), "x"), kv, "k", "of b"); err != nil {
			t.Error(err)
		}
	}
	if err := putFenced(context.WithoutCancel(run), kv, "k", "of a"); err != errLate {
		t.Errorf("a write of the run of a, which has lost its lease: %v, want %v", err, errLate)
	}
	cable.Heal()
	a.Done("x") // too late: it is not a's any more
	flush(t, a)
	if s := a.State("x"); s.Phase != reconcile.PhaseInFlight { // as the server has it
		t.Errorf("the run of b after a late Done of a: %+v", s)
	}
	b.Done("x")
	flush(t, b)
	if s := a.State("x"); s != (reconcile.State{}) {
		t.Errorf("after Done of b: %+v", s)
	}
	enqueue(t, b, "y")
	if item := take(t, a); item != "y" { // it is a member again
		t.Errorf("Dequeue: %q", item)
	}
	if n := a.Stats().LeasesLost; n == 0 {
		t.Error("Stats knows of no lost lease")
	}
}

// An event in a run replaces the record that Done would delete: the server says
// that it is not there, which is no trouble of the server.
func TestQueueEventInARun(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q"}
	a, b := newQueue[string](t, s, cfg), newQueue[string](t, s, cfg)
	for range 10 {
		enqueue(t, a, "x")
		mustTake(t, a, "x")
		enqueue(t, b, "x")
		a.Done("x")
		mustTake(t, a, "x")
		a.Done("x")
		flush(t, a)
	}
	if n := a.Stats().Retries; n != 0 {
		t.Errorf("%d writes were tried again as if the server had not answered, want none", n)
	}
}

// An item whose record no server takes is refused at once, in few words. One
// that is nearly as long goes all the way.
func TestQueueRejectsItemsThatCannotBeStored(t *testing.T) {
	s := natstest.New(t)
	logged := make(chan string, 10)
	cfg := queue.Config{Name: "q", Logger: slog.New(slog.NewTextHandler(lines(logged), &slog.HandlerOptions{Level: slog.LevelError}))}
	q := newQueue[string](t, s, cfg)
	huge, long := strings.Repeat("x", 2_000_000), strings.Repeat("x", 1_000_000)
	q.Enqueue(huge)
	q.EnqueueAfter(huge, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	if err := q.Flush(ctx); err != nil {
		t.Fatalf("Flush: %v", err)
	}
	err := q.EnqueueContext(ctx, huge)
	if !errors.Is(err, nats.ErrMaxPayload) {
		t.Errorf("EnqueueContext: %v, want one that wraps %v", err, nats.ErrMaxPayload)
	}
	wantError(t, err, "2000000 bytes", "1048576", "xxxxx")
	for _, text := range []string{err.Error(), natstest.Next(t, logged), natstest.Next(t, logged)} {
		if len(text) > 500 || !strings.Contains(text, "2000000 bytes") {
			t.Errorf("%d characters: %.500s", len(text), text)
		}
	}
	if got := q.Stats(); got.Refused != 3 || got.Outbox != 0 || got.Retries != 0 {
		t.Errorf("Stats: %+v, want 3 refused", got)
	}

	enqueue(t, q, long)
	mustTake(t, q, long)
	q.Requeue(long, reconcile.RequeueOptions{Err: errors.New(strings.Repeat("\x01", 2000))}) // takes most room
	flush(t, q)
	// State would give up on a server that takes long for so much.
	if all, err := q.All(t.Context()); err != nil || len(all) != 1 || all[0].State.Failures != 1 {
		t.Errorf("All: %d items, %v, want one with 1 failure", len(all), err)
	}
	mustTake(t, q, long)
	q.Done(long)
	flush(t, q)
	if got := q.Stats(); got.Retries != 0 {
		t.Errorf("Stats: %+v, want that all was stored at once", got)
	}
}

// A limit that is set later refuses what is asked for, and not for ever.
func TestQueueLimitIsSetLater(t *testing.T) {
	s := natstest.New(t)
	q := newQueue[string](t, s, queue.Config{Name: "q"})
	js := s.JetStream(t)
	stream, err := js.Stream(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgSize = 50_000
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	wantError(t, q.EnqueueContext(ctx, strings.Repeat("x", 60_000)), "message size exceeds maximum allowed")
	if err := q.EnqueueContext(ctx, "short"); err != nil {
		t.Error(err)
	}
	if got := q.Stats(); got.Refused != 1 || got.Outbox != 0 {
		t.Errorf("Stats: %+v, want 1 refused", got)
	}
	_, err = newQueue[string](t, s, queue.Config{Name: "q"}).Remove(ctx, "short")
	if err != nil {
		t.Error(err)
	}
	wantError(t, newQueue[string](t, s, queue.Config{Name: "q"}).EnqueueContext(ctx, strings.Repeat("x", 60_000)), "50000")
}

// lines sends what is written to a channel.
type lines chan<- string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// While the server is down Enqueue returns at once, and the outbox keeps a slot
// for each item until it is up again.
func TestQueueOutbox(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q", Lease: time.Second}
	a := newQueue[int](t, s, cfg)
	s.Kill()
	for i := range 1000 {
		a.Enqueue(i % 10)
		a.EnqueueAfter(10+i%5, time.Hour)
		a.EnqueueWithin(10+i%5, time.Hour)
		a.Offer(i % 15)
	}
	if got := a.Stats().Outbox; got != 15 {
		t.Errorf("the outbox holds %d items, want 15", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.EnqueueContext(ctx, 99); err != context.DeadlineExceeded {
		t.Errorf("EnqueueContext without a server: %v, want %v", err, context.DeadlineExceeded)
	}
	s.Start()
	flush(t, a)
	b := newQueue[int](t, s, cfg)
	all, err := b.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	phases := make(map[reconcile.Phase]int)
	for _, e := range all {
		phases[e.State.Phase]++
	}
	if len(all) != 16 || phases[reconcile.PhaseReady] != 11 || phases[reconcile.PhaseWaiting] != 5 {
		t.Errorf("stored are %v", all)
	}
	if got := a.Stats(); got.Outbox != 0 || got.Enqueued != 16 || got.Enqueued+got.Coalesced != 4001 {
		t.Errorf("Stats: %+v", got)
	}
}

// What waits for its time survives the server's death, and so does what is in
// flight and what is ready.
func TestQueueServerKilled(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q", Lease: time.Second}
	a, b := newQueue[string](t, s, cfg), newQueue[string](t, s, cfg)
	for i := range 200 { // records that come and go
		enqueue(t, a, fmt.Sprint(i))
		b.Done(take(t, b))
	}
	flush(t, b)
	enqueue(t, a, "in flight")
	mustTake(t, a, "in flight")
	a.EnqueueAfter("waiting", 10*time.Millisecond)
	flush(t, a)
	enqueue(t, a, "ready")
	s.Kill()
	s.Start()
	a.Done("in flight")
	found := make(map[string]bool)
	for !found["waiting"] || !found["ready"] {
		item := take(t, b) // perhaps some that ran before
		found[item] = true
		b.Done(item)
	}
	// In the end the queue knows nothing, though the server may remember records
	// that were deleted.
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	go func() {
		for {
			item, err := b.Dequeue(ctx)
			if err != nil {
				return
			}
			b.Done(item)
		}
	}()
	tick := time.NewTicker(20 * time.Millisecond) // the server tells no one
	defer tick.Stop()
	for {
		all, err := a.All(ctx)
		if err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
		if err == nil && len(all) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("the queue still knows %+v", all)
		}
	}
}

// A record of a run that its owner knows nothing of, as a killed server may
// remember it, is found and made ready, though the owner is alive.
func TestQueueRunUnknownToItsOwner(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q", Lease: 3 * time.Second}
	cable := natstest.NewClientProxy(t, s)
	janitor, owner := newQueue[string](t, cable, cfg), newQueue[string](t, s, cfg)
	enqueue(t, janitor, "first")
	mustTake(t, janitor, "first") // so it is the older of the two
	enqueue(t, janitor, "second")
	mustTake(t, owner, "second")
	all, err := janitor.All(t.Context())
	if err != nil || len(all) != 2 || all[0].Member == all[1].Member {
		t.Fatalf("in flight are %+v, %v, want two, each with a member of its own", all, err)
	}
	record := fmt.Sprintf(`{"phase":"in flight","since":"2026-01-02T03:04:05Z","owner":%q,"write":"w"}`, all[1].Member)
	if _, err := s.JetStream(t).Publish(t.Context(), "$KV.queue=q.i.ghost", []byte(record)); err != nil {
		t.Fatal(err)
	}
	cable.Cut() // as when the server is killed
	cable.Heal()
	mustTake(t, janitor, "ghost")
	if s := owner.State("second"); s.Phase != reconcile.PhaseInFlight {
		t.Errorf("the run that is one: %+v", s)
	}
}

// A record with another subject than its item has is left alone: else the item
// would be in flight twice at once.
func TestQueueLeavesOtherSubjectsAlone(t *testing.T) {
	s := natstest.New(t)
	log := newGauge()
	q := newQueue[string](t, s, queue.Config{Name: "q", Logger: log.logger()})
	js := s.JetStream(t, natstest.In(t, "creator", "q"))
	long, short := strings.Repeat("x", 600), "=h"+strings.Repeat("0", 64)
	for subject, item := range map[string]string{
		"=61": "", "=4a=6F": "", "%61": "", long: "", short: "a", short + "0": long, "=h": "=61",
	} {
		if _, err := js.Publish(t.Context(), "$KV.queue=q.i."+subject, fmt.Appendf(nil, `{"phase":"ready","item":%q}`, item)); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(t, q, "a", long, "last")
	for _, item := range []string{"a", long, "last"} {
		mustTake(t, q, item)
	}
	if n := q.Stats().Unreadable; n < 7 {
		t.Errorf("Stats: %d records were left alone, want each of the 7", n)
	}
	log.want(t, "unreadable record is ignored", "q.i.=61: this is not the subject of its item, a")
	all, err := q.All(t.Context())
	if err != nil || len(all) != 3 {
		t.Errorf("All: %d items, %v, want 3", len(all), err)
	}
	left, err := q.Unreadable(t.Context())
	if err != nil || len(left) != 7 || left["q.i.=61"] == nil || !strings.Contains(left["q.i.=61"].Error(), "not the subject of its item, a") {
		t.Errorf("Unreadable: %v, %v, want the 7 and why", left, err)
	}
}

// A record or a member whose name is too long for a subject is left alone: a
// server closes the connection of those who publish to such a subject.
func TestQueueLeavesLongNamesAlone(t *testing.T) {
	s := natstest.New(t)
	log := newGauge()
	q := newQueue[string](t, s, queue.Config{Name: "q", Lease: time.Second, Logger: log.logger()})
	nc, js := s.Connect(t), s.JetStream(t)
	record := `{"phase":"in flight","since":"2026-01-02T03:04:05Z","owner":"` + strings.Repeat("o", 5000) + `"}`
	if _, err := js.Publish(t.Context(), "$KV.queue=q.i.bad", []byte(record)); err != nil {
		t.Fatal(err)
	}
	// With a subject to answer to, which a Queue adds, it is over the limit of 4096.
	if err := nc.Publish("$KV.queue=q.m."+strings.Repeat("m", 4050), []byte(`{"owner":"x"}`)); err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, "good")
	mustTake(t, q, "good")
	log.want(t, "unreadable record is ignored", "q.i.bad", "owner")
	log.want(t, "unreadable record is ignored", "q.m.mmm")
	enqueue(t, q, "victim")
	kill(t, s, "victim")
	mustTake(t, q, "victim") // so q has looked for those that are silent for longer
	q.Done("good")
	q.Done("victim")
	flush(t, q)
	if got := q.Stats(); got.LeasesLost != 0 || got.Unreadable < 2 {
		t.Errorf("Stats: %+v, want no lost lease, and two left alone", got)
	}
}

func TestQueueConsumerDeleted(t *testing.T) {
	s := natstest.New(t)
	q := newQueue[string](t, s, queue.Config{Name: "q"})
	enqueue(t, q, "x")
	mustTake(t, q, "x")
	q.Done("x")
	flush(t, q)
	taken := make(chan string)
	go func() { taken <- take(t, q) }()
	js := s.JetStream(t, natstest.In(t, "creator", "q"))
	if err := js.DeleteConsumer(t.Context(), "q", "workers"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, "y")
	if item := <-taken; item != "y" {
		t.Errorf("Dequeue: %q", item)
	}
}

// Fences grow on when somebody deletes the stream and it is made anew, also those
// of a process that was there before.
func TestQueueStreamRecreated(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q", Lease: time.Second}
	a := newQueue[string](t, s, cfg)
	last := uint64(0)
	run := func(q *queue.Queue[string], item string) {
		t.Helper()
		enqueue(t, q, item)
		mustTake(t, q, item)
		fence := queue.Fence(q.Lease(t.Context(), item))
		if fence <= last {
			t.Errorf("Fence: %d after %d", fence, last)
		}
		last = fence
		all, err := q.All(t.Context())
		if err != nil || len(all) != 1 || all[0].Fence != fence {
			t.Errorf("All: %+v, %v, want the fence %d", all, err, fence)
		}
		q.Done(item)
		flush(t, q)
	}
	for i := range 10 {
		run(a, fmt.Sprint(i))
	}
	taken := make(chan string)
	go func() { taken <- take(t, a) }()
	for a.Stats().Idle == 0 {
		runtime.Gosched() // it begins to wait at any moment
	}
	if err := s.JetStream(t).DeleteStream(t.Context(), "q"); err != nil {
		t.Fatal(err)
	}
	b := newQueue[string](t, s, cfg)
	enqueue(t, b, "x")
	if item := <-taken; item != "x" {
		t.Fatalf("Dequeue: %q", item)
	}
	fence := queue.Fence(a.Lease(t.Context(), "x"))
	if fence <= last {
		t.Errorf("Fence: %d after %d", fence, last)
	}
	last = fence
	a.Done("x")
	flush(t, a)
	run(b, "y")
}

func TestQueueConnectionClosed(t *testing.T) {
	s := natstest.New(t)
	nc := s.Connect(t, natstest.In(t, "creator", "q"))
	q, err := queue.New[string](t.Context(), natstest.JetStream(t, nc), queue.Config{Name: "q"})
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error)
	go func() {
		_, err := q.Dequeue(t.Context())
		waiting <- err
	}()
	enqueue(t, q, "x")
	if err := <-waiting; err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := q.Dequeue(t.Context())
		waiting <- err
	}()
	nc.Close()
	wantError(t, <-waiting, "connection closed")
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	wantError(t, q.Close(ctx), "1 runs in flight")
}

// Three servers keep the queue, and one of them is killed.
func TestQueueOfThreeServers(t *testing.T) {
	c := natstest.NewCluster(t, 3)
	cfg := queue.Config{Name: "q", Replicas: 3, Lease: 2 * time.Second}
	js := c.JetStream(t, natstest.In(t, "creator", "q"))
	natstest.Eventually(t, func(ctx context.Context) error { // the leader of the cluster may change once more
		q, err := queue.New[int](ctx, js, cfg)
		if err == nil {
			closeAtEnd(t, q)
		}
		return err
	})
	a, b := newQueue[int](t, c, cfg), newQueue[int](t, c, cfg)
	const items = 100
	ran := make(chan int)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for _, q := range []*queue.Queue[int]{a, b} {
		r := reconcile.Reconciler[int]{Queue: q, Workers: 4, Reconcile: func(_ context.Context, item int) error {
			ran <- item
			return nil
		}}
		go func() { ended <- r.Run(ctx) }()
	}
	for i := range items {
		a.Enqueue(i)
	}
	seen := make(map[int]bool)
	for len(seen) < items/2 {
		seen[<-ran] = true
	}
	c.Servers[1].Kill()
	for i := range items { // events for items before, in and after their runs
		b.Enqueue(i)
	}
	again := make(map[int]bool)
	for len(seen) < items || len(again) < items {
		item := <-ran
		seen[item] = true
		again[item] = true
	}
	cancel()
	for range 2 {
		for running := true; running; {
			select {
			case <-ran:
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
				running = false
			}
		}
	}
	c.Servers[1].Start()
}

// A server takes short messages only, and a process has more in flight than such a
// message tells of: it keeps its lease all the same, and finishes its runs.
func TestQueueBeatFitsMaxPayload(t *testing.T) {
	o := &server.Options{JetStream: true, StoreDir: t.TempDir(), MaxPayload: 64 << 10}
	s := natstest.Serve(t, o)
	const n = 600
	q := newQueue[string](t, urlOf(s.ClientURL()), queue.Config{Name: "q", Lease: time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	done := make(chan string, n)
	r := reconcile.Reconciler[string]{Queue: q, Workers: 300, Reconcile: func(ctx context.Context, item string) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(1500 * time.Millisecond):
		}
		done <- item
		return nil
	}}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for i := range n {
		q.Enqueue(fmt.Sprintf("%0200d", i))
	}
	finished := map[string]bool{}
	for len(finished) < n {
		finished[natstest.Next(t, done)] = true
	}
	cancel()
	<-ended
}

type urlOf string

func (u urlOf) URL() string { return string(u) }

// A record that this version cannot read may be that of a later version, whose item is in
// flight: no Queue writes over it.
func TestQueueKeepsUnreadableRecords(t *testing.T) {
	s := natstest.New(t)
	log := newGauge()
	q := newQueue[string](t, s, queue.Config{Name: "q", Logger: log.logger()})
	js := s.JetStream(t, natstest.In(t, "worker", "q"))
	foreign := func(item string) {
		t.Helper()
		if _, err := js.Publish(t.Context(), "$KV.queue=q.i."+item, []byte(`{"phase":"dreaming"}`)); err != nil {
			t.Fatal(err)
		}
	}
	foreign("new")
	wantError(t, q.EnqueueContext(t.Context(), "new"), "item new", "its record is unreadable, and is left alone", "dreaming")
	q.Enqueue("new") // nobody waits for it
	log.want(t, "unreadable record is ignored", "item new")
	enqueue(t, q, "taken")
	mustTake(t, q, "taken")
	foreign("taken")
	q.Done("taken")
	log.want(t, "unreadable record is ignored", "item taken")
	if q.State("taken").Phase == reconcile.PhaseInFlight {
		t.Error("an item that was given back is still in flight")
	}
	left, err := q.Unreadable(t.Context())
	if err != nil || len(left) != 2 {
		t.Errorf("Unreadable: %v, %v, want both records", left, err)
	}
	enqueue(t, q, "good")
	mustTake(t, q, "good")
	q.Done("good")
}
