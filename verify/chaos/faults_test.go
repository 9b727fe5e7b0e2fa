// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A round with a broken queue must be found out, or a round proves nothing. Each
// of these breaks another promise.

// deaf loses what is enqueued while the item is in flight.
type deaf struct{ *reconcile.Queue[int] }

func (q deaf) Enqueue(item int) {
	if q.State(item).Phase != reconcile.InFlight {
		q.Queue.Enqueue(item)
	}
}

// twofold hands out one item of a hundred twice.
type twofold struct {
	*reconcile.Queue[int]
	n *counter
}

func (q twofold) Dequeue(ctx context.Context) (int, error) {
	item, err := q.Queue.Dequeue(ctx)
	if err == nil && q.n.nth(100) {
		q.Queue.Done(item)
		q.Queue.Enqueue(item)
	}
	return item, err
}

// aloof ignores an offer of an item that it knows, also of one that is in order.
type aloof struct{ *reconcile.Queue[int] }

func (q aloof) Offer(item int) {
	if !q.Has(item) {
		q.Queue.Offer(item)
	}
}

// impatient takes a hold for a ceiling.
type impatient struct{ *reconcile.Queue[int] }

func (q impatient) Requeue(item int, w reconcile.RequeueOptions) {
	w.Hold = false
	q.Queue.Requeue(item, w)
}

// forgetful forgets one of five next runs.
type forgetful struct {
	*reconcile.Queue[int]
	n *counter
}

func (q forgetful) Requeue(item int, w reconcile.RequeueOptions) {
	if q.n.nth(5) {
		q.Queue.Done(item)
	} else {
		q.Queue.Requeue(item, w)
	}
}

// swallowing forgets the items of runs that were aborted.
type swallowing struct{ *reconcile.Queue[int] }

func (q swallowing) Requeue(item int, w reconcile.RequeueOptions) {
	if w.Err == reconcile.ErrAborted {
		q.Queue.Done(item)
	} else {
		q.Queue.Requeue(item, w)
	}
}

// leaking never takes back one of five hundred items.
type leaking struct {
	*reconcile.Queue[int]
	n *counter
}

func (q leaking) Done(item int) {
	if !q.n.nth(500) {
		q.Queue.Done(item)
	}
}

// failing says that it cannot go on.
type failing struct {
	*reconcile.Queue[int]
	n *counter
}

func (q failing) Dequeue(ctx context.Context) (int, error) {
	if q.n.nth(2000) {
		return 0, errors.New("lost the connection")
	}
	return q.Queue.Dequeue(ctx)
}

// hurried does not wait.
type hurried struct{ *reconcile.Queue[int] }

func (q hurried) EnqueueAndWait(_ context.Context, items ...int) error {
	for _, item := range items {
		q.Enqueue(item)
	}
	return nil
}

// forgiving uncounts what was taken.
type forgiving struct {
	*reconcile.Queue[int]
	n *counter
}

func (q forgiving) Stats() reconcile.Stats {
	s := q.Queue.Stats()
	if q.n.nth(100) {
		s.Taken /= 2
	}
	return s
}

// hasty drops what is ready when it is closed.
type hasty struct{ *reconcile.Queue[int] }

func (q hasty) Close() {
	for item := range q.All() {
		q.Remove(item)
	}
	q.Queue.Close()
}

func TestFaultsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		wrap func(*reconcile.Queue[int]) Queue
		want Check // "" is none at all
	}{
		"none":                               {func(q *reconcile.Queue[int]) Queue { return struct{ *reconcile.Queue[int] }{q} }, ""},
		"an enqueue in flight is lost":       {func(q *reconcile.Queue[int]) Queue { return deaf{q} }, Missed},
		"what is ready is lost with Close":   {func(q *reconcile.Queue[int]) Queue { return hasty{q} }, Missed},
		"an item in order is not polled":     {func(q *reconcile.Queue[int]) Queue { return aloof{q} }, Blind},
		"an item is handed out twice":        {func(q *reconcile.Queue[int]) Queue { return twofold{q, new(counter)} }, Twice},
		"a hold is ignored":                  {func(q *reconcile.Queue[int]) Queue { return impatient{q} }, TooEarly},
		"a retry or a plan is lost":          {func(q *reconcile.Queue[int]) Queue { return forgetful{q, new(counter)} }, Owed},
		"the item of an aborted run is lost": {func(q *reconcile.Queue[int]) Queue { return swallowing{q} }, Owed},
		"nobody waits for a change":          {func(q *reconcile.Queue[int]) Queue { return hurried{q} }, Unseen},
		"a take is uncounted":                {func(q *reconcile.Queue[int]) Queue { return forgiving{q, new(counter)} }, Fell},
		"an item stays in flight":            {func(q *reconcile.Queue[int]) Queue { return leaking{q, new(counter)} }, Left},
		"a loop ends":                        {func(q *reconcile.Queue[int]) Queue { return failing{q, new(counter)} }, Ended},
	} {
		t.Run(name, func(t *testing.T) {
			// What meets is up to the runtime, so a fault may hide for a while.
			found, rounds := false, uint64(20)
			if c.want == "" {
				rounds = 2
			}
			for s := range rounds {
				r := bubble(t, Config{Seed: *seed + s, Items: 1000, Changes: 50_000, Wrap: c.wrap})
				if c.want == "" && len(r.Found) > 0 {
					t.Errorf("seed %d: found %v, want nothing\n%s", *seed+s, r.Found, strings.Join(r.First, "\n"))
				}
				if found = r.Found[c.want] > 0; found {
					t.Logf("round %d: %v %s", s+1, r.Found, r.First[0])
					break
				}
			}
			if !found && c.want != "" {
				t.Errorf("not found: %q", c.want)
			}
		})
	}
}

// A run that is late cannot be made with a queue that is wrapped, because only
// the kernel's own says how long an item was ready.
func TestLateRunsAreFound(t *testing.T) {
	for _, c := range []struct {
		name   string
		waited time.Duration // before the second run, which begins after 20 s
		holds  bool          // the retry is a floor
		late   int
	}{
		{"ready in time", 10 * time.Second, false, 0},
		{"ready 1 ns late", 10*time.Second - 1, false, 1},
		{"a floor is no ceiling", 0, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) {
				w := newWorld(1, true)
				w.begin(0)
				w.end(0)
				w.result(reconcile.Result[int]{Outcome: reconcile.Retrying, Err: errBoom, Next: 10 * time.Second}, c.holds)
				time.Sleep(20 * time.Second)
				w.begin(0)
				time.Sleep(time.Second)
				w.end(0)
				w.result(reconcile.Result[int]{Outcome: reconcile.Succeeded, Waited: c.waited, Duration: time.Second}, c.holds)
				if got := w.found[TooLate]; got != c.late || len(w.found) > c.late {
					t.Errorf("found %v, want %d late", w.found, c.late)
				}
			})
		})
	}
}
