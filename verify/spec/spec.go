// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package spec is the model of the queue as a sequential specification for
// porcupine, which looks for an order of a concurrent history that the
// specification allows.
//
// Two things are not of one piece. A Dequeue whose context ended may have been
// handed an item that it did not see; it gives it back as if never taken, but
// for a moment the item was in flight. And time passes in the history by
// operations of its own, so that due times are exact.
package spec

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/model"
)

// Call is what was called.
type Call struct {
	model.Op[string]
	Look Look // if it is not NoLook, what was asked of Item or of the queue
	ID   int  // of a canceled Dequeue: two Calls, Cancel and Canceled, share it
}

// Look is something to be asked.
type Look uint8

const (
	NoLook Look = iota
	State
	Has
	Len
	Stats
	Idle    // a WaitIdle that returned nil
	Settled // a WaitItem that did
)

// Return is what came back.
type Return struct {
	Item    string       // of Dequeue
	Answer  model.Answer // of Dequeue
	Removed bool
	State   reconcile.State
	Has     bool
	Len     int
	Stats   reconcile.Stats
}

func (c Call) String() string {
	switch c.Look {
	case State:
		return fmt.Sprintf("State(%s)", c.Item)
	case Has:
		return fmt.Sprintf("Has(%s)", c.Item)
	case Len:
		return "Len()"
	case Stats:
		return "Stats()"
	case Idle:
		return "WaitIdle()"
	case Settled:
		return fmt.Sprintf("WaitItem(%s)", c.Item)
	}
	switch c.Verb {
	case model.Cancel:
		return fmt.Sprintf("Dequeue() number %d, canceled: may take", c.ID)
	case model.Canceled:
		return fmt.Sprintf("Dequeue() number %d, canceled: gives back", c.ID)
	}
	return c.Op.String()
}

// Describe says what was called and what came back.
func Describe(c Call, r Return) string {
	switch c.Look {
	case State:
		return fmt.Sprintf("%v: %+v", c, r.State)
	case Has:
		return fmt.Sprintf("%v: %t", c, r.Has)
	case Len:
		return fmt.Sprintf("%v: %d", c, r.Len)
	case Stats:
		return fmt.Sprintf("%v: %+v", c, r.Stats)
	case Idle, Settled:
		return c.String()
	}
	switch c.Verb {
	case model.Dequeue:
		if r.Answer == model.Over {
			return "Dequeue(): closed"
		}
		return fmt.Sprintf("Dequeue(): %s", r.Item)
	case model.Remove:
		return fmt.Sprintf("%v: %t", c, r.Removed)
	}
	return c.String()
}

// state is a queue, and what canceled Dequeues hold for a moment.
type state struct {
	q    *model.Queue[string]
	held map[int]taken // by Call.ID
	key  string

	turns    int  // takes of canceled Dequeues so far
	counters bool // somebody asks for Stats
}

type taken struct { // nothing, unless ok
	was  model.Entry[string]
	ok   bool
	turn int
}

// next is the state that follows s.
func (s *state) next(q *model.Queue[string], held map[int]taken, turns int) *state {
	return newState(q, held, turns, s.counters)
}

func newState(q *model.Queue[string], held map[int]taken, turns int, counters bool) *state {
	key := q.FullKey(counters)
	for id := 0; len(held) > 0 && id <= maxID; id++ {
		if h, ok := held[id]; ok {
			key += fmt.Sprintf("\n%d holds %v", id, h)
		}
	}
	return &state{q, held, key, turns, counters}
}

// maxID bounds Call.ID.
const maxID = 63

var seed = maphash.MakeSeed()

// Model returns the specification of a queue that was made at start and has that
// Background. The fault is NoFault, but for negative controls. Stats can be checked with counters;
// without, more states are the same, and the check is faster.
func Model(start time.Time, background int, fault model.Fault, counters bool) porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []any {
			return []any{newState(&model.Queue[string]{Background: background, Fault: fault}, nil, 0, counters)}
		},
		Step: func(s, in, out any) []any {
			var next []any
			for _, n := range s.(*state).step(start, in.(Call), out.(Return)) {
				next = append(next, n)
			}
			return next
		},
		Equal:             func(a, b any) bool { return a.(*state).key == b.(*state).key },
		Hash:              func(s any) uint64 { return maphash.String(seed, s.(*state).key) },
		DescribeOperation: func(in, out any) string { return Describe(in.(Call), out.(Return)) },
		DescribeState:     func(s any) string { return s.(*state).key },
	}
	return nondeterministic.ToModel()
}

func (s *state) step(start time.Time, c Call, r Return) []*state {
	is := func(ok bool) []*state {
		if ok {
			return []*state{s}
		}
		return nil
	}
	switch c.Look {
	case State:
		return is(SameState(r.State, s.q.State(c.Item), start))
	case Has:
		return is(r.Has == s.q.Has(c.Item))
	case Len:
		return is(r.Len == s.q.Len())
	case Stats:
		return is(r.Stats == reconcile.Stats(s.q.Stats()))
	case Idle:
		return is(s.q.Idle())
	case Settled:
		return is(s.q.Settled(c.Item))
	}

	q := s.q.Clone()
	next := func(held map[int]taken) []*state { return []*state{s.next(q, held, s.turns)} }
	switch c.Verb {
	case model.Dequeue:
		item, answer := q.TryDequeue()
		for _, h := range s.held {
			if h.ok && answer == model.Over {
				answer = model.Empty // what is held may come back
			}
		}
		if answer != r.Answer || answer == model.Taken && item != r.Item {
			return nil
		}
	case model.Cancel:
		// Either it was handed nothing, or what came first.
		nothing := maps.Clone(s.held)
		if nothing == nil {
			nothing = map[int]taken{}
		}
		nothing[c.ID] = taken{}
		states := []*state{s.next(s.q, nothing, s.turns)}
		if q.Len() > 0 {
			something := maps.Clone(nothing)
			h := taken{ok: true, turn: s.turns}
			before := q.Clone()
			item, _ := q.TryDequeue()
			h.was, _ = before.Entry(item)
			something[c.ID] = h
			states = append(states, s.next(q, something, s.turns+1))
		}
		return states
	case model.Canceled:
		h, ok := s.held[c.ID]
		if !ok {
			return nil
		}
		if h.ok {
			q.Untake(h.was, h.turn)
		}
		rest := maps.Clone(s.held)
		delete(rest, c.ID)
		return next(rest)
	case model.Remove:
		if q.Remove(c.Item) != r.Removed {
			return nil
		}
	default:
		a := model.Attended[string]{Queue: *q}
		a.Do(c.Op)
		q = &a.Queue
	}
	return next(s.held)
}

// ByItem splits a history into those of its items, and leaves out what is not
// about an item: Len, Stats, and the end of a closed queue. Time and Close are
// in all of them. If the history has an order that the specification allows,
// so has each part: the order without the rest. (The reverse does not hold: who
// comes before whom is lost.) No Dequeue of the history may have been canceled.
func ByItem(history []porcupine.Operation) (parts [][]porcupine.Operation) {
	items := map[string]int{}
	for _, o := range history {
		item := itemOf(o)
		if _, ok := items[item]; item != "" && !ok {
			items[item] = len(parts)
			parts = append(parts, nil)
		}
	}
	for _, o := range history {
		switch c := o.Input.(Call); {
		case itemOf(o) != "":
			i := items[itemOf(o)]
			parts[i] = append(parts[i], o)
		case c.Look == NoLook && (c.Verb == model.Advance || c.Verb == model.Close):
			for i := range parts {
				parts[i] = append(parts[i], o)
			}
		}
	}
	return parts
}

func itemOf(o porcupine.Operation) string {
	if c := o.Input.(Call); c.Look == NoLook && c.Verb == model.Dequeue {
		return o.Output.(Return).Item
	}
	return o.Input.(Call).Item
}

// SameState compares what a queue that was made at start said with the model.
// An item in flight may say that it was taken as its consumer came for it, a
// moment before the consumer had the lock.
func SameState(got reconcile.State, want model.State, start time.Time) bool {
	if want.Phase == model.Idle {
		return got == reconcile.State{}
	}
	since := got.Since.Equal(start.Add(want.Since)) ||
		want.Phase == model.Running && got.Since.Before(start.Add(want.Since))
	due := got.Due.IsZero()
	if want.Phase == model.Waiting {
		due = got.Due.Equal(start.Add(want.Due))
	}
	return got.Phase == reconcile.Phase(want.Phase) && since && due &&
		got.Hold == want.Hold && got.Again == want.Again &&
		got.Failures == want.Failures && errors.Is(got.Err, want.Err)
}
