// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

var errBoom = errors.New("boom")

// failures runs play with an Env that keeps what it would fail the test with.
func failures(t *testing.T, play func(env *Env[string])) []string {
	t.Helper()
	var failed []string
	Run(t, func(t *testing.T, env *Env[string]) {
		env.errorf = func(format string, args ...any) { failed = append(failed, fmt.Sprintf(format, args...)) }
		play(env)
	})
	return failed
}

func mustFail(t *testing.T, got []string, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d failures %q, want %d", len(got), got, len(want))
	}
	for i, text := range want {
		if got[i] != text {
			t.Errorf("failure:\n%s\nwant:\n%s", got[i], text)
		}
	}
}

// A function that asks for its next run at once, for ever, would never let the clock go on.
func TestHotLoopFails(t *testing.T) {
	runs := 0
	got := failures(t, func(env *Env[string]) {
		env.Start(&reconcile.Reconciler[string]{Timeout: 10 * time.Second, Reconcile: func(_ context.Context, item string) error {
			if runs++; runs > 5000 && item == "cert" {
				return nil // or this test would not end without what it tests
			}
			if item == "steps" && runs < 900 {
				return reconcile.RequeueWithin(0) // the steps of a piece of work
			}
			return map[string]error{"cert": reconcile.RequeueWithin(0)}[item]
		}})
		env.Event("steps")
		env.Advance(time.Second)
		env.Event("cert")
		env.Advance(time.Minute)
	})
	mustFail(t, got, "hot loop: cert ran 1000 times at 1s, and asks for its next run at once; it is held until the end")
}

func TestEachOutcomeIsALine(t *testing.T) {
	Run(t, func(t *testing.T, env *Env[string]) {
		env.Start(&reconcile.Reconciler[string]{
			Timeout: time.Minute,
			Reconcile: func(ctx context.Context, item string) error {
				switch item {
				case "after":
					return reconcile.RequeueAfter(time.Hour)
				case "within":
					return fmt.Errorf("soon: %w", reconcile.RequeueWithin(time.Hour))
				case "look":
					return reconcile.RecheckWithin(time.Hour)
				case "terminal":
					return reconcile.Terminal(errBoom)
				case "panic":
					panic("no disk")
				case "slow":
					<-ctx.Done()
					return context.Cause(ctx)
				}
				return nil
			},
			Retry: func(_ error, failures int) (time.Duration, bool) { return time.Minute, failures < 2 },
		})
		for _, item := range []string{"well", "after", "within", "look", "terminal", "panic", "slow"} {
			env.Queue.Enqueue(item)
		}
		env.Advance(59 * time.Second)
		env.WantQueue(
			"after held until 1h0m0s",
			"look recheck at 1h0m0s",
			"panic waiting until 1m0s, failures 1: panic: no disk",
			"slow in flight",
			"within waiting until 1h0m0s: soon: requeue within 1h0m0s",
		)
		env.Queue.Enqueue("slow")
		env.Queue.Enqueue("well")
		env.WantQueue(
			"after held until 1h0m0s",
			"look recheck at 1h0m0s",
			"panic waiting until 1m0s, failures 1: panic: no disk",
			"slow in flight, again",
			"well ready",
			"within waiting until 1h0m0s: soon: requeue within 1h0m0s",
		)
		env.Queue.Remove("slow")
		env.Advance(time.Second)
		env.Want(
			"0s well succeeded",
			"0s after requeued after 1h0m0s",
			"0s within requeued within 1h0m0s",
			"0s look succeeded, again within 1h0m0s",
			"0s terminal terminal_error: boom",
			"0s panic retrying in 1m0s: panic: no disk",
			"1m0s slow retrying in 1m0s: reconcile: run took longer than its timeout",
			"1m0s well succeeded",
			"1m0s panic gave_up: panic: no disk",
		)
	})
}

// A run that is aborted while the test goes on is a line too.
func TestAbortedIsALine(t *testing.T) {
	Run(t, func(t *testing.T, env *Env[string]) {
		ctx, stop := context.WithCancel(t.Context())
		results := 0
		r := env.Watch(&reconcile.Reconciler[string]{
			Reconcile: func(ctx context.Context, _ string) error { <-ctx.Done(); return errBoom },
			OnResult:  func(reconcile.Result[string]) { results++ },
		})
		env.Go(reconcile.RunFunc(func(context.Context) error { return r.Run(ctx) }))
		env.Queue.Enqueue("a")
		env.Advance(time.Second)
		stop()
		env.Advance(time.Second)
		env.Want("1s a aborted: boom")
		if results != 1 {
			t.Errorf("OnResult is called %d times, want 1", results)
		}
	})
}

func TestRetryDoublesWithoutChance(t *testing.T) {
	Run(t, func(t *testing.T, env *Env[string]) {
		env.Start(&reconcile.Reconciler[string]{Reconcile: func(context.Context, string) error { return errBoom }})
		env.Queue.Enqueue("a")
		env.Advance(3 * time.Second)
		env.Want("0s a retrying in 1s: boom", "1s a retrying in 2s: boom", "3s a retrying in 4s: boom")
		env.WantQueue("a waiting until 7s, pending since 0s, failures 3: boom")
		env.Queue.Remove("a")
	})
	for failures, want := range map[int]time.Duration{1: time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 1000: 5 * time.Minute} {
		if got, again := retry(nil, failures); got != want || !again {
			t.Errorf("retry after %d failures = %v, %t, want %v, true", failures, got, again, want)
		}
	}
}

func TestFailCountsFromNowOn(t *testing.T) {
	Run(t, func(t *testing.T, env *Env[string]) {
		env.Call("put a")
		env.Fail("put a", 2, errBoom)
		env.Fail("put b", 1, errBoom)
		for _, op := range []string{"put a", "put a", "put a", "put b", "put b"} {
			env.Call(op)
		}
		env.Want("0s call put a", "0s call put a", "0s call put a: boom", "0s call put a", "0s call put b: boom", "0s call put b")
	})
}

func TestFailWhoseCallNeverCameFails(t *testing.T) {
	got := failures(t, func(env *Env[string]) {
		env.Call("put a")
		env.Fail("put a", 3, errBoom)
		env.Fail("put a", 1, errBoom)
		env.Fail("get a", 1, errBoom)
		env.Call("put a")
		env.Call("put a")
	})
	mustFail(t, got,
		`Fail("get a", 1, boom): the call never came, there were 0 of "get a"`,
		`Fail("put a", 3, boom): the call never came, there were 2 of "put a"`)
}

// Do and Read are calls with an effect: what fails by Fail has none.
func TestDoAndRead(t *testing.T) {
	Run(t, func(t *testing.T, env *Env[string]) {
		world := "old"
		put := func(ctx context.Context, value string) error {
			return env.Do(ctx, "put", func() error { world = value; return nil })
		}
		get := func(ctx context.Context) (string, error) {
			return Read(ctx, env, "get", func() (string, error) {
				if world == "" {
					return "nothing", io.EOF
				}
				return world, nil
			})
		}
		env.Fail("put", 2, errBoom)
		env.Fail("get", 2, errBoom)
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(errBoom)
		for _, step := range []struct {
			ctx   context.Context
			put   string
			err   error
			world string
			got   string
			read  error
		}{
			{t.Context(), "new", nil, "new", "new", nil},
			{t.Context(), "newer", errBoom, "new", "", errBoom},
			{t.Context(), "", nil, "", "nothing", io.EOF},
			{ended, "last", errBoom, "", "", errBoom},
		} {
			if err := put(step.ctx, step.put); err != step.err || world != step.world {
				t.Errorf("put %q returns %v and the world is %q, want %v and %q", step.put, err, world, step.err, step.world)
			}
			if got, err := get(step.ctx); got != step.got || err != step.read {
				t.Errorf("get returns %q, %v, want %q, %v", got, err, step.got, step.read)
			}
		}
		env.Want(
			"0s call put", "0s call get",
			"0s call put: boom", "0s call get: boom",
			"0s call put", "0s call get: EOF",
			"0s call put: boom", "0s call get: boom",
		)
	})
}

func TestEventIsALine(t *testing.T) {
	Run(t, func(t *testing.T, env *Env[string]) {
		env.Event("a")
		env.Events = reconcile.Filter(env.Queue, func(item string) bool { return item != "b" })
		env.Event("b")
		env.Event("c")
		env.WantQueue("a ready", "c ready")
		env.Want("0s event a", "0s event b", "0s event c")
	})
}

func TestNoteIsALine(t *testing.T) {
	Run(t, func(t *testing.T, env *Env[string]) {
		env.Advance(time.Second)
		env.Note("100% of the disk is used")
		env.Want("1s 100% of the disk is used")
	})
}

func TestFailSaysWhatIsWrong(t *testing.T) {
	Run(t, func(t *testing.T, env *Env[string]) {
		if text := panicOf(func() { env.Fail("put a", 0, errBoom) }); !strings.HasPrefix(text, "reconciletest: Fail(") {
			t.Errorf("Fail panics with %q", text)
		}
	})
}

// A plan that took the place of another one would hide that the first never came.
func TestFailPlansACallOnce(t *testing.T) {
	Run(t, func(t *testing.T, env *Env[string]) {
		env.Call("put a")
		env.Fail("put a", 2, errBoom)
		env.Call("put a")
		want := `reconciletest: Fail("put a", 1, EOF): that call is to fail already, with boom`
		if text := panicOf(func() { env.Fail("put a", 1, io.EOF) }); text != want {
			t.Errorf("Fail of a call that is to fail panics with %q", text)
		}
		if err := env.Call("put a"); err != errBoom {
			t.Errorf("the call returns %v, want what was planned first", err)
		}
	})
}

func TestNilIsRefused(t *testing.T) {
	var none context.Context
	other := &reconcile.Reconciler[string]{Queue: reconcile.NewQueue[string](), Reconcile: func(context.Context, string) error { return nil }}
	Run(t, func(t *testing.T, env *Env[string]) {
		for want, f := range map[string]func(){
			"reconciletest: Start needs a Reconciler or another Runner, got nil":                                                                             func() { env.Start(nil) },
			"reconciletest: Watch needs a Reconciler without a Queue, or with that of the Env; start one with another Queue by Go(reconcile.RunFunc(r.Run))": func() { env.Start(other) },
			"reconciletest: Go needs a Runner, got nil":                                                                                                      func() { env.Go(nil) },
			`reconciletest: Do("put") needs a context and an effect, got nil`:                                                                                func() { _ = env.Do(none, "put", func() error { return nil }) },
			`reconciletest: Do("get") needs a context and an effect, got nil`:                                                                                func() { _ = env.Do(t.Context(), "get", nil) },
			`reconciletest: Read("a") needs a context, an Env and a function, got nil`:                                                                       func() { _, _ = Read[int, string](t.Context(), nil, "a", nil) },
			`reconciletest: Read("b") needs a context, an Env and a function, got nil`:                                                                       func() { _, _ = Read[int](t.Context(), env, "b", nil) },
		} {
			if text := panicOf(f); text != want {
				t.Errorf("it panics with %q, want %q", text, want)
			}
		}
	})
}

func panicOf(f func()) (text string) {
	defer func() { text = fmt.Sprint(recover()) }()
	f()
	return ""
}

func TestWantSaysWhatHappened(t *testing.T) {
	got := failures(t, func(env *Env[string]) {
		env.Call("put a")
		env.Want("0s call put b", "0s call put c")
		env.Want()
		env.Want("more")
	})
	mustFail(t, got,
		"this happened:\n\t0s call put a\nwant:\n\t0s call put b\n\t0s call put c\n",
		"this happened:\n\tnothing\nwant:\n\tmore\n")
}

func TestWantQueueSaysWhatThereIs(t *testing.T) {
	got := failures(t, func(env *Env[string]) {
		env.Queue.EnqueueAfter("b", time.Second)
		env.Queue.Enqueue("a")
		env.WantQueue("b held until 1s", "a ready") // in any order
		env.WantQueue("a ready")
	})
	mustFail(t, got, "the queue has:\n\ta ready\n\tb held until 1s\nwant:\n\ta ready\n")
}

func TestWhatNoWantAskedForFails(t *testing.T) {
	got := failures(t, func(env *Env[string]) {
		env.Want()
		env.Call("put a")
	})
	mustFail(t, got, "this happened too, and no Want asked for it:\n\t0s call put a\n")
	mustFail(t, failures(t, func(env *Env[string]) { env.Call("put a") })) // there was no Want

	got = failures(t, func(env *Env[string]) {
		env.Start(&reconcile.Reconciler[string]{Reconcile: func(context.Context, string) error { return nil }})
		env.Want()
		env.Queue.Enqueue("a") // and the play returns
	})
	mustFail(t, got, "this happened too, and no Want asked for it:\n\t0s a succeeded\n")
}

// Each of them looks when all that is to happen at this instant has.
func TestNothingIsLookedAtTooSoon(t *testing.T) {
	Run(t, func(t *testing.T, env *Env[string]) {
		slowly := func(context.Context, string) error {
			for range 1000 {
				runtime.Gosched()
			}
			return nil
		}
		env.Start(&reconcile.Reconciler[string]{Reconcile: slowly})
		env.Queue.Enqueue("a")
		env.WantQueue()
		env.Queue.Enqueue("b")
		env.Want("0s a succeeded", "0s b succeeded")
		env.Queue.EnqueueAfter("c", time.Second)
		env.Advance(time.Second)
		if env.Queue.Has("c") {
			t.Error("Advance returns before the run has ended")
		}
		env.Want("1s c succeeded")
	})
}

// What ends because the test does is no part of the journal; what fails is told.
func TestEverythingEndsWithThePlay(t *testing.T) {
	ended := false
	got := failures(t, func(env *Env[string]) {
		env.Start(&reconcile.Reconciler[string]{Reconcile: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			ended = true
			return ctx.Err()
		}})
		env.Go(reconcile.RunFunc(func(context.Context) error { return errBoom }))
		env.Queue.Enqueue("a")
		env.Advance(time.Second)
		env.Want()
	})
	mustFail(t, got, "reconcile.RunFunc: Run = boom, want nil")
	if !ended {
		t.Error("a run goes on after the play")
	}
}

// What takes time to end has it.
func TestEndWaits(t *testing.T) {
	ended := time.Duration(0)
	Run(t, func(t *testing.T, env *Env[string]) {
		env.Start(&reconcile.Reconciler[string]{Grace: time.Hour, Reconcile: func(context.Context, string) error {
			begun := time.Now()
			time.Sleep(time.Minute)
			ended = time.Since(begun)
			return nil
		}})
		env.Queue.Enqueue("a")
		env.Advance(time.Second)
	})
	if ended != time.Minute {
		t.Errorf("the run has ended after %v, want 1m0s", ended)
	}
}

// A fake without a lock is enough: what the test changes between two Advance is seen
// by the runs and polls after that. This fails under the race detector alone.
func TestTheWorldCanBeChangedBetweenTwoAdvances(t *testing.T) {
	Run(t, func(t *testing.T, env *Env[string]) {
		world, seen := 0, [3]int{}
		env.Start(&reconcile.Reconciler[string]{Reconcile: func(context.Context, string) error {
			seen[0] = world
			return reconcile.RequeueAfter(time.Minute)
		}})
		env.Go(&reconcile.Poller[string]{Queue: env.Queue, Period: time.Minute, GetItems: func(context.Context) ([]string, error) {
			seen[1] = world
			return nil, nil
		}})
		env.Go(reconcile.RunFunc(func(ctx context.Context) error {
			for ctx.Err() == nil {
				if env.Call("look") == nil {
					seen[2] = world
				}
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
				}
			}
			return nil
		}))
		env.Queue.Enqueue("a")
		for range 3 {
			env.Advance(time.Minute)
			if want := [3]int{world, world, world}; seen != want {
				t.Errorf("a run, a poll and a call saw %v, want %v", seen, want)
			}
			world++
		}
	})
}

func TestStartKeepsWhatIsSet(t *testing.T) {
	Run(t, func(t *testing.T, env *Env[string]) {
		plain := &reconcile.Reconciler[string]{Reconcile: func(context.Context, string) error { return nil }}
		if watched := env.Watch(plain); watched.Logger != env.log {
			t.Error("the log does not go to the output of the test")
		}
	})
	Run(t, func(t *testing.T, env *Env[string]) {
		var told []reconcile.Outcome
		var log strings.Builder
		env.Start(&reconcile.Reconciler[string]{
			Reconcile: func(context.Context, string) error { return errBoom },
			Retry:     reconcile.NoRetry,
			OnResult:  func(r reconcile.Result[string]) { told = append(told, r.Outcome) },
			Logger:    slog.New(slog.NewTextHandler(&log, nil)),
		})
		env.Queue.Enqueue("a")
		env.Want("0s a gave_up: boom")
		if len(told) != 1 || told[0] != reconcile.OutcomeGaveUp {
			t.Errorf("OnResult was told %q", told)
		}
		if !strings.Contains(log.String(), "boom") {
			t.Errorf("the log is %q", log.String())
		}
	})
	list := func(context.Context) ([]string, error) { return nil, errBoom } // is logged, to the output of which test?
	poller := &reconcile.Poller[string]{Period: time.Minute, GetItems: list}
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(t *testing.T, env *Env[string]) { poller.Queue = env.Queue; env.Go(poller) })
		})
	}
	if poller.Logger != nil || fmt.Sprintf("%p", poller.GetItems) != fmt.Sprintf("%p", list) {
		t.Error("Go has changed the Poller of its caller")
	}
}
