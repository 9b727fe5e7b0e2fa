// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// patience bounds what a test waits for: far longer than anything takes.
const patience = time.Minute

// take takes an item.
func take[T comparable](t testing.TB, q *natsadapter.Queue[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	item, err := q.Dequeue(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return item
}

// mustTake takes an item, which must be the one that is wanted.
func mustTake[T comparable](t testing.TB, q *natsadapter.Queue[T], want T) {
	t.Helper()
	if item := take(t, q); item != want {
		t.Fatalf("Dequeue: %v, want %v", item, want)
	}
}

func enqueue[T comparable](t testing.TB, q *natsadapter.Queue[T], items ...T) {
	t.Helper()
	for _, item := range items {
		if err := q.EnqueueContext(t.Context(), item); err != nil {
			t.Fatal(err)
		}
	}
}

func TestQueueTakesInOrder(t *testing.T) {
	s := natstest.New(t)
	a := newQueue[int](t, s, natsadapter.Config{Name: "q"})
	b := newQueue[int](t, s, natsadapter.Config{Name: "q"})
	enqueue(t, a, 0)
	mustTake(t, b, 0)
	for i := range 20 {
		enqueue(t, a, i) // 0 is in flight: it becomes ready when it is given back
	}
	b.Done(0)
	flush(t, b)
	enqueue(t, a, 3, 1) // they keep their places
	for i := range 20 {
		mustTake(t, b, (i+1)%20)
		b.Done((i + 1) % 20)
	}
}

// Two handles are two processes: what one does the other sees.
func TestQueueIsShared(t *testing.T) {
	s := natstest.New(t)
	cfg := natsadapter.Config{Name: "q"}
	a, b := newQueue[string](t, s, cfg), newQueue[string](t, s, cfg)
	enqueue(t, a, "x")
	mustTake(t, b, "x")
	first := natsadapter.Fence(b.Lease(t.Context(), "x"))
	if first == 0 {
		t.Error("Fence: 0 in a run")
	}
	if got := natsadapter.Fence(t.Context()); got != 0 {
		t.Errorf("Fence: %d outside of a run", got)
	}
	a.Offer("x") // is known
	flush(t, a)
	if s := a.State("x"); s.Phase != reconcile.InFlight || s.Again {
		t.Errorf("in flight at b, a sees %+v", s)
	}
	enqueue(t, a, "x") // an event while it is in flight
	if s := a.State("x"); !s.Again {
		t.Errorf("after an event a sees %+v", s)
	}
	b.Requeue("x", reconcile.Wait{Err: errors.New("b could not")})
	mustTake(t, a, "x")
	if s := a.State("x"); s.Failures != 1 || s.Err == nil || s.Err.Error() != "b could not" {
		t.Errorf("failures of b: a sees %+v", s)
	}
	if got := natsadapter.Fence(a.Lease(t.Context(), "x")); got <= first {
		t.Errorf("Fence: %d after %d", got, first)
	}
	a.Requeue("x", reconcile.Wait{Err: errors.New("a could not"), Delay: time.Hour, Hold: true})
	flush(t, a)
	if s := b.State("x"); s.Failures != 2 || s.Phase != reconcile.Waiting || !s.Hold {
		t.Errorf("failures of both: b sees %+v", s)
	}
	enqueue(t, b, "x") // it is held
	if s := b.State("x"); s.Phase != reconcile.Waiting {
		t.Errorf("an event cut the hold short: %+v", s)
	}
	b.EnqueueNow("x")
	mustTake(t, b, "x")
	b.Done("x")
	flush(t, b)
	if s := a.State("x"); s != (reconcile.State{}) {
		t.Errorf("after Done: %+v", s)
	}
	if got := a.Stats(); got.Enqueued != 2 || got.Coalesced != 1 || got.Taken != 1 || got.Requeued != 1 {
		t.Errorf("Stats of a: %+v", got)
	}
}

func TestQueueDelays(t *testing.T) {
	s := natstest.New(t)
	cfg := natsadapter.Config{Name: "q"}
	a, b := newQueue[string](t, s, cfg), newQueue[string](t, s, cfg)
	const d = 300 * time.Millisecond
	began := time.Now()
	a.EnqueueAfter("floor", d)
	a.EnqueueWithin("ceiling", time.Hour)
	flush(t, a)
	enqueue(t, b, "floor", "ceiling")
	mustTake(t, b, "ceiling")
	b.Requeue("ceiling", reconcile.Wait{Delay: d})
	came := make(map[string]bool)
	for range 2 {
		item := take(t, b)
		came[item] = true
		if early := d - time.Since(began); early > 0 {
			t.Errorf("%s of %v came %v too soon", item, d, early)
		}
	}
	if !came["floor"] || !came["ceiling"] {
		t.Errorf("came %v, want both", came)
	}
}

// A worker that cannot reach the server is told that its lease is lost before
// anybody else has the item.
func TestQueueLeaseIsLost(t *testing.T) {
	s := natstest.New(t)
	cfg := natsadapter.Config{Name: "q", Lease: time.Second}
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
	fence := natsadapter.Fence(b.Lease(t.Context(), "x"))
	if old := natsadapter.Fence(run); old >= fence {
		t.Errorf("Fence: %d, then %d", old, fence)
	}
	cable.Heal()
	a.Done("x") // too late: it is not a's any more
	flush(t, a)
	if s := a.State("x"); s.Phase != reconcile.InFlight { // as the server has it
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

// A run that goes on far longer than a lease keeps its item.
func TestQueueLongRun(t *testing.T) {
	s := natstest.New(t)
	cfg := natsadapter.Config{Name: "q", Lease: time.Second}
	a, b := newQueue[string](t, s, cfg), newQueue[string](t, s, cfg)
	enqueue(t, a, "x")
	mustTake(t, a, "x")
	run := a.Lease(t.Context(), "x")
	ctx, cancel := context.WithTimeout(t.Context(), 3*cfg.Lease)
	defer cancel()
	item, err := b.Dequeue(ctx)
	if err == nil && run.Err() == nil {
		t.Errorf("Dequeue: %q, while it is in flight", item)
	}
	if run.Err() != nil && a.Stats().LeasesLost == 0 { // a machine may be too busy to keep a lease
		t.Errorf("the run ended: %v", context.Cause(run))
	}
}

// While the server is down Enqueue returns at once, and the outbox keeps a slot
// for each item until it is up again.
func TestQueueOutbox(t *testing.T) {
	s := natstest.New(t)
	cfg := natsadapter.Config{Name: "q", Lease: time.Second}
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
	if len(all) != 16 || phases[reconcile.Ready] != 11 || phases[reconcile.Waiting] != 5 {
		t.Errorf("stored are %v", all)
	}
	if got := a.Stats(); got.Outbox != 0 || got.Enqueued != 16 || got.Enqueued+got.Coalesced != 4001 {
		t.Errorf("Stats: %+v", got)
	}
}

func TestQueueCloseStoresAll(t *testing.T) {
	s := natstest.New(t)
	a := newQueue[int](t, s, natsadapter.Config{Name: "q"})
	for i := range 500 {
		a.Enqueue(i)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Enqueue(1000) // is ignored
	if err := a.EnqueueContext(t.Context(), 1000); err != reconcile.ErrClosed {
		t.Errorf("EnqueueContext after Close: %v, want %v", err, reconcile.ErrClosed)
	}
	if item, err := a.Dequeue(t.Context()); err != reconcile.ErrClosed {
		t.Errorf("Dequeue after Close: %d, %v, want %v", item, err, reconcile.ErrClosed)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Errorf("Close again: %v", err)
	}
	b := newQueue[int](t, s, natsadapter.Config{Name: "q"})
	all, err := b.All(t.Context())
	if err != nil || len(all) != 500 {
		t.Errorf("stored are %d, %v, want 500", len(all), err)
	}
}

func TestQueueCloseReports(t *testing.T) {
	s := natstest.New(t)
	a := newQueue[string](t, s, natsadapter.Config{Name: "q"})
	enqueue(t, a, "run")
	mustTake(t, a, "run")
	run := a.Lease(t.Context(), "run")
	s.Front().Hang()
	a.Enqueue("one")
	a.Enqueue("two")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("no more time"))
	defer cancel()
	err := a.Close(ctx)
	wantError(t, err, "queue q", "2 items not stored", "one", "two", "1 runs in flight", "no more time")
	<-run.Done()
	if cause := context.Cause(run); cause != reconcile.ErrLeaseLost {
		t.Errorf("the run ended with %v, want %v", cause, reconcile.ErrLeaseLost)
	}
}

// Close waits for the items in flight, and ends a Reconciler.
func TestQueueCloseEndsReconcilers(t *testing.T) {
	s := natstest.New(t)
	q := newQueue[string](t, s, natsadapter.Config{Name: "q"})
	inside, outside := make(chan bool), make(chan bool)
	r := reconcile.Reconciler[string]{Queue: q, Workers: 3, Reconcile: func(context.Context, string) error {
		inside <- true
		<-outside
		return nil
	}}
	ended := make(chan error)
	go func() { ended <- r.Run(t.Context()) }()
	enqueue(t, q, "x")
	<-inside
	closed := make(chan error, 1)
	go func() { closed <- q.Close(t.Context()) }()
	for { // until it has begun: then Dequeue says so
		if _, err := q.Dequeue(t.Context()); err == reconcile.ErrClosed {
			break
		}
	}
	select {
	case err := <-closed:
		t.Errorf("Close returned %v while an item is in flight", err)
	default:
	}
	close(outside)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func TestQueueDequeueCanceled(t *testing.T) {
	s := natstest.New(t)
	q := newQueue[string](t, s, natsadapter.Config{Name: "q"})
	done, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := q.Dequeue(done); err == nil || err.Error() != "enough" {
		t.Errorf("Dequeue: %v, want the cause", err)
	}
	for range 20 { // whoever is first, the item is not lost
		ctx, cancel := context.WithCancel(t.Context())
		waiting := make(chan error)
		go func() {
			item, err := q.Dequeue(ctx)
			if err == nil {
				q.Requeue(item, reconcile.Wait{})
			}
			waiting <- err
		}()
		q.Enqueue("x")
		cancel()
		<-waiting
		mustTake(t, q, "x")
		q.Done("x")
		flush(t, q)
	}
}

// What waits for its time survives the server's death, and so does what is in
// flight and what is ready.
func TestQueueServerKilled(t *testing.T) {
	s := natstest.New(t)
	cfg := natsadapter.Config{Name: "q", Lease: time.Second}
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
func TestQueueDisownedRun(t *testing.T) {
	s := natstest.New(t)
	cfg := natsadapter.Config{Name: "q", Lease: 3 * time.Second}
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
	if _, err := s.JetStream(t).Publish(t.Context(), "q.i.ghost", []byte(record)); err != nil {
		t.Fatal(err)
	}
	cable.Cut() // as when the server is killed
	cable.Heal()
	mustTake(t, janitor, "ghost")
	if s := owner.State("second"); s.Phase != reconcile.InFlight {
		t.Errorf("the run that is one: %+v", s)
	}
}

func TestQueueConsumerDeleted(t *testing.T) {
	s := natstest.New(t)
	q := newQueue[string](t, s, natsadapter.Config{Name: "q"})
	enqueue(t, q, "x")
	mustTake(t, q, "x")
	q.Done("x")
	flush(t, q)
	taken := make(chan string)
	go func() { taken <- take(t, q) }()
	js := s.JetStream(t)
	if err := js.DeleteConsumer(t.Context(), "q", "workers"); err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, "y")
	if item := <-taken; item != "y" {
		t.Errorf("Dequeue: %q", item)
	}
}

func TestQueueShowsWhatItHolds(t *testing.T) {
	s := natstest.New(t)
	type site struct{ Region, Name string }
	cfg := natsadapter.Config{Name: "q", Owner: "rack 7"}
	q := newQueue[site](t, s, cfg)
	x, y, z, long := site{"eu", "x"}, site{"", "y.z"}, site{"us", "*"}, site{"eu", strings.Repeat("long/", 300)}
	enqueue(t, q, x, y, long)
	q.EnqueueAfter(z, time.Hour)
	flush(t, q)
	mustTake(t, q, x)
	all, err := q.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var items []site
	for _, e := range all {
		items = append(items, e.Item)
	}
	if want := []site{x, y, long, z}; fmt.Sprint(items) != fmt.Sprint(want) {
		t.Fatalf("All: %v, want %v", items, want)
	}
	members, err := q.Members(t.Context())
	if err != nil || len(members) != 1 || members[0].Owner != "rack 7" || members[0].ID != all[0].Member {
		t.Errorf("members: %+v, %v, and the run is at %s", members, err, all[0].Member)
	}
	if all[0].Fence != natsadapter.Fence(q.Lease(t.Context(), x)) || all[0].State.Phase != reconcile.InFlight {
		t.Errorf("in flight: %+v", all[0])
	}
	if got := q.Stats(); got.InFlight != 1 || got.Outbox != 0 || !got.Member || got.Enqueued != 4 || got.Taken != 1 {
		t.Errorf("Stats: %+v", got)
	}
	if n, err := q.Len(t.Context()); err != nil || n < 0 || n > 4 {
		t.Errorf("Len: %d, %v", n, err)
	}
	mustTake(t, q, y)
	mustTake(t, q, long)
}

func TestQueueConnectionClosed(t *testing.T) {
	s := natstest.New(t)
	nc := s.Connect(t)
	q, err := natsadapter.NewQueue[string](t.Context(), natstest.JetStream(t, nc), natsadapter.Config{Name: "q"})
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
	cfg := natsadapter.Config{Name: "q", Replicas: 3, Lease: 2 * time.Second}
	a, b := newQueue[int](t, c, cfg), newQueue[int](t, c, cfg)
	const items = 100
	ran := make(chan int)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	for _, q := range []*natsadapter.Queue[int]{a, b} {
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
