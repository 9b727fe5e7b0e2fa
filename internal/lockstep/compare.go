// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package lockstep

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/model"
)

// compareIdle looks whether the WaitIdle that waits has returned just if the
// model says so, and asks once more.
func (p *Pair[T]) compareIdle() error {
	want := p.Model.Idle()
	if got := p.Queue.WaitIdle(canceled); (got == nil) != want || got != nil && !errors.Is(got, errCanceled) {
		return fmt.Errorf("by WaitIdle: %v, want nil: %t", got, want)
	}
	if p.idle == nil {
		return nil
	}
	err, ended := p.idle.ended()
	switch {
	case ended && (err != nil || !want):
		return fmt.Errorf("by a WaitIdle: returned %v, want nil: %t", err, want)
	case !ended && want:
		return errors.New("by a WaitIdle: it waits, want it to return")
	case ended:
		p.idle = nil
	}
	return nil
}

// compareWaits looks whether just those EnqueueAndWaits have returned that
// should, and what.
func (p *Pair[T]) compareWaits(want []model.Await[T]) error {
	for _, m := range want {
		err, ended := p.waits[m.Nth].ended()
		if !ended {
			return fmt.Errorf("from EnqueueAndWait(%v), number %d: it waits, want %v", m.Item, m.Nth, m.Err)
		}
		delete(p.waits, m.Nth)
		end := m.Err
		if end == model.ErrClosed {
			end = reconcile.ErrClosed
		}
		if (err == nil) != (end == nil) || !errors.Is(err, end) || errors.Is(err, reconcile.ErrClosed) && end != reconcile.ErrClosed {
			return fmt.Errorf("from EnqueueAndWait(%v), number %d: %v, want %v", m.Item, m.Nth, err, m.Err)
		}
	}
	for nth, w := range p.waits {
		if err, ended := w.ended(); ended {
			return fmt.Errorf("from EnqueueAndWait, number %d: %v, want it to wait", nth, err)
		}
	}
	return nil
}

func same[T comparable](got, want model.Result[T]) error {
	if got.Removed != want.Removed {
		return fmt.Errorf("from Remove %t, want %t", got.Removed, want.Removed)
	}
	left := slices.Clone(want.Taken)
	for _, item := range got.Taken {
		if i := slices.Index(left, item); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	if len(left) > 0 || len(got.Taken) != len(want.Taken) || got.Over != want.Over {
		return fmt.Errorf("from Dequeue: took %v and ended %d, want %v and %d", got.Taken, got.Over, want.Taken, want.Over)
	}
	return nil
}

func (p *Pair[T]) compare() error {
	q, m := p.Queue, p.Model
	for _, item := range p.items {
		if err := SameState(q.State(item), m.State(item), p.start); err != nil {
			return fmt.Errorf("by State(%v): %w", item, err)
		}
		if got, want := q.Has(item), m.Has(item); got != want {
			return fmt.Errorf("by Has(%v): %t, want %t", item, got, want)
		}
	}
	if got, want := q.Len(), m.Len(); got != want {
		return fmt.Errorf("by Len: %d, want %d", got, want)
	}
	if got, want := q.Stats(), reconcile.Stats(m.Stats()); got != want {
		return fmt.Errorf("by Stats:\n got %+v\nwant %+v", got, want)
	}
	if err := p.compareAll(); err != nil {
		return err
	}
	if err := p.compareIdle(); err != nil {
		return err
	}
	if p.Check != nil {
		if err := p.Check(); err != nil {
			return fmt.Errorf("check: %w", err)
		}
	}
	return nil
}

func (p *Pair[T]) compareAll() error {
	want := p.Model.All()
	flying := 0 // those in flight come first, in any order
	for flying < len(want) && want[flying].State.Phase == model.Running {
		flying++
	}
	n := 0
	for item, got := range p.Queue.All() {
		at := n
		if n < flying {
			at = slices.IndexFunc(want[:flying], func(s model.ItemState[T]) bool { return s.Item == item })
		}
		if at < 0 || at >= len(want) || want[at].Item != item || SameState(got, want[at].State, p.start) != nil {
			return fmt.Errorf("by All: at %d got %v %+v, want %+v", n, item, got, want)
		}
		n++
	}
	if n != len(want) {
		return fmt.Errorf("by All: %d items, want %+v", n, want)
	}
	return nil
}

// SameState returns an error if a queue that was made at start says something else of
// an item than the model.
func SameState(got reconcile.State, model model.State, start time.Time) error {
	want := inQueue(model, start)
	for _, t := range []*time.Time{&got.Since, &got.Due, &got.NotBefore, &got.Pending, &want.Since, &want.Due, &want.NotBefore, &want.Pending} {
		*t = t.Round(0) // without the monotonic reading, so that == compares instants
	}
	if got != want {
		return fmt.Errorf("\n got %+v\nwant %+v", got, want)
	}
	return nil
}

// inQueue is a state in the queue's own terms.
func inQueue(s model.State, start time.Time) reconcile.State {
	if s.Phase == model.Idle {
		return reconcile.State{}
	}
	r := reconcile.State{
		Phase: reconcile.Phase(s.Phase), Since: start.Add(s.Since),
		Again: s.Again, Recheck: s.Recheck, Failures: s.Failures, Err: s.Err,
	}
	if s.Phase == model.Waiting {
		r.Due = start.Add(s.Due)
		if s.NotBefore != 0 {
			r.NotBefore = start.Add(s.NotBefore)
		}
	}
	if !s.Recheck {
		r.Pending = start.Add(s.Pending)
	}
	return r
}
