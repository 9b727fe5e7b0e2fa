// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestReconcilerRunNamesTheFieldThatIsWrong(t *testing.T) {
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
		{"made by NewQueue", reconcile.Reconciler[string]{Queue: new(reconcile.Queue[string]), Reconcile: nothing}},
		{"reconcile: Reconciler.Reconcile is required, and nil", reconcile.Reconciler[string]{Queue: q}},
		{"reconcile: Reconciler.Workers is -1, want 0", reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, Workers: -1}},
		{"reconcile: Reconciler.Timeout is -1s, want 0", reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, Timeout: -time.Second}},
		{"reconcile: Reconciler.Grace is -1s, want 0", reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, Grace: -time.Second}},
	} {
		if err := c.r.Run(ended); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Run of %+v = %v, want an error with %q", c.r, err, c.want)
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
		one, two := launch(t, r), launch(t, r)
		for i := range 100 {
			want[fmt.Sprint(i)] = 1
			q.Enqueue(fmt.Sprint(i))
		}
		one.end()
		two.end()
		three := launch(t, r)
		synctest.Wait()
		three.end()
		if !maps.Equal(ran, want) {
			t.Errorf("runs by item = %v, want each once", ran)
		}
	})
}

func TestReconcilerWorkersBoundWhatRunsAtOnce(t *testing.T) {
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
				Logger: unlogged(),
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
			Logger:  unlogged(),
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
		s.end()
	})
}

var (
	errWithNil = fmt.Errorf("%w and %w", nil, errBoom)
	far        = time.Duration(math.MaxInt64)
)

// An odd error cannot be compared.
type oddError struct{ parts []string }

func (e oddError) Error() string { return fmt.Sprint("odd ", e.parts) }

// outcomes has a line for each way in which Reconcile can return.
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
	{name: "recheck", err: reconcile.RecheckWithin(time.Hour), outcome: reconcile.Succeeded, next: time.Hour, level: slog.LevelDebug},
	{name: "recheck, wrapped, retries held", err: fmt.Errorf("all is well: %w", reconcile.RecheckWithin(time.Hour)), hold: true, outcome: reconcile.Succeeded, next: time.Hour, level: slog.LevelDebug},
	{name: "recheck, joined with a failure", err: errors.Join(reconcile.Terminal(errBoom), reconcile.RecheckWithin(time.Hour)), outcome: reconcile.Succeeded, next: time.Hour, level: slog.LevelDebug},

	{name: "settled and held: held", err: reconcile.RequeueError{Delay: time.Hour, Hold: true, Settled: true}, outcome: reconcile.Requeued, next: time.Hour, held: true, level: slog.LevelDebug},
	{name: "after", err: reconcile.RequeueAfter(time.Hour), outcome: reconcile.Requeued, next: time.Hour, held: true, level: slog.LevelDebug},
	{name: "within", err: reconcile.RequeueWithin(time.Hour), outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},
	{name: "after, wrapped", err: fmt.Errorf("snapshot s1 is running: %w", reconcile.RequeueAfter(time.Hour)), outcome: reconcile.Requeued, next: time.Hour, held: true, level: slog.LevelDebug},
	{name: "within, joined before a failure", err: errors.Join(reconcile.RequeueWithin(time.Hour), errBoom), outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},
	{name: "two plans: the first", err: errors.Join(reconcile.RequeueWithin(time.Hour), reconcile.RequeueAfter(time.Minute)), outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},
	{name: "held retries do not hold a plan", err: reconcile.RequeueWithin(time.Hour), hold: true, outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},
	{name: "a plan made terminal", err: reconcile.Terminal(reconcile.RequeueWithin(time.Hour)), outcome: reconcile.Requeued, next: time.Hour, level: slog.LevelDebug},
	{name: "no retry does not touch a plan", err: reconcile.RequeueAfter(time.Hour), retry: reconcile.NoRetry, outcome: reconcile.Requeued, next: time.Hour, held: true, level: slog.LevelDebug},

	{name: "terminal, wrapped", err: fmt.Errorf("bucket b1: %w", reconcile.Terminal(errBoom)), outcome: reconcile.Terminated, level: slog.LevelError},
	{name: "terminal, joined", err: errors.Join(errBoom, reconcile.Terminal(errBoom)), outcome: reconcile.Terminated, level: slog.LevelError},
	{name: "terminal by its sentinel", err: fmt.Errorf("refused: %w", reconcile.ErrTerminal), outcome: reconcile.Terminated, level: slog.LevelError},

	{name: "plain", err: errBoom, outcome: reconcile.Retrying, next: time.Minute, level: slog.LevelWarn},
	{name: "plain, retries held", err: errBoom, hold: true, outcome: reconcile.Retrying, next: time.Minute, held: true, level: slog.LevelWarn},
	{name: "wrapped with a nil", err: errWithNil, outcome: reconcile.Retrying, next: time.Minute, level: slog.LevelWarn},
	{name: "that cannot be compared", err: oddError{[]string{"a"}}, outcome: reconcile.Retrying, next: time.Minute, level: slog.LevelWarn},
	{name: "context error of its own", err: context.Canceled, outcome: reconcile.Retrying, next: time.Minute, level: slog.LevelWarn},
	{name: "lease lost, of its own", err: reconcile.ErrLeaseLost, outcome: reconcile.Retrying, next: time.Minute, level: slog.LevelWarn},
	{name: "queue closed, of its own", err: reconcile.ErrClosed, outcome: reconcile.Retrying, next: time.Minute, level: slog.LevelWarn},
	{name: "aborted, of its own", err: reconcile.ErrAborted, outcome: reconcile.Retrying, next: time.Minute, level: slog.LevelWarn},
	{name: "aborted, of its own, wrapped", err: fmt.Errorf("no: %w", reconcile.ErrAborted), hold: true, outcome: reconcile.Retrying, next: time.Minute, held: true, level: slog.LevelWarn},
	{name: "retry in the far future", err: errBoom, retry: func(error, int) (time.Duration, bool) { return far, true }, outcome: reconcile.Retrying, next: far, level: slog.LevelWarn},
	{name: "no retry", err: errBoom, retry: reconcile.NoRetry, outcome: reconcile.GaveUp, level: slog.LevelError},
	{name: "no retry, aborted of its own", err: reconcile.ErrAborted, retry: reconcile.NoRetry, outcome: reconcile.GaveUp, level: slog.LevelError},
}

var messages = map[reconcile.Outcome]string{
	reconcile.Succeeded: "run succeeded", reconcile.Requeued: "run planned the next", reconcile.Retrying: "run failed, to be retried",
	reconcile.GaveUp: "run failed, gave up", reconcile.Terminated: "run failed for good",
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
					state = reconcile.State{Phase: reconcile.Waiting, Since: now, Due: now.Add(c.next), Hold: c.held, Settled: c.outcome == reconcile.Succeeded}
					next = c.next.String()
				}
				if c.outcome == reconcile.Retrying {
					state.Failures, state.Err = 1, c.err
				}
				if c.level > slog.LevelDebug {
					want.Failures = 1
				}
				got := s.results.only(t)
				if fmt.Sprint(got.Err) == fmt.Sprint(c.err) { // a panic is not the same error
					want.Err = got.Err
				}
				wantSame(t, "result", got, want)
				kept := s.q.State("b1")
				if fmt.Sprint(kept.Err) == fmt.Sprint(state.Err) { // ErrAborted of its own is wrapped
					state.Err = kept.Err
				}
				if c.next == far {
					state.Due = kept.Due
				}
				wantState(t, s.q, "b1", state)

				// One line for the start, one for the outcome.
				lines := s.log.from(slog.LevelDebug)
				if len(lines) != 2 {
					t.Fatalf("%d log lines, want start and outcome: %v", len(lines), lines)
				}
				about := map[string]string{"reconciler": "buckets", "item": "b1", "failures": "0"}
				lines[0].mustSay(t, slog.LevelDebug, about, "run starts")
				about = map[string]string{"reconciler": "buckets", "item": "b1", "outcome": string(c.outcome), "duration": "2s"}
				if c.err != nil {
					about["err"], about["failures"] = c.err.Error(), fmt.Sprint(want.Failures)
				}
				lines[1].mustSay(t, c.level, about, messages[c.outcome])
				if got := lines[1].Attrs["next"].String(); got != next { // a retry and a plan say when
					t.Errorf("%v: next is %v, want %v", lines[1], got, next)
				}
				if !lines[0].At.Equal(s.began) || !lines[1].At.Equal(now) {
					t.Errorf("lines at %v and %v, want one as the run begins and one as it ends", lines[0].At, lines[1].At)
				}
				s.end()
			})
		})
	}
}

func TestOutcomesReadAsWords(t *testing.T) {
	got := []reconcile.Outcome{reconcile.Succeeded, reconcile.Requeued, reconcile.Retrying, reconcile.GaveUp, reconcile.Terminated, reconcile.Aborted}
	want := []reconcile.Outcome{"succeeded", "requeued", "retrying", "gave_up", "terminated", "aborted"} // part of what metrics are called
	if !slices.Equal(got, want) {
		t.Errorf("outcomes are %q, want %q", got, want)
	}
}

func TestOutcomeNowMakesTheItemReady(t *testing.T) {
	for _, c := range []struct {
		err     error
		outcome reconcile.Outcome
	}{
		{reconcile.RequeueAfter(0), reconcile.Requeued},
		{reconcile.RequeueWithin(-time.Hour), reconcile.Requeued},
		{reconcile.RecheckWithin(0), reconcile.Succeeded},
		{reconcile.RecheckWithin(-time.Hour), reconcile.Succeeded},
		{reconcile.RequeueError{}, reconcile.Requeued},
		{errBoom, reconcile.Retrying},
	} {
		runBubble(t, fmt.Sprint(c.err), func(t *testing.T) {
			q, j := reconcile.NewQueue[string](), newJournal()
			runs := 0
			s := serve(t, reconcile.Reconciler[string]{
				Queue: q,
				Reconcile: func(_ context.Context, item string) error {
					j.note("%s", item)
					time.Sleep(time.Second)
					if runs++; runs == 1 {
						q.Enqueue("other") // ready before the first is given back
						return c.err
					}
					return nil
				},
				Retry: func(error, int) (time.Duration, bool) { return math.MinInt64, true },
			}, "item")
			pass(time.Hour)
			j.mustBe(t, "0s item", "1s other", "2s item")
			if first := s.results.all()[0]; first.Outcome != c.outcome || first.Next != 0 {
				t.Errorf("result %+v, want %s with Next 0", first, c.outcome)
			}
			s.end()
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
		{"success", nil, 9, reconcile.Succeeded, 0, 0},
		{"recheck", reconcile.RecheckWithin(time.Hour), 9, reconcile.Succeeded, 0, 0},
		{"plan", reconcile.RequeueAfter(time.Hour), 9, reconcile.Requeued, 0, 0},
		{"one more failure", errBoom, 9, reconcile.Retrying, 4, 4},
		{"one too many", errBoom, 3, reconcile.GaveUp, 4, 0},
		{"terminal", reconcile.Terminal(errBoom), 9, reconcile.Terminated, 4, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
				j := newJournal()
				policy := reconcile.RetryPolicy(minutes).Limit(c.limit)
				s := serve(t, reconcile.Reconciler[string]{
					Queue:     d,
					Reconcile: fails(3, func(context.Context) error { return c.last }),
					Retry: func(err error, failures int) (time.Duration, bool) {
						j.note("%v, %d in a row", err, failures)
						return policy(err, failures)
					},
				}, "a")
				pass((1 + 2 + 3) * time.Minute)
				want := []string{"0s failure 1, 1 in a row", "1m0s failure 2, 2 in a row", "3m0s failure 3, 3 in a row"}
				if c.last == errBoom {
					want = append(want, "6m0s boom, 4 in a row")
				}
				j.mustBe(t, want...)
				for i, r := range s.results.all()[:3] {
					if r.Outcome != reconcile.Retrying || r.Failures != i+1 || r.Next != time.Duration(i+1)*time.Minute {
						t.Errorf("result of run %d = %+v, want retrying after %d failures", i+1, r, i+1)
					}
				}
				s.wantResult(t, "a", c.outcome, c.failures)
				if got := s.q.State("a").Failures; got != c.left {
					t.Errorf("State(a) has %d failures, want %d", got, c.left)
				}
				s.end()
			})
		})
	}
}

func TestReconcilerCountsFailuresThoughTheItemIsEnqueuedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, reconcile.Reconciler[string]{
			Reconcile: func(context.Context, string) error { time.Sleep(time.Second); return errBoom },
		})
		for n := range 4 {
			s.q.Enqueue("a") // at first, and then while it waits for its retry
			time.Sleep(500 * time.Millisecond)
			s.q.Enqueue("a") // in flight
			pass(10 * time.Second)
			s.wantResult(t, "a", reconcile.Retrying, 2*n+2)
		}
		s.end()
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
		s.wantResult(t, "a", reconcile.Succeeded, 0)
		s.end()
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

func TestReconcilerResultTellsWaitedAndDuration(t *testing.T) {
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
		r.end()
	})
}

// The way of an item to a worker that waits for one takes time as well: more than
// nothing, by a clock that is fine enough, and by any clock now and then.
func TestReconcilerResultWaitedIncludesTheWayToTheWorker(t *testing.T) {
	q := reconcile.NewQueue[int]()
	waited := make(chan time.Duration)
	run := launch(t, &reconcile.Reconciler[int]{
		Queue:     q,
		Logger:    unlogged(),
		Reconcile: func(context.Context, int) error { return nil },
		OnResult:  func(r reconcile.Result[int]) { waited <- r.Waited },
	})
	for i := range 10_000 {
		for reconcile.Blocked(q) == 0 {
			runtime.Gosched()
		}
		q.Enqueue(i)
		if <-waited > 0 {
			run.end()
			return
		}
	}
	t.Error("10,000 items were taken at the moment at which they were enqueued")
	run.end()
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
			s.wantItem(t, "d", reconcile.Waiting, time.Hour, 0)
			for i, waited := range []time.Duration{0, c.each, 2 * c.each, 0} {
				if r := results.all()[i]; r.Waited != waited || r.Duration != 2*time.Second {
					t.Errorf("%s waited %v and took %v, want %v and 2s", r.Item, r.Waited, r.Duration, waited)
				}
			}
			s.end()
		})
	}
}

// The time that passes in a hook of a run that ended well counts as well: that is
// when an item that was enqueued meanwhile becomes ready.
func TestTimeThatHooksTakeIsCounted(t *testing.T) {
	for _, slow := range []string{"log", "Slow", "OnResult"} {
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
					} else if since := q.State("a").Since; item == "b" && !since.Equal(time.Now()) {
						t.Errorf("slow %s: a is ready since %v, want now, %v", slow, since, time.Now())
					}
					return nil
				},
				Logger: slog.New(slog.DiscardHandler),
			}
			switch slow { // and nothing else is there, which would look at the clock too
			case "log":
				r.Logger = slog.New(funcHandler{newLogBook(), func(r slog.Record) {
					if r.Message == "run succeeded" {
						time.Sleep(time.Second)
					}
				}})
			case "Slow":
				r.Gate = &reconcile.Gate{Slow: func(error, time.Duration) bool { time.Sleep(time.Second); return false }}
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
		j := newJournal()
		s := serve(t, reconcile.Reconciler[string]{
			Queue:     d,
			Reconcile: func(context.Context, string) error { j.note("run"); return nil },
			OnResult: func(r reconcile.Result[string]) {
				if got := d.State(r.Item); got.Phase != reconcile.InFlight {
					t.Errorf("State in OnResult = %+v, want in flight", got)
				}
				j.note("result begins")
				time.Sleep(time.Second)
				j.note("result ends")
			},
			Workers: 3,
		}, "a")
		s.q.Enqueue("a") // during OnResult
		pass(time.Minute)
		j.mustBe(t, "0s run", "0s result begins", "1s result ends", "1s run", "1s result begins", "2s result ends")
		s.end()
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
		s.end()
		failures := 0
		for _, l := range s.log.from(slog.LevelInfo) {
			if l.Message == "mine" {
				l.mustSay(t, slog.LevelInfo, map[string]string{"reconciler": "buckets", "item": "b1", "failures": fmt.Sprint(failures), "more": "7"})
				failures++
			}
		}
		if failures != 3 {
			t.Errorf("%d runs, want 3", failures)
		}
	})
}

func TestLoggerNilMeansTheDefault(t *testing.T) {
	log := newLogBook()
	setDefaultLogger(t, log)
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
		var g reconcile.Group
		g.Add("group", &r) // whose logger is that of the group alone
		if err := g.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		var lines []logLine
		for _, l := range log.from(slog.LevelInfo) {
			if _, ok := l.Attrs["item"]; ok {
				lines = append(lines, l)
			}
		}
		if len(lines) != 2 {
			t.Fatalf("log lines %v, want that of Reconcile and that of the outcome", lines)
		}
		lines[0].mustSay(t, slog.LevelInfo, map[string]string{"item": "b1"}, "mine")
		lines[1].mustSay(t, slog.LevelError, map[string]string{"item": "b1"}, "boom")
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
		q, log := reconcile.NewQueue[asset](), newLogBook()
		q.Enqueue(asset{"eu", "b1"})
		q.Close()
		r := reconcile.Reconciler[asset]{
			Queue:     q,
			Reconcile: func(ctx context.Context, _ asset) error { reconcile.Logger(ctx).Info("mine"); return errBoom },
			Logger:    log.logger(),
		}
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		lines := log.from(slog.LevelDebug)
		if len(lines) != 3 {
			t.Errorf("log lines %v, want start, mine and outcome", lines)
		}
		for _, l := range lines {
			l.mustSay(t, l.Level, map[string]string{"item": "eu/b1"})
		}
	})
}

// What follows is for the tests of all files.

// A logBook is a slog.Handler that keeps all it is told.
type logBook struct {
	*logPages
	with []slog.Attr
}

func (b *logBook) logger() *slog.Logger { return slog.New(b) }

func (b *logBook) Enabled(context.Context, slog.Level) bool { return true }

func (b *logBook) WithGroup(string) slog.Handler { return b }

func (b *logBook) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logBook{b.logPages, append(b.with[:len(b.with):len(b.with)], attrs...)}
}

func (b *logBook) Handle(_ context.Context, r slog.Record) error {
	line := logLine{time.Now(), r.Level, r.Message, make(map[string]slog.Value)}
	keep := func(a slog.Attr) bool {
		line.Attrs[a.Key] = a.Value.Resolve()
		return true
	}
	for _, a := range b.with {
		keep(a)
	}
	r.Attrs(keep)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line)
	return nil
}

// from returns the lines of at least that level.
func (b *logBook) from(level slog.Level) []logLine {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []logLine
	for _, l := range b.lines {
		if l.Level >= level {
			lines = append(lines, l)
		}
	}
	return lines
}

func (b *logBook) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = nil
}

// onlyLine returns the one line of at least that level.
func (b *logBook) onlyLine(t *testing.T, level slog.Level) logLine {
	t.Helper()
	lines := b.from(level)
	if len(lines) != 1 {
		t.Fatalf("%d log lines of level %v or more, want 1: %v", len(lines), level, lines)
	}
	return lines[0]
}

type logPages struct {
	mu    sync.Mutex
	lines []logLine
}

type logLine struct {
	At      time.Time
	Level   slog.Level
	Message string
	Attrs   map[string]slog.Value
}

// String is the line without its time, as a person reads it.
func (l logLine) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%v %s", l.Level, l.Message)
	for k, v := range l.Attrs {
		fmt.Fprintf(&s, " %s=%v", k, v)
	}
	return s.String()
}

// mustSay checks what a log line tells.
func (l logLine) mustSay(t *testing.T, level slog.Level, attrs map[string]string, texts ...string) {
	t.Helper()
	if l.Level != level {
		t.Errorf("log line %q has level %v, want %v", l, l.Level, level)
	}
	for k, want := range attrs {
		if got, ok := l.Attrs[k]; !ok || got.String() != want {
			t.Errorf("log line %q has %s=%v, want %q", l, k, got, want)
		}
	}
	for _, text := range texts {
		if !strings.Contains(l.String(), text) {
			t.Errorf("log line %q does not contain %q", l, text)
		}
	}
}

func newLogBook() *logBook { return &logBook{logPages: new(logPages)} }

// setDefaultLogger makes b the default logger until the test ends.
func setDefaultLogger(t *testing.T, b *logBook) {
	old, flags := slog.Default(), log.Flags()
	slog.SetDefault(b.logger())
	t.Cleanup(func() {
		slog.SetDefault(old)
		log.SetOutput(os.Stderr)
		log.SetFlags(flags)
	})
}

// unlogged is a Logger for tests that do not look at the log.
func unlogged() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// A service is a Reconciler at work, with what it leaves behind.
type service struct {
	*running
	q       *reconcile.Queue[string] // nil if the Dequeuer has none inside
	results *resultBook[string]
	log     *logBook
	began   time.Time
}

// wantResult looks at the last result.
func (s *service) wantResult(t *testing.T, item string, o reconcile.Outcome, failures int) reconcile.Result[string] {
	t.Helper()
	r := s.results.last(t)
	if r.Item != item || r.Outcome != o || r.Failures != failures {
		t.Errorf("result %+v, want %s: %s, with %d failures", r, item, o, failures)
	}
	return r
}

// wantItem looks at an item in the queue; in is when it is due, from now on.
func (s *service) wantItem(t *testing.T, item string, phase reconcile.Phase, in time.Duration, failures int) {
	t.Helper()
	got := s.q.State(item)
	if got.Phase != phase || got.Failures != failures || phase == reconcile.Waiting && !got.Due.Equal(time.Now().Add(in)) {
		t.Errorf("State(%q) = %+v, want %v, due in %v, with %d failures", item, got, phase, in, failures)
	}
}

func (s *service) wantSilence(t *testing.T, least slog.Level) {
	t.Helper()
	if lines := s.log.from(least); len(lines) != 0 {
		t.Errorf("log lines of level %v or more: %v, want none", least, lines)
	}
}

// serve launches a Reconciler, and enqueues items. It fills in what is missing: a
// Queue, a Reconcile that succeeds, OnResult, a Logger, and minutes as Retry.
func serve(t *testing.T, r reconcile.Reconciler[string], items ...string) *service {
	t.Helper()
	s := &service{results: new(resultBook[string]), log: newLogBook(), began: time.Now()}
	if r.Queue == nil {
		r.Queue = reconcile.NewQueue[string]()
	}
	s.q = queueInside(r.Queue)
	if r.Reconcile == nil {
		r.Reconcile = nothing
	}
	if r.OnResult == nil {
		r.OnResult = s.results.add
	}
	if r.Logger == nil {
		r.Logger = s.log.logger()
	}
	if r.Retry == nil {
		r.Retry = minutes
	}
	for _, item := range items {
		s.q.Enqueue(item)
	}
	s.running = launch(t, &r)
	synctest.Wait()
	return s
}

// pass lets time pass, and all that is to happen then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A resultBook collects results.
type resultBook[T comparable] struct {
	mu   sync.Mutex
	list []reconcile.Result[T]
}

func (b *resultBook[T]) add(r reconcile.Result[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, r)
}

func (b *resultBook[T]) all() []reconcile.Result[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]reconcile.Result[T](nil), b.list...)
}

func (b *resultBook[T]) only(t *testing.T) reconcile.Result[T] {
	t.Helper()
	all := b.all()
	if len(all) != 1 {
		t.Fatalf("%d results, want 1: %+v", len(all), all)
	}
	return all[0]
}

func (b *resultBook[T]) last(t *testing.T) reconcile.Result[T] {
	t.Helper()
	all := b.all()
	if len(all) == 0 {
		t.Fatal("no result")
	}
	return all[len(all)-1]
}

// minutes is a policy that tells from a delay how many failures it was told.
func minutes(_ error, failures int) (time.Duration, bool) {
	return time.Duration(failures) * time.Minute, true
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
