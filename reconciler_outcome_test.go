// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/reconkernel/reconcile"
)

// minutes is a policy that tells from a delay how many failures it was told.
func minutes(_ error, failures int) (time.Duration, bool) {
	return time.Duration(failures) * time.Minute, true
}

var errWithNil = fmt.Errorf("%w and %w", nil, errBoom)

// outcomes has a line for each way in which Reconcile can end. All but the
// panics, see reconciler_panic_test.go.
var outcomes = []struct {
	name    string
	err     error
	retry   reconcile.RetryPolicy // nil means minutes
	hold    bool                  // HoldRetries
	outcome reconcile.Outcome
	next    time.Duration
	held    bool // the next run
	level   slog.Level
}{
	{name: "nil", outcome: reconcile.Succeeded, level: slog.LevelDebug},
	{name: "joined nils", err: errors.Join(nil, nil), outcome: reconcile.Succeeded, level: slog.LevelDebug},

	{name: "after", err: reconcile.RequeueAfter(time.Hour), outcome: reconcile.Requeued, next: time.Hour, held: true, level: slog.LevelDebug},
	{name: "within", err: reconcile.RequeueWithin(time.Hour), outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},
	{name: "after, wrapped", err: fmt.Errorf("snapshot s1 is running: %w", reconcile.RequeueAfter(time.Hour)), outcome: reconcile.Requeued, next: time.Hour, held: true, level: slog.LevelDebug},
	{name: "within, wrapped twice", err: fmt.Errorf("a: %w", fmt.Errorf("b: %w", reconcile.RequeueWithin(time.Hour))), outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},
	{name: "after, joined with a failure", err: errors.Join(errBoom, reconcile.RequeueAfter(time.Hour)), outcome: reconcile.Requeued, next: time.Hour, held: true, level: slog.LevelDebug},
	{name: "within, joined before a failure", err: errors.Join(reconcile.RequeueWithin(time.Hour), errBoom), outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},
	{name: "two plans: the first", err: errors.Join(reconcile.RequeueWithin(time.Hour), reconcile.RequeueAfter(time.Minute)), outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},
	{name: "held retries do not hold a plan", err: reconcile.RequeueWithin(time.Hour), hold: true, outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},
	{name: "terminal inside a plan's tree", err: fmt.Errorf("%w: %w", reconcile.Terminal(errBoom), reconcile.RequeueAfter(time.Hour)), outcome: reconcile.Requeued, next: time.Hour, held: true, level: slog.LevelDebug},
	{name: "a plan made terminal", err: reconcile.Terminal(reconcile.RequeueWithin(time.Hour)), outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},
	{name: "joined: terminal, then a plan", err: errors.Join(reconcile.Terminal(errBoom), reconcile.RequeueWithin(time.Hour)), outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},

	{name: "terminal", err: reconcile.Terminal(errBoom), outcome: reconcile.Terminated, level: slog.LevelError},
	{name: "terminal, wrapped", err: fmt.Errorf("bucket b1: %w", reconcile.Terminal(errBoom)), outcome: reconcile.Terminated, level: slog.LevelError},
	{name: "terminal, joined", err: errors.Join(errBoom, reconcile.Terminal(errBoom)), outcome: reconcile.Terminated, level: slog.LevelError},
	{name: "terminal by its sentinel", err: fmt.Errorf("refused: %w", reconcile.ErrTerminal), outcome: reconcile.Terminated, level: slog.LevelError},

	{name: "plain", err: errBoom, outcome: reconcile.Retrying, next: time.Minute, level: slog.LevelWarn},
	{name: "plain, retries held", err: errBoom, hold: true, outcome: reconcile.Retrying, next: time.Minute, held: true, level: slog.LevelWarn},
	{name: "wrapped with a nil", err: errWithNil, outcome: reconcile.Retrying, next: time.Minute, level: slog.LevelWarn},
	{name: "context error of its own", err: context.Canceled, outcome: reconcile.Retrying, next: time.Minute, level: slog.LevelWarn},
	{name: "deadline of its own", err: context.DeadlineExceeded, outcome: reconcile.Retrying, next: time.Minute, level: slog.LevelWarn},
	{name: "queue closed, of its own", err: reconcile.ErrClosed, outcome: reconcile.Retrying, next: time.Minute, level: slog.LevelWarn},
	{name: "no retry", err: errBoom, retry: reconcile.NoRetry, outcome: reconcile.GaveUp, level: slog.LevelError},
	{name: "limit reached", err: errBoom, retry: reconcile.RetryPolicy(minutes).Limit(0), outcome: reconcile.GaveUp, level: slog.LevelError},
	{name: "no retry does not touch a plan", err: reconcile.RequeueAfter(time.Hour), retry: reconcile.NoRetry, outcome: reconcile.Requeued, next: time.Hour, held: true, level: slog.LevelDebug},
}

func TestOutcomeOfEachError(t *testing.T) {
	for _, d := range dequeuers {
		for _, c := range outcomes {
			t.Run(d.name+"/"+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := reconcile.NewQueue[string]()
					var results resultBook[string]
					book := newLogBook()
					retry := c.retry
					if retry == nil {
						retry = minutes
					}
					run := launch(t, &reconcile.Reconciler[string]{
						Queue:       d.of(q),
						Reconcile:   func(context.Context, string) error { time.Sleep(2 * time.Second); return c.err },
						Name:        "buckets",
						Retry:       retry,
						HoldRetries: c.hold,
						OnResult:    results.add,
						Logger:      book.logger(),
					})
					q.Enqueue("b1")
					time.Sleep(2 * time.Second)
					synctest.Wait()
					now := time.Now()

					want := reconcile.Result[string]{Item: "b1", Outcome: c.outcome, Err: c.err, Next: c.next, Duration: 2 * time.Second}
					state := reconcile.State{}
					switch c.outcome {
					case reconcile.Requeued:
						state = reconcile.State{Phase: reconcile.Waiting, Since: now, Due: now.Add(c.next), Hold: c.held}
					case reconcile.Retrying:
						state = reconcile.State{Phase: reconcile.Waiting, Since: now, Due: now.Add(c.next), Hold: c.held, Failures: 1, Err: c.err}
						want.Failures = 1
					case reconcile.GaveUp, reconcile.Terminated:
						want.Failures = 1
					}
					if diff := cmp.Diff(want, results.only(t), cmpopts.EquateErrors()); diff != "" {
						t.Errorf("result (-want +got):\n%s", diff)
					}
					if diff := cmp.Diff(state, q.State("b1"), cmpopts.EquateErrors()); diff != "" {
						t.Errorf("state in the queue (-want +got):\n%s", diff)
					}

					// One line for the start, one for the outcome.
					lines := book.from(slog.LevelDebug)
					if len(lines) != 2 {
						t.Fatalf("%d log lines, want start and outcome: %v", len(lines), lines)
					}
					about := map[string]string{"reconciler": "buckets", "item": "b1"}
					lines[0].mustSay(t, slog.LevelDebug, about)
					lines[1].mustSay(t, c.level, about)
					if !lines[0].At.Equal(now.Add(-2*time.Second)) || !lines[1].At.Equal(now) {
						t.Errorf("lines at %v and %v, want one as the run begins and one as it ends", lines[0].At, lines[1].At)
					}
					if says := strings.Contains(lines[1].Message, "succeeded"); says != (c.outcome == reconcile.Succeeded) {
						t.Errorf("log line %q of a run that %s", lines[1], c.outcome)
					}
					if c.err != nil {
						lines[1].mustSay(t, c.level, nil, c.err.Error())
					}
					run.end()
				})
			})
		}
	}
}

func TestOutcomeNowMakesTheItemReady(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		outcome reconcile.Outcome
	}{
		{"after 0", reconcile.RequeueAfter(0), reconcile.Requeued},
		{"within 0", reconcile.RequeueWithin(0), reconcile.Requeued},
		{"after less than 0", reconcile.RequeueAfter(-time.Hour), reconcile.Requeued},
		{"within less than 0", reconcile.RequeueWithin(-time.Hour), reconcile.Requeued},
		{"zero value", reconcile.RequeueError{}, reconcile.Requeued},
		{"retry now", errBoom, reconcile.Retrying},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				d := newJournal()
				var results resultBook[string]
				runs := 0
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: q,
					Reconcile: func(_ context.Context, item string) error {
						d.note("%s", item)
						time.Sleep(time.Second)
						if runs++; runs == 1 {
							q.Enqueue("other") // ready before the first is given back
							return c.err
						}
						return nil
					},
					Retry:    func(error, int) (time.Duration, bool) { return -time.Minute, true },
					OnResult: results.add,
					Logger:   unlogged(),
				})
				q.Enqueue("item")
				time.Sleep(time.Hour)
				d.mustBe(t, "0s item", "1s other", "2s item")
				if first := results.all()[0]; first.Outcome != c.outcome || first.Next != 0 {
					t.Errorf("result %+v, want %s with Next 0", first, c.outcome)
				}
				run.end()
			})
		})
	}
}

// fails makes a Reconcile that fails n times and then ends as last says.
func fails(n int, last func(context.Context) error) func(context.Context, string) error {
	runs := 0
	return func(ctx context.Context, _ string) error {
		if runs++; runs <= n {
			return fmt.Errorf("failure %d", runs)
		}
		return last(ctx)
	}
}

func TestFailuresInARowAreCountedAndReset(t *testing.T) {
	for _, d := range dequeuers {
		for _, c := range []struct {
			name     string
			last     error
			limit    int
			outcome  reconcile.Outcome
			failures int // of the result
			left     int // in the queue
		}{
			{"success", nil, 9, reconcile.Succeeded, 0, 0},
			{"plan", reconcile.RequeueAfter(time.Hour), 9, reconcile.Requeued, 0, 0},
			{"one more failure", errBoom, 9, reconcile.Retrying, 4, 4},
			{"one too many", errBoom, 3, reconcile.GaveUp, 4, 0},
			{"terminal", reconcile.Terminal(errBoom), 9, reconcile.Terminated, 4, 0},
		} {
			t.Run(d.name+"/"+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := reconcile.NewQueue[string]()
					var results resultBook[string]
					var asked []int
					policy := reconcile.RetryPolicy(minutes).Limit(c.limit)
					run := launch(t, &reconcile.Reconciler[string]{
						Queue:     d.of(q),
						Reconcile: fails(3, func(context.Context) error { return c.last }),
						Retry: func(err error, failures int) (time.Duration, bool) {
							asked = append(asked, failures)
							if want := fmt.Sprintf("failure %d", failures); failures < 4 && err.Error() != want {
								t.Errorf("policy was asked about %v, want %s", err, want)
							}
							return policy(err, failures)
						},
						OnResult: results.add,
						Logger:   unlogged(),
					})
					q.Enqueue("a")
					time.Sleep((1 + 2 + 3) * time.Minute)
					synctest.Wait()
					all := results.all()
					if len(all) != 4 {
						t.Fatalf("%d runs, want 4 after 1 + 2 + 3 minutes: %+v", len(all), all)
					}
					for i, r := range all[:3] {
						if r.Outcome != reconcile.Retrying || r.Failures != i+1 || r.Next != time.Duration(i+1)*time.Minute {
							t.Errorf("result of run %d = %+v, want retrying after %d failures", i+1, r, i+1)
						}
					}
					if r := all[3]; r.Outcome != c.outcome || r.Failures != c.failures {
						t.Errorf("last result = %s after %d failures, want %s after %d", r.Outcome, r.Failures, c.outcome, c.failures)
					}
					if s := q.State("a"); s.Failures != c.left {
						t.Errorf("State(a) has %d failures, want %d", s.Failures, c.left)
					}
					want := []int{1, 2, 3}
					if c.last == errBoom {
						want = append(want, 4)
					}
					if diff := cmp.Diff(want, asked); diff != "" {
						t.Errorf("policy was asked about failures (-want +got):\n%s", diff)
					}
					run.end()
				})
			})
		}
	}
}

func TestOutcomesReadAsWords(t *testing.T) {
	for o, want := range map[reconcile.Outcome]string{
		reconcile.Succeeded:  "succeeded",
		reconcile.Requeued:   "requeued",
		reconcile.Retrying:   "retrying",
		reconcile.GaveUp:     "gave up",
		reconcile.Terminated: "terminated",
		reconcile.Aborted:    "aborted",
	} {
		if string(o) != want {
			t.Errorf("outcome %q, want %q", o, want)
		}
	}
}
