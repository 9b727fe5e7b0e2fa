// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
)

// wantWatchers checks how many watch the queue and its items.
func wantWatchers[T comparable](t *testing.T, q *reconcile.Queue[T], want int) {
	t.Helper()
	if n := reconcile.Watchers(q); n != want {
		t.Errorf("%d watchers, want %d", n, want)
	}
	mustAgree(t, q)
}

// done returns a context that has ended.
func done() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errEnd)
	return ctx
}

// waitSteps are what can happen to "x", for the tables of waits. A wait is for
// an hour; boom is a failure.
var waitSteps = map[string]func(q *reconcile.Queue[string]){
	"Enqueue":       func(q *reconcile.Queue[string]) { q.Enqueue("x") },
	"EnqueueNow":    func(q *reconcile.Queue[string]) { q.EnqueueNow("x") },
	"EnqueueAfter":  func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Hour) },
	"EnqueueWithin": func(q *reconcile.Queue[string]) { q.EnqueueWithin("x", time.Hour) },
	"Offer":         func(q *reconcile.Queue[string]) { q.Offer("x") },
	"take":          func(q *reconcile.Queue[string]) { _, _ = q.Dequeue(context.Background()) },
	"Done":          func(q *reconcile.Queue[string]) { q.Done("x") },
	"now":           func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.RequeueOptions{}) },
	"within":        func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.RequeueOptions{Delay: time.Hour}) },
	"after":         func(q *reconcile.Queue[string]) { q.RequeueAfter("x", time.Hour) },
	"settled": func(q *reconcile.Queue[string]) {
		q.Requeue("x", reconcile.RequeueOptions{Delay: time.Hour, Recheck: true})
	},
	"boom": func(q *reconcile.Queue[string]) {
		q.Requeue("x", reconcile.RequeueOptions{Delay: time.Hour, Err: errBoom})
	},
	"held-boom": func(q *reconcile.Queue[string]) {
		q.Requeue("x", reconcile.RequeueOptions{Delay: time.Hour, MinDelay: time.Hour, Err: errBoom})
	},
	"boom-now":  func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.RequeueOptions{Err: errBoom}) },
	"aborted":   func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.RequeueOptions{Aborted: true}) },
	"Remove":    func(q *reconcile.Queue[string]) { q.Remove("x") },
	"Close":     func(q *reconcile.Queue[string]) { q.Close() },
	"hour":      func(*reconcile.Queue[string]) { time.Sleep(time.Hour); synctest.Wait() },
	"late-hour": func(q *reconcile.Queue[string]) { reconcile.DelayTimer(q, time.Second); time.Sleep(time.Hour) },
	"take-y":    func(q *reconcile.Queue[string]) { q.Enqueue("y"); _, _ = q.Dequeue(context.Background()) },
	"y":         func(q *reconcile.Queue[string]) { q.EnqueueAfter("y", time.Hour); q.Remove("y") },
}

func takeSteps(t *testing.T, q *reconcile.Queue[string], steps string) {
	t.Helper()
	for step := range strings.FieldsSeq(steps) {
		waitSteps[step](q)
		synctest.Wait()
		mustAgree(t, q)
	}
}

// What EnqueueAndWait waits for. The last word is what it returns then: ok, closed,
// or that it waits, and what it says if its context ends now.
func TestEnqueueAndWaitStepByStep(t *testing.T) {
	for _, c := range []struct{ before, during, want string }{
		{"", "", "x is ready"},
		{"", "take", "x is in flight"},
		{"", "take Done", "ok"},
		{"", "take settled", "ok"},
		{"", "take now", "x is ready"},
		{"", "take within", "x is waiting"},
		{"", "take after", "x is waiting"},
		{"", "take boom", "x is waiting, after 1 failures in a row: boom"},
		{"", "take boom-now", "x is ready, after 1 failures in a row: boom"},
		{"", "take held-boom hour take", "x is in flight, after 1 failures in a row: boom"},
		{"", "take boom hour take Done", "ok"},
		{"", "take boom late-hour", "x is ready, after 1 failures in a row: boom"},
		{"", "take after hour take settled", "ok"},
		{"", "take within Enqueue take Done", "ok"},
		{"", "take aborted", "x is ready"},

		// An event is answered first, and so is a plan of somebody else.
		{"", "take Enqueue Done", "x is ready"},
		{"", "take Enqueue settled", "x is ready"},
		{"", "take EnqueueAfter Done", "x is waiting"},
		{"", "take EnqueueWithin settled", "x is waiting"},
		{"", "take EnqueueAfter settled", "x is waiting"},
		{"", "take Enqueue settled take settled", "ok"},
		{"", "take y", "x is in flight"},

		// No longer known.
		{"", "Remove", "ok"},
		{"", "take Remove", "x is in flight"},
		{"", "take Enqueue Remove Done", "ok"},
		{"", "take boom Remove", "ok"},

		// Closed.
		{"", "Close", "x is ready"},
		{"", "Close take", "x is in flight"},
		{"", "Close take Done", "ok"},
		{"", "Close take settled", "ok"},
		{"", "Close take now", "x is ready"},
		{"", "Close take within", "closed"},
		{"", "Close take boom", "closed boom"},
		{"", "take Close settled", "ok"},
		{"", "take after Close", "closed"},
		{"", "take boom Close", "closed"},
		{"", "take EnqueueAfter Close", "closed"},
		{"", "take Enqueue Close Done", "x is ready"},
		{"take-y", "take after Close", "closed"},
		{"take-y", "take within Close", "closed"},
		{"take-y", "Close take boom", "closed boom"},
		{"Close", "", "closed"},
		{"EnqueueAfter Close", "", "closed"},
		{"Enqueue Close", "", "closed"},

		// As it was before. A run in flight does not count.
		{"Enqueue", "take Done", "ok"},
		{"Offer", "take Done", "ok"},
		{"EnqueueAfter", "", "x is waiting"},
		{"EnqueueAfter", "hour take Done", "ok"},
		{"EnqueueWithin", "", "x is ready"},
		{"Enqueue take", "Done", "x is ready"},
		{"Enqueue take", "settled", "x is ready"},
		{"Enqueue take", "Done take settled", "ok"},
		{"Enqueue take Enqueue", "Done take Done", "ok"},
		{"Enqueue take EnqueueAfter", "Done", "x is waiting"},
		{"Enqueue take EnqueueAfter", "Done EnqueueNow take Done", "ok"},
		{"Enqueue take settled", "", "x is ready"},
		{"Enqueue take settled", "take settled", "ok"},
		{"Enqueue take boom", "", "x is ready, after 1 failures in a row: boom"},
		{"Enqueue take boom", "take Done", "ok"},
	} {
		runQueue(t, c.before+"/"+c.during, func(t *testing.T, q *reconcile.Queue[string]) {
			takeSteps(t, q, c.before)
			ctx, cancel := context.WithCancelCause(t.Context())
			var waits []<-chan reply[struct{}]
			for range 3 { // several at once, and of the same item twice
				waits = append(waits, startWait(func() error { return q.EnqueueAndWait(ctx, "x", "x") }))
			}
			takeSteps(t, q, c.during)
			over := c.want == "ok" || strings.HasPrefix(c.want, "closed")
			for _, w := range waits {
				if over != (len(w) > 0) {
					t.Errorf("EnqueueAndWait has returned: %t, want %t", len(w) > 0, over)
				}
			}
			if !over {
				wantWatchers(t, q, 6)
			}
			wantErr := map[string]string{
				"ok": "<nil>", "closed": "item x: reconcile: queue closed\nitem x: reconcile: queue closed",
				"closed boom": "item x: reconcile: queue closed\nboom\nitem x: reconcile: queue closed\nboom",
			}[c.want]
			if wantErr == "" {
				wantErr = "reconcile: 2 of 2 items are left: the test ends\nitem " + c.want + "\nitem " + c.want
			}
			cancel(errEnd)
			for _, w := range waits {
				err := mustReturn(t, w).err
				if fmt.Sprint(err) != wantErr ||
					errors.Is(err, reconcile.ErrClosed) != strings.Contains(wantErr, "closed") ||
					errors.Is(err, errBoom) != strings.Contains(wantErr, "boom") ||
					errors.Is(err, errEnd) != strings.Contains(wantErr, "ends") {
					t.Errorf("EnqueueAndWait: %v, want %s", err, wantErr)
				}
			}
			wantWatchers(t, q, 0)
			takeSteps(t, q, "hour") // what becomes due later concerns nobody
		})
	}
}

// What WaitIdle waits for, whatever brings the queue there: what Stats says.
func TestWaitIdleStepByStep(t *testing.T) {
	states := []string{
		"", "Enqueue", "Offer", "EnqueueAfter", "EnqueueWithin", "Enqueue take", "Enqueue take EnqueueAfter",
		"Enqueue take settled", "Enqueue take after", "Enqueue take within", "Enqueue take settled EnqueueAfter",
		"Enqueue take EnqueueAfter Done", "Enqueue take boom", "Enqueue take held-boom", "Enqueue take boom Enqueue",
		"Enqueue take boom EnqueueWithin", "Enqueue take boom hour", "Enqueue take boom Remove", "Enqueue take boom Close",
		"Enqueue take Close boom", "Enqueue Close", "Enqueue take boom-now take", "Enqueue take settled hour", "EnqueueAfter late-hour",
		"Enqueue take settled late-hour",
	}
	idle := func(q *reconcile.Queue[string]) bool {
		s := q.Stats()
		return s.Ready == 0 && s.InFlight == 0 && s.Waiting == s.Rechecks
	}
	for _, state := range states {
		for end := range waitSteps {
			if end == "take" || end == "take-y" {
				continue // may wait
			}
			runQueue(t, state+"/"+end, func(t *testing.T, q *reconcile.Queue[string]) {
				q.Enqueue("z") // is settled all the time
				mustTake(t, q)
				q.Requeue("z", reconcile.RequeueOptions{Delay: 1000 * time.Hour, Recheck: true})
				takeSteps(t, q, state)
				err := q.WaitIdle(done()) // looks first
				s := q.Stats()
				says := fmt.Sprintf("reconcile: queue is not idle (%d ready, %d in flight, %d waiting): the test ends", s.Ready, s.InFlight, s.Waiting-s.Rechecks)
				if was := idle(q); was && err != nil || !was && (!errors.Is(err, errEnd) || err.Error() != says) {
					t.Errorf("WaitIdle: %v, want nil if %t, or %s", err, was, says)
				}
				if idle(q) {
					return
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				waits := []<-chan reply[struct{}]{startWait(func() error { return q.WaitIdle(ctx) }), startWait(func() error { return q.WaitIdle(ctx) })}
				for _, w := range waits {
					mustWait(t, w)
				}
				wantWatchers(t, q, 2)
				takeSteps(t, q, end)
				is := idle(q)
				if !is {
					wantWatchers(t, q, 2)
				}
				cancel(errEnd)
				for _, w := range waits {
					if err := mustReturn(t, w).err; is != (err == nil) || !is && !errors.Is(err, errEnd) {
						t.Errorf("WaitIdle: %v, want nil if %t", err, is)
					}
				}
				wantWatchers(t, q, 0)
			})
		}
	}
}

// appliedRuns is a Reconcile for items that say how their runs go; n is the
// number of the run.
func appliedRuns(item string, n int) error {
	what, _, _ := strings.Cut(item, "-")
	switch {
	case what == "recheck":
		return reconcile.RecheckWithin(time.Hour)
	case what == "plan" && n < 3:
		return reconcile.RequeueAfter(10 * time.Minute)
	case what == "retry" && n < 3:
		return errBoom // again after 1 and 2 minutes
	case what == "fail":
		return errBoom
	case what == "refuse":
		return reconcile.Terminal(errBoom)
	case what == "panic":
		panic("no disk")
	case what == "hang":
		time.Sleep(24 * time.Hour)
	}
	return nil
}

func launchApplied(t *testing.T, q *reconcile.Queue[string], workers int) *record.Running {
	t.Helper()
	var mu sync.Mutex
	runs := make(map[string]int)
	return record.Launch(t, &reconcile.Reconciler[string]{
		Queue: q, Workers: workers, Logger: record.Unlogged(),
		Retry: reconcile.RetryPolicy(func(_ error, failures int) (time.Duration, bool) {
			return time.Duration(failures) * time.Minute, true
		}).Limit(2),
		Reconcile: func(_ context.Context, item string) error {
			mu.Lock()
			runs[item]++
			n := runs[item]
			mu.Unlock()
			return appliedRuns(item, n)
		},
	})
}

// EnqueueAndWait and WaitIdle return as soon as all is settled; the first with the
// errors of what was given up, in the order of the items.
func TestEnqueueAndWaitWithAReconciler(t *testing.T) {
	refused := func(first, last int) string {
		var s strings.Builder
		for i := first; i <= last; i++ {
			fmt.Fprintf(&s, "item refuse-%d: boom\n", i)
		}
		return s.String()
	}
	for _, c := range []struct {
		items string // *n repeats it with numbers
		after time.Duration
		says  string // a line each; all of it but the end of the last
		is    []error
	}{
		{"", 0, "", nil},
		{"ok", 0, "", nil},
		{"ok ok", 0, "", nil},
		{"recheck", 0, "", nil},
		{"plan", 20 * time.Minute, "", nil},
		{"retry", 3 * time.Minute, "", nil},
		{"fail", 3 * time.Minute, "item fail: boom\n", []error{errBoom}},
		{"refuse", 0, "item refuse: boom\n", []error{errBoom, reconcile.ErrTerminal}},
		{"refuse refuse", 0, "item refuse: boom\nitem refuse: boom\n", []error{errBoom}},
		{"panic", 3 * time.Minute, "item panic: panic: no disk\n", nil},
		{"ok fail plan refuse recheck", 20 * time.Minute, "item fail: boom\nitem refuse: boom\n", []error{errBoom}},
		{"ok*1000", 0, "", nil},
		{"ok*100000", 0, "", nil},
		{"refuse*100", 0, refused(0, 99), []error{errBoom}},
		{"refuse*101", 0, refused(0, 99) + "and 1 more items\n", []error{errBoom}},
		{"ok refuse*1000 fail", 3 * time.Minute, refused(0, 99) + "and 901 more items\n", []error{reconcile.ErrTerminal}},
	} {
		runQueue(t, c.items, func(t *testing.T, q *reconcile.Queue[string]) {
			var items []string
			for item := range strings.FieldsSeq(c.items) {
				n := 0
				if name, _ := fmt.Sscanf(strings.Replace(item, "*", " ", 1), "%s %d", &item, &n); name == 1 {
					items = append(items, item)
				}
				for i := range n {
					items = append(items, fmt.Sprintf("%s-%d", item, i))
				}
			}
			run := launchApplied(t, q, 8)
			begin := time.Now()
			err := q.EnqueueAndWait(t.Context(), items...)
			if took := time.Since(begin); took != c.after {
				t.Errorf("EnqueueAndWait returned after %v, want %v", took, c.after)
			}
			got := ""
			if err != nil {
				got = err.Error() + "\n"
			}
			if got != c.says {
				t.Errorf("EnqueueAndWait:\n%swant:\n%s", got, c.says)
			}
			for _, is := range c.is {
				if !errors.Is(err, is) {
					t.Errorf("EnqueueAndWait: an error that is not %v", is)
				}
			}
			wantWatchers(t, q, 0)
			for _, item := range items {
				q.Enqueue(item)
			}
			if err := q.WaitIdle(t.Context()); err != nil || time.Since(begin) > c.after+3*time.Minute { // retries and plans are over
				t.Errorf("WaitIdle: %v after %v", err, time.Since(begin)-c.after)
			}
			run.End()
		})
	}
}

// Its context ends: before the call, when the items are enqueued all the same; or
// while it waits.
func TestEnqueueAndWaitUntilItsContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		err := q.EnqueueAndWait(done(), "a", "b", "c", "d", "e")
		if want := "reconcile: 5 of 5 items are left: the test ends\nitem a is ready\nitem b is ready\nitem c is ready"; fmt.Sprint(err) != want || !errors.Is(err, errEnd) {
			t.Errorf("EnqueueAndWait: %v, want %s", err, want)
		}
		mustTakeAll(t, q, "a", "b", "c", "d", "e")
	})
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		run := launchApplied(t, q, 1)
		ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errEnd)
		defer cancel()
		err := q.EnqueueAndWait(ctx, "ok", "refuse", "retry", "hang", "plan")
		if want := "reconcile: 3 of 5 items are left: the test ends\n" +
			"item retry is waiting, after 1 failures in a row: boom\nitem hang is in flight\nitem plan is ready\nitem refuse: boom"; fmt.Sprint(err) != want ||
			!errors.Is(err, errEnd) || !errors.Is(err, errBoom) {
			t.Errorf("EnqueueAndWait: %v, want %s", err, want)
		}
		wantWatchers(t, q, 0)
		run.End()
	})
}

// A run that returns what EnqueueAndWait of another queue returned has failed. The
// delays that items of that queue asked for are not its own.
func TestEnqueueAndWaitSchedulesNoRunOfItsCaller(t *testing.T) {
	boom := &fs.PathError{Op: "open", Path: "a", Err: errBoom}
	for _, o := range []reconcile.RequeueOptions{
		{Delay: time.Hour, Reason: fmt.Errorf("%w: %w", boom, reconcile.RequeueAfter(time.Hour))},
		{Delay: time.Hour, Err: errors.Join(boom, reconcile.RequeueAfter(time.Hour))},
		{Delay: time.Hour, Err: errors.Join(boom, reconcile.Terminal(errBoom))},
		{Delay: time.Hour, Err: &reconcile.PanicError{Value: reconcile.Terminal(boom)}},
	} {
		for _, closed := range []bool{false, true} {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				wait := startWait(func() error { return q.EnqueueAndWait(ctx, "a") })
				mustWait(t, wait)
				mustTakeAll(t, q, "a")
				if closed {
					q.Close()
				}
				q.Requeue("a", o)
				pass(time.Second)
				err := mustReturn(t, wait).err
				_, got := reconcile.Classify(fmt.Errorf("apply: %w", err), 1, minutes)
				if p := new(fs.PathError); !errors.As(err, &p) || p != boom {
					t.Errorf("errors.As finds %v in %v, want %v", p, err, boom)
				}
				if got.Delay != time.Minute || got.MinDelay != time.Second || !errors.Is(err, errBoom) || errors.Is(err, reconcile.ErrClosed) != closed {
					t.Errorf("%v is retried within %v, and after %v at the earliest, want 1m and 1s", err, got.Delay, got.MinDelay)
				}
			})
		}
	}
}

// A nosyItem asks its queue as it is printed, which it may: that is not done with
// the lock held. Then it panics.
type nosyItem struct {
	q    *reconcile.Queue[nosyItem]
	name string
}

func (n nosyItem) String() string { n.q.Len(); panic(n.name) }

// A nosyContext asks the queue in each of its methods.
type nosyContext struct {
	context.Context
	look func() int
}

func (n nosyContext) Done() <-chan struct{} { n.look(); return n.Context.Done() }
func (n nosyContext) Err() error            { n.look(); return n.Context.Err() }
func (n nosyContext) Value(key any) any     { n.look(); return n.Context.Value(key) }

func TestWatchersCallNoUserCodeUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[nosyItem]()
		a, b := nosyItem{q, "no a"}, nosyItem{q, "no b"}
		runs := 0
		run := record.Launch(t, &reconcile.Reconciler[nosyItem]{
			Queue: q, Workers: 2, Logger: slog.New(slog.DiscardHandler),
			Reconcile: func(ctx context.Context, item nosyItem) error {
				if item == b {
					time.Sleep(time.Hour)
				} else if runs++; runs == 1 {
					q.Enqueue(item)
				}
				return reconcile.Terminal(errBoom)
			},
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		idle := startWait(func() error { return q.WaitIdle(nosyContext{ctx, q.Len}) })
		items := startWait(func() error { return q.EnqueueAndWait(nosyContext{ctx, q.Len}, a, b) })
		pass(2 * time.Second) // The second run of a comes after one.
		cancel(errEnd)
		r := mustReturn(t, items)
		for _, says := range []string{"no a", "boom", "1 of 2 items are left", "no b", "in flight"} {
			if !strings.Contains(fmt.Sprint(r.err), says) {
				t.Errorf("EnqueueAndWait: %v, want that it says %q", r.err, says)
			}
		}
		mustReturn(t, idle)
		wantWatchers(t, q, 0)
		run.End()
	})
}

// A thing is found gone once nothing leads to it.
type thing struct{ _ [1024]byte }

// Nothing of a watcher stays reachable once it was notified, or has given up; and where nobody watches, nothing is allocated.
func TestWatchersFreeTheirMemory(t *testing.T) {
	type key struct{}
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		things := make(map[string]weak.Pointer[thing])
		with := func(ctx context.Context, name string) context.Context {
			p := new(thing)
			things[name] = weak.Make(p)
			return context.WithValue(ctx, key{}, p)
		}
		run := record.Launch(t, &reconcile.Reconciler[string]{
			Queue: q, Logger: record.Unlogged(),
			Reconcile: func(context.Context, string) error {
				time.Sleep(time.Minute)
				return nil
			},
		})
		q.Enqueue("x")
		synctest.Wait()
		var cancels []context.CancelFunc
		for name, f := range map[string]func(context.Context) error{
			"WaitIdle": q.WaitIdle, "EnqueueAndWait": func(ctx context.Context) error { return q.EnqueueAndWait(ctx, "x", "y") },
		} {
			for _, canceled := range []bool{true, false} {
				ctx, cancel := context.WithCancel(t.Context())
				ctx = with(ctx, fmt.Sprint(name, canceled))
				startWait(func() error { return f(ctx) })
				if cancels = append(cancels, cancel); canceled {
					cancel()
				}
			}
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for name, p := range things {
			for n := 0; p.Value() != nil; n++ {
				if runtime.GC(); n == 10 {
					t.Errorf("%s: its context is still reachable", name)
					break
				}
			}
		}
		wantWatchers(t, q, 0)
		run.End()
		for _, cancel := range cancels {
			cancel()
		}
		ctx := t.Context()
		if n := testing.AllocsPerRun(100, func() {
			q.Enqueue("x")
			_, _ = q.Dequeue(ctx)
			q.Enqueue("x")
			q.Remove("x")
			q.Done("x")
		}); n != 0 {
			t.Errorf("%v allocations where nobody watches, want none", n)
		}
	})
}

// A queue inside of another one tells of what was given up, too: RequeueOptions.Done has why.
func TestEnqueueAndWaitOfAWrappedQueueReturnsErrorsNotRetried(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		s := serve(t, reconcile.Reconciler[string]{Queue: plainly(q), Reconcile: mixed, Retry: reconcile.NoRetry})
		err := q.EnqueueAndWait(t.Context(), "good", "refuse", "fail")
		want := "item refuse: boom\nitem fail: boom"
		if err == nil || err.Error() != want || !errors.Is(err, reconcile.ErrTerminal) {
			t.Errorf("EnqueueAndWait = %v, want %s", err, want)
		}
		s.End()
	})
}
