// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"fmt"
	"math"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A loop whose queue is empty is held back as well, until the gate is open: only
// then it asks its queue.
func TestGateStatsCountALoopWithoutItems(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Every: time.Minute}
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 3}, "a")
		for _, want := range []int{1, 0} {
			synctest.Wait()
			if got := g.Stats().Waiting; got != want || l.q.Len() != 0 {
				t.Errorf("after %v, Waiting is %d and %d items are ready, want %d and none", time.Since(l.begun), got, l.q.Len(), want)
			}
			time.Sleep(time.Minute)
		}
		l.end()
		mustBeIdle(t, g)
	})
}

// A limit that rises lets in no more than the budget does.
func TestGateSetLimitHeedsTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Every: 10 * time.Second, Burst: 2, Max: 9}
		g.SetLimit(1)
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 9}, "a@1h", "b@1h", "c@1h", "d@1h")
		time.Sleep(time.Minute)
		g.SetLimit(9)
		time.Sleep(time.Minute)
		l.mustHold(t, "0s a@1h", "1m0s b@1h", "1m0s c@1h", "1m10s d@1h")
		l.end()
		mustBeIdle(t, g)
	})
}

// A budget that is not whole again before the end of time is a budget still.
func TestGateBudgetWithoutEnd(t *testing.T) {
	for _, g := range []*reconcile.Gate{
		{Every: math.MaxInt64},
		{Every: math.MaxInt64, Burst: 2},
		{Every: math.MaxInt64, Burst: 5},
		{Every: 100 * 365 * 24 * time.Hour, Burst: 4},
	} {
		t.Run(fmt.Sprintf("Every %v, Burst %d", g.Every, g.Burst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				l := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "a")
				time.Sleep(time.Hour)
				if next, want := g.Stats().Next, time.Duration(0); g.Burst > 1 && next != want {
					t.Errorf("after one run of a burst of %d, the next is in %v, want %v", g.Burst, next, want)
				}
				for i := range 9 {
					l.q.Enqueue(strconv.Itoa(i))
				}
				time.Sleep(365 * 24 * time.Hour)
				synctest.Wait()
				if got, want := len(l.results.all()), max(1, g.Burst); got != want {
					t.Errorf("%d runs in %v, want the burst of %d", got, time.Since(begin), want)
				}
				if next := g.Stats().Next; next <= 0 {
					t.Errorf("after the burst, the next run is in %v", next)
				}
				if err := reconcile.CheckGate(g); err != nil {
					t.Error(err)
				}
				l.end()
				mustBeIdle(t, g)
			})
		})
	}
}

// A burst that no program will ever use up is no budget.
func TestGateBurstWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Every: math.MaxInt64, Burst: math.MaxInt}
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "a", "b", "c")
		time.Sleep(time.Second)
		l.mustBe(t, "0s a", "0s b", "0s c")
		if next := g.Stats().Next; next != 0 {
			t.Errorf("the next turn is in %v, want now", next)
		}
		l.end()
		mustBeIdle(t, g)
	})
}
