// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/keep"
)

func idle(context.Context, string) error { return nil }

// TestAddQueue has a queue without a reconciler: its counts alone. Of the items in flight one
// has a next run that is ready, and one a next run that is due later.
func TestAddQueue(t *testing.T) {
	q := reconcile.NewQueue[string]()
	take := func(want string) {
		t.Helper()
		if item, err := q.Dequeue(t.Context()); item != want || err != nil {
			t.Fatalf("Dequeue: %s, %v, want %s", item, err, want)
		}
	}
	q.Enqueue("a")
	q.Enqueue("a")
	for _, item := range []string{"b", "in sync 1", "in sync 2", "again", "ready"} {
		q.Enqueue(item)
	}
	q.EnqueueAfter("c", 1<<40)
	take("a")
	q.RequeueAfter("a", 1<<40)
	take("b")
	for _, item := range []string{"in sync 1", "in sync 2"} {
		take(item)
		q.Requeue(item, reconcile.RequeueOptions{Delay: time.Hour, Recheck: true})
	}
	take("again")
	q.Enqueue("again")
	q.EnqueueAfter("b", time.Hour)
	var c promadapter.Collector
	if err := c.AddQueue("plain", q); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		`workqueue_depth{controller="plain",name="plain"}`:                 2,
		`workqueue_adds_total{controller="plain",name="plain"}`:            12,
		`workqueue_retries_total{controller="plain",name="plain"}`:         3,
		`reconcile_queue_waiting{controller="plain",name="plain"}`:         2,
		`reconcile_queue_rechecks{controller="plain",name="plain"}`:        2,
		`reconcile_queue_in_flight{controller="plain",name="plain"}`:       2,
		`reconcile_queue_again{controller="plain",name="plain"}`:           1,
		`reconcile_queue_taken_total{controller="plain",name="plain"}`:     5,
		`reconcile_queue_coalesced_total{controller="plain",name="plain"}`: 1,
	}
	wantValues(t, &c, want)
	if n := len(values(t, &c)); n != len(want) {
		t.Errorf("%d series, want %d", n, len(want))
	}
}

// TestAddListing has a Set whose listings are rejected for a while.
func TestAddListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c promadapter.Collector
		l := &listing{}
		for range 2 {
			if err := c.AddListing("disks", l); err != nil {
				t.Fatal(err)
			}
			if err := c.AddListing("disks", l); err == nil {
				t.Error("a name was given to two listings")
			}
			wantValues(t, &c, map[string]float64{`reconcile_listing_rejected_seconds{name="disks"}`: 0})
			if !c.Remove("disks") || c.Remove("disks") {
				t.Error("Remove does not report whether there was a listing")
			}
		}
		if c.AddListing("", l) == nil || c.AddListing("nil", nil) == nil || c.AddListing("nil", (*listing)(nil)) == nil {
			t.Error("bad arguments were taken")
		}
		if err := c.AddListing("disks", l); err != nil {
			t.Fatal(err)
		}
		stats := keep.Stats{Desired: 6, Actual: 5, Missing: 4, OutOfSync: 3, Surplus: 2, Rejected: 1}
		*l = listing{stats, time.Hour, time.Now(), keep.ErrTooMany}
		time.Sleep(time.Minute)
		wantValues(t, &c, map[string]float64{
			`reconcile_listing_desired{name="disks"}`:          6,
			`reconcile_listing_actual{name="disks"}`:           5,
			`reconcile_listing_missing{name="disks"}`:          4,
			`reconcile_listing_out_of_sync{name="disks"}`:      3,
			`reconcile_listing_surplus{name="disks"}`:          2,
			`reconcile_listing_age_seconds{name="disks"}`:      3600,
			`reconcile_listing_rejected_seconds{name="disks"}`: 60,
		})
		*l = listing{stats: keep.Stats{Completed: time.Now()}, age: time.Hour} // it was rejected until now
		time.Sleep(time.Second)
		wantValues(t, &c, map[string]float64{`reconcile_listing_age_seconds{name="disks"}`: 1})
	})
}

type listing struct {
	stats keep.Stats
	age   time.Duration
	since time.Time
	err   error
}

func (l *listing) Rejected() (time.Time, error) { return l.since, l.err }
func (l *listing) Age() time.Duration           { return l.age }
func (l *listing) Stats() keep.Stats            { return l.stats }

// TestAddGate has a gate with two runs in, and one that is held back.
func TestAddGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate.Gate{Slow: func(error, time.Duration) bool { return true }, Logger: slog.New(slog.DiscardHandler)}
		var c promadapter.Collector
		for range 2 {
			if err := c.AddGate("far", g); err != nil {
				t.Fatal(err)
			}
			if err := c.AddGate("far", g); err == nil {
				t.Error("a name was given to two gates")
			}
			wantValues(t, &c, map[string]float64{`reconcile_gate_limit{name="far"}`: math.Inf(1)})
			if !c.Remove("far") || c.Remove("far") {
				t.Error("Remove does not report whether there was a gate")
			}
		}
		if c.AddGate("", g) == nil || c.AddGate("\xff", g) == nil || c.AddGate("nil", nil) == nil {
			t.Error("bad arguments were taken")
		}
		if err := c.AddGate("far", g); err != nil {
			t.Fatal(err)
		}
		q := reconcile.NewQueue[time.Duration]()
		for _, takes := range []time.Duration{1, 2, 3, 4, 5, 6} {
			q.Enqueue(takes * time.Minute)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r := &reconcile.Reconciler[time.Duration]{
			Queue: q, Admit: g.Admit, Workers: 5, Logger: slog.New(slog.DiscardHandler),
			Reconcile: func(_ context.Context, takes time.Duration) error { time.Sleep(takes); return nil },
		}
		ended := make(chan error)
		go func() { ended <- r.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(61 * time.Second) // one of five is slow, and four go on
		synctest.Wait()
		wantValues(t, &c, map[string]float64{
			`reconcile_gate_limit{name="far"}`:        2,
			`reconcile_gate_in_flight{name="far"}`:    4,
			`reconcile_gate_waiting{name="far"}`:      1,
			`reconcile_gate_halved_total{name="far"}`: 1,
			`reconcile_gate_paused{name="far"}`:       0,
			`reconcile_gate_pauses_total{name="far"}`: 0,
		})
		g.PauseUntil(time.Now().Add(time.Minute))
		got := values(t, &c)
		if paused, pauses := got[`reconcile_gate_paused{name="far"}`], got[`reconcile_gate_pauses_total{name="far"}`]; paused != 1 || pauses != 1 {
			t.Errorf("after PauseUntil it is paused: %v, after %v pauses; want 1 and 1", paused, pauses)
		}
	})
}

// An idle gate is not paused once its pause is over, though no probe came.
func TestIdleGateIsNotPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate.Gate{Logger: slog.New(slog.DiscardHandler)}
		var c promadapter.Collector
		if err := c.AddGate("idle", g); err != nil {
			t.Fatal(err)
		}
		paused := func(want float64) {
			t.Helper()
			synctest.Wait()
			if got := values(t, &c)[`reconcile_gate_paused{name="idle"}`]; got != want {
				t.Errorf("the gate is paused: %v, want %v", got, want)
			}
		}
		g.PauseUntil(time.Now().Add(time.Minute))
		paused(1)
		time.Sleep(2 * time.Minute)
		paused(0)
		done, _ := g.Admit(t.Context()) // the probe
		paused(0)
		go func() { // which another waits for
			if done, err := g.Admit(t.Context()); err == nil {
				done(reconcile.OutcomeSucceeded, nil, 0)
			}
		}()
		paused(1)
		done(reconcile.OutcomeSucceeded, nil, 0)
		paused(0)
	})
}

// TestAddPending has one item that is in sync, and two that are not.
func TestAddPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var c promadapter.Collector
		if promadapter.AddPending(nil, "x", q) == nil || promadapter.AddPending[string](&c, "x", nil) == nil || promadapter.AddPending(&c, "", q) == nil {
			t.Error("bad arguments were taken")
		}
		for range 2 {
			if err := promadapter.AddPending(&c, "x", q); err != nil {
				t.Fatal(err)
			}
			if promadapter.AddPending(&c, "x", q) == nil {
				t.Error("a name was taken twice")
			}
			wantValues(t, &c, map[string]float64{`reconcile_oldest_pending_seconds{controller="x",name="x"}`: 0})
			if !c.Remove("x") || c.Remove("x") {
				t.Error("Remove does not report whether there was one")
			}
		}
		if err := promadapter.AddPending(&c, "x", q); err != nil {
			t.Fatal(err)
		}
		q.Enqueue("in sync")
		item, _ := q.Dequeue(t.Context())
		q.Requeue(item, reconcile.RequeueOptions{Delay: time.Hour, Recheck: true})
		time.Sleep(time.Minute)
		q.Enqueue("a")
		time.Sleep(time.Minute)
		q.EnqueueAfter("b", time.Hour)
		wantValues(t, &c, map[string]float64{`reconcile_oldest_pending_seconds{controller="x",name="x"}`: 60})
	})
}

// TestRemove checks that a name can be used again, and that what is removed is
// no longer there.
func TestRemove(t *testing.T) {
	var c promadapter.Collector
	if c.Remove("x") {
		t.Error("Remove of nothing reports true")
	}
	for range 2 {
		r := &reconcile.Reconciler[string]{Name: "x", Queue: reconcile.NewQueue[string](), Reconcile: idle}
		if err := promadapter.Instrument(&c, r); err != nil {
			t.Fatal(err)
		}
		if len(values(t, &c)) == 0 {
			t.Error("no series of an instrumented reconciler")
		}
		if !c.Remove("x") {
			t.Error("Remove reports false")
		}
		if got := values(t, &c); len(got) != 0 {
			t.Errorf("after Remove there are %v", got)
		}
	}
}

func TestBadInput(t *testing.T) {
	var c promadapter.Collector
	q := reconcile.NewQueue[string]()
	if err := promadapter.Instrument(&c, &reconcile.Reconciler[string]{Name: "both", Queue: q, Reconcile: idle}); err != nil {
		t.Fatal(err)
	}
	if err := c.AddQueue("queue", q); err != nil {
		t.Fatal(err)
	}
	instrument := func(c *promadapter.Collector, r *reconcile.Reconciler[string]) func() error {
		return func() error { return promadapter.Instrument(c, r) }
	}
	add := func(name string, q promadapter.Statser) func() error {
		return func() error { return c.AddQueue(name, q) }
	}
	for _, test := range []struct {
		name string
		call func() error
		want string // in the error
	}{
		{"nil collector", instrument(nil, &reconcile.Reconciler[string]{}), "needs a Collector"},
		{"nil reconciler", instrument(&c, nil), "needs a Reconciler"},
		{"no function", instrument(&c, &reconcile.Reconciler[string]{Name: "n"}), "Reconciler.Reconcile is nil"},
		{"no name", instrument(&c, &reconcile.Reconciler[string]{Reconcile: idle}), "name is empty"},
		{"not UTF-8", instrument(&c, &reconcile.Reconciler[string]{Name: "a\xff", Reconcile: idle}), `"a\xff" is not UTF-8`},
		{"taken by a reconciler", instrument(&c, &reconcile.Reconciler[string]{Name: "both", Reconcile: idle}), `reconciler "both" already`},
		{"taken by a queue", instrument(&c, &reconcile.Reconciler[string]{Name: "queue", Queue: q, Reconcile: idle}), `queue "queue" already`},
		{"nil queue", add("n", nil), `queue "n" is nil`},
		{"nil pointer", add("n", (*reconcile.Queue[string])(nil)), `queue "n" is nil`},
		{"queue without name", add("", q), "name is empty"},
		{"queue not UTF-8", add("\xff", q), `not UTF-8`},
		{"queue twice", add("both", q), `queue "both" already`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.call()
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "promadapter: ") {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
	if c.Remove("n") || c.Remove("") {
		t.Error("something of what was refused is there")
	}

	// The kernel itself refuses these, with its own words.
	r := &reconcile.Reconciler[string]{Name: "no queue", Queue: (*reconcile.Queue[string])(nil), Reconcile: idle}
	if err := promadapter.Instrument(&c, r); err != nil {
		t.Error(err)
	}
	values(t, &c)
	if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "Queue") {
		t.Errorf("Run without a queue: %v", err)
	}
}
