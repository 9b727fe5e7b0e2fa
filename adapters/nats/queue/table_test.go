// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/adapters/nats/queue"
	"github.com/reconkernel/reconcile/internal/model"
)

// deviations are the cells of the kernel's table that a queue which machines
// share answers otherwise: Close ends the part of one process, so what is ready
// or waiting stays for the others, nothing that a run asks for is dropped, and
// the handle is of no use once Close has returned.
var deviations = map[string]string{
	// The clock goes on between two operations, so two hours from now are never
	// the two hours that were guaranteed before. The kernel's own table is of a
	// clock that stands; TestRulesFollowTheModel has the tie.
	"EnqueueAfter 2h/within 2h":                 "within 2h",
	"EnqueueAfter 2h/recheck 2h":                "within 2h",
	"EnqueueAfter 2h/in flight, within 2h next": "in flight, within 2h next",

	"Close/within 2h":                     "within 2h",
	"Close/recheck 2h":                    "recheck 2h",
	"Close/held 2h":                       "held 2h",
	"Close/in flight, within 2h next":     "in flight, within 2h next",
	"Close/in flight, held 2h next":       "in flight, held 2h next",
	"closed/Remove/ready":                 "ready",
	"closed/Dequeue/ready":                "ready",
	"closed/Requeue 1h/in flight":         "within 1h",
	"closed/Requeue 1h Recheck/in flight": "recheck 1h",

	// A MinDelay holds after Close too.
	"Close/in flight, now next":                           "in flight, now next",
	"closed/Requeue 0s MinDelay 1h/in flight":             "held 1h",
	"closed/Requeue 0s MinDelay 1h/in flight, ready next": "held 1h",
	"closed/Requeue 1h MinDelay 1h/in flight":             "held 1h",
	"closed/Requeue 1h MinDelay 1h/in flight, ready next": "held 1h",
}

// A table carries operations of the kernel's table out on a queue. One queue
// serves all cells, each with an item of its own.
type table struct {
	server *natstest.Server
	open   *queue.Queue[string] // for operations of an open queue
	viewer *queue.Queue[string] // looks at the state and cleans up
	cells  int
}

// TestQueueTable runs every cell of the kernel's state table.
func TestQueueTable(t *testing.T) {
	s := natstest.New(t)
	cfg := queue.Config{Name: "table"}
	tab := &table{server: s, open: newQueue[string](t, s, cfg), viewer: newQueue[string](t, s, cfg)}
	cells := model.Cells()
	if len(cells) == 0 {
		t.Fatal("no table")
	}
	deviating := 0
	for _, c := range cells {
		name := c.Name()
		if strings.Contains(name+c.Want, "1s") || strings.Contains(name, "500ms") {
			continue // They may pass before the state is read. TestRulesFollowTheModel has these cells.
		}
		// This queue has no Background, and what is offered is ready.
		c.Entry = strings.ReplaceAll(c.Entry, "background", "ready")
		c.Want = strings.ReplaceAll(c.Want, "background", "ready")
		t.Run(name, func(t *testing.T) {
			want, deviates := deviations[name]
			if deviates {
				deviating++
				if want == c.Want {
					t.Errorf("the kernel answers %q too: it is no deviation", want)
				}
			} else {
				want = c.Want
			}
			if !c.Closed {
				if got := tab.standing(t, c.Setup); got != c.Entry {
					t.Fatalf("set up by %v: %q, want %q", c.Setup, got, c.Entry)
				}
			}
			if got := tab.standing(t, append(slices.Clip(c.Setup), c.Op)); got != want {
				t.Errorf("%v of %q: %q, want %q", c.Op, c.Entry, got, want)
			}
		})
	}
	if deviating != len(deviations) {
		t.Errorf("%d cells deviate, want the %d that are listed", deviating, len(deviations))
	}
}

// standing carries the operations out on an item that the queue does not know,
// and says how it stands then, in the words of the table.
func (tab *table) standing(t *testing.T, ops []model.Op[string]) (s string) {
	item, q := tab.play(t, ops)
	if s = tab.resting(t, item); s == "in flight" {
		again := tab.viewer.State(item).Again
		q.Done(item)
		flush(t, q)
		if next := tab.resting(t, item); next != "none" {
			s = "in flight, " + next + " next"
		}
		if got := s != "in flight"; got != again {
			t.Errorf("State.Again: %t, but after Done it is %q", again, tab.resting(t, item))
		}
	}
	tab.clean(t, item)
	if s != "in flight, ready next" {
		return s
	}
	item, q = tab.play(t, ops)
	q.Requeue(item, reconcile.RequeueOptions{Delay: 1000 * time.Hour, MinDelay: 1000 * time.Hour})
	flush(t, q)
	if tab.resting(t, item) == "ready" {
		s = "in flight, now next"
	}
	tab.clean(t, item)
	return s
}

// clean has the queue forget an item that is not in flight.
func (tab *table) clean(t *testing.T, item string) {
	if _, err := tab.viewer.Remove(t.Context(), item); err != nil {
		t.Fatal(err)
	}
	if s := tab.viewer.State(item); s != (reconcile.State{}) {
		t.Fatalf("after Remove: %+v", s)
	}
}

// resting says how an item stands, as far as State tells.
func (tab *table) resting(t *testing.T, item string) string {
	switch s := tab.viewer.State(item); s.Phase {
	case reconcile.PhaseWaiting:
		hours := func(t time.Time) time.Duration { return time.Until(t).Round(time.Hour) }
		notBefore := time.Duration(0)
		if !s.NotBefore.IsZero() {
			notBefore = hours(s.NotBefore)
		}
		return model.Words(hours(s.Due), notBefore, s.Recheck)
	case reconcile.PhaseIdle:
		return "none"
	default:
		return s.Phase.String()
	}
}

// flush waits until what was asked for is stored. A queue whose Close has
// returned has stored it.
func flush[T comparable](t testing.TB, q *queue.Queue[T]) {
	t.Helper()
	if err := q.Flush(t.Context()); err != nil && !errors.Is(err, reconcile.ErrClosed) {
		t.Fatal(err)
	}
}

// play carries the operations out on a new item, which it returns together with
// the handle that it used.
func (tab *table) play(t *testing.T, ops []model.Op[string]) (item string, q *queue.Queue[string]) {
	tab.cells++
	item = fmt.Sprintf("x%d", tab.cells)
	q = tab.open
	if slices.ContainsFunc(ops, func(o model.Op[string]) bool { return o.Verb == model.Close }) {
		q = newQueue[string](t, tab.server, queue.Config{Name: "table"})
	}
	for _, o := range ops {
		switch o.Verb {
		case model.Offer:
			q.Offer(item)
		case model.Enqueue:
			q.Enqueue(item)
		case model.EnqueueAfter:
			q.EnqueueAfter(item, o.Options.Delay)
		case model.EnqueueWithin:
			q.EnqueueWithin(item, o.Options.Delay)
		case model.EnqueueNow:
			q.EnqueueNow(item)
		case model.Remove:
			if _, err := q.Remove(t.Context(), item); err != nil && !errors.Is(err, reconcile.ErrClosed) {
				t.Fatal(err)
			}
		case model.Done:
			q.Done(item)
		case model.Requeue:
			q.Requeue(item, reconcile.RequeueOptions(o.Options))
		case model.Close:
			tab.close(t, q)
		case model.Dequeue:
			tab.dequeue(t, q)
		default:
			t.Fatalf("the table has no %v", o)
		}
		flush(t, q)
	}
	return item, q
}

// close begins to close a queue. It goes on until what is in flight is given
// back, or the test ends.
func (tab *table) close(t *testing.T, q *queue.Queue[string]) {
	ctx, cancel := context.WithCancel(context.Background())
	begun, ended := make(chan struct{}), make(chan error)
	go func() { ended <- q.Close(waited{ctx, sync.OnceFunc(func() { close(begun) })}) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	<-begun // else Dequeue could be first, and take what is ready
	if item, err := q.Dequeue(t.Context()); err != reconcile.ErrClosed {
		t.Fatalf("Dequeue after Close: %q, %v, want %v", item, err, reconcile.ErrClosed)
	}
}

// A waited is a context that tells when somebody waits for its end: Close does
// once it has begun.
type waited struct {
	context.Context
	tell func()
}

func (w waited) Done() <-chan struct{} {
	w.tell()
	return w.Context.Done()
}

// dequeue takes what is ready. It does not wait: an item that is enqueued now is
// ready after all others, so if that one comes there is no other.
func (tab *table) dequeue(t *testing.T, q *queue.Queue[string]) {
	const last = "the last"
	tab.viewer.Enqueue(last)
	flush(t, tab.viewer)
	for {
		item, err := q.Dequeue(t.Context())
		if err == reconcile.ErrClosed {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if item == last {
			q.Done(item)
			flush(t, q)
			return
		}
	}
	if _, err := tab.viewer.Remove(t.Context(), last); err != nil {
		t.Fatal(err)
	}
}
