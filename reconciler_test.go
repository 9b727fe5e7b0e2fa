// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
)

func TestReconcilerRunErrorNamesTheWrongField(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel() // what is not found wrong ends at once
	q := reconcile.NewQueue[string]()
	var none *reconcile.Queue[string]
	for _, c := range []struct {
		want string
		r    reconcile.Reconciler[string]
	}{
		{"reconcile: Reconciler.Queue is required, and nil", reconcile.Reconciler[string]{Reconcile: nothing}},
		{"reconcile: Reconciler.Queue is required", reconcile.Reconciler[string]{Queue: none, Reconcile: nothing}},
		{"created by NewQueue", reconcile.Reconciler[string]{Queue: new(reconcile.Queue[string]), Reconcile: nothing}},
		{"reconcile: Reconciler.Reconcile is required, and nil", reconcile.Reconciler[string]{Queue: q}},
		{"reconcile: Reconciler.Workers is -1, want 0", reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, Workers: -1}},
		{"reconcile: Reconciler.Timeout is -1s, want 0", reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, Timeout: -time.Second}},
		{"reconcile: Reconciler.Grace is -1s, want 0", reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, Grace: -time.Second}},
		{"reconcile: Reconciler.RecheckJitter is -0.1, want 0", reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, RecheckJitter: -0.1}},
		{"reconcile: Reconciler.RecheckJitter is 1.1, want 0", reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, RecheckJitter: 1.1}},
		{"reconcile: Reconciler.RecheckJitter is NaN, want 0", reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, RecheckJitter: math.NaN()}},
	} {
		if err := c.r.Run(ended); !errors.Is(err, reconcile.ErrTerminal) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Run of %+v = %v, want a terminal error with %q", c.r, err, c.want)
		}
	}
	backwards := reconcile.NewQueue[string]()
	backwards.Background = -1
	r := reconcile.Reconciler[string]{Queue: backwards, Reconcile: nothing}
	if err := r.Run(ended); err == nil || !strings.Contains(err.Error(), "Background of -1") {
		t.Errorf("Run with a Background of -1 = %v, want an error that names it", err)
	}
}

// One Reconciler runs three times, twice of that at once. What one Run leaves in
// the queue is left to the next.
func TestReconcilersShareAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		var mu sync.Mutex
		ran, want := make(map[string]int), make(map[string]int)
		r := &reconcile.Reconciler[string]{Queue: q, Reconcile: func(_ context.Context, item string) error {
			mu.Lock()
			defer mu.Unlock()
			ran[item]++
			return nil
		}}
		one, two := record.Launch(t, r), record.Launch(t, r)
		for i := range 100 {
			want[fmt.Sprint(i)] = 1
			q.Enqueue(fmt.Sprint(i))
		}
		one.End()
		two.End()
		three := record.Launch(t, r)
		synctest.Wait()
		three.End()
		if !maps.Equal(ran, want) {
			t.Errorf("runs by item = %v, want each once", ran)
		}
	})
}

func TestReconcilerWorkersLimitConcurrentRuns(t *testing.T) {
	for _, c := range []struct{ workers, items, most, seconds int }{
		{0, 3, 1, 3}, {1, 3, 1, 3}, {2, 7, 2, 4}, {8, 3, 3, 1}, {1000, 1500, 1000, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := reconcile.NewQueue[int]()
			for i := range c.items {
				q.Enqueue(i)
			}
			q.Close()
			var now, most atomic.Int32
			r := reconcile.Reconciler[int]{
				Queue:   q,
				Workers: c.workers,
				Reconcile: func(context.Context, int) error {
					for n := now.Add(1); ; {
						if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
							break
						}
					}
					time.Sleep(time.Second)
					now.Add(-1)
					return nil
				},
				Logger: record.Unlogged(),
			}
			began := time.Now()
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); int(most.Load()) != c.most || took != time.Duration(c.seconds)*time.Second {
				t.Errorf("Workers %d: %d items, %d at once, took %v, want %d at once, %ds", c.workers, c.items, most.Load(), took, c.most, c.seconds)
			}
		})
	}
}

// Nor does a run begin before the one before it has ended, in the sense of the
// memory model: what runs write to is guarded by nothing, and the race detector
// would tell.
func TestReconcilerNeverRunsAnItemTwiceAtOnce(t *testing.T) {
	eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
		const items, seed = 5, 7
		names := strings.Fields("0 1 2 3 4")
		var running [items]atomic.Int32
		var runs [items]int
		var lastEvent, lastRun [items]atomic.Int64 // by a clock of events
		var clock atomic.Int64
		drawn := randoms(seed, 100, items)
		s := serve(t, reconcile.Reconciler[string]{
			Queue: d,
			Reconcile: func(_ context.Context, item string) error {
				i := slices.Index(names, item)
				if running[i].Add(1) != 1 {
					t.Errorf("item %d runs twice at once", i)
				}
				runs[i]++
				lastRun[i].Store(clock.Add(1))
				time.Sleep(time.Duration(drawn[i].IntN(5)) * time.Millisecond)
				runs[i]++
				running[i].Add(-1)
				switch drawn[i].IntN(6) {
				case 0:
					return errBoom
				case 1:
					return reconcile.RequeueWithin(3 * time.Millisecond)
				case 2:
					panic("boom")
				}
				return nil
			},
			Workers: 4,
			Retry:   reconcile.Backoff(time.Millisecond, 4*time.Millisecond),
			Logger:  record.Unlogged(),
		})
		var feeders sync.WaitGroup
		for n := range 3 {
			feeders.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(n)))
				for range 300 {
					i := random.IntN(items)
					lastEvent[i].Store(clock.Add(1))
					s.q.EnqueueAfter(names[i], time.Duration(random.IntN(3))*time.Millisecond) // 0 is Enqueue
					time.Sleep(time.Duration(random.IntN(4)) * time.Millisecond)
				}
			})
		}
		feeders.Wait()
		pass(time.Minute)
		for i := range items {
			if lastRun[i].Load() < lastEvent[i].Load() {
				t.Errorf("item %d: no run started after its last event", i)
			}
		}
		s.End()
	})
}

var (
	errWithNil = fmt.Errorf("%w and %w", nil, errBoom)
	far        = time.Duration(math.MaxInt64)
)

// An odd error cannot be compared.
type oddError struct{ parts []string }

func (e oddError) Error() string { return fmt.Sprint("odd ", e.parts) }

// An outcomeCase is a way in which Reconcile can return.
type outcomeCase struct {
	name    string
	err     error
	retry   reconcile.RetryPolicy // nil means minutes
	hold    bool                  // HoldRetries
	outcome reconcile.Outcome
	next    time.Duration
	held    bool          // the next run
	reason  bool          // err is that of the scheduled run
	least   time.Duration // no event starts the next run sooner, if it is not held; of a retry a second if it is 0
	partly  bool          // a run is scheduled although a step failed
}

var outcomes = []outcomeCase{
	{name: "nil", outcome: reconcile.OutcomeSucceeded},
	{name: "joined nils", err: errors.Join(nil, nil), outcome: reconcile.OutcomeSucceeded},
	{name: "recheck", err: reconcile.RecheckWithin(time.Hour), outcome: reconcile.OutcomeSucceeded, next: time.Hour},
	{name: "recheck, wrapped, retries held", err: fmt.Errorf("all is well: %w", reconcile.RecheckWithin(time.Hour)), hold: true, outcome: reconcile.OutcomeSucceeded, next: time.Hour},

	{name: "settled and held: held", err: reconcile.RequeueError{Delay: time.Hour, MinDelay: time.Hour, Recheck: true}, outcome: reconcile.OutcomeRequeued, next: time.Hour, held: true},
	{name: "after", err: reconcile.RequeueAfter(time.Hour), outcome: reconcile.OutcomeRequeued, next: time.Hour, held: true},
	{name: "within", err: reconcile.RequeueWithin(time.Hour), outcome: reconcile.OutcomeRequeued, next: time.Hour},
	{name: "after, wrapped", err: fmt.Errorf("snapshot s1 is running: %w", reconcile.RequeueAfter(time.Hour)), outcome: reconcile.OutcomeRequeued, next: time.Hour, held: true, reason: true},
	{name: "a reason and its plan", err: fmt.Errorf("%w: %w", errBoom, reconcile.RequeueWithin(time.Hour)), outcome: reconcile.OutcomeRequeued, next: time.Hour, reason: true},
	{name: "held retries do not hold a plan", err: reconcile.RequeueWithin(time.Hour), hold: true, outcome: reconcile.OutcomeRequeued, next: time.Hour},
	{name: "a plan made terminal", err: reconcile.Terminal(reconcile.RequeueWithin(time.Hour)), outcome: reconcile.OutcomeRequeued, next: time.Hour, reason: true},
	{name: "no retry does not touch a plan", err: reconcile.RequeueAfter(time.Hour), retry: reconcile.NoRetry, outcome: reconcile.OutcomeRequeued, next: time.Hour, held: true},

	{name: "terminal, wrapped", err: fmt.Errorf("bucket b1: %w", reconcile.Terminal(errBoom)), outcome: reconcile.OutcomeTerminal},
	{name: "terminal by its sentinel", err: fmt.Errorf("refused: %w", reconcile.ErrTerminal), outcome: reconcile.OutcomeTerminal},
	{name: "terminal, of several", err: fmt.Errorf("%w, %w", errBoom, reconcile.Terminal(errBoom)), outcome: reconcile.OutcomeTerminal},

	{name: "plain", err: errBoom, outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "plain, retries held", err: errBoom, hold: true, outcome: reconcile.OutcomeRetrying, next: time.Minute, held: true},
	{name: "wrapped with a nil", err: errWithNil, outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "that cannot be compared", err: oddError{[]string{"a"}}, outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "context error of its own", err: context.Canceled, outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "lease lost, of its own", err: reconcile.ErrLeaseLost, outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "queue closed, of its own", err: reconcile.ErrClosed, outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "retry in the far future", err: errBoom, retry: func(error, int) (time.Duration, bool) { return far, true }, outcome: reconcile.OutcomeRetrying, next: far},
	{name: "no retry", err: errBoom, retry: reconcile.NoRetry, outcome: reconcile.OutcomeGaveUp},
	{name: "a panic of somebody else, with a plan in it", err: fmt.Errorf("step: %w", &reconcile.PanicError{Value: reconcile.RequeueAfter(time.Hour)}), outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "the same, terminal", err: reconcile.Terminal(&reconcile.PanicError{Value: reconcile.RequeueAfter(time.Hour)}), outcome: reconcile.OutcomeTerminal},

	// Times in the past.
	{name: "within, in the past", err: reconcile.RequeueWithin(-time.Hour), outcome: reconcile.OutcomeRequeued, next: time.Second},
	{name: "after, in the past", err: reconcile.RequeueAfter(-time.Hour), outcome: reconcile.OutcomeRequeued, next: time.Second, held: true},
	{name: "a value in the past", err: reconcile.RequeueError{Delay: -1}, outcome: reconcile.OutcomeRequeued, next: time.Second},
	{name: "a MinDelay in the past", err: reconcile.RequeueError{MinDelay: -time.Minute}, outcome: reconcile.OutcomeRequeued, next: time.Second},
	{name: "a recheck without a time", err: reconcile.RequeueError{Recheck: true}, outcome: reconcile.OutcomeSucceeded},
	{name: "joined: rechecks without a time, and with one", err: errors.Join(reconcile.RequeueError{Delay: -1, Recheck: true}, reconcile.RecheckWithin(time.Hour)), outcome: reconcile.OutcomeSucceeded, next: time.Hour},
	{name: "joined: in the past, beside a recheck", err: errors.Join(reconcile.RecheckWithin(time.Hour), reconcile.RequeueError{Delay: -1}), outcome: reconcile.OutcomeRequeued, next: time.Second, reason: true},
	{name: "joined: in the past, beside a failure given up", err: errors.Join(errBoom, reconcile.RequeueWithin(-1)), retry: reconcile.NoRetry, outcome: reconcile.OutcomeRequeued, next: time.Second, held: true, partly: true},

	// The answers of several steps.
	{name: "joined: a failure beside a recheck", err: errors.Join(errBoom, reconcile.RecheckWithin(time.Hour)), outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "joined: a failure after a ceiling", err: errors.Join(reconcile.RequeueWithin(time.Second), errBoom), outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "joined: a failure beside a longer floor", err: errors.Join(errBoom, reconcile.RequeueAfter(time.Hour)), outcome: reconcile.OutcomeRetrying, next: time.Hour, held: true},
	{name: "joined: a failure beside a shorter floor", err: errors.Join(reconcile.RequeueAfter(time.Minute), errBoom), outcome: reconcile.OutcomeRetrying, next: time.Minute, held: true},
	{name: "joined: a failure beside a longer ceiling", err: errors.Join(errBoom, reconcile.RequeueWithin(time.Hour)), outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "joined: a failure given up beside a plan", err: errors.Join(errBoom, reconcile.RequeueAfter(time.Hour)), retry: reconcile.NoRetry, outcome: reconcile.OutcomeRequeued, next: time.Hour, held: true, partly: true},
	{name: "joined: a failure beside a floor that is shorter than the back-off", err: errors.Join(reconcile.RequeueAfter(30*time.Second), errBoom), outcome: reconcile.OutcomeRetrying, next: time.Minute, least: 30 * time.Second},
	{name: "joined: a failure given up beside a recheck", err: errors.Join(errBoom, reconcile.RecheckWithin(time.Hour)), retry: reconcile.NoRetry, outcome: reconcile.OutcomeGaveUp},
	{name: "joined: a failure given up beside a ceiling", err: errors.Join(errBoom, reconcile.RequeueWithin(500*time.Millisecond)), retry: reconcile.NoRetry, outcome: reconcile.OutcomeRequeued, next: 500 * time.Millisecond, held: true, partly: true},
	{name: "joined: one for good, a recheck that comes sooner and a plan", err: errors.Join(reconcile.Terminal(errBoom), reconcile.RecheckWithin(time.Minute), reconcile.RequeueWithin(time.Hour)), outcome: reconcile.OutcomeRequeued, next: time.Hour, least: time.Second, partly: true},
	{name: "both times", err: reconcile.RequeueError{Delay: time.Hour, MinDelay: time.Minute, Recheck: true}, outcome: reconcile.OutcomeRequeued, next: time.Hour, least: time.Minute},
	{name: "a MinDelay longer than the Delay", err: reconcile.RequeueError{Delay: time.Minute, MinDelay: time.Hour}, outcome: reconcile.OutcomeRequeued, next: time.Hour, held: true},
	{name: "joined: both times, of two", err: errors.Join(reconcile.RequeueError{Delay: time.Hour, MinDelay: time.Minute}, reconcile.RequeueAfter(2*time.Hour), reconcile.RecheckWithin(time.Minute)), outcome: reconcile.OutcomeRequeued, next: 2 * time.Hour, held: true, reason: true},
	{name: "a retry that overflowed", err: errBoom, retry: func(error, int) (time.Duration, bool) { return -1, true }, outcome: reconcile.OutcomeRetrying, next: 5 * time.Minute},
	{name: "joined: a failure and one for good", err: errors.Join(reconcile.Terminal(errBoom), errBoom), outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "joined: one for good beside a recheck", err: errors.Join(reconcile.Terminal(errBoom), reconcile.RecheckWithin(time.Hour)), outcome: reconcile.OutcomeTerminal},
	{name: "joined: one for good beside a plan", err: errors.Join(reconcile.Terminal(errBoom), reconcile.RequeueWithin(time.Hour)), outcome: reconcile.OutcomeRequeued, next: time.Hour, least: time.Second, partly: true},
	{name: "joined: one for good, a recheck and a plan", err: errors.Join(reconcile.RecheckWithin(2*time.Hour), reconcile.Terminal(errBoom), reconcile.RequeueWithin(time.Hour)), outcome: reconcile.OutcomeRequeued, next: time.Hour, least: time.Second, partly: true},
	{name: "joined: made terminal as a whole", err: reconcile.Terminal(fmt.Errorf("steps: %w", errors.Join(errBoom, errBoom))), outcome: reconcile.OutcomeTerminal},
	{name: "joined: made terminal as a whole, with a plan", err: reconcile.Terminal(errors.Join(errBoom, reconcile.RequeueAfter(time.Hour))), outcome: reconcile.OutcomeRequeued, next: time.Hour, held: true, partly: true},
	{name: "joined: two floors", err: errors.Join(reconcile.RequeueAfter(time.Hour), reconcile.RequeueAfter(time.Minute)), outcome: reconcile.OutcomeRequeued, next: time.Hour, held: true, reason: true},
	{name: "joined: two ceilings", err: errors.Join(reconcile.RequeueWithin(2*time.Hour), reconcile.RequeueWithin(time.Hour)), outcome: reconcile.OutcomeRequeued, next: time.Hour, reason: true},
	{name: "joined: two floors, the longer one last", err: errors.Join(reconcile.RequeueAfter(time.Minute), reconcile.RequeueAfter(time.Hour)), outcome: reconcile.OutcomeRequeued, next: time.Hour, held: true, reason: true},
	{name: "joined: two ceilings, the sooner one first", err: errors.Join(reconcile.RequeueWithin(time.Hour), reconcile.RequeueWithin(2*time.Hour)), outcome: reconcile.OutcomeRequeued, next: time.Hour, reason: true},
	{name: "joined: a longer ceiling and a floor", err: errors.Join(reconcile.RequeueWithin(2*time.Hour), reconcile.RequeueAfter(time.Hour)), outcome: reconcile.OutcomeRequeued, next: time.Hour, held: true, reason: true},
	{name: "joined: made terminal as a whole, with a recheck", err: reconcile.Terminal(errors.Join(errBoom, reconcile.RecheckWithin(time.Hour))), outcome: reconcile.OutcomeTerminal},
	{name: "joined: a ceiling and a floor", err: errors.Join(reconcile.RequeueWithin(time.Minute), reconcile.RequeueAfter(time.Hour)), outcome: reconcile.OutcomeRequeued, next: time.Hour, held: true, reason: true},
	{name: "joined: a floor and a ceiling", err: errors.Join(reconcile.RequeueAfter(time.Hour), reconcile.RequeueWithin(time.Minute)), outcome: reconcile.OutcomeRequeued, next: time.Hour, held: true, reason: true},
	{name: "joined: a plan and a recheck", err: errors.Join(reconcile.RequeueWithin(2*time.Hour), reconcile.RecheckWithin(time.Hour)), outcome: reconcile.OutcomeRequeued, next: time.Hour, reason: true},
	{name: "joined: two rechecks", err: errors.Join(reconcile.RecheckWithin(2*time.Hour), reconcile.RecheckWithin(time.Hour)), outcome: reconcile.OutcomeSucceeded, next: time.Hour},
	{name: "joined within a join", err: errors.Join(reconcile.RecheckWithin(time.Hour), fmt.Errorf("disk: %w", errors.Join(errBoom, nil))), outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "joined: a panic with a plan in it", err: errors.Join(reconcile.RecheckWithin(time.Hour), &reconcile.PanicError{Value: reconcile.RecheckWithin(time.Hour)}), outcome: reconcile.OutcomeRetrying, next: time.Minute},
	{name: "joined below several: one reason and its plan", err: fmt.Errorf("%w, %w", errors.Join(errBoom, errBoom), reconcile.RecheckWithin(time.Hour)), outcome: reconcile.OutcomeSucceeded, next: time.Hour},
}

// minDelay returns how long no event starts the next run.
func (c outcomeCase) minDelay() time.Duration {
	switch {
	case c.held:
		return c.next
	case c.least > 0 || c.outcome != reconcile.OutcomeRetrying:
		return c.least
	}
	return min(c.next, time.Second)
}

var messages = map[reconcile.Outcome]string{
	reconcile.OutcomeSucceeded: "run succeeded", reconcile.OutcomeRequeued: "run requeued", reconcile.OutcomeRetrying: "run failed, retrying",
	reconcile.OutcomeGaveUp: "run failed, not retried", reconcile.OutcomeTerminal: "run failed, terminal error",
}

func TestOutcomeOfEachError(t *testing.T) {
	for _, c := range outcomes {
		t.Run(c.name, func(t *testing.T) {
			eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
				s := serve(t, reconcile.Reconciler[string]{
					Queue:       d,
					Reconcile:   func(context.Context, string) error { time.Sleep(2 * time.Second); return c.err },
					Name:        "buckets",
					Retry:       c.retry,
					HoldRetries: c.hold,
				}, "b1")
				pass(2 * time.Second)
				now := time.Now()

				want := reconcile.Result[string]{Item: "b1", Outcome: c.outcome, Err: c.err, Next: c.next, Duration: 2 * time.Second}
				state, next := reconcile.State{}, "<nil>"
				if c.next > 0 {
					state = reconcile.State{Phase: reconcile.PhaseWaiting, Since: now, Due: now.Add(c.next), Pending: s.began}
					if least := c.minDelay(); least > 0 {
						state.NotBefore = now.Add(least)
					}
					next = c.next.String()
				}
				level := slog.LevelDebug
				switch c.outcome {
				case reconcile.OutcomeSucceeded:
					state.Recheck, state.Pending = c.next > 0, time.Time{}
				case reconcile.OutcomeRequeued:
					if c.reason {
						state.Err = c.err
					}
					if c.partly {
						level, want.Failures = slog.LevelWarn, 1
						state.Failures, state.Err = 1, c.err
					}
				case reconcile.OutcomeRetrying:
					level, want.Failures = slog.LevelWarn, 1
					state.Failures, state.Err = 1, c.err
				default:
					level, want.Failures = slog.LevelError, 1
				}
				wantSame(t, "result", s.results.only(t), want)
				atTheEnd := cmp.FilterPath(func(p cmp.Path) bool {
					return (p.String() == "Due" || p.String() == "NotBefore" && c.hold) && c.next == far
				}, cmp.Ignore())
				wantSame(t, "state", s.q.State("b1"), state, atTheEnd)

				// One line for the start, one for the outcome, besides that about a delay.
				lines := slices.DeleteFunc(s.log.From(slog.LevelDebug), func(l record.Line) bool { return l.Attrs["delay"].Kind() == slog.KindDuration })
				if len(lines) != 2 {
					t.Fatalf("%d log lines, want start and outcome: %v", len(lines), lines)
				}
				about := map[string]string{"reconciler": "buckets", "item": "b1", "failures": "0"}
				lines[0].MustSay(t, slog.LevelDebug, about, "run starts")
				about = map[string]string{"reconciler": "buckets", "item": "b1", "outcome": string(c.outcome), "duration": "2s"}
				if c.err != nil {
					about["err"], about["failures"] = c.err.Error(), fmt.Sprint(want.Failures)
				}
				lines[1].MustSay(t, level, about, messages[c.outcome])
				if got := lines[1].Attrs["next"].String(); got != next { // a retry and a plan say when
					t.Errorf("%v: next is %v, want %v", lines[1], got, next)
				}
				if !lines[0].At.Equal(s.began) || !lines[1].At.Equal(now) {
					t.Errorf("lines at %v and %v, want one as the run begins and one as it ends", lines[0].At, lines[1].At)
				}
				s.End()
			})
		})
	}
}

func TestOutcomesReadAsWords(t *testing.T) {
	got := []reconcile.Outcome{reconcile.OutcomeSucceeded, reconcile.OutcomeRequeued, reconcile.OutcomeRetrying, reconcile.OutcomeGaveUp, reconcile.OutcomeTerminal, reconcile.OutcomeAborted}
	want := []reconcile.Outcome{"succeeded", "requeued", "retrying", "gave_up", "terminal_error", "aborted"} // part of what metrics are called
	if !slices.Equal(got, want) {
		t.Errorf("outcomes are %q, want %q", got, want)
	}
}

func TestOutcomeNowMakesTheItemReady(t *testing.T) {
	for _, c := range []struct {
		err     error
		outcome reconcile.Outcome
	}{
		{reconcile.RequeueAfter(0), reconcile.OutcomeRequeued},
		{reconcile.RequeueWithin(0), reconcile.OutcomeRequeued},
		{reconcile.RequeueError{}, reconcile.OutcomeRequeued},
		{errBoom, reconcile.OutcomeRetrying},
	} {
		runBubble(t, fmt.Sprint(c.err), func(t *testing.T) {
			q, j := reconcile.NewQueue[string](), record.New()
			runs := 0
			s := serve(t, reconcile.Reconciler[string]{
				Queue: q,
				Reconcile: func(_ context.Context, item string) error {
					j.Note("%s", item)
					time.Sleep(time.Second)
					if runs++; runs == 1 {
						q.Enqueue("other") // ready before the first is given back
						return c.err
					}
					return nil
				},
				Retry: func(error, int) (time.Duration, bool) { return 0, true },
			}, "item")
			pass(time.Hour)
			j.Want(t, "0s item", "1s other", "2s item")
			if first := s.results.all()[0]; first.Outcome != c.outcome || first.Next != 0 {
				t.Errorf("result %+v, want %s with Next 0", first, c.outcome)
			}
			s.End()
		})
	}
}

func TestFailuresInARowAreCountedAndReset(t *testing.T) {
	for _, c := range []struct {
		name     string
		last     error
		limit    int
		outcome  reconcile.Outcome
		failures int // of the result
		left     int // in the queue
	}{
		{"success", nil, 9, reconcile.OutcomeSucceeded, 0, 0},
		{"recheck", reconcile.RecheckWithin(time.Hour), 9, reconcile.OutcomeSucceeded, 0, 0},
		{"plan", reconcile.RequeueAfter(time.Hour), 9, reconcile.OutcomeRequeued, 0, 0},
		{"one more failure", errBoom, 9, reconcile.OutcomeRetrying, 4, 4},
		{"one too many", errBoom, 3, reconcile.OutcomeGaveUp, 4, 0},
		{"terminal", reconcile.Terminal(errBoom), 9, reconcile.OutcomeTerminal, 4, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
				j := record.New()
				policy := reconcile.RetryPolicy(minutes).Limit(c.limit)
				s := serve(t, reconcile.Reconciler[string]{
					Queue:     d,
					Reconcile: fails(3, func(context.Context) error { return c.last }),
					Retry: func(err error, failures int) (time.Duration, bool) {
						j.Note("%v, %d in a row", err, failures)
						return policy(err, failures)
					},
				}, "a")
				pass((1 + 2 + 3) * time.Minute)
				want := []string{"0s failure 1, 1 in a row", "1m0s failure 2, 2 in a row", "3m0s failure 3, 3 in a row"}
				if c.last == errBoom {
					want = append(want, "6m0s boom, 4 in a row")
				}
				j.Want(t, want...)
				for i, r := range s.results.all()[:3] {
					if r.Outcome != reconcile.OutcomeRetrying || r.Failures != i+1 || r.Next != time.Duration(i+1)*time.Minute {
						t.Errorf("result of run %d = %+v, want retrying after %d failures", i+1, r, i+1)
					}
				}
				s.wantResult(t, "a", c.outcome, c.failures)
				if got := s.q.State("a").Failures; got != c.left {
					t.Errorf("State(a) has %d failures, want %d", got, c.left)
				}
				s.End()
			})
		})
	}
}

func TestReconcilerCountsFailuresOfAnItemEnqueuedInARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, reconcile.Reconciler[string]{
			Reconcile: func(context.Context, string) error { time.Sleep(time.Second); return errBoom },
		})
		for n := range 4 {
			s.q.Enqueue("a") // at first, and then while it waits for its retry
			time.Sleep(500 * time.Millisecond)
			s.q.Enqueue("a") // in flight
			pass(10 * time.Second)
			s.wantResult(t, "a", reconcile.OutcomeRetrying, 2*n+2)
		}
		s.End()
	})
}

// retried returns when an item is run again that failed at first, with a retry
// after a minute, and to which something happens after ten seconds.
func retried(t *testing.T, hold bool, happens func(q *reconcile.Queue[string])) (at time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := serve(t, reconcile.Reconciler[string]{
			Reconcile:   fails(1, func(context.Context) error { at = time.Since(began); return nil }),
			HoldRetries: hold,
		}, "a")
		pass(10 * time.Second)
		happens(s.q)
		pass(time.Hour)
		s.wantResult(t, "a", reconcile.OutcomeSucceeded, 0)
		s.End()
	})
	return at
}

func TestReconcilerRetryGivesWayToAnEventNotToAPoll(t *testing.T) {
	if at := retried(t, false, func(q *reconcile.Queue[string]) { q.Offer("a") }); at != time.Minute {
		t.Errorf("after an Offer, it is retried at %v, want 1m0s", at)
	}
	if at := retried(t, false, func(q *reconcile.Queue[string]) { q.Enqueue("a") }); at != 10*time.Second {
		t.Errorf("after an Enqueue, it is retried at %v, want 10s", at)
	}
}

func TestReconcilerHoldRetriesHoldsAgainstEvents(t *testing.T) {
	if at := retried(t, true, func(q *reconcile.Queue[string]) {
		q.Offer("a")
		q.Enqueue("a")
		q.EnqueueAfter("a", time.Second)
		q.EnqueueWithin("a", time.Second)
	}); at != time.Minute {
		t.Errorf("after events, it is retried at %v, want 1m0s", at)
	}
}

func TestReconcilerHoldRetriesGivesWayToEnqueueNow(t *testing.T) {
	if at := retried(t, true, func(q *reconcile.Queue[string]) { q.EnqueueNow("a") }); at != 10*time.Second {
		t.Errorf("after an EnqueueNow, it is retried at %v, want 10s", at)
	}
}

func TestReconcilerResultHasWaitedAndDuration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms, s = time.Millisecond, time.Second
		q := reconcile.NewQueue[string]()
		took := map[string]time.Duration{"a": 5 * s, "b": ms, "c": 0, "due": 2 * s, "again": time.Minute}
		q.Enqueue("a")
		time.Sleep(3 * s) // nobody serves
		r := serve(t, reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(_ context.Context, item string) error { time.Sleep(took[item]); return nil },
		}, "b")
		q.EnqueueAfter("due", s) // becomes ready while a runs
		pass(10 * s)
		q.Enqueue("c") // taken at once
		synctest.Wait()
		q.EnqueueAfter("due", time.Hour) // waiting is not waiting for a worker
		time.Sleep(time.Hour + 2*s)
		q.Enqueue("again")
		time.Sleep(s)
		q.Enqueue("again") // while it runs: ready when given back
		pass(time.Hour)
		var got [][3]any
		for _, r := range r.results.all() {
			got = append(got, [3]any{r.Item, r.Waited, r.Duration})
		}
		want := [][3]any{
			{"a", 3 * s, 5 * s},
			{"b", 5 * s, ms},
			{"due", 4*s + ms, 2 * s},
			{"c", 0 * s, 0 * s},
			{"due", 0 * s, 2 * s},
			{"again", 0 * s, time.Minute},
			{"again", 0 * s, time.Minute},
		}
		wantSame(t, "item, waited, took", got, want)
		r.End()
	})
}

// What OnResult and the Logger's handler take is no part of a run, but the next
// item waits for it, and so does a plan.
func TestReconcilerResultLeavesOutTheTimeOfOnResultAndLog(t *testing.T) {
	for _, c := range []struct {
		level slog.Level
		each  time.Duration // for one item, with its run
	}{
		{slog.LevelError, 3 * time.Second},
		{slog.LevelDebug, 5 * time.Second}, // with the lines for start and outcome
	} {
		synctest.Test(t, func(t *testing.T) {
			var results resultBook[string]
			slow := writerFunc(func(line []byte) (int, error) { time.Sleep(time.Second); return len(line), nil })
			s := serve(t, reconcile.Reconciler[string]{
				Reconcile: func(_ context.Context, item string) error {
					time.Sleep(2 * time.Second)
					if item == "d" {
						return reconcile.RequeueAfter(time.Hour)
					}
					return nil
				},
				OnResult: func(r reconcile.Result[string]) {
					results.add(r)
					time.Sleep(time.Second)
				},
				Logger: slog.New(slog.NewTextHandler(slow, &slog.HandlerOptions{Level: c.level})),
			}, "a", "b", "c")
			pass(time.Minute)
			s.q.Enqueue("d")
			pass(c.each)
			s.wantItem(t, "d", reconcile.PhaseWaiting, time.Hour, 0)
			for i, waited := range []time.Duration{0, c.each, 2 * c.each, 0} {
				if r := results.all()[i]; r.Waited != waited || r.Duration != 2*time.Second {
					t.Errorf("%s waited %v and took %v, want %v and 2s", r.Item, r.Waited, r.Duration, waited)
				}
			}
			s.End()
		})
	}
}

// The time that passes in a hook of a run that ended well counts as well: that is
// when an item that was enqueued meanwhile becomes ready.
func TestTimeThatHooksTakeIsCounted(t *testing.T) {
	for _, slow := range []string{"log", "Retry", "leave", "OnResult"} {
		synctest.Test(t, func(t *testing.T) {
			q := reconcile.NewQueue[string]()
			q.Enqueue("a")
			q.Enqueue("b")
			ran := 0
			r := reconcile.Reconciler[string]{
				Queue: q,
				Reconcile: func(_ context.Context, item string) error {
					if ran++; ran == 1 {
						q.Enqueue("a")
						q.Close()
						if slow == "Retry" {
							return errBoom
						}
					} else if since := q.State("a").Since; item == "b" && !since.Equal(time.Now()) {
						t.Errorf("slow %s: a is ready since %v, want now, %v", slow, since, time.Now())
					}
					return nil
				},
				Logger: slog.New(slog.DiscardHandler),
			}
			switch slow { // and nothing else is there, which would look at the clock too
			case "log":
				r.Logger = slog.New(funcHandler{record.NewLog(), func(r slog.Record) {
					if r.Message == "run succeeded" {
						time.Sleep(time.Second)
					}
				}})
			case "Retry":
				r.Retry = func(error, int) (time.Duration, bool) { time.Sleep(time.Second); return 0, false }
			case "leave":
				r.Admit = func(context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
					return func(reconcile.Outcome, error, time.Duration) { time.Sleep(time.Second) }, nil
				}
			case "OnResult":
				r.OnResult = func(reconcile.Result[string]) { time.Sleep(time.Second) }
			}
			if err := r.Run(t.Context()); err != nil || ran != 3 {
				t.Errorf("Run = %v after %d runs, want nil after 3", err, ran)
			}
		})
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A worker calls OnResult before it gives the item back. So the results of an
// item come in order, one at a time, and its state is still that of the run.
func TestReconcilerCallsOnResultBeforeTheItemIsGivenBack(t *testing.T) {
	eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
		j := record.New()
		s := serve(t, reconcile.Reconciler[string]{
			Queue:     d,
			Reconcile: func(context.Context, string) error { j.Note("run"); return nil },
			OnResult: func(r reconcile.Result[string]) {
				if got := d.State(r.Item); got.Phase != reconcile.PhaseInFlight {
					t.Errorf("State in OnResult = %+v, want in flight", got)
				}
				j.Note("result begins")
				time.Sleep(time.Second)
				j.Note("result ends")
			},
			Workers: 3,
		}, "a")
		s.q.Enqueue("a") // during OnResult
		pass(time.Minute)
		j.Want(t, "0s run", "0s result begins", "1s result ends", "1s run", "1s result begins", "2s result ends")
		s.End()
	})
}

func TestLoggerInsideReconcileCarriesTheItem(t *testing.T) {
	eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
		s := serve(t, reconcile.Reconciler[string]{
			Queue: d,
			Reconcile: func(ctx context.Context, _ string) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				reconcile.Logger(ctx).Info("mine", "more", 7)
				return errBoom
			},
			Name: "buckets",
		}, "b1")
		pass(3 * time.Minute)
		s.End()
		failures := 0
		for _, l := range s.log.From(slog.LevelInfo) {
			if l.Message == "mine" {
				l.MustSay(t, slog.LevelInfo, map[string]string{"reconciler": "buckets", "item": "b1", "failures": fmt.Sprint(failures), "more": "7"})
				failures++
			}
		}
		if failures != 3 {
			t.Errorf("%d runs, want 3", failures)
		}
	})
}

func TestNilLoggerMeansTheDefault(t *testing.T) {
	log := record.NewLog()
	record.SetDefaultLogger(t, log)
	if got := reconcile.Logger(t.Context()); got != slog.Default() {
		t.Errorf("Logger(ctx) outside Reconcile = %v, want slog.Default()", got)
	}
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		q.Enqueue("b1")
		q.Close()
		r := reconcile.Reconciler[string]{
			Queue:     q,
			Reconcile: func(ctx context.Context, _ string) error { reconcile.Logger(ctx).Info("mine"); return errBoom },
			Retry:     reconcile.NoRetry,
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var lines []record.Line
		for _, l := range log.From(slog.LevelInfo) {
			if _, ok := l.Attrs["item"]; ok {
				lines = append(lines, l)
			}
		}
		if len(lines) != 2 {
			t.Fatalf("log lines %v, want that of Reconcile and that of the outcome", lines)
		}
		lines[0].MustSay(t, slog.LevelInfo, map[string]string{"item": "b1"}, "mine")
		lines[1].MustSay(t, slog.LevelError, map[string]string{"item": "b1"}, "boom")
		for _, l := range lines {
			if name, ok := l.Attrs["reconciler"]; ok {
				t.Errorf("log line %q names the reconciler %q, want an empty Name left out", l, name)
			}
		}
	})
}

// An asset knows what to tell about itself.
type asset struct{ region, name string }

func (a asset) LogValue() slog.Value { return slog.StringValue(a.region + "/" + a.name) }

func TestLogHonoursTheLogValuerOfAnItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, log := reconcile.NewQueue[asset](), record.NewLog()
		q.Enqueue(asset{"eu", "b1"})
		q.Close()
		r := reconcile.Reconciler[asset]{
			Queue:     q,
			Reconcile: func(ctx context.Context, _ asset) error { reconcile.Logger(ctx).Info("mine"); return errBoom },
			Logger:    log.Logger(),
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := log.From(slog.LevelDebug)
		if len(lines) != 3 {
			t.Errorf("log lines %v, want start, mine and outcome", lines)
		}
		for _, l := range lines {
			l.MustSay(t, l.Level, map[string]string{"item": "eu/b1"})
		}
	})
}

func TestOutcomeFailed(t *testing.T) {
	for o, want := range map[reconcile.Outcome]bool{
		reconcile.OutcomeSucceeded: false, reconcile.OutcomeRequeued: false, reconcile.OutcomeAborted: false,
		reconcile.OutcomeRetrying: true, reconcile.OutcomeGaveUp: true, reconcile.OutcomeTerminal: true,
	} {
		if got := o.Failed(); got != want {
			t.Errorf("%s.Failed() = %t, want %t", o, got, want)
		}
	}
}

// What a Reconciler would do with an error, without one.
func TestClassify(t *testing.T) {
	for _, c := range outcomes {
		retry := c.retry
		if retry == nil {
			retry = minutes
		}
		o, w := reconcile.Classify(c.err, 1, retry)
		if o != c.outcome || max(0, w.Delay) != c.next || w.Done != (c.next == 0) || w.Recheck != (o == reconcile.OutcomeSucceeded && c.next > 0) ||
			(w.Reason != nil) != c.reason || (w.Err != nil) != (o.Failed() || c.partly) {
			t.Errorf("%s: Classify = %s, %+v", c.name, o, w)
		}
		least := c.minDelay()
		if c.hold {
			least = min(least, time.Second)
		} else if o.Failed() && w.Done {
			least = time.Second
		}
		if w.MinDelay != least {
			t.Errorf("%s: Classify has a MinDelay of %v, want %v", c.name, w.MinDelay, least)
		}
	}
	if _, w := reconcile.Classify(errBoom, 1, nil); w.Delay < time.Second/2 || w.Delay > time.Second {
		t.Errorf("with a nil RetryPolicy the delay is %v, want that of DefaultRetry", w.Delay)
	}
	if o, _ := reconcile.Classify(errBoom, 4, reconcile.RetryPolicy(minutes).Limit(3)); o != reconcile.OutcomeGaveUp {
		t.Errorf("the fourth failure in a row with a limit of 3 retries is %s, want %s", o, reconcile.OutcomeGaveUp)
	}
}

// Things that were fed together, and are looked at again and again, drift apart.
func TestRecheckJitterSpreadsRechecks(t *testing.T) {
	const items, every = 1000, 10 * time.Minute
	for _, spread := range []float64{0, 0.2} {
		synctest.Test(t, func(t *testing.T) {
			q := reconcile.NewQueue[int]()
			for i := range items {
				q.Enqueue(i)
			}
			began := time.Now()
			runs := make(map[int]int)
			third := make(map[time.Duration]int) // runs of the third round by second
			run := record.Launch(t, &reconcile.Reconciler[int]{
				Queue: q, RecheckJitter: spread, Logger: record.Unlogged(),
				Reconcile: func(_ context.Context, i int) error {
					if runs[i]++; runs[i] == 3 {
						third[time.Since(began).Truncate(time.Second)]++
					}
					return reconcile.RecheckWithin(every)
				},
				OnResult: func(r reconcile.Result[int]) {
					least := time.Duration((1 - spread) * float64(every))
					if r.Next < least || r.Next > every || spread == 0 && r.Next != every {
						t.Errorf("the next look is in %v, want %v to %v", r.Next, least, every)
					}
				},
			})
			pass(2*every + time.Second)
			busiest := 0
			for _, n := range third {
				busiest = max(busiest, n)
			}
			if spread == 0 && busiest != items || spread > 0 && busiest*10 >= items {
				t.Errorf("with a RecheckJitter of %v the busiest second of the third round has %d of %d looks", spread, busiest, items)
			}
			run.End()
		})
	}
}

// RecheckJitter is about looks alone.
func TestRecheckJitterAppliesOnlyToRechecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, reconcile.Reconciler[string]{RecheckJitter: 1, Reconcile: func(_ context.Context, item string) error {
			switch item {
			case "after":
				return reconcile.RequeueAfter(time.Hour)
			case "within":
				return reconcile.RequeueWithin(time.Hour)
			}
			return errBoom
		}}, "after", "within", "fail")
		s.wantItem(t, "after", reconcile.PhaseWaiting, time.Hour, 0)
		s.wantItem(t, "within", reconcile.PhaseWaiting, time.Hour, 0)
		s.wantItem(t, "fail", reconcile.PhaseWaiting, time.Minute, 1)
		s.End()
	})
}

func TestApply(t *testing.T) {
	beingMade := fmt.Errorf("address of web is being made: %w", reconcile.RequeueWithin(10*time.Second))
	for _, c := range []struct {
		name  string
		r     reconcile.Reconciler[string]
		items []string
		err   []string // what the error says
		took  time.Duration
	}{
		{name: "no items"},
		{name: "all in sync", items: []string{"a", "b"}, took: 2 * time.Second},
		{name: "a retry", items: []string{"flaky"}, took: time.Minute + 2*time.Second},
		{name: "given up", items: []string{"a", "refuse"}, err: []string{"item refuse: no"}, took: 2 * time.Second},
		{name: "never ready", items: []string{"a", "web"}, err: []string{"1 of 2 items are left: context deadline exceeded", "item web is waiting: address of web is being made"}, took: time.Hour},
		{name: "a failure beside a recheck", items: []string{"steps"}, err: []string{"1 of 1 items are left", "item steps is waiting, after ", "no address left"}, took: time.Hour},
		{name: "what it enqueues is not waited for", items: []string{"parent"}, took: time.Second},
		{name: "no workers", r: reconcile.Reconciler[string]{Workers: -1}, items: []string{"a"}, err: []string{"Reconciler.Workers is -1"}},
		{name: "a RecheckJitter too wide", r: reconcile.Reconciler[string]{RecheckJitter: 1.5}, items: []string{"a"}, err: []string{"Reconciler.RecheckJitter is 1.5"}},
		{name: "no *Queue", r: reconcile.Reconciler[string]{Queue: plainly(reconcile.NewQueue[string]())}, items: []string{"a"}, err: []string{"reconcile: Reconciler.Queue is a ", "Apply wants a *Queue, or nil"}},
		{name: "Admit fails", r: reconcile.Reconciler[string]{Admit: func(context.Context) (func(reconcile.Outcome, error, time.Duration), error) { return nil, errBoom }}, items: []string{"a"}, err: []string{"1 of 1 items are left: reconcile: Run ended", "reconcile: admit: boom"}},
	} {
		runBubble(t, c.name, func(t *testing.T) {
			queues := []*reconcile.Queue[string]{nil}
			if c.r.Queue == nil {
				queues = append(queues, reconcile.NewQueue[string]())
			}
			for _, q := range queues {
				r := c.r
				if q != nil {
					r.Queue = q
				}
				tries := 0
				r.Logger, r.Retry = record.Unlogged(), minutes
				r.Reconcile = func(ctx context.Context, item string) error {
					time.Sleep(time.Second)
					switch item {
					case "flaky":
						if tries++; tries == 1 {
							return errBoom
						}
					case "refuse":
						return reconcile.Terminal(errors.New("no"))
					case "web":
						return beingMade
					case "steps":
						return errors.Join(errors.New("no address left"), reconcile.RecheckWithin(time.Hour))
					case "parent":
						if q != nil {
							q.EnqueueAfter("child", time.Minute)
						}
					}
					return nil
				}
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				err := r.Apply(ctx, c.items...)
				cancel()
				if took := time.Since(began); took != c.took {
					t.Errorf("Apply took %v, want %v", took, c.took)
				}
				if (err == nil) != (len(c.err) == 0) {
					t.Fatalf("Apply = %v, want an error: %t", err, len(c.err) > 0)
				}
				if wrong := c.took == 0 && len(c.err) > 0 && c.r.Admit == nil; errors.Is(err, reconcile.ErrTerminal) != (wrong || c.name == "given up") {
					t.Errorf("Apply = %v, want a terminal error if a field is wrong: %t", err, wrong)
				}
				for _, text := range c.err {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("Apply = %v, want %q in it", err, text)
					}
				}
				switch {
				case q == nil:
				case strings.HasPrefix(c.name, "what it"):
					wantPhase(t, q, "child", reconcile.PhaseWaiting)
				case c.r.Workers < 0, c.r.RecheckJitter > 1:
					wantStats(t, q, reconcile.Stats{}) // nothing was enqueued
				}
			}
		})
	}
}

// A run that Apply does not wait for is ended, and waited for.
func TestApplyEndsItsGoroutines(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("other")
		var cause error
		r := reconcile.Reconciler[string]{
			Queue: q, Workers: 2, Logger: record.Unlogged(),
			Reconcile: func(ctx context.Context, item string) error {
				if item == "other" {
					<-ctx.Done()
					time.Sleep(time.Minute)
					cause = ctx.Err()
					return cause
				}
				return nil
			},
		}
		began := time.Now()
		if err := r.Apply(t.Context(), "a"); err != nil || time.Since(began) != time.Minute || cause == nil {
			t.Errorf("Apply = %v after %v, want nil once the other run has ended, after 1m0s", err, time.Since(began))
		}
		wantPhase(t, q, "other", reconcile.PhaseReady)
	})
}

// An item that no queue takes is a bug of the caller; the run ends all the same.
func TestApplyEndsItsGoroutinesWhenAnItemPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reconcile.Reconciler[float64]{Reconcile: func(context.Context, float64) error { return nil }, Logger: record.Unlogged()}
		if msg := panics(func() { _ = r.Apply(t.Context(), math.NaN()) }); !strings.Contains(msg, "not equal to itself") {
			t.Errorf("Apply panicked with %q, want what is wrong with the item", msg)
		}
	}) // which fails if a goroutine is left
}

// A function that writes its failure into the record that it reconciles gets that
// write back as an event, while it runs or right after.
func TestFailedItemIsNotRunAgainWithinASecond(t *testing.T) {
	fail := func(err error) func(context.Context, *reconcile.Queue[string]) error {
		return func(context.Context, *reconcile.Queue[string]) error { return err }
	}
	after := func(d time.Duration) reconcile.RetryPolicy {
		return func(error, int) (time.Duration, bool) { return d, true }
	}
	everySecond := []string{"0s", "1s", "2s", "3s", "4s", "5s"}
	for name, c := range map[string]struct {
		run      func(context.Context, *reconcile.Queue[string]) error
		retry    reconcile.RetryPolicy
		hold     bool
		enqueues bool          // run does so itself
		write    time.Duration // the event comes so long after the run begins
		want     []string      // the times of the runs within five seconds
	}{
		"an error":                           {run: fail(errBoom), want: everySecond},
		"an error, the event after the run":  {run: fail(errBoom), write: 10 * time.Millisecond, want: everySecond},
		"an error, the event after a second": {run: fail(errBoom), write: 1500 * time.Millisecond, want: []string{"0s", "1.5s", "3s", "4.5s"}},
		"a back-off below a second": {
			run: fail(errBoom), retry: after(2 * time.Second / 5), write: 10 * time.Millisecond,
			want: []string{"0s", "400ms", "800ms", "1.2s", "1.6s", "2s", "2.4s", "2.8s", "3.2s", "3.6s", "4s", "4.4s", "4.8s"},
		},
		"no back-off":      {run: fail(errBoom), retry: after(0), want: []string{"0s", "0s", "1s", "2s", "3s", "4s", "5s"}},
		"held retries":     {run: fail(errBoom), hold: true, want: []string{"0s"}},
		"a panic":          {run: func(context.Context, *reconcile.Queue[string]) error { panic("boom") }, want: everySecond},
		"a terminal error": {run: fail(reconcile.Terminal(errBoom)), want: everySecond},
		"not retried":      {run: fail(errBoom), retry: reconcile.NoRetry, want: everySecond},
		"a terminal error beside a scheduled run": {run: fail(errors.Join(reconcile.Terminal(errBoom), reconcile.RequeueWithin(time.Hour))), want: everySecond},
		"not retried, beside a run scheduled for half a second": {
			run: fail(errors.Join(errBoom, reconcile.RequeueWithin(time.Second/2))), retry: reconcile.NoRetry,
			want: []string{"0s", "500ms", "1s", "1.5s", "2s", "2.5s", "3s", "3.5s", "4s", "4.5s", "5s"},
		},
		"beside RequeueAfter": {run: fail(errors.Join(errBoom, reconcile.RequeueAfter(3*time.Second))), write: 10 * time.Millisecond, want: []string{"0s", "3s"}},
		"EnqueueNow, which overrides": {run: func(_ context.Context, q *reconcile.Queue[string]) error {
			if q.State("x").Failures < 3 {
				q.EnqueueNow("x")
			}
			return errBoom
		}, hold: true, enqueues: true, want: []string{"0s", "0s", "0s", "0s"}},
	} {
		runQueue(t, name, func(t *testing.T, q *reconcile.Queue[string]) {
			var runs []string
			begin := time.Now()
			s := serve(t, reconcile.Reconciler[string]{
				Queue: q, HoldRetries: c.hold, Logger: record.Unlogged(), Retry: c.retry,
				Reconcile: func(ctx context.Context, item string) error {
					runs = append(runs, time.Since(begin).String())
					switch {
					case len(runs) > 2*len(c.want): // a hot loop
						return nil
					case c.write > 0:
						time.AfterFunc(c.write, func() { q.Enqueue(item) })
					case !c.enqueues:
						q.Enqueue(item)
					}
					return c.run(ctx, q)
				},
			}, "x")
			pass(5 * time.Second)
			if !slices.Equal(runs, c.want) {
				t.Errorf("runs at %v, want %v", runs, c.want)
			}
			s.End()
		})
	}
}

// A ready next run whose item is given back after Close by a run that failed can
// still be taken: no MinDelay holds it then.
func TestFailureAfterCloseKeepsTheEvent(t *testing.T) {
	for _, err := range []error{errBoom, reconcile.Terminal(errBoom), reconcile.RequeueAfter(time.Hour)} {
		runQueue(t, fmt.Sprint(err), func(t *testing.T, q *reconcile.Queue[string]) {
			runs := 0
			s := serve(t, reconcile.Reconciler[string]{Queue: q, HoldRetries: true, Logger: record.Unlogged(), Reconcile: func(context.Context, string) error {
				if runs++; runs == 1 {
					q.Enqueue("x")
					q.Close()
				}
				return err
			}}, "x")
			if runs != 2 || !s.Returned() {
				t.Errorf("%d runs, want 2, and that Run has returned", runs)
			}
		})
	}
}
