// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// Phase has the queue's phases in the queue's order.
type Phase uint8

const (
	Idle Phase = iota
	InLine
	Waiting
	Running
)

// State is what the queue's State tells, in times since the start of the clock.
type State struct {
	Phase     Phase
	Since     time.Duration
	Due       time.Duration
	NotBefore time.Duration // zero if an event starts it at once
	Again     bool
	Recheck   bool
	Pending   time.Duration // if it does not wait for a recheck
	Failures  int
	Err       error
}

// Stats is what the queue's Stats tells.
type Stats struct {
	Ready, Waiting, InFlight             int
	Rechecks, Again                      int
	Enqueued, Coalesced, Taken, Requeued uint64
}

// ItemState is one step of All.
type ItemState[T comparable] struct {
	Item  T
	State State
}

// State tells about one item; the zero State if it is unknown.
func (q *Queue[T]) State(item T) State {
	if e := q.find(item); e != nil {
		return e.state(q.now)
	}
	return State{}
}

func (e *Entry[T]) state(now time.Duration) State {
	s := State{Since: e.Since, Pending: e.Pending, Failures: e.Failures, Err: e.Err}
	switch {
	case e.InFlight:
		s.Phase, s.Again = Running, e.Next.Exists
	case e.Next.Later(now):
		s.Phase, s.Due, s.Recheck = Waiting, e.Next.Due, e.Next.Recheck
		if e.Next.NotBefore > now {
			s.NotBefore = e.Next.NotBefore
		}
	default:
		s.Phase = InLine
	}
	return s
}

// Entry returns what is kept for item: more than State tells.
func (q *Queue[T]) Entry(item T) (e Entry[T], ok bool) {
	if p := q.find(item); p != nil {
		return *p, true
	}
	return e, false
}

// AtRest reports whether the queue does not know item, or it waits only for a
// recheck: a caller of EnqueueAndWait waits for that.
func (q *Queue[T]) AtRest(item T) bool {
	e := q.find(item)
	return e == nil || e.Next.Recheck
}

// Idle reports whether all items wait only for a recheck.
func (q *Queue[T]) Idle() bool {
	return !slices.ContainsFunc(q.entries, func(e Entry[T]) bool { return !e.Next.Recheck })
}

// All lists what is in flight (in any order), then what is ready in the order
// in which it will be taken, then what waits, in the order in which it will
// become ready.
func (q *Queue[T]) All() []ItemState[T] {
	var all []ItemState[T]
	var later []*Entry[T]
	for i := range q.entries {
		switch e := &q.entries[i]; {
		case e.InFlight:
			all = append(all, ItemState[T]{e.Item, e.state(q.now)})
		case e.Next.Later(q.now):
			later = append(later, e)
		}
	}
	for c := q.Clone(); ; {
		item, a := c.TryDequeue()
		if a != Taken {
			break
		}
		all = append(all, ItemState[T]{item, q.State(item)})
	}
	slices.SortFunc(later, byDue)
	for _, e := range later {
		all = append(all, ItemState[T]{e.Item, e.state(q.now)})
	}
	return all
}

// Len is the number of ready items.
func (q *Queue[T]) Len() int { return len(q.line) + len(q.background) }

// InBackground reports whether item is ready in the background.
func (q *Queue[T]) InBackground(item T) bool { return slices.Contains(q.background, item) }

// Has reports whether item is known at all.
func (q *Queue[T]) Has(item T) bool { return q.find(item) != nil }

// Stats counts.
func (q *Queue[T]) Stats() Stats {
	s := q.stats
	for i := range q.entries {
		switch e := q.entries[i].state(q.now); e.Phase {
		case InLine:
			s.Ready++
		case Waiting:
			s.Waiting++
			if e.Recheck {
				s.Rechecks++
			}
		case Running:
			s.InFlight++
			if q.entries[i].Next.Ready(q.now) {
				s.Again++
			}
		}
	}
	return s
}

// Key is equal for two queues that will answer alike, Since, Pending and the
// counters included.
func (q *Queue[T]) Key() string {
	b := q.appendKey(nil)
	rows := make([]string, 0, len(q.entries))
	for _, e := range q.entries {
		row := fmt.Append(nil, e.Item, " since ", int64(e.Since))
		if !e.Next.Recheck {
			row = fmt.Append(row, " pending ", int64(e.Pending))
		}
		rows = append(rows, string(row))
	}
	slices.Sort(rows)
	for _, r := range rows {
		b = append(append(b, r...), '\n')
	}
	b = strconv.AppendInt(b, int64(q.now), 10)
	return string(fmt.Append(b, " ", q.stats))
}

func (q *Queue[T]) appendKey(b []byte) []byte {
	rows := make([]string, 0, len(q.entries))
	for i := range q.entries {
		e := &q.entries[i]
		r := fmt.Append(nil, e.Item, " ")
		r = strconv.AppendBool(r, e.InFlight)
		r = fmt.Append(r, " event ", e.Event, " next ", e.Next.Exists, e.Next.Recheck, e.Next.Now, e.Next.Event)
		r = strconv.AppendInt(append(r, " failures "...), int64(e.Failures), 10)
		if e.Err != nil {
			r = append(append(r, ' '), e.Err.Error()...)
		}
		if e.Next.Later(q.now) {
			ahead := 0
			for j := range q.entries {
				if o := q.entries[j].Next; o.Later(q.now) && o.Due == e.Next.Due && o.Order < e.Next.Order {
					ahead++
				}
			}
			r = strconv.AppendInt(append(r, " due "...), int64(e.Next.Due-q.now), 10)
			r = strconv.AppendInt(append(r, " not before "...), int64(max(0, e.Next.NotBefore-q.now)), 10)
			r = strconv.AppendInt(append(r, " tie "...), int64(ahead), 10)
		}
		rows = append(rows, string(r))
	}
	slices.Sort(rows)
	b = strconv.AppendBool(append(b, "closed "...), q.closed)
	for _, item := range q.line {
		b = fmt.Append(b, ", ", item)
	}
	if len(q.background) > 0 {
		b = fmt.Append(b, " background ", q.background, " after ", q.inRow)
	}
	for _, r := range rows {
		b = append(append(b, '\n'), r...)
	}
	return append(b, '\n')
}
