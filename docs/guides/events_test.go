// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// The programs of events-and-observations.md and scheduled-runs.md.

func TestEventInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		q.Enqueue("told")
		q.Enqueue("seen")
		r := &reconcile.Reconciler[string]{
			Queue:   q,
			Workers: 2,
			Reconcile: func(_ context.Context, vm string) error {
				time.Sleep(10 * time.Second)
				happened.note("%s is done", vm)
				return nil
			},
		}
		time.AfterFunc(5*time.Second, func() { // while both are being worked on
			q.Enqueue("told")
			q.Offer("seen")
		})
		time.AfterFunc(11*time.Second, func() {
			if q.State("told").Phase != reconcile.InFlight || q.Has("seen") {
				t.Errorf("after 11s: told is %v, seen is %v", q.State("told").Phase, q.State("seen").Phase)
			}
		})
		run(t, r, time.Minute)
		if n := len(happened.Lines()); n != 3 {
			t.Errorf("%d runs, want 3: %q", n, happened.Lines())
		}
	})
}

func TestStormIsOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		r := &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, vm string) error {
				happened.note("%s begins", vm)
				time.Sleep(10 * time.Second)
				return nil
			},
		}
		time.AfterFunc(time.Second, func() {
			for range 1000 {
				q.Enqueue("vm")
			}
		})
		time.AfterFunc(5*time.Second, func() {
			for range 1000 {
				q.Enqueue("vm")
			}
		})
		run(t, r, time.Minute)
		happened.check(t, `
1s      vm begins
11s     vm begins
`)
		stats := q.Stats()
		if stats.Enqueued != 2 || stats.Coalesced != 1998 {
			t.Errorf("%d enqueued, %d coalesced, want 2, 1998", stats.Enqueued, stats.Coalesced)
		}
	})
}

func TestEventsAndPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		hooks := make(chan string)
		made := time.Now().Add(150 * time.Second)
		time.AfterFunc(150*time.Second, func() { hooks <- "vm" })

		q := reconcile.NewQueue[string]()
		var group reconcile.Group
		group.Add("hooks", reconcile.Feed(q, reconcile.FromChan(hooks))) // events
		group.Add("list", &reconcile.Poller[string]{                     // observations
			Queue:    q,
			Period:   time.Minute,
			GetItems: func(context.Context) ([]string, error) { return []string{"vm"}, nil },
		})
		group.Add("vms", &reconcile.Reconciler[string]{
			Queue: q,
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

func TestRequeueAfterAndWithinWhileEventsCome(t *testing.T) {
	ask := func(t *testing.T, plan error, want string) {
		synctest.Test(t, func(t *testing.T) {
			happened := newDiary()
			q := reconcile.NewQueue[string]()
			q.Enqueue("vm")
			time.AfterFunc(10*time.Minute, func() { q.Offer("vm") })
			time.AfterFunc(20*time.Minute, func() { q.Enqueue("vm") })
			time.AfterFunc(30*time.Minute, func() { q.EnqueueNow("vm") })
			run(t, &reconcile.Reconciler[string]{
				Queue: q,
				Reconcile: func(context.Context, string) error {
					happened.note("run")
					return plan
				},
			}, 99*time.Minute)
			happened.check(t, want)
		})
	}
	t.Run("not before", func(t *testing.T) {
		ask(t, reconcile.RequeueAfter(time.Hour), `
0s      run
30m0s   run
1h30m0s run
`)
	})
	t.Run("at the latest", func(t *testing.T) {
		ask(t, reconcile.RequeueWithin(time.Hour), `
0s      run
20m0s   run
30m0s   run
1h30m0s run
`)
	})
}

func TestOneNextRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		due := func(item string) string {
			s := q.State(item)
			switch {
			case s.Phase != reconcile.Waiting:
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

func TestReturnValueDecidesAboutEventsOfTheRun(t *testing.T) {
	for _, c := range []struct {
		name    string
		during  func(q *reconcile.Queue[string])
		verdict error
		second  time.Duration // when the second run begins
	}{
		{"RequeueAfter", func(q *reconcile.Queue[string]) { q.Enqueue("vm") }, reconcile.RequeueAfter(time.Hour), time.Hour + 10*time.Second},
		{"RequeueWithin", func(q *reconcile.Queue[string]) { q.Enqueue("vm") }, reconcile.RequeueWithin(time.Hour), 10 * time.Second},
		{"nil", func(q *reconcile.Queue[string]) { q.Enqueue("vm") }, nil, 10 * time.Second},
		{"now", func(q *reconcile.Queue[string]) { q.EnqueueNow("vm") }, reconcile.RequeueAfter(time.Hour), 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var begun []time.Duration
				q := reconcile.NewQueue[string]()
				q.Enqueue("vm")
				time.AfterFunc(5*time.Second, func() { c.during(q) })
				run(t, &reconcile.Reconciler[string]{
					Queue: q,
					Reconcile: func(context.Context, string) error {
						begun = append(begun, time.Since(start))
						if len(begun) > 1 {
							return nil
						}
						time.Sleep(10 * time.Second)
						return c.verdict
					},
				}, 2*time.Hour)
				if want := []time.Duration{0, c.second}; !slices.Equal(begun, want) {
					t.Errorf("runs began at %v, want %v", begun, want)
				}
			})
		})
	}
}

func TestBurstIsOneRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		q := reconcile.NewQueue[string]()
		saved := func(file string) { q.EnqueueAfter(file, 2*time.Second) }
		for i := range 10 {
			time.AfterFunc(time.Duration(i)*100*time.Millisecond, func() { saved("main.go") })
		}
		run(t, &reconcile.Reconciler[string]{
			Queue: q,
			Reconcile: func(_ context.Context, file string) error {
				happened.note("build %s", file)
				return nil
			},
		}, time.Minute)
		happened.check(t, `
2s      build main.go
`)
	})
}
