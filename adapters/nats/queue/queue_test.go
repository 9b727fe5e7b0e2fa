// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// take takes an item.
func take[T comparable](t testing.TB, q *queue.Queue[T]) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	item, err := q.Dequeue(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return item
}

// mustTake takes an item, which must be the one that is wanted.
func mustTake[T comparable](t testing.TB, q *queue.Queue[T], want T) {
	t.Helper()
	if item := take(t, q); item != want {
		t.Fatalf("Dequeue: %v, want %v", item, want)
	}
}

func enqueue[T comparable](t testing.TB, q *queue.Queue[T], items ...T) {
	t.Helper()
	for _, item := range items {
		if err := q.EnqueueContext(t.Context(), item); err != nil {
			t.Fatal(err)
		}
	}
}

func TestQueueTakesInOrder(t *testing.T) {
	s := natstest.New(t)
	a := newQueue[int](t, s, queue.Config{Name: "q"})
	b := newQueue[int](t, s, queue.Config{Name: "q"})
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
	cfg := queue.Config{Name: "q"}
	a, b := newQueue[string](t, s, cfg), newQueue[string](t, s, cfg)
	enqueue(t, a, "x")
	mustTake(t, b, "x")
	first := queue.Fence(b.Lease(t.Context(), "x"))
	if first == 0 {
		t.Error("Fence: 0 in a run")
	}
	if got := queue.Fence(t.Context()); got != 0 {
		t.Errorf("Fence: %d outside of a run", got)
	}
	a.Offer("x") // is known
	flush(t, a)
	if s := a.State("x"); s.Phase != reconcile.PhaseInFlight || s.Again {
		t.Errorf("in flight at b, a sees %+v", s)
	}
	enqueue(t, a, "x") // an event while it is in flight
	if s := a.State("x"); !s.Again {
		t.Errorf("after an event a sees %+v", s)
	}
	b.Requeue("x", reconcile.RequeueOptions{Err: errors.New("b could not")})
	mustTake(t, a, "x")
	if s := a.State("x"); s.Failures != 1 || s.Err == nil || s.Err.Error() != "b could not" {
		t.Errorf("failures of b: a sees %+v", s)
	}
	if got := queue.Fence(a.Lease(t.Context(), "x")); got <= first {
		t.Errorf("Fence: %d after %d", got, first)
	}
	a.Requeue("x", reconcile.RequeueOptions{Err: errors.New("a could not"), Delay: time.Hour, MinDelay: time.Hour})
	flush(t, a)
	if s := b.State("x"); s.Failures != 2 || s.Phase != reconcile.PhaseWaiting || s.NotBefore.IsZero() {
		t.Errorf("failures of both: b sees %+v", s)
	}
	enqueue(t, b, "x") // it is held
	if s := b.State("x"); s.Phase != reconcile.PhaseWaiting {
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

// That an item is in sync is kept with its record, until something happens to it.
func TestQueueKeepsRecheck(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q"}
	a := newQueue[string](t, s, cfg)
	enqueue(t, a, "x", "y", "z")
	for _, item := range []string{"x", "y", "z"} {
		mustTake(t, a, item)
		a.Requeue(item, reconcile.RequeueOptions{Delay: time.Hour, Recheck: true})
	}
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := newQueue[string](t, s, cfg)
	b.EnqueueWithin("y", 2*time.Hour)
	b.Offer("y") // a run of it is guaranteed
	b.Offer("z")
	flush(t, b)
	all, err := b.All(t.Context())
	if err != nil || len(all) != 3 {
		t.Fatalf("All: %+v, %v", all, err)
	}
	for _, e := range all {
		if s := b.State(e.Item); s != e.State {
			t.Errorf("%s: State %+v, All %+v", e.Item, s, e.State)
		}
		want := reconcile.State{Phase: reconcile.PhaseWaiting, Recheck: e.Item == "x"}
		if e.Item == "z" {
			want.Phase = reconcile.PhaseReady
		}
		if e.State.Phase != want.Phase || !e.State.NotBefore.IsZero() || e.State.Recheck != want.Recheck || e.State.Pending.IsZero() != want.Recheck {
			t.Errorf("%+v, want it %v, a recheck: %t, and pending if it is not", e, want.Phase, want.Recheck)
		}
	}
}

// Why an item is planned, and since when there is work, are kept with its record,
// also while another process has it.
func TestQueueKeepsReasonAndPendingTime(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q"}
	a, b := newQueue[string](t, s, cfg), newQueue[string](t, s, cfg)
	enqueue(t, a, "x")
	pending := a.State("x").Pending
	mustTake(t, a, "x")
	a.Requeue("x", reconcile.RequeueOptions{Delay: time.Hour, Reason: errors.New("the disk is being made")})
	flush(t, a)
	want := func(phase reconcile.Phase, reason string) {
		t.Helper()
		if s := b.State("x"); s.Phase != phase || s.Failures != 0 || fmt.Sprint(s.Err) != reason || !s.Pending.Equal(pending) {
			t.Errorf("%+v, want it %v without failures, pending since %v because %s", s, phase, pending, reason)
		}
	}
	want(reconcile.PhaseWaiting, "the disk is being made")
	enqueue(t, a, "x")
	mustTake(t, b, "x")
	want(reconcile.PhaseInFlight, "the disk is being made")
	began := b.State("x").Since
	enqueue(t, b, "x")
	b.Done("x")
	flush(t, b)
	pending = began // what came before that run is answered
	want(reconcile.PhaseReady, "<nil>")
	mustTake(t, b, "x")
	b.Requeue("x", reconcile.RequeueOptions{Done: true, Err: errors.New("no such disk")})
	flush(t, b)
	if s := a.State("x"); s != (reconcile.State{}) {
		t.Errorf("after it was given up: %+v", s)
	}
}

// A run that is cut short is given back as if it had not been: another process
// goes on with the failures that there were.
func TestQueueKeepsFailuresOfAbortedRuns(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q"}
	a, b := newQueue[string](t, s, cfg), newQueue[string](t, s, cfg)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	results := make(chan reconcile.Result[string], 2)
	r := &reconcile.Reconciler[string]{
		Queue: a,
		Reconcile: func(ctx context.Context, item string) error {
			if a.State(item).Failures == 1 {
				stop()
				<-ctx.Done()
			}
			return errors.New("no such disk")
		},
		Retry:    reconcile.Backoff(time.Nanosecond, time.Nanosecond),
		OnResult: func(r reconcile.Result[string]) { results <- r },
		Logger:   slog.New(slog.DiscardHandler),
	}
	enqueue(t, b, "x")
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for _, want := range []reconcile.Outcome{reconcile.OutcomeRetrying, reconcile.OutcomeAborted} {
		if got := <-results; got.Outcome != want || got.Failures != 1 {
			t.Errorf("%+v, want %s after 1 failure", got, want)
		}
	}
	if err := a.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := b.State("x"); s.Phase != reconcile.PhaseReady || s.Failures != 1 || fmt.Sprint(s.Err) != "no such disk" {
		t.Errorf("after the aborted run: %+v, want it ready after 1 failure", s)
	}
}

func TestQueueDelays(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q"}
	a, b := newQueue[string](t, s, cfg), newQueue[string](t, s, cfg)
	a.EnqueueWithin("ceiling", time.Hour)
	flush(t, a)
	enqueue(t, b, "ceiling")
	mustTake(t, b, "ceiling")
	const d = 300 * time.Millisecond
	began := time.Now()
	a.EnqueueAfter("floor", d)
	flush(t, a)
	enqueue(t, b, "floor") // on a slow machine it is due by now
	b.Requeue("ceiling", reconcile.RequeueOptions{Delay: d})
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

// A run that goes on far longer than a lease keeps its item.
func TestQueueLongRun(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q", Lease: time.Second}
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

func TestQueueShowsItsItems(t *testing.T) {
	s := natstest.New(t)
	type site struct{ Region, Name string }
	cfg := queue.Config{Name: "q", Owner: "rack 7"}
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
	if all[0].Fence != queue.Fence(q.Lease(t.Context(), x)) || all[0].State.Phase != reconcile.PhaseInFlight {
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

// TestQueueShowsItemsThatAreWritten lists a queue again and again while other processes
// write its records without a pause: each list has every item.
func TestQueueShowsItemsThatAreWritten(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "q"}
	viewer := newQueue[int](t, s, cfg)
	const items = 8
	var writes sync.WaitGroup
	defer writes.Wait()
	done := make(chan struct{})
	defer close(done)
	for i := range items {
		q := newQueue[int](t, s, cfg)
		q.EnqueueWithin(i, 1000*time.Hour)
		flush(t, q)
		writes.Go(func() {
			for d := 999 * time.Hour; ; d -= time.Second { // each one is due sooner, and replaces the record
				select {
				case <-done:
					return
				default:
					q.EnqueueWithin(i, d)
					q.Flush(context.Background())
				}
			}
		})
	}
	for n := range 300 {
		all, err := viewer.All(t.Context())
		if err != nil || len(all) != items {
			t.Fatalf("list %d has %d items, %v, want all %d", n, len(all), err, items)
		}
	}
}
