// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
)

var (
	quiet     = slog.New(slog.DiscardHandler)
	errBroken = errors.New("broken")
)

// instrumented starts a reconciler, and ends it with the test. It returns when
// nothing more can happen without time going on.
func instrumented(t *testing.T, c *promadapter.Collector, r *reconcile.Reconciler[string]) (end func()) {
	t.Helper()
	r.Logger = quiet
	if err := promadapter.Instrument(c, r); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	end = func() {
		cancel()
		<-ended
	}
	t.Cleanup(end)
	synctest.Wait()
	return end
}

// TestInstrument runs items that end in every way there is, one after the
// other, and compares every series.
func TestInstrument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries int
		results := map[string]func(ctx context.Context) error{
			"1 well":       func(context.Context) error { return nil },
			"2 after":      func(context.Context) error { return fmt.Errorf("wait: %w", reconcile.RequeueAfter(time.Hour)) },
			"3 within":     func(context.Context) error { return reconcile.RequeueWithin(time.Hour) },
			"4 terminal":   func(context.Context) error { return reconcile.Terminal(errBroken) },
			"5 gives up":   func(context.Context) error { return errBroken },
			"6 panics":     func(context.Context) error { panic("oops") },
			"7 goexit":     func(context.Context) error { runtime.Goexit(); return nil },
			"8 times out":  func(ctx context.Context) error { <-ctx.Done(); return reconcile.Terminal(ctx.Err()) },
			"9 late, well": func(ctx context.Context) error { <-ctx.Done(); return nil },
			"in sync":      func(context.Context) error { return reconcile.RecheckWithin(time.Hour) },
			"at once": func(context.Context) error {
				if tries++; tries == 1 {
					return reconcile.RequeueWithin(0)
				}
				return nil
			},
		}
		q := reconcile.NewQueue[string]()
		r := &reconcile.Reconciler[string]{
			Name: "assets", Queue: q, Timeout: 10 * time.Second,
			Reconcile: func(ctx context.Context, item string) error {
				if item == "8 times out" || item == "9 late, well" {
					return results[item](ctx)
				}
				time.Sleep(time.Second)
				return results[item](ctx)
			},
			Retry: func(_ error, failures int) (time.Duration, bool) { return time.Minute, failures < 3 },
		}
		for _, item := range []string{"1 well", "2 after", "3 within", "4 terminal", "5 gives up", "6 panics", "7 goexit", "8 times out", "9 late, well", "at once", "in sync"} {
			q.Enqueue(item)
		}
		q.Offer("1 well") // coalesced
		var c promadapter.Collector
		end := instrumented(t, &c, r)
		time.Sleep(30 * time.Minute)
		synctest.Wait()

		// Eleven items, and the second and third runs of those that fail three
		// times, and the second of "at once". The first eleven wait for those before
		// them: 0 1 2 … 7, 17, 27 and 28 s, "at once" again for one more.
		// "5", "6" and "7" are due a minute after their ends at 5, 6 and 7 s, which
		// keeps them a second apart.
		const runs = 11 + 2*3 + 1
		const seconds = 8 + 2*10 + 1 + 2*3 + 1
		wantValues(t, &c, map[string]float64{
			`workqueue_depth{controller="assets",name="assets"}`:                        0,
			`workqueue_adds_total{controller="assets",name="assets"}`:                   11 + 3 + 6 + 1,
			`workqueue_retries_total{controller="assets",name="assets"}`:                3 + 6 + 1,
			`workqueue_queue_duration_seconds_count{controller="assets",name="assets"}`: runs,
			`workqueue_queue_duration_seconds_sum{controller="assets",name="assets"}`:   0 + 1 + 2 + 3 + 4 + 5 + 6 + 7 + 17 + 27 + 28 + 1,
			`workqueue_work_duration_seconds_count{controller="assets",name="assets"}`:  runs,
			`workqueue_work_duration_seconds_sum{controller="assets",name="assets"}`:    seconds,

			`controller_runtime_reconcile_total{controller="assets",result="success"}`:       4,
			`controller_runtime_reconcile_total{controller="assets",result="requeue"}`:       1,
			`controller_runtime_reconcile_total{controller="assets",result="requeue_after"}`: 2,
			`controller_runtime_reconcile_total{controller="assets",result="error"}`:         2 + 9,
			`controller_runtime_reconcile_errors_total{controller="assets"}`:                 2 + 9,
			`controller_runtime_terminal_reconcile_errors_total{controller="assets"}`:        2,
			`controller_runtime_reconcile_panics_total{controller="assets"}`:                 6,
			`controller_runtime_reconcile_timeouts_total{controller="assets"}`:               2,
			`controller_runtime_reconcile_time_seconds_count{controller="assets"}`:           runs,
			`controller_runtime_reconcile_time_seconds_sum{controller="assets"}`:             seconds,
			`controller_runtime_max_concurrent_reconciles{controller="assets"}`:              1,

			`reconcile_queue_waiting{controller="assets",name="assets"}`:         2,
			`reconcile_queue_rechecks{controller="assets",name="assets"}`:        1,
			`reconcile_queue_taken_total{controller="assets",name="assets"}`:     runs,
			`reconcile_queue_coalesced_total{controller="assets",name="assets"}`: 1,
			`reconcile_runs_total{controller="assets",outcome="succeeded"}`:      4,
			`reconcile_runs_total{controller="assets",outcome="requeued"}`:       3,
			`reconcile_runs_total{controller="assets",outcome="retrying"}`:       6,
			`reconcile_runs_total{controller="assets",outcome="gave_up"}`:        3,
			`reconcile_runs_total{controller="assets",outcome="terminal_error"}`: 2,
			`reconcile_held_total{controller="assets"}`:                          1,
			`reconcile_failures_in_a_row_count{controller="assets"}`:             2 + 9,
			`reconcile_failures_in_a_row_sum{controller="assets"}`:               2 + 3*(1+2+3),
		})
		end()
	})
}

// TestHeldBesideAFailure has runs that are scheduled although a step failed. Held are those that no event starts before their time.
func TestHeldBesideAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			reconcile func(ctx context.Context) error
			held      float64
		}{
			"within": {func(context.Context) error { return errors.Join(errBroken, reconcile.RequeueWithin(time.Hour)) }, 0},
			"after":  {func(context.Context) error { return errors.Join(errBroken, reconcile.RequeueAfter(time.Hour)) }, 1},
		} {
			q := reconcile.NewQueue[string]()
			ran := 0
			r := &reconcile.Reconciler[string]{
				Name: "assets", Queue: q, Retry: reconcile.NoRetry,
				Reconcile: func(ctx context.Context, _ string) error {
					if ran++; ran > 1 {
						return nil
					}
					return test.reconcile(ctx)
				},
			}
			var c promadapter.Collector
			end := instrumented(t, &c, r)
			q.Enqueue("a")
			synctest.Wait()
			time.Sleep(time.Millisecond)
			q.Enqueue("a")
			time.Sleep(time.Minute)
			if got := values(t, &c)[`reconcile_held_total{controller="assets"}`]; got != test.held {
				t.Errorf("%s: %v runs are held, want %v", name, got, test.held)
			}
			end()
		}
	})
}

// TestInstrumentInFlight looks at runs that go on, and at one that a shutdown
// cuts short.
func TestInstrumentInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		r := &reconcile.Reconciler[string]{
			Name: "slow", Queue: q, Workers: 2, HoldRetries: true,
			Reconcile: func(ctx context.Context, item string) error {
				if item == "broken" {
					return errBroken
				}
				<-ctx.Done()
				return ctx.Err()
			},
		}
		q.Enqueue("broken")
		var c promadapter.Collector
		end := instrumented(t, &c, r)
		q.Remove("broken") // held now, and not to come again
		q.Enqueue("a")
		time.Sleep(5 * time.Second)
		q.Enqueue("b")
		q.Enqueue("c")
		time.Sleep(3 * time.Second)
		synctest.Wait()

		want := map[string]float64{
			`workqueue_depth{controller="slow",name="slow"}`:                             1,
			`workqueue_adds_total{controller="slow",name="slow"}`:                        5,
			`workqueue_retries_total{controller="slow",name="slow"}`:                     1,
			`workqueue_queue_duration_seconds_count{controller="slow",name="slow"}`:      1,
			`workqueue_work_duration_seconds_count{controller="slow",name="slow"}`:       1,
			`workqueue_unfinished_work_seconds{controller="slow",name="slow"}`:           8 + 3,
			`workqueue_longest_running_processor_seconds{controller="slow",name="slow"}`: 8,
			`controller_runtime_reconcile_total{controller="slow",result="error"}`:       1,
			`controller_runtime_reconcile_errors_total{controller="slow"}`:               1,
			`controller_runtime_reconcile_time_seconds_count{controller="slow"}`:         1,
			`controller_runtime_max_concurrent_reconciles{controller="slow"}`:            2,
			`controller_runtime_active_workers{controller="slow"}`:                       2,
			`reconcile_queue_in_flight{controller="slow",name="slow"}`:                   2,
			`reconcile_queue_taken_total{controller="slow",name="slow"}`:                 3,
			`reconcile_runs_total{controller="slow",outcome="retrying"}`:                 1,
			`reconcile_held_total{controller="slow"}`:                                    1,
			`reconcile_failures_in_a_row_count{controller="slow"}`:                       1,
			`reconcile_failures_in_a_row_sum{controller="slow"}`:                         1,
		}
		wantValues(t, &c, want)

		// Now "a" and "b" are aborted: work that is no reconciliation.
		end()
		for s, v := range map[string]float64{
			`workqueue_depth{controller="slow",name="slow"}`:                             3,
			`workqueue_adds_total{controller="slow",name="slow"}`:                        7,
			`workqueue_retries_total{controller="slow",name="slow"}`:                     3,
			`workqueue_queue_duration_seconds_count{controller="slow",name="slow"}`:      3,
			`workqueue_work_duration_seconds_count{controller="slow",name="slow"}`:       3,
			`workqueue_work_duration_seconds_sum{controller="slow",name="slow"}`:         8 + 3,
			`workqueue_unfinished_work_seconds{controller="slow",name="slow"}`:           0,
			`workqueue_longest_running_processor_seconds{controller="slow",name="slow"}`: 0,
			`controller_runtime_active_workers{controller="slow"}`:                       0,
			`reconcile_queue_in_flight{controller="slow",name="slow"}`:                   0,
			`reconcile_runs_total{controller="slow",outcome="aborted"}`:                  2,
		} {
			want[s] = v
		}
		wantValues(t, &c, want)
	})
}

// TestCountersGrow scrapes while runs of all kinds go on: no counter may ever
// be seen to go back, which Prometheus takes for a restart.
func TestCountersGrow(t *testing.T) {
	q := reconcile.NewQueue[string]()
	n := 0
	r := &reconcile.Reconciler[string]{
		Name: "x", Queue: q, Logger: quiet,
		Reconcile: func(context.Context, string) error {
			switch n++; n % 5 {
			case 0:
				return reconcile.RequeueWithin(0)
			case 1:
				return reconcile.RequeueAfter(time.Nanosecond)
			case 2:
				return errBroken
			default:
				return nil
			}
		},
		Retry: func(error, int) (time.Duration, bool) { return 0, true },
	}
	var c promadapter.Collector
	if err := promadapter.Instrument(&c, r); err != nil {
		t.Fatal(err)
	}
	for i := range 20_000 {
		q.Enqueue(fmt.Sprint(i))
	}
	q.Close()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.Run(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	gauges := map[string]bool{
		`workqueue_depth{controller="x",name="x"}`:                             true,
		`workqueue_unfinished_work_seconds{controller="x",name="x"}`:           true,
		`workqueue_longest_running_processor_seconds{controller="x",name="x"}`: true,
		`controller_runtime_active_workers{controller="x"}`:                    true,
		`reconcile_queue_waiting{controller="x",name="x"}`:                     true,
		`reconcile_queue_in_flight{controller="x",name="x"}`:                   true,
	}
	var last map[string]float64
	for running := true; running; {
		select {
		case <-ended:
			running = false
		default:
		}
		now := values(t, &c)
		for s, v := range last {
			if now[s] < v && !gauges[s] {
				t.Fatalf("%s went from %v to %v", s, v, now[s])
			}
		}
		last = now
	}
	if last[`workqueue_work_duration_seconds_count{controller="x",name="x"}`] < 20_000 {
		t.Errorf("runs are missing: %v", last)
	}
}

// An otherQueue is a Dequeuer of another implementation.
type otherQueue struct{ reconcile.Dequeuer[string] }

// TestForeignQueue checks that nothing is said of a queue that tells nothing.
func TestForeignQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var c promadapter.Collector
		end := instrumented(t, &c, &reconcile.Reconciler[string]{
			Name: "far", Queue: otherQueue{q},
			Reconcile: func(context.Context, string) error { return nil },
		})
		q.Enqueue("a")
		synctest.Wait()
		got := values(t, &c)
		for _, s := range []string{
			`workqueue_depth{controller="far",name="far"}`,
			`workqueue_queue_duration_seconds_count{controller="far",name="far"}`,
		} {
			if v, ok := got[s]; ok {
				t.Errorf("%s is %v, want none", s, v)
			}
		}
		if n := got[`workqueue_work_duration_seconds_count{controller="far",name="far"}`]; n != 1 {
			t.Errorf("%v runs counted, want 1", n)
		}
		if err := c.AddQueue("far", q); err != nil { // the queue behind it
			t.Error(err)
		}
		if n := values(t, &c)[`reconcile_queue_taken_total{controller="far",name="far"}`]; n != 1 {
			t.Errorf("%v items taken, want 1", n)
		}
		end()
	})
}
