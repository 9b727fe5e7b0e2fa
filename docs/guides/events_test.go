// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/supervise"
)

// The programs of events-and-observations.md and scheduled-runs.md.

func TestEventsAndPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		hooks := make(chan string)
		made := time.Now().Add(150 * time.Second)
		time.AfterFunc(150*time.Second, func() { hooks <- "vm" })

		q := reconcile.NewQueue[string]()
		var group supervise.Group
		group.Add("hooks", reconcile.Feed(q, reconcile.FromChan(hooks))) // events
		group.Add("list", &reconcile.Poller[string]{                     // observations
			Queue:    q,
			Period:   time.Minute,
			GetItems: func(context.Context) ([]string, error) { return []string{"vm"}, nil },
		})
		group.Add("vms", &reconcile.Reconciler[string]{
			Queue: q, RecheckJitter: 0.1,
			Reconcile: func(_ context.Context, vm string) error {
				if time.Now().Before(made) {
					happened.note("%s is being made", vm)
					return fmt.Errorf("%s is being made: %w", vm, reconcile.RequeueWithin(time.Hour))
				}
				happened.note("%s is in sync", vm)
				return reconcile.RecheckWithin(time.Hour)
			},
		})
		run(t, &group, 5*time.Minute-time.Second)
		happened.check(t, `
0s      vm is being made
2m30s   vm is in sync
3m0s    vm is in sync
4m0s    vm is in sync
`)
	})
}

func TestOneNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		due := func(item string) string {
			s := q.State(item)
			switch {
			case s.Phase != reconcile.PhaseWaiting:
				return s.Phase.String()
			case s.NotBefore.Equal(s.Due):
				return "not before " + time.Until(s.Due).String()
			}
			return "within " + time.Until(s.Due).String()
		}

		q.EnqueueWithin("a", 2*time.Hour)
		q.EnqueueAfter("a", time.Hour) // earlier: after an hour, and not before

		q.EnqueueWithin("b", time.Hour)
		q.EnqueueAfter("b", 2*time.Hour) // later: no effect, the run stays within an hour

		q.EnqueueAfter("c", time.Hour)
		q.EnqueueWithin("c", time.Minute)  // no effect: not before an hour has passed
		q.Enqueue("c")                     // no effect on the time
		q.EnqueueAfter("c", 3*time.Minute) // no effect

		q.EnqueueAfter("d", time.Hour)
		q.EnqueueNow("d") // ready

		for item, want := range map[string]string{
			"a": "not before 1h0m0s",
			"b": "within 1h0m0s",
			"c": "not before 1h0m0s",
			"d": "ready",
		} {
			if got := due(item); got != want {
				t.Errorf("%s is %s, want %s", item, got, want)
			}
		}
	})
}
