// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/internal/model"
)

// describe says how x stands, in the words of the table.
func describe(q *model.Queue[string]) string {
	e, ok := q.Entry("x")
	if !ok {
		return "none"
	}
	next := ""
	switch e.Next.Kind {
	case model.Ready:
		next = "ready"
	case model.Offered:
		next = "offered"
	case model.Sticky:
		next = "now"
	case model.Within, model.Held:
		next = "within"
		if e.Next.Kind == model.Held {
			next = "held"
		}
		next = fmt.Sprintf("%s %gh", next, (e.Next.Due - q.Now()).Hours())
	}
	switch {
	case !e.InFlight:
		return next
	case next == "":
		return "in flight"
	}
	return "in flight, " + next + " next"
}

func TestTable(t *testing.T) {
	cells := model.Cells()
	if want := 27*10 + 15*5; len(cells) != want {
		t.Errorf("the tables have %d cells, want %d", len(cells), want)
	}
	for _, c := range cells {
		t.Run(c.Name(), func(t *testing.T) {
			q := model.Attended[string]{Queue: model.Queue[string]{Background: 8}}
			for _, o := range c.Setup {
				q.Do(o)
			}
			if got := describe(&q.Queue); got != c.Entry {
				t.Fatalf("set up by %v: %q, want %q", c.Setup, got, c.Entry)
			}
			q.Do(c.Op)
			if got := describe(&q.Queue); got != c.Want {
				t.Errorf("%v of %q: %q, want %q", c.Op, c.Entry, got, c.Want)
			}
		})
	}
}

func TestTakenInOrderOfReadiness(t *testing.T) {
	var q model.Queue[string]
	q.EnqueueAfter("due 2, first", 2*time.Hour)
	q.EnqueueWithin("due 2, second", 2*time.Hour)
	q.EnqueueAfter("due 1", time.Hour)
	q.EnqueueAfter("due 3", 3*time.Hour)
	q.Enqueue("at once")
	q.Advance(2 * time.Hour)
	q.Enqueue("later")
	for _, want := range []string{"at once", "due 1", "due 2, first", "due 2, second", "later"} {
		if got, a := q.TryDequeue(); got != want || a != model.Taken {
			t.Errorf("TryDequeue: %q, %v, want %q", got, a, want)
		}
	}
	if got, a := q.TryDequeue(); a != model.Empty {
		t.Errorf("TryDequeue: %q, %v, want nothing", got, a)
	}
	q.Close()
	if got, a := q.TryDequeue(); a != model.Over {
		t.Errorf("TryDequeue after Close: %q, %v, want the end", got, a)
	}
}

// A fault that changes no answer would prove nothing.
func TestFaultsShow(t *testing.T) {
	for f, want := range map[model.Fault][]string{
		model.NoFault:      {"in flight, ready next", "held 1h", "a", "offered"},
		model.DropInFlight: {"in flight", "held 1h", "a", "offered"},
		model.BreakHold:    {"in flight, ready next", "ready", "a", "offered"},
		model.LIFO:         {"in flight, ready next", "held 1h", "b", "offered"},
		model.Starve:       {"in flight, ready next", "held 1h", "a", "b"},
	} {
		var got []string
		a := &model.Queue[string]{Fault: f}
		a.Enqueue("x")
		a.TryDequeue()
		a.Enqueue("x")
		got = append(got, describe(a))

		b := &model.Queue[string]{Fault: f}
		b.EnqueueAfter("x", time.Hour)
		b.Enqueue("x")
		got = append(got, describe(b))

		c := &model.Queue[string]{Fault: f}
		c.Enqueue("a")
		c.Enqueue("b")
		first, _ := c.TryDequeue()
		got = append(got, first)

		d := &model.Queue[string]{Fault: f, Background: 2}
		d.Offer("offered")
		d.Enqueue("a")
		d.TryDequeue()
		d.Enqueue("b")
		first, _ = d.TryDequeue()
		got = append(got, first)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("fault %d: got %q, want %q", f, got, want)
		}
	}
}

func TestCloneSharesNothing(t *testing.T) {
	var q model.Queue[string]
	q.Enqueue("x")
	q.EnqueueAfter("y", time.Hour)
	key := q.Key()
	c := q.Clone()
	if c.Key() != key {
		t.Errorf("Clone: key %q, want %q", c.Key(), key)
	}
	c.TryDequeue()
	c.EnqueueNow("y")
	if q.Key() != key {
		t.Errorf("key after the clone changed: %q, want %q", q.Key(), key)
	}
}

func TestUntakeRestoresTheOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		var q model.Queue[string]
		items := []string{"a", "b", "c"}
		for _, item := range items {
			q.Enqueue(item)
		}
		q.Enqueue("d")
		stats := q.Stats()
		var was []model.Entry[string]
		for _, item := range items {
			e, _ := q.Entry(item)
			was = append(was, e)
			q.TryDequeue()
		}
		for _, i := range order {
			q.Untake(was[i], i)
		}
		if got := q.Stats(); got != stats {
			t.Errorf("Stats: %+v, want %+v", got, stats)
		}
		for _, want := range []string{"a", "b", "c", "d"} {
			if got, _ := q.TryDequeue(); got != want {
				t.Errorf("given back in order %v: TryDequeue: %q, want %q", order, got, want)
			}
		}
	}
}
