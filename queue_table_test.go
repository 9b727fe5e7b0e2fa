// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/model"
)

// TestQueueTable runs every cell of internal/model/table.md, and once more for
// a queue without a Background.
func TestQueueTable(t *testing.T) {
	cells := model.Cells()
	if len(cells) == 0 {
		t.Fatal("no table")
	}
	for _, background := range []int{0, 8} {
		for _, c := range cells {
			if background == 0 {
				c.Entry = strings.ReplaceAll(c.Entry, "offered", "ready")
				c.Want = strings.ReplaceAll(c.Want, "offered", "ready")
			}
			t.Run(fmt.Sprintf("Background %d/%s", background, c.Name()), func(t *testing.T) {
				if got := standing(t, background, c.Setup); got != c.Entry {
					t.Fatalf("set up by %v: %q, want %q", c.Setup, got, c.Entry)
				}
				if got := standing(t, background, append(c.Setup, c.Op)); got != c.Want {
					t.Errorf("%v of %q: %q, want %q", c.Op, c.Entry, got, c.Want)
				}
			})
		}
	}
}

// standing carries the operations out on a new queue and says how "x" stands
// then, in the words of the table. What follows a run in flight shows when it
// is given back: with Done, and once more with a hold. That a ready item is in
// the background shows when an event overtakes it.
func standing(t *testing.T, background int, ops []model.Op[string]) (s string) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Background = background
		play(t, q, ops)
		if s = resting(q); s == "ready" {
			q.Enqueue("y")
			if first, err := q.Dequeue(t.Context()); first == "y" && err == nil {
				s = "offered"
			}
		}
		if s != "in flight" {
			return
		}
		again := q.State("x").Again
		q.Done("x")
		if next := resting(q); next != "none" {
			s = "in flight, " + next + " next"
		}
		if got := s != "in flight"; got != again {
			t.Errorf("State.Again: %t, but after Done it is %q", again, resting(q))
		}
	})
	if s != "in flight, ready next" {
		return s
	}
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Background = background
		play(t, q, ops)
		q.RequeueAfter("x", 1000*time.Hour)
		if resting(q) == "ready" {
			s = "in flight, now next"
		}
	})
	return s
}

// resting says how "x" stands, as far as State tells.
func resting(q *reconcile.Queue[string]) string {
	switch s := q.State("x"); {
	case s.Phase == reconcile.Waiting && s.Hold:
		return fmt.Sprintf("held %gh", time.Until(s.Due).Hours())
	case s.Phase == reconcile.Waiting:
		return fmt.Sprintf("within %gh", time.Until(s.Due).Hours())
	case s.Phase == reconcile.Idle:
		return "none"
	default:
		return s.Phase.String()
	}
}

// play carries operations out. A Dequeue that finds nothing waits for a while
// and is canceled.
func play(t *testing.T, q *reconcile.Queue[string], ops []model.Op[string]) {
	for i, o := range ops {
		switch o.Verb {
		case model.Offer:
			q.Offer(o.Item)
		case model.Enqueue:
			q.Enqueue(o.Item)
		case model.EnqueueAfter:
			q.EnqueueAfter(o.Item, o.Wait.Delay)
		case model.EnqueueWithin:
			q.EnqueueWithin(o.Item, o.Wait.Delay)
		case model.EnqueueNow:
			q.EnqueueNow(o.Item)
		case model.Remove:
			q.Remove(o.Item)
		case model.Done:
			q.Done(o.Item)
		case model.Requeue:
			q.Requeue(o.Item, reconcile.Wait(o.Wait))
		case model.Close:
			if i == len(ops)-1 {
				q.Enqueue("y") // for standing, which would come too late
			}
			q.Close()
		case model.Dequeue:
			ctx, cancel := context.WithCancel(t.Context())
			startDequeue(ctx, q) // what it takes shows in the state
			cancel()
			synctest.Wait()
		default:
			t.Fatalf("the table has no %v", o)
		}
	}
}

// TestQueueTable does not see whether a Dequeue that took nothing waits.
func TestQueueTableDequeueWaits(t *testing.T) {
	for _, c := range model.Cells() {
		if c.Op.Verb != model.Dequeue || c.Closed || c.Entry == "ready" || c.Entry == "offered" {
			continue
		}
		t.Run(c.Name(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				play(t, q, c.Setup)
				ctx, cancel := context.WithCancel(t.Context())
				waiting := startDequeue(ctx, q)
				mustWait(t, waiting)
				cancel()
				if d := mustReturn(t, waiting); d.err != context.Canceled {
					t.Errorf("Dequeue: %q, %v, want %v", d.item, d.err, context.Canceled)
				}
			})
		})
	}
}
