// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"errors"
	"testing"
	"time"

	"github.com/reconkernel/reconcile/internal/model"
)

var errRun = errors.New("the run failed")

// describe says how x stands, in the words of the table.
func describe(q *model.Queue[string]) string {
	e, ok := q.Entry("x")
	if !ok {
		return "none"
	}
	next := ""
	switch n := e.Next; {
	case !n.Exists:
	case n.Later(q.Now()):
		next = model.Words(n.Due-q.Now(), n.NotBefore-q.Now(), n.Recheck)
	case n.Now:
		next = "now"
	case q.InBackground("x"):
		next = "background"
	default:
		next = "ready"
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
	if want := 55*12 + 21*4; len(cells) != want {
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

func do(a *model.Attended[string], verb model.Verb, item string, w model.RequeueOptions) model.Result[string] {
	return a.Do(model.Op[string]{Verb: verb, Item: item, Options: w})
}

func hours(n int) model.RequeueOptions {
	return model.RequeueOptions{Delay: time.Duration(n) * time.Hour}
}

func TestRecheckUntilItIsDue(t *testing.T) {
	var a model.Attended[string]
	do(&a, model.Enqueue, "x", model.RequeueOptions{})
	do(&a, model.Dequeue, "", model.RequeueOptions{})
	do(&a, model.Requeue, "x", model.RequeueOptions{Delay: 3 * time.Hour, Recheck: true})
	do(&a, model.Advance, "", hours(1))
	want := model.State{Phase: model.Waiting, Due: 3 * time.Hour, Recheck: true}
	if got := a.State("x"); got != want {
		t.Errorf("State: %+v, want %+v", got, want)
	}
	if got, want := a.Stats(), (model.Stats{Waiting: 1, Rechecks: 1, Enqueued: 1, Taken: 1, Requeued: 1}); got != want {
		t.Errorf("Stats: %+v, want %+v", got, want)
	}
	if !a.Idle() {
		t.Error("Idle: false, want true")
	}
	do(&a, model.Advance, "", hours(2))
	if got, want := a.State("x"), (model.State{Phase: model.InLine, Since: 3 * time.Hour, Pending: 3 * time.Hour}); got != want {
		t.Errorf("State when due: %+v, want %+v", got, want)
	}
	if a.Idle() {
		t.Error("Idle when due: true, want false")
	}
}

func TestAbortedAsIfItHadNotRun(t *testing.T) {
	var a model.Attended[string]
	do(&a, model.Enqueue, "x", model.RequeueOptions{})
	do(&a, model.Dequeue, "", model.RequeueOptions{})
	do(&a, model.Requeue, "x", model.RequeueOptions{Err: errRun})
	do(&a, model.Dequeue, "", model.RequeueOptions{})
	do(&a, model.EnqueueAfter, "x", hours(1))
	if got := a.Stats().Again; got != 0 {
		t.Errorf("Stats.Again: %d, want 0: its next run is not ready", got)
	}
	do(&a, model.Requeue, "x", model.RequeueOptions{Delay: time.Hour, MinDelay: time.Hour, Aborted: true})
	if got, want := a.State("x"), (model.State{Phase: model.InLine, Failures: 1, Err: errRun}); got != want {
		t.Errorf("State: %+v, want %+v", got, want)
	}
	if got, want := a.Stats(), (model.Stats{Ready: 1, Enqueued: 2, Taken: 2, Requeued: 2}); got != want {
		t.Errorf("Stats: %+v, want %+v", got, want)
	}
}

// Whoever waits for "x" is told by the last of these operations.
func TestEnqueueAndWait(t *testing.T) {
	ask := op{Verb: model.EnqueueAndWait, Item: "x"}
	for name, c := range map[string]struct {
		ops  []op
		want error
	}{
		"recheck":              {[]op{ask, take, {Verb: model.Requeue, Item: "x", Options: recheck}}, nil},
		"done":                 {[]op{ask, take, {Verb: model.Done, Item: "x"}}, nil},
		"removed":              {[]op{ask, {Verb: model.Remove, Item: "x"}}, nil},
		"recheck at first":     {[]op{{Verb: model.Enqueue, Item: "x"}, take, {Verb: model.Requeue, Item: "x", Options: recheck}, ask, take, {Verb: model.Done, Item: "x"}}, nil},
		"in flight at first":   {[]op{{Verb: model.Enqueue, Item: "x"}, take, ask, {Verb: model.Requeue, Item: "x", Options: recheck}, take, {Verb: model.Done, Item: "x"}}, nil},
		"planned":              {[]op{ask, take, {Verb: model.Requeue, Item: "x", Options: hours(1)}, {Verb: model.Advance, Options: hours(1)}, take, {Verb: model.Done, Item: "x"}}, nil},
		"held":                 {[]op{{Verb: model.EnqueueAfter, Item: "x", Options: hours(1)}, ask, {Verb: model.Close}}, model.ErrClosed},
		"a retry is dropped":   {[]op{ask, take, {Verb: model.Close}, {Verb: model.Requeue, Item: "x", Options: model.RequeueOptions{Delay: 1, Err: errRun}}}, model.ErrClosed},
		"a look is dropped":    {[]op{ask, take, {Verb: model.Close}, {Verb: model.Requeue, Item: "x", Options: recheck}}, nil},
		"closed at first":      {[]op{{Verb: model.Close}, ask}, model.ErrClosed},
		"others do not matter": {[]op{{Verb: model.Enqueue, Item: "y"}, take, ask, take, {Verb: model.Done, Item: "x"}}, nil},
		"given up":             {[]op{ask, take, {Verb: model.Requeue, Item: "x", Options: model.RequeueOptions{Err: errRun, Done: true}}}, errRun},
		"given up too early":   {[]op{ask, take, {Verb: model.Enqueue, Item: "x"}, {Verb: model.Requeue, Item: "x", Options: model.RequeueOptions{Err: errRun, Done: true}}, take, {Verb: model.Done, Item: "x"}}, nil},
		"in flight and held":   {[]op{{Verb: model.Enqueue, Item: "x"}, take, {Verb: model.EnqueueAfter, Item: "x", Options: hours(1)}, ask, {Verb: model.Close}}, model.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			var a model.Attended[string]
			for i, o := range c.ops {
				got := a.Do(o).Ended
				if last := i == len(c.ops)-1; !last && len(got) > 0 || last && (len(got) != 1 || got[0].Err != c.want) {
					t.Errorf("%v: %v, want %v after the last of them", c.ops[:i+1], got, c.want)
				}
			}
		})
	}
}

// A fault that changes no answer would prove nothing.
func TestFaultsShow(t *testing.T) {
	for name, c := range map[string]struct {
		fault      model.Fault
		background int
		ops        []model.Op[string]
		want, with string // how x stands, or what is taken, without the fault and with it
	}{
		"DropInFlight": {model.DropInFlight, 0, []op{enqueue, take, enqueue}, "in flight, ready next", "in flight"},
		"BreakHold":    {model.BreakHold, 0, []op{{Verb: model.EnqueueAfter, Item: "x", Options: hours(1)}, enqueue}, "held 1h", "ready"},
		"HotLoop": {
			model.HotLoop, 0,
			[]op{enqueue, take, enqueue, {Verb: model.Requeue, Item: "x", Options: model.RequeueOptions{Delay: time.Hour, MinDelay: time.Second}}},
			"held 1s", "ready",
		},
		"LIFO":          {model.LIFO, 0, []op{enqueue, {Verb: model.Enqueue, Item: "y"}, take}, "in flight", "ready"},
		"Starve":        {model.Starve, 2, []op{{Verb: model.Offer, Item: "x"}, {Verb: model.Enqueue, Item: "a"}, {Verb: model.Enqueue, Item: "b"}, take, take}, "in flight", "background"},
		"NoEventBit":    {model.NoEventBit, 8, []op{enqueue, take, {Verb: model.Requeue, Item: "x"}, {Verb: model.Enqueue, Item: "y"}, take}, "background", "in flight"},
		"StayRecheck":   {model.StayRecheck, 0, []op{enqueue, take, {Verb: model.Requeue, Item: "x", Options: recheck}, {Verb: model.EnqueueWithin, Item: "x", Options: hours(2)}}, "within 1h", "recheck 1h"},
		"IgnoreRecheck": {model.IgnoreRecheck, 0, []op{enqueue, take, {Verb: model.Requeue, Item: "x", Options: recheck}, {Verb: model.Offer, Item: "x"}}, "ready", "recheck 1h"},
	} {
		for fault, want := range map[model.Fault]string{model.NoFault: c.want, c.fault: c.with} {
			q := model.Attended[string]{Queue: model.Queue[string]{Fault: fault, Background: c.background}}
			for _, o := range c.ops {
				q.Do(o)
			}
			if got := describe(&q.Queue); got != want {
				t.Errorf("%s, %v with fault %d: %q, want %q", name, c.ops, fault, got, want)
			}
		}
	}
}

type op = model.Op[string]

var (
	enqueue = op{Verb: model.Enqueue, Item: "x"}
	take    = op{Verb: model.Dequeue}
	recheck = model.RequeueOptions{Delay: time.Hour, Recheck: true}
)

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
