// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package spec is the model of the queue as a sequential specification for
// porcupine, which looks for an order of a concurrent history that the
// specification allows.
//
// A Dequeue whose context ended took nothing, and is not in the history. An
// EnqueueAndWait is two operations: it asks for a run, and it returns. Time
// passes in the history by operations of its own, so that due times are exact.
package spec

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/lockstep"
	"github.com/reconkernel/reconcile/internal/model"
)

// Call is what was called.
type Call struct {
	model.Op[string]
	Look Look // if it is not NoLook, what was asked of Item or of the queue
}

// Look is something to be asked.
type Look uint8

const (
	NoLook Look = iota
	State
	Has
	Len
	Stats
	Idle   // a WaitIdle that returned nil
	Ended  // the return of the EnqueueAndWait that has the same Nth
	Sleeps // that this EnqueueAndWait has not returned, though it could have
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
	Closed  bool // of Ended: the error was ErrClosed
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
	case Ended:
		return fmt.Sprintf("EnqueueAndWait(%s) number %d returns", c.Item, c.Nth)
	case Sleeps:
		return fmt.Sprintf("EnqueueAndWait(%s) number %d sleeps", c.Item, c.Nth)
	}
	if c.Verb == model.EnqueueAndWait {
		return fmt.Sprintf("%v number %d", c.Op, c.Nth)
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
	case Idle, Sleeps:
		return c.String()
	case Ended:
		return fmt.Sprintf("%v, closed: %t", c, r.Closed)
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

// state is a queue, and the EnqueueAndWaits that may return.
type state struct {
	q     *model.Attended[string]
	ended map[int]error // by Nth
	key   string
}

func newState(q *model.Attended[string], ended map[int]error) *state {
	key := q.Key()
	for _, w := range q.Waits {
		key += fmt.Sprintf("\n%d waits", w.Nth)
	}
	for _, nth := range slices.Sorted(maps.Keys(ended)) {
		key += fmt.Sprintf("\n%d may return %v", nth, ended[nth])
	}
	return &state{q, ended, key}
}

var seed = maphash.MakeSeed()

// Model returns the specification of a queue that was made at start and has that
// Background.
func Model(start time.Time, background int) porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			return newState(&model.Attended[string]{Queue: model.Queue[string]{Background: background}}, nil)
		},
		Step: func(s, in, out any) (bool, any) {
			next := s.(*state).step(start, in.(Call), out.(Return))
			return next != nil, next
		},
		Equal:             func(a, b any) bool { return a.(*state).key == b.(*state).key },
		Hash:              func(s any) uint64 { return maphash.String(seed, s.(*state).key) },
		DescribeOperation: func(in, out any) string { return Describe(in.(Call), out.(Return)) },
		DescribeState:     func(s any) string { return s.(*state).key },
	}
}

// step returns the state that follows s, or nil if s does not allow the answer.
func (s *state) step(start time.Time, c Call, r Return) *state {
	is := func(ok bool) *state {
		if ok {
			return s
		}
		return nil
	}
	switch c.Look {
	case State:
		return is(sameState(r.State, s.q.State(c.Item), start))
	case Has:
		return is(r.Has == s.q.Has(c.Item))
	case Len:
		return is(r.Len == s.q.Len())
	case Stats:
		return is(r.Stats == reconcile.Stats(s.q.Stats()))
	case Idle:
		return is(s.q.Idle())
	case Ended:
		err, ok := s.ended[c.Nth]
		if !ok || r.Closed != (err == model.ErrClosed) {
			return nil
		}
		rest := maps.Clone(s.ended)
		delete(rest, c.Nth)
		return newState(s.q, rest)
	case Sleeps:
		return is(slices.ContainsFunc(s.q.Waits, func(w model.Await[string]) bool { return w.Nth == c.Nth }))
	}

	q := s.q.Clone()
	if c.Verb == model.Dequeue {
		if item, answer := q.TryDequeue(); answer != r.Answer || item != r.Item {
			return nil
		}
		return newState(q, s.ended)
	}
	did := q.Do(c.Op)
	if did.Removed != r.Removed {
		return nil
	}
	ended := s.ended
	if len(did.Ended) > 0 {
		ended = maps.Clone(ended)
		if ended == nil {
			ended = map[int]error{}
		}
		for _, w := range did.Ended {
			ended[w.Nth] = w.Err
		}
	}
	return newState(q, ended)
}

// sameState compares what a queue that was made at start said with the model. An item
// in flight may say that it was taken as its consumer came for it, a moment before the
// consumer had the lock.
func sameState(got reconcile.State, want model.State, start time.Time) bool {
	if since := start.Add(want.Since); want.Phase == model.Running && got.Since.Before(since) {
		got.Since = since
	}
	return lockstep.SameState(got, want, start) == nil
}
