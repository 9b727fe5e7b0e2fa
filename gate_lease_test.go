// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A lender is a Queue whose items are leased.
type lender struct {
	plainQueue[string]
	*journal
	mu    sync.Mutex
	lose  context.CancelCauseFunc // the last lease
	lease func(ctx context.Context, n int) context.Context
	count int
}

func (q *lender) Lease(ctx context.Context, item string) context.Context {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count++
	q.note("lease %s", item)
	if q.lease != nil {
		return q.lease(ctx, q.count)
	}
	ctx, q.lose = context.WithCancelCause(context.WithValue(ctx, leaseKey{}, q.count))
	return ctx
}

func (q *lender) Requeue(item string, w reconcile.Wait) {
	q.note("requeue %s", item)
	q.plainQueue.Requeue(item, w)
}

// inHand launches a loop that has an item in hand until a minute has passed.
func inHand(t *testing.T, lease func(ctx context.Context, n int) context.Context) (q *lender, g *reconcile.Gate, results *resultBook[string], end func()) {
	g = &reconcile.Gate{Max: 2}
	other := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "other@1m")
	q = &lender{plainQueue: plainly(reconcile.NewQueue[string]()), journal: newJournal(), lease: lease}
	results = new(resultBook[string])
	run := launch(t, &reconcile.Reconciler[string]{
		Queue: q, Gate: g, Retry: reconcile.NoRetry, OnResult: results.add, Logger: unlogged(),
		Reconcile: func(ctx context.Context, item string) error {
			q.note("run %s under %v", item, ctx.Value(leaseKey{}))
			return ctx.Err()
		},
	})
	synctest.Wait()
	g.SetLimit(1)
	q.q.Enqueue("a")
	synctest.Wait()
	return q, g, results, func() {
		t.Helper()
		run.end()
		other.end()
		mustBeIdle(t, g)
	}
}

// The lease of an item in hand is that of its run.
func TestGateLeaseBeginsInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _, results, end := inHand(t, nil)
		time.Sleep(time.Hour)
		q.q.Enqueue("b") // which is not kept waiting
		synctest.Wait()
		end()
		q.mustBe(t, "0s lease a", "1m0s run a under 1", "1h0m0s lease b", "1h0m0s run b under 2")
		if all := results.all(); len(all) != 2 || all[0].Waited != time.Minute {
			t.Errorf("results %+v, want that a waited a minute", all)
		}
	})
}

// An item whose lease is lost in hand does not run under it.
func TestGateLeaseIsLostInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g, results, end := inHand(t, nil)
		time.Sleep(10 * time.Second)
		q.lose(reconcile.ErrLeaseLost)
		synctest.Wait()
		if s := q.q.State("a"); s.Phase != reconcile.Ready || len(results.all()) != 0 {
			t.Errorf("State(a) = %+v, results %v, want it ready and no result", s, results.all())
		}
		if s := g.Stats(); s.InFlight != 1 || s.Waiting != 1 {
			t.Errorf("Stats = %+v, want the worker to wait before it takes an item", s)
		}
		time.Sleep(time.Hour)
		end()
		q.mustBe(t, "0s lease a", "10s requeue a", "1m0s lease a", "1m0s run a under 2")
	})
}

// The lease is lost in the instant of the item's turn.
func TestGateLeaseIsLostAtItsTurn(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			q, _, results, end := inHand(t, nil)
			time.AfterFunc(time.Minute, func() { q.lose(reconcile.ErrLeaseLost) })
			time.Sleep(time.Hour)
			end()
			for _, r := range results.all() {
				if r.Err != nil && r.Outcome != reconcile.Aborted {
					t.Errorf("result %+v, want none but an aborted one", r)
				}
			}
			if r := results.last(t); r.Outcome != reconcile.Succeeded || q.q.Has("a") {
				t.Errorf("the last result is %+v, want success", r)
			}
		})
	}
}

// Lease ends badly for an item in hand: that is a failure of its run.
func TestGateLeaseEndsBadlyInHand(t *testing.T) {
	ends := map[string]func(context.Context, int) context.Context{
		"nil returned": func(context.Context, int) context.Context { return nil },
	}
	for name, end := range failuresOfUserCode {
		ends[name] = func(context.Context, int) context.Context { panicsHere(end); return nil }
		ends[name+" of its context"] = func(ctx context.Context, _ int) context.Context { return rudeContext{ctx, end} }
	}
	for name, lease := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, _, results, end := inHand(t, lease)
				time.Sleep(time.Hour)
				if r := results.only(t); r.Outcome != reconcile.GaveUp || q.q.Has("a") {
					t.Errorf("result = %+v, want it to give up", r)
				}
				q.lease = nil
				q.q.Enqueue("b")
				synctest.Wait()
				if r := results.last(t); r.Item != "b" || r.Outcome != reconcile.Succeeded {
					t.Errorf("the last result is %+v, want that b succeeds", r)
				}
				end()
			})
		})
	}
}

// The context of an item in hand ends a moment before that which workers wait
// under. It is not taken again.
func TestGateItemInHandIsNotTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer time.Sleep(time.Minute) // until all have been told
		defer cancel()
		g := &reconcile.Gate{Max: 2}
		other := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "other@1h")
		q := &lender{plainQueue: plainly(reconcile.NewQueue[string]()), journal: newJournal()}
		run := launchUnder(lateContext{ctx}, t, reconcile.RunFunc(func(context.Context) error {
			return (&reconcile.Reconciler[string]{
				Queue: q, Gate: g, Logger: unlogged(),
				Reconcile: func(context.Context, string) error { t.Error("the item runs"); return nil },
			}).Run(lateContext{ctx})
		}))
		synctest.Wait()
		g.SetLimit(1)
		q.q.Enqueue("a")
		time.Sleep(time.Minute)
		time.AfterFunc(time.Second/2, func() { g.SetLimit(2) }) // while that context goes on
		cancel()
		if err := run.wait(); err != nil {
			t.Error(err)
		}
		q.mustBe(t, "0s lease a", "1m0s requeue a")
		time.Sleep(time.Minute)
		other.end()
		mustBeIdle(t, g)
	})
}
