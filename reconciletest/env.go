// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconciletest tests a reconciler with a simulated clock, in a bubble of
// testing/synctest, against a fake that the test controls. An hour takes no time, and
// each instant is exact. [Run] plays the steps of a test once. [Explore] plays a scenario
// again and again, with a fault at each call and event.
package reconciletest

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/explore"
)

// An Env is the environment of a test: a queue, the clock, and a journal. Run makes one,
// and Explore one for each process that it starts. Call, Do, Event, Fail, Note and Read
// may be called from any goroutine, the other methods only from the goroutine of the
// test.
//
// The journal has a line for each run that has ended, for each call of the world, and for
// each note of the test, with the time since the start:
//
//	0s call attach disk-1: busy
//	0s disk-1 retrying in 1s: busy
//	1s call attach disk-1
//	1s disk-1 succeeded
//
// Lines that several workers write at the same instant may be in any order.
//
// Everything that the test does before Advance happens before the runs, polls and calls
// that follow. Everything that these do happens before Advance returns. So between two
// calls of Advance the test may change a fake without a lock.
type Env[T comparable] struct {
	// Queue is new, and belongs to the reconcilers that are started.
	Queue *reconcile.Queue[T]

	// Events gets the events of [Env.Event]; nil means Queue. Set it before the first
	// event, for example to a Map or a Filter in front of Queue.
	Events reconcile.Enqueuer[T]

	errorf func(format string, args ...any) // reports a failure of the test
	helper func()
	log    *slog.Logger
	ctx    context.Context // of the bubble; ends after play
	begun  time.Time
	work   *sync.WaitGroup
	plan   *process[T] // in a plan of Explore; nil in Run

	mu     sync.Mutex // guards the fields below
	lines  []string   // that no Want has seen
	wanted bool       // there was a Want
	calls  map[string]int
	faults map[call]fault // that did not happen yet

	instant time.Duration // since the Env began
	runs    map[T]int     // that began at that instant
}

// A call is the nth one of op since the start.
type call struct {
	op  string
	nth int
}

// A fault was planned by Fail when op had been called so often.
type fault struct {
	err   error
	after int
}

// Run calls play in a bubble, with the t of that bubble. When play returns, Run ends
// everything that play started, and waits for it. The test fails if play called
// [Env.Want] and the journal has lines that no Want has compared, or if a call that
// [Env.Fail] planned never came. It fails, too, if an item runs more than a thousand times
// at one instant; the item is then held until the end.
func Run[T comparable](t *testing.T, play func(t *testing.T, env *Env[T])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		env := newEnv[T](t.Errorf, slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
		env.helper = t.Helper
		ctx, cancel := context.WithCancel(t.Context())
		env.ctx = ctx
		defer env.end(cancel)
		play(t, env)
	})
}

func newEnv[T comparable](errorf func(string, ...any), log slog.Handler) *Env[T] {
	return &Env[T]{
		Queue:  reconcile.NewQueue[T](),
		errorf: errorf,
		helper: func() {},
		log:    slog.New(log),
		begun:  time.Now(),
		work:   new(sync.WaitGroup),
		calls:  make(map[string]int),
		faults: make(map[call]fault),
	}
}

// end looks at the rest of the journal and of the plans, and ends what was started,
// which is no part of them.
func (env *Env[T]) end(cancel func()) {
	env.helper()
	synctest.Wait()
	env.mu.Lock()
	rest := env.lines
	if !env.wanted {
		rest = nil
	}
	var missed []string
	for c, f := range env.faults {
		missed = append(missed, fmt.Sprintf("Fail(%q, %d, %v): the call never came, there were %d of %q",
			c.op, c.nth-f.after, f.err, env.calls[c.op]-f.after, c.op))
	}
	env.mu.Unlock()
	if len(rest) > 0 {
		env.errorf("this happened too, and no Want asked for it:\n%s", indent(rest))
	}
	slices.Sort(missed)
	for _, text := range missed {
		env.errorf("%s", text)
	}
	cancel()
	env.work.Wait()
}

// Start starts r until the end of the test: a [reconcile.Reconciler] as [Env.Watch] makes
// it, any other Runner as [Env.Go] does. It panics if r is nil.
func (env *Env[T]) Start(r reconcile.Runner) {
	env.helper()
	if r == nil || r == (*reconcile.Reconciler[T])(nil) {
		panic("reconciletest: Start needs a Reconciler or another Runner, got nil")
	}
	env.Go(r)
}

// Watch returns a copy of r that uses the queue of the Env and writes its runs to the
// journal. It is for a reconciler inside of another Runner, such as a [supervise.Group]
// or [supervise.After]. The Queue of r must be nil or that of the Env. If Retry is nil,
// Watch sets a back-off that doubles from one second to five minutes and is not random. If
// Logger is nil, it sets one that writes to the output of the test. In a plan of Explore
// that output is discarded, because the journal has a line for each run. OnResult of r is
// called after the journal line is written. Watch panics if r is nil, or has another Queue:
// a reconciler of a queue of its own is started by Go, in a [reconcile.RunFunc], and the
// journal does not have its runs.
func (env *Env[T]) Watch(r *reconcile.Reconciler[T]) *reconcile.Reconciler[T] {
	if r == nil {
		panic("reconciletest: Watch needs a Reconciler, got nil")
	}
	if r.Queue != nil && r.Queue != reconcile.Dequeuer[T](env.Queue) {
		panic("reconciletest: Watch needs a Reconciler without a Queue, or with that of the Env; start one with another Queue by Go(reconcile.RunFunc(r.Run))")
	}
	watched := *r // so that r can be watched again, in another Env too
	watched.Queue = env.Queue
	if r.Retry == nil {
		watched.Retry = retry
	}
	if r.Logger == nil {
		watched.Logger = env.log
	}
	if run := r.Reconcile; run != nil {
		watched.Reconcile = func(ctx context.Context, item T) error {
			if env.plan == nil {
				env.synchronize()
				if env.isHot(item) {
					<-env.ctx.Done()
					return env.ctx.Err()
				}
			} else if !env.plan.begin(item) {
				return nil
			}
			return run(ctx, item)
		}
	}
	watched.OnResult = func(result reconcile.Result[T]) {
		if env.plan == nil {
			env.note("%s", resultText(result))
		} else if !env.plan.result(result) {
			return
		}
		if r.OnResult != nil {
			r.OnResult(result)
		}
	}
	return &watched
}

// hotRuns is how often an item may run at one instant.
const hotRuns = 1000

// isHot reports whether an item is in a hot loop, which fails the test once. While it
// goes on, the clock of the test stands still.
func (env *Env[T]) isHot(item T) bool {
	env.mu.Lock()
	defer env.mu.Unlock()
	if now := time.Since(env.begun); env.instant != now || env.runs == nil {
		env.instant, env.runs = now, make(map[T]int)
	}
	if env.runs[item]++; env.runs[item] <= hotRuns {
		return false
	}
	env.errorf("hot loop: %v ran %d times at %v, and asks for its next run at once; it is held until the end", item, hotRuns, env.instant)
	return true
}

// Go runs a poller, a feeder, a group or another Runner until the end of the test. An
// error that it returns fails the test. A [reconcile.Poller] without a Logger logs to the
// output of the test: while it runs, Go has replaced its GetItems and its Logger. Go panics if
// r is nil.
func (env *Env[T]) Go(r reconcile.Runner) {
	if r == nil {
		panic("reconciletest: Go needs a Runner, got nil")
	}
	given, restore := r, func() {}
	switch known := r.(type) {
	case *reconcile.Reconciler[T]:
		if known != nil {
			r = env.Watch(known)
		}
	case *reconcile.Poller[T]:
		if known != nil && known.GetItems != nil {
			restore = env.prepare(known)
		}
	}
	run := func(ctx context.Context) error {
		defer restore()
		if err := r.Run(ctx); err != nil && (env.plan == nil || ctx.Err() == nil) {
			env.errorf("%T: Run = %v, want nil", given, err)
		}
		return nil
	}
	if env.plan != nil {
		env.plan.Go(run)
	} else {
		env.work.Go(func() { _ = run(env.ctx) })
	}
}

// prepare sets what Go sets of a poller, until restore is called. A copy would not see the
// calls of Trigger.
func (env *Env[T]) prepare(p *reconcile.Poller[T]) (restore func()) {
	get, logger := p.GetItems, p.Logger
	list := get
	if env.plan != nil {
		list = func(ctx context.Context) ([]T, error) { return env.plan.list(ctx, get) }
	}
	p.Logger = cmp.Or(logger, env.log)
	p.GetItems = func(ctx context.Context) ([]T, error) {
		env.synchronize()
		return list(ctx)
	}
	return func() { p.GetItems, p.Logger = get, logger }
}

// Advance lets d pass. It returns when all work that is due by then is done.
func (env *Env[T]) Advance(d time.Duration) {
	env.synchronize()
	time.Sleep(d)
	env.rest("Advance")
}

// synchronize makes what comes before one call of it happen before what follows the
// next one. A bubble does so for what goroutines did before Wait returns, but not for
// what they do after a timer woke them.
func (env *Env[T]) synchronize() {
	if env.plan != nil {
		env.plan.Step()
		return
	}
	env.mu.Lock()
	defer env.mu.Unlock()
}

// rest returns when everything that is to happen at this instant has happened.
func (env *Env[T]) rest(what string) {
	if env.plan != nil {
		panic("reconciletest: " + what + " is called in a process of Explore; what happens is up to Steps and its Environment")
	}
	synctest.Wait()
}

// Want compares the lines of the journal since the last Want, or since the start, with
// these lines.
func (env *Env[T]) Want(lines ...string) {
	env.helper()
	env.rest("Want")
	env.mu.Lock()
	got := env.lines
	env.lines, env.wanted = nil, true
	env.mu.Unlock()
	if !slices.Equal(got, lines) {
		env.errorf("this happened:\n%swant:\n%s", indent(got), indent(lines))
	}
}

// WantQueue compares the items of the queue with these lines, in any order:
//
//	disk-1 ready
//	disk-2 in flight
//	disk-3 in flight, again
//	disk-4 waiting until 1m30s
//	disk-5 held until 1m30s
//	disk-6 waiting until 2m0s, failures 3: busy
//	disk-7 recheck at 1h0m0s
//
// The times are since the start. Without lines, the queue must be empty.
func (env *Env[T]) WantQueue(lines ...string) {
	env.helper()
	env.rest("WantQueue")
	var got []string
	for item, state := range env.Queue.All() {
		got = append(got, env.stateText(item, state))
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(lines))
	if !slices.Equal(got, want) {
		env.errorf("the queue has:\n%swant:\n%s", indent(got), indent(want))
	}
}

// Call is for fakes: it writes a call of op to the journal, and returns the error that
// [Env.Fail] planned for it, or nil. The op names the operation and its object, such as
// "attach disk-1". The effect of the call comes after Call, so a plan of Explore cannot
// lose its response; see [Env.Do] for a call whose response can be lost.
func (env *Env[T]) Call(op string) error {
	if env.plan != nil {
		if err := env.planned(op); err != nil {
			return env.plan.Do(context.Background(), op, func() error { return err })
		}
		return env.plan.Do(context.Background(), op, nil)
	}
	return env.direct(context.Background(), op, func() error { return nil })
}

// Do is a call that changes the world: it runs effect and returns its error. The journal
// has a line for it. It fails if [Env.Fail] or a plan of Explore says so; a plan may skip
// effect, or lose its response. If ctx is already done, effect does not run, and the
// error is the cause of ctx.
//
// In a plan, one effect runs at a time, unless it blocks for a time of the bubble or
// makes a call itself. So a world needs no lock there. In a test with Run it needs a lock
// if there are several workers.
func (env *Env[T]) Do(ctx context.Context, op string, effect func() error) error {
	return env.DoOr(ctx, op, effect, nil)
}

// DoOr is [Env.Do] with custom faults by name, which a plan of Explore injects. The function
// of an injected fault runs in place of effect, and the call returns its error: for example
// a refusal, because a quota is full. See Scenario.CustomFaults.
func (env *Env[T]) DoOr(ctx context.Context, op string, effect func() error, own map[explore.Fault]func() error) error {
	if ctx == nil || effect == nil {
		panic(fmt.Sprintf("reconciletest: Do(%q) needs a context and an effect, got nil", op))
	}
	if env.plan != nil {
		return env.plan.DoOr(ctx, op, func() error {
			if err := env.planned(op); err != nil {
				return err
			}
			return effect()
		}, own)
	}
	return env.direct(ctx, op, effect)
}

// ReadAny is [Read] for values of any type. With it an Env is an [explore.Caller], for
// [explore.Transport].
func (env *Env[T]) ReadAny(ctx context.Context, op string, read func() (any, error)) (any, error) {
	return env.ReadAnyOr(ctx, op, read, nil)
}

// ReadAnyOr is [Env.ReadAny] with custom faults by name, which a plan of Explore injects. The
// function of an injected fault runs in place of read. See Scenario.CustomFaults.
func (env *Env[T]) ReadAnyOr(ctx context.Context, op string, read func() (any, error), own map[explore.Fault]func() (any, error)) (any, error) {
	if ctx == nil || read == nil {
		panic(fmt.Sprintf("reconciletest: ReadAny(%q) needs a context and a function, got nil", op))
	}
	if env.plan != nil {
		return env.plan.ReadAnyOr(ctx, op, func() (any, error) {
			if err := env.planned(op); err != nil {
				return nil, err
			}
			return read()
		}, own)
	}
	var found any
	err := env.direct(ctx, op, func() (err error) { found, err = read(); return err })
	return found, err
}

// Context returns the context of the test, or in a plan of Explore the context of the
// process.
func (env *Env[T]) Context() context.Context { return env.ctx }

// Read is a call that reads the world and changes nothing. It returns the result of read,
// or fails as [Env.Do] does. In a plan of Explore the response may be stale: an earlier
// response of the same op. So read must return a copy, which does not change with the
// world.
func Read[V any, T comparable](ctx context.Context, env *Env[T], op string, read func() (V, error)) (V, error) {
	if ctx == nil || env == nil || read == nil {
		panic(fmt.Sprintf("reconciletest: Read(%q) needs a context, an Env and a function, got nil", op))
	}
	return explore.Read(ctx, env, op, read)
}

// direct makes a call outside of a plan.
func (env *Env[T]) direct(ctx context.Context, op string, effect func() error) error {
	err := context.Cause(ctx)
	if err == nil {
		err = env.planned(op)
	}
	if err == nil {
		err = effect()
	}
	env.note("call %s%s", op, suffix(err))
	return err
}

// suffix is what follows a call in the journal.
func suffix(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprint(": ", err) // fmt survives an Error method that panics, as that of a nil pointer may
}

// planned counts a call, and returns the error that Fail planned for it.
func (env *Env[T]) planned(op string) error {
	env.mu.Lock()
	defer env.mu.Unlock()
	env.calls[op]++
	c := call{op, env.calls[op]}
	err := env.faults[c].err
	delete(env.faults, c)
	return err
}

// Event reports to the loop that something happened to an item, and writes a line to the
// journal. A plan of Explore may lose, repeat or delay it. Event never blocks.
func (env *Env[T]) Event(item T) {
	if env.plan != nil {
		env.plan.Process.Event(item)
		return
	}
	env.note("event %v", item)
	env.events().Enqueue(item)
}

func (env *Env[T]) events() reconcile.Enqueuer[T] {
	if env.Events != nil {
		return env.Events
	}
	return env.Queue
}

// Note writes a line of the test or of its fake to the journal.
func (env *Env[T]) Note(text string) {
	if env.plan != nil {
		env.plan.Process.Note(text)
		return
	}
	env.note("%s", text)
}

// Fail plans that the nth call of op from now on returns err; the first call is 1. Fail
// panics if nth is less than 1, if err is nil, or if that call has a planned error
// already.
func (env *Env[T]) Fail(op string, nth int, err error) {
	env.mu.Lock()
	defer env.mu.Unlock()
	if nth < 1 || err == nil {
		panic(fmt.Sprintf("reconciletest: Fail(%q, %d, %v): want a number from 1 and an error", op, nth, err))
	}
	c := call{op, env.calls[op] + nth}
	if f, ok := env.faults[c]; ok {
		panic(fmt.Sprintf("reconciletest: Fail(%q, %d, %v): that call is to fail already, with %v", op, nth, err, f.err))
	}
	env.faults[c] = fault{err, env.calls[op]}
}

func (env *Env[T]) note(format string, args ...any) {
	line := fmt.Sprintf("%v ", time.Since(env.begun)) + fmt.Sprintf(format, args...)
	env.mu.Lock()
	defer env.mu.Unlock()
	env.lines = append(env.lines, line)
}

// retry is DefaultRetry without chance.
func retry(_ error, failures int) (time.Duration, bool) {
	return min(time.Second<<max(0, min(failures-1, 10)), 5*time.Minute), true // an aborted run may have no failures
}

func resultText[T comparable](r reconcile.Result[T]) string {
	text := fmt.Sprintf("%v %s", r.Item, r.Outcome)
	_, wait := reconcile.Classify(r.Err, r.Failures, retry)
	switch {
	case r.Outcome == reconcile.OutcomeSucceeded && wait.Recheck:
		text += fmt.Sprintf(", again within %v", r.Next)
	case r.Outcome == reconcile.OutcomeRequeued && wait.MinDelay > 0 && wait.MinDelay == wait.Delay:
		text += fmt.Sprintf(" after %v", r.Next)
	case r.Outcome == reconcile.OutcomeRequeued:
		text += fmt.Sprintf(" within %v", r.Next)
	case r.Outcome == reconcile.OutcomeRetrying:
		text += fmt.Sprintf(" in %v", r.Next)
	}
	if r.Outcome.Failed() || r.Outcome == reconcile.OutcomeAborted {
		text += fmt.Sprintf(": %v", r.Err)
	}
	return text
}

func (env *Env[T]) stateText(item T, s reconcile.State) string {
	text := fmt.Sprintf("%v %v", item, s.Phase)
	switch {
	case !s.NotBefore.IsZero() && s.NotBefore.Equal(s.Due):
		text = fmt.Sprintf("%v held until %v", item, s.Due.Sub(env.begun))
	case s.Recheck:
		text = fmt.Sprintf("%v recheck at %v", item, s.Due.Sub(env.begun))
	case s.Phase == reconcile.PhaseWaiting:
		text += fmt.Sprintf(" until %v", s.Due.Sub(env.begun))
	case s.Again:
		text += ", again"
	}
	if s.Pending.Before(s.Since) && !s.Pending.IsZero() {
		text += fmt.Sprintf(", pending since %v", s.Pending.Sub(env.begun))
	}
	if s.Failures > 0 {
		text += fmt.Sprintf(", failures %d", s.Failures)
	}
	if s.Err != nil {
		text += fmt.Sprintf(": %v", s.Err)
	}
	return text
}

func indent(lines []string) string {
	if len(lines) == 0 {
		return "\tnothing\n"
	}
	return "\t" + strings.Join(lines, "\n\t") + "\n"
}
