// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// wantCause checks why a context has ended; nil means that it has not.
func wantCause(t *testing.T, ctx context.Context, want error) {
	t.Helper()
	if got := context.Cause(ctx); got != want {
		t.Errorf("cause of the end of the context: %v, want %v", got, want)
	}
}

// oneRun runs f as the first run of "x"; the runs after it go well. It returns the
// result of the first.
func oneRun(t *testing.T, q *reconcile.Queue[string], r reconcile.Reconciler[string], f func(context.Context) error) reconcile.Result[string] {
	t.Helper()
	first := true
	var results resultBook[string]
	r.OnResult, r.Logger, r.Retry = results.add, unlogged(), minutes
	if r.Queue == nil {
		r.Queue = q
	}
	r.Reconcile = func(ctx context.Context, item string) error {
		if item != "x" || !first {
			return nil
		}
		first = false
		return f(ctx)
	}
	run := launch(t, &r)
	q.Enqueue("x")
	time.Sleep(2 * time.Hour)
	synctest.Wait()
	run.end()
	wantWatchers(t, q, 0)
	return results.all()[0]
}

// What happens to an item in flight, and after which time it ends a context of
// UntilChanged; less than 0 means that it does not.
func TestUntilChangedEndsWithAReadyNextRun(t *testing.T) {
	type queue = *reconcile.Queue[string]
	for _, e := range []struct {
		name  string
		do    func(q queue)
		after time.Duration
	}{
		{"Enqueue", func(q queue) { q.Enqueue("x") }, 0},
		{"EnqueueNow", func(q queue) { q.EnqueueNow("x") }, 0},
		{"EnqueueAfter 0", func(q queue) { q.EnqueueAfter("x", 0) }, 0},
		{"EnqueueWithin 0", func(q queue) { q.EnqueueWithin("x", 0) }, 0},
		{"two Enqueues", func(q queue) { q.Enqueue("x"); q.Enqueue("x") }, 0},

		{"EnqueueAfter", func(q queue) { q.EnqueueAfter("x", time.Minute) }, time.Minute},
		{"EnqueueWithin", func(q queue) { q.EnqueueWithin("x", time.Minute) }, time.Minute},
		{"a later EnqueueAfter", func(q queue) { q.EnqueueAfter("x", 2*time.Hour) }, -1},
		{"a later EnqueueWithin", func(q queue) { q.EnqueueWithin("x", 2*time.Hour) }, -1},
		{"EnqueueAfter, Enqueue", func(q queue) { q.EnqueueAfter("x", time.Minute); q.Enqueue("x") }, time.Minute},
		{"EnqueueAfter, EnqueueNow", func(q queue) { q.EnqueueAfter("x", time.Minute); q.EnqueueNow("x") }, 0},
		{"EnqueueWithin, Enqueue", func(q queue) { q.EnqueueWithin("x", time.Minute); q.Enqueue("x") }, 0},
		{"EnqueueWithin, EnqueueNow", func(q queue) { q.EnqueueWithin("x", time.Minute); q.EnqueueNow("x") }, 0},
		{"EnqueueWithin twice", func(q queue) { q.EnqueueWithin("x", time.Minute); q.EnqueueWithin("x", time.Second) }, time.Second},
		{"EnqueueWithin, EnqueueAfter", func(q queue) { q.EnqueueWithin("x", time.Minute); q.EnqueueAfter("x", time.Second) }, time.Second},

		{"Offer", func(q queue) { q.Offer("x") }, -1},
		{"Enqueue of another item", func(q queue) { q.Enqueue("y") }, -1},
		{"Remove", func(q queue) { q.Remove("x") }, -1},
		{"Enqueue, Remove", func(q queue) { q.Enqueue("x"); q.Remove("x") }, 0},
		{"EnqueueAfter, Remove", func(q queue) { q.EnqueueAfter("x", time.Minute); q.Remove("x") }, -1},
		{"Close", func(q queue) { q.Close() }, -1},
		{"EnqueueAfter, Close", func(q queue) { q.EnqueueAfter("x", time.Minute); q.Close() }, -1},
		{"Close, Enqueue", func(q queue) { q.Close(); q.Enqueue("x") }, -1},
		{"looks", func(q queue) { q.State("x"); q.Len(); q.Has("x"); q.Stats() }, -1},
	} {
		for _, before := range []bool{false, true} { // the call of UntilChanged
			runQueue(t, fmt.Sprintf("%s/before=%t", e.name, before), func(t *testing.T, q queue) {
				oneRun(t, q, reconcile.Reconciler[string]{}, func(ctx context.Context) error {
					want, cause := e.after, reconcile.ErrChanged
					if before {
						e.do(q)
					} else {
						time.AfterFunc(10*time.Second, func() { e.do(q) })
						want += 10 * time.Second
					}
					if e.after < 0 || before && e.name == "Enqueue, Remove" { // the next run is gone
						want, cause = time.Hour, nil
					}
					began := time.Now()
					changed, stop := reconcile.UntilChanged(ctx)
					defer stop()
					select {
					case <-changed.Done():
					case <-time.After(time.Hour):
					}
					if after := time.Since(began); after != want {
						t.Errorf("ended after %v, want %v", after, want)
					}
					wantCause(t, changed, cause)
					return nil
				})
			})
		}
	}
}

// A panickingError panics when it is looked at.
type panickingError struct{}

func (panickingError) Error() string { return "an error that panics" }
func (panickingError) As(any) bool   { panic("As") }

// What a run returns whose context ended with ErrChanged, and what becomes of it.
// It had failed once before.
func TestErrChangedRequeuesTheItem(t *testing.T) {
	var errAsCaused error // stands for the cause of the context
	for _, v := range []struct {
		name    string
		err     func() error
		early   bool // ended early by the last row of the table at UntilChanged
		outcome reconcile.Outcome
		fails   int           // failures after the run
		says    time.Duration // to the next run, as the result has it
		next    time.Duration // to the next run
		level   slog.Level
	}{
		{"nil", func() error { return nil }, false, reconcile.Succeeded, 0, 0, 0, slog.LevelDebug},
		{"an error", func() error { return errBoom }, true, reconcile.Requeued, 0, 0, 0, slog.LevelDebug},
		{"the cause", func() error { return errAsCaused }, true, reconcile.Requeued, 0, 0, 0, slog.LevelDebug},
		{"the context's error", func() error { return fmt.Errorf("copy: %w", context.Canceled) }, true, reconcile.Requeued, 0, 0, 0, slog.LevelDebug},
		{"terminal", func() error { return reconcile.Terminal(errBoom) }, true, reconcile.Requeued, 0, 0, 0, slog.LevelDebug},
		{"an error that panics", func() error { return panickingError{} }, true, "", 0, 0, 0, slog.LevelDebug}, // so there is no result
		{"within 0", func() error { return reconcile.RequeueWithin(0) }, false, reconcile.Requeued, 0, 0, 0, slog.LevelDebug},
		{"within", func() error { return reconcile.RequeueWithin(time.Hour) }, false, reconcile.Requeued, 0, time.Hour, 0, slog.LevelDebug},
		{"recheck", func() error { return reconcile.RecheckWithin(time.Hour) }, false, reconcile.Succeeded, 0, time.Hour, 0, slog.LevelDebug},
		{"after", func() error { return fmt.Errorf("429: %w", reconcile.RequeueAfter(time.Hour)) }, false, reconcile.Requeued, 0, time.Hour, time.Hour, slog.LevelDebug},
		{"panic", func() error { panic("no disk") }, false, reconcile.Retrying, 2, 2 * time.Minute, 0, slog.LevelError},
	} {
		for _, hold := range []bool{false, true} {
			runQueue(t, fmt.Sprintf("%s/HoldRetries=%t", v.name, hold), func(t *testing.T, q *reconcile.Queue[string]) {
				var runs []time.Time
				book := newLogBook()
				s := serve(t, reconcile.Reconciler[string]{
					Queue: q, HoldRetries: hold, Logger: book.logger(),
					Reconcile: func(ctx context.Context, _ string) error {
						switch runs = append(runs, time.Now()); len(runs) {
						case 1:
							return errBoom
						case 2:
							changed, stop := reconcile.UntilChanged(ctx)
							defer stop()
							<-changed.Done()
							book.clear()
							errAsCaused = context.Cause(changed)
							return v.err()
						}
						return nil
					},
				}, "x")
				time.Sleep(time.Minute + 10*time.Second) // the second run began after a minute
				q.Enqueue("x")
				changed := time.Now()
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				if len(runs) != 3 {
					t.Fatalf("%d runs, want 3: %+v", len(runs), s.results.all())
				}
				want := reconcile.Result[string]{Item: "x", Outcome: v.outcome, Next: v.says, Failures: v.fails, Duration: 10 * time.Second}
				if v.outcome != "" {
					got := s.results.all()[1]
					got.Err = nil // as it is returned above
					wantSame(t, "result of the run that ended early", got, want)
				}
				next := v.next
				switch {
				case v.outcome != reconcile.Retrying:
				case hold:
					next = 2 * time.Minute
				default: // No event starts it sooner.
					next = time.Second
				}
				if d := runs[2].Sub(changed); d != next {
					t.Errorf("the next run started %v after the event, want %v", d, next)
				}
				for _, l := range book.from(slog.LevelDebug) {
					if l.Attrs["outcome"].String() == string(v.outcome) { // not a complaint about the error
						if l.Level != v.level || strings.Contains(l.Message, "ended early") != v.early {
							t.Errorf("log line %v, want level %v, and that it ended early: %t", l, v.level, v.early)
						}
						break
					}
				}
				wantPhase(t, q, "x", reconcile.Idle)
				s.end()
			})
		}
	}
}

// A run that ends early within a second is followed by the next one a second after its start,
// and its result says so.
func TestErrChangedWithinASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		began, runs := time.Now(), 0
		s := serve(t, reconcile.Reconciler[string]{Queue: q, Reconcile: func(ctx context.Context, _ string) error {
			if runs++; runs == 2 {
				if d := time.Since(began); d != time.Second {
					t.Errorf("the next run starts after %v, want 1s", d)
				}
				return nil
			}
			changed, stop := reconcile.UntilChanged(ctx)
			defer stop()
			time.AfterFunc(300*time.Millisecond, func() { q.Enqueue("x") })
			<-changed.Done()
			return changed.Err()
		}}, "x")
		pass(time.Minute)
		if r := s.results.all(); len(r) != 2 || r[0].Next != 700*time.Millisecond {
			t.Errorf("results %+v, want two, the first with the next run in 700ms", r)
		}
		s.end()
	})
}

// Whatever else happens to the run.
func TestUntilChangedAndTheOutcome(t *testing.T) {
	type rec = reconcile.Reconciler[string]
	type queue = *reconcile.Queue[string]
	changedThen := func(then func(q queue)) func(*testing.T, context.Context, queue) error {
		return func(t *testing.T, ctx context.Context, q queue) error {
			changed, stop := reconcile.UntilChanged(ctx)
			defer stop()
			q.Enqueue("x") // by the run itself: that is an event too
			wantCause(t, changed, reconcile.ErrChanged)
			then(q)
			return context.Cause(changed)
		}
	}
	eventAfter := func(d time.Duration, cause error) func(*testing.T, context.Context, queue) error {
		return func(t *testing.T, ctx context.Context, q queue) error {
			changed, stop := reconcile.UntilChanged(ctx)
			defer stop()
			time.AfterFunc(d, func() { q.Enqueue("x") })
			time.Sleep(5 * time.Minute)
			wantCause(t, changed, cause)
			return errBoom
		}
	}
	losing := func(q queue) reconcile.Dequeuer[string] { // leases for two minutes
		l := leasingOf(plainly(q))
		time.AfterFunc(2*time.Minute, func() { l.loseLease("x") })
		return l
	}
	for _, c := range []struct {
		name string
		r    func(q queue) rec
		run  func(t *testing.T, ctx context.Context, q queue) error
		want reconcile.Outcome
	}{
		{"stop", nil, func(t *testing.T, ctx context.Context, q queue) error {
			changed, stop := reconcile.UntilChanged(ctx)
			wantWatchers(t, q, 1)
			wantCause(t, changed, nil)
			stop()
			wantWatchers(t, q, 0)
			wantCause(t, changed, context.Canceled)
			wantCause(t, ctx, nil)
			q.Enqueue("x")
			stop()
			wantCause(t, changed, context.Canceled)
			return errBoom // after the part that could be cut short
		}, reconcile.Retrying},
		{"stop after the end", nil, func(t *testing.T, ctx context.Context, q queue) error {
			changed, stop := reconcile.UntilChanged(ctx)
			q.Enqueue("x")
			stop()
			stop()
			wantCause(t, changed, reconcile.ErrChanged)
			return errBoom
		}, reconcile.Requeued},
		{"ended by ctx before", nil, func(t *testing.T, ctx context.Context, q queue) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			changed, stop := reconcile.UntilChanged(ctx)
			defer stop()
			<-changed.Done()
			q.Enqueue("x")
			wantCause(t, changed, context.DeadlineExceeded)
			return changed.Err()
		}, reconcile.Retrying},
		{"removed", nil, changedThen(func(q queue) { q.Remove("x") }), reconcile.Retrying},
		{"removed, held", nil, changedThen(func(q queue) { q.Remove("x"); q.EnqueueAfter("x", time.Minute) }), reconcile.Retrying},
		{"removed, enqueued", nil, changedThen(func(q queue) { q.Remove("x"); q.Enqueue("x") }), reconcile.Requeued},
		{"removed, enqueued now", nil, changedThen(func(q queue) { q.Remove("x"); q.EnqueueNow("x") }), reconcile.Requeued},
		{"removed, and due at the end", nil, changedThen(func(q queue) {
			q.Remove("x")
			q.EnqueueAfter("x", time.Minute)
			reconcile.DelayTimer(q, time.Second)
			time.Sleep(time.Minute)
		}), reconcile.Requeued},
		{"due before, the timer is late", nil, func(t *testing.T, ctx context.Context, q queue) error {
			q.EnqueueAfter("x", time.Minute)
			reconcile.DelayTimer(q, time.Second)
			time.Sleep(time.Minute)
			changed, stop := reconcile.UntilChanged(ctx)
			defer stop()
			wantCause(t, changed, reconcile.ErrChanged)
			return errBoom
		}, reconcile.Requeued},
		{"given back by somebody else", nil, func(t *testing.T, ctx context.Context, q queue) error {
			changed, _ := reconcile.UntilChanged(ctx)
			q.Done("x")
			wantCause(t, changed, context.Canceled)
			q.Enqueue("y") // in the same place, at the same time
			mustTake(t, q)
			changed, _ = reconcile.UntilChanged(ctx)
			wantCause(t, changed, context.Canceled)
			q.Done("y")
			return errBoom
		}, reconcile.Retrying},
		{"given back by somebody else, for later", nil, func(t *testing.T, ctx context.Context, q queue) error {
			q.Requeue("x", reconcile.RequeueOptions{Delay: time.Hour})
			changed, _ := reconcile.UntilChanged(ctx)
			wantCause(t, changed, context.Canceled)
			q.Remove("x")
			return errBoom
		}, reconcile.Retrying},
		{"timeout later", func(queue) rec { return rec{Timeout: 2 * time.Minute} }, eventAfter(time.Minute, reconcile.ErrChanged), reconcile.Requeued},
		{"timeout before", func(queue) rec { return rec{Timeout: 2 * time.Minute} }, eventAfter(3*time.Minute, reconcile.ErrTimeout), reconcile.Retrying},
		{"behind a gate", func(queue) rec { return rec{Admit: places(1)} }, eventAfter(time.Minute, reconcile.ErrChanged), reconcile.Requeued},
		{"another Dequeuer", func(q queue) rec { return rec{Queue: plainly(q)} }, func(t *testing.T, ctx context.Context, q queue) error {
			changed, stop := reconcile.UntilChanged(ctx)
			q.Enqueue("x")
			wantCause(t, changed, nil)
			stop()
			wantCause(t, changed, context.Canceled)
			return errBoom
		}, reconcile.Retrying},
		{"lease", func(q queue) rec { return rec{Queue: losing(q)} }, eventAfter(time.Minute, reconcile.ErrLeaseLost), reconcile.Aborted},
	} {
		runQueue(t, c.name, func(t *testing.T, q queue) {
			var r rec
			if c.r != nil {
				r = c.r(q)
			}
			if got := oneRun(t, q, r, func(ctx context.Context) error { return c.run(t, ctx, q) }); got.Outcome != c.want {
				t.Errorf("outcome %q, want %q: %+v", got.Outcome, c.want, got)
			}
		})
	}
}

// The end of Run aborts a run, whatever else happened to it.
func TestUntilChangedAndShutdown(t *testing.T) {
	for name, c := range map[string]struct {
		grace, event, close time.Duration
		cause               error
	}{
		"at once":                       {0, 0, time.Minute, errEnd},
		"after an event":                {0, time.Second, time.Minute, reconcile.ErrChanged},
		"before an event":               {0, 2 * time.Minute, time.Minute, errEnd},
		"with a grace that is not over": {time.Hour, 0, time.Minute, nil},
		"an event in the grace":         {time.Hour, 2 * time.Minute, time.Minute, reconcile.ErrChanged},
		"a grace that is over":          {time.Minute, 3 * time.Minute, time.Minute, errEnd},
	} {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			s := serve(t, reconcile.Reconciler[string]{
				Queue: q, Grace: c.grace, Logger: unlogged(),
				Reconcile: func(ctx context.Context, _ string) error {
					changed, stop := reconcile.UntilChanged(ctx)
					defer stop()
					time.Sleep(5 * time.Minute)
					wantCause(t, changed, c.cause)
					return errBoom
				},
			}, "x")
			if c.event > 0 {
				time.AfterFunc(c.event, func() { q.Enqueue("x") })
			}
			time.Sleep(c.close)
			s.end()
			if r := s.results.only(t); r.Outcome != reconcile.Aborted {
				t.Errorf("%s: result %+v, want it aborted", name, r)
			}
			wantPhase(t, q, "x", reconcile.Ready)
			wantWatchers(t, q, 0)
		})
	}
}

// However a run ends, its contexts end with it, and not by what comes later; also
// if somebody gave its item back who did not have it.
func TestUntilChangedEndsWithItsRun(t *testing.T) {
	for name, end := range map[string]func(q *reconcile.Queue[string]) error{
		"nil":     func(*reconcile.Queue[string]) error { return nil },
		"error":   func(*reconcile.Queue[string]) error { return errBoom },
		"after":   func(*reconcile.Queue[string]) error { return reconcile.RequeueAfter(time.Hour) },
		"within":  func(*reconcile.Queue[string]) error { return reconcile.RequeueWithin(time.Hour) },
		"recheck": func(*reconcile.Queue[string]) error { return reconcile.RecheckWithin(time.Hour) },
		"now":     func(*reconcile.Queue[string]) error { return reconcile.RequeueWithin(0) },
		"gone":    func(*reconcile.Queue[string]) error { return reconcile.Terminal(errBoom) },
		"panic":   func(*reconcile.Queue[string]) error { panic("no disk") },
		"Goexit":  func(*reconcile.Queue[string]) error { runtime.Goexit(); return nil },
		"Done":    func(q *reconcile.Queue[string]) error { q.Done("x"); time.Sleep(time.Hour); return nil },
	} {
		for _, closed := range []bool{false, true} {
			runQueue(t, fmt.Sprintf("%s/closed=%t", name, closed), func(t *testing.T, q *reconcile.Queue[string]) {
				var old, first, again context.Context
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: q, Workers: 2, Logger: unlogged(), Retry: minutes,
					Reconcile: func(ctx context.Context, item string) error {
						if old == nil {
							old = ctx
							first, _ = reconcile.UntilChanged(ctx)
							time.Sleep(time.Minute)
							return end(q)
						}
						again, _ = reconcile.UntilChanged(old)
						wantCause(t, again, context.Canceled)
						wantWatchers(t, q, 0) // of a run that is over
						return nil
					},
				})
				q.Enqueue("x")
				synctest.Wait()
				wantCause(t, first, nil)
				if closed {
					q.Close()
				}
				time.Sleep(time.Minute + time.Second)
				synctest.Wait()
				wantCause(t, first, context.Canceled)
				q.EnqueueNow("x")
				synctest.Wait()
				wantCause(t, first, context.Canceled)
				wantWatchers(t, q, 0)
				if again == nil && !closed {
					t.Error("there was no second run")
				}
				run.end()
			})
		}
	}
}

// An event in the very instant in which the run ends is either in time to end it,
// or is followed by a run of its own.
func TestUntilChangedWithTheEventAsTheRunEnds(t *testing.T) {
	for range 50 {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			var changed context.Context
			s := serve(t, reconcile.Reconciler[string]{
				Queue: q, Logger: unlogged(), Retry: reconcile.NoRetry,
				Reconcile: func(ctx context.Context, _ string) error {
					if changed != nil {
						return nil
					}
					changed, _ = reconcile.UntilChanged(ctx)
					time.Sleep(time.Minute)
					return errBoom
				},
			}, "x")
			time.AfterFunc(time.Minute, func() { q.Enqueue("x") })
			time.Sleep(time.Minute + time.Second) // A failure is not followed by a run sooner.
			synctest.Wait()
			all, cause := s.results.all(), context.Cause(changed)
			if len(all) != 2 || all[0].Outcome == reconcile.Requeued && cause != reconcile.ErrChanged || cause == nil {
				t.Errorf("the context ended with %v, results %+v, want two", cause, all)
			}
			s.end()
		})
	}
}

// Whatever context of the run it is called with, it finds the run; and the run
// may call it as often as it likes, from any goroutine. Elsewhere only its own
// context counts.
func TestUntilChangedManyTimesInARunAndElsewhere(t *testing.T) {
	type key struct{}
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		oneRun(t, q, reconcile.Reconciler[string]{}, func(ctx context.Context) error {
			valued := context.WithValue(ctx, key{}, "v")
			timed, cancel := context.WithTimeout(valued, time.Hour)
			defer cancel()
			inner, stop := reconcile.UntilChanged(ctx)
			defer stop()
			var mu sync.Mutex
			var all []context.Context
			var calls sync.WaitGroup
			for _, ctx := range []context.Context{ctx, valued, timed, context.WithoutCancel(timed), inner} {
				for range 3 {
					calls.Go(func() {
						changed, stop := reconcile.UntilChanged(ctx)
						context.AfterFunc(changed, stop)
						if got, want := changed.Value(key{}), ctx.Value(key{}); got != want {
							t.Errorf("it has the value %v, want that of the context it is derived from, %v", got, want)
						}
						mu.Lock()
						defer mu.Unlock()
						all = append(all, changed)
					})
				}
			}
			calls.Wait()
			wantWatchers(t, q, 16)
			for _, i := range []int{0, 7, 14} { // some give up
				_, stop := reconcile.UntilChanged(all[i])
				stop()
			}
			q.Enqueue("x")
			for _, changed := range all {
				wantCause(t, changed, reconcile.ErrChanged)
			}
			wantWatchers(t, q, 0)
			return nil
		})
	})
	ctx, cancel := context.WithCancelCause(context.Background())
	changed, stop := reconcile.UntilChanged(ctx)
	defer stop()
	wantCause(t, changed, nil)
	cancel(errEnd)
	wantCause(t, changed, errEnd)
	changed, stop = reconcile.UntilChanged(context.Background())
	stop()
	stop()
	wantCause(t, changed, context.Canceled)
}

// A badContext is user code that takes long when a context derived from it ends.
type badContext struct {
	context.Context
	done chan struct{}
	end  func()
}

func (b badContext) Done() <-chan struct{} { return b.done }

func (b badContext) AfterFunc(func()) func() bool {
	return func() bool { b.end(); return true }
}

// A context takes long to end. The run may return as soon as it sees the end, and
// it is known by then why; and a consumer that was woken at the same time is not
// kept waiting.
func TestSlowUntilChangedBlocksNoOtherCall(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		checked := make(chan struct{})
		var results resultBook[string]
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Logger: unlogged(),
			Reconcile: func(ctx context.Context, item string) error {
				if len(results.all()) > 0 || item != "x" {
					return nil
				}
				changed, stop := reconcile.UntilChanged(badContext{ctx, make(chan struct{}), func() { <-checked }})
				defer stop()
				<-changed.Done()
				time.Sleep(time.Minute)
				return errBoom
			},
			OnResult: func(r reconcile.Result[string]) {
				if results.add(r); len(results.all()) == 1 {
					close(checked)
				}
			},
		})
		q.Enqueue("x")
		synctest.Wait()
		other := startDequeue(t.Context(), q)
		q.EnqueueAfter("x", time.Minute)
		q.EnqueueAfter("y", time.Minute)
		time.Sleep(time.Minute)
		if d := mustReturn(t, other); d.item != "y" || d.err != nil {
			t.Errorf("Dequeue: %q, %v, want y", d.item, d.err)
		}
		time.Sleep(time.Hour)
		run.end()
		if r := results.all()[0]; r.Outcome != reconcile.Requeued {
			t.Errorf("result %+v, want it requeued", r)
		}
	})
}
