// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// A Process is what one process of a plan has in hand: the way to the world, to the events,
// and to the journal. Its methods may be called from any goroutine of the process. What a
// process does after its death has no effect.
type Process struct {
	play *play
	slot *slot
	ctx  context.Context // of the process
	end  context.CancelCauseFunc
	log  *slog.Logger

	// Guarded by play.mu.
	name       string // what tells its calls from those of other processes
	dead       bool
	deadCalls  int           // calls since then
	behind     time.Duration // until then no event comes
	endsAt     time.Duration // of one that goes on beside the process which came after it
	listeners  []func(event any)
	unfinished []func() string
}

// Context returns the context of the process, which ends when the process dies.
func (proc *Process) Context() context.Context { return proc.ctx }

// Now returns the time since the plan began, as the journal has it.
func (proc *Process) Now() time.Duration { return proc.play.now() }

// Logger returns a logger to the journal of the plan.
func (proc *Process) Logger() *slog.Logger { return proc.log }

// Go runs a part of the controller until the process ends: run must return when its
// context has ended. An error that it returns before fails the plan, and so does a
// panic. It panics if run is nil.
func (proc *Process) Go(run func(ctx context.Context) error) {
	if run == nil {
		panic("explore: Go needs a function, got nil")
	}
	proc.play.work.Go(func() {
		proc.play.protect(proc, "what Go started", func() {
			if err := run(proc.ctx); err != nil && proc.ctx.Err() == nil {
				proc.Errorf("what Go started returned %v, want nil", err)
			}
		})
	})
}

// OnEvent lets hear be called with each event of this process. It must not block.
func (proc *Process) OnEvent(hear func(event any)) {
	if hear == nil {
		panic("explore: OnEvent needs a function, got nil")
	}
	proc.play.mu.Lock()
	defer proc.play.mu.Unlock()
	proc.listeners = append(proc.listeners, hear)
}

// Event tells the process that something happened in the world, as a watch does: its
// listeners are called with event once nothing else runs. The event is named by
// [fmt.Sprint] in the journal and in plans, in which it may be lost, or come twice or
// late. It never blocks.
func (proc *Process) Event(event any) { proc.play.receive(proc, event, nil) }

// EventOr is [Process.Event] with faults of the world's own, by their names: what happens in
// place of the event, such as the end of the stream that it was to come by. See
// [Scenario].CustomFaults.
func (proc *Process) EventOr(event any, own map[Fault]func()) { proc.play.receive(proc, event, own) }

// Do is a call that changes the world: it runs effect and returns its error. The op says
// what is done and to what, such as "attach disk-1". In a plan effect may not run, or its
// answer be lost; then the error is [ErrInjected], the cause of ctx, or one of a process
// that has died. When ctx is done already, effect does not run. A nil effect means that
// what the call does comes after it: its answer cannot be lost.
//
// One effect runs at a time, unless it blocks for a time of the bubble or makes a call
// itself: so a world needs no lock.
func (proc *Process) Do(ctx context.Context, op string, effect func() error) error {
	return proc.DoOr(ctx, op, effect, nil)
}

// DoOr is [Process.Do] with faults of the world's own, by their names: what runs in place of
// effect, and whose error the call returns, such as a refusal, or a change by another hand and
// then the effect. See [Scenario].CustomFaults.
func (proc *Process) DoOr(ctx context.Context, op string, effect func() error, own map[Fault]func() error) error {
	if ctx == nil {
		panic(fmt.Sprintf("explore: Do(%q) needs a context, got nil", op))
	}
	r := &request{process: proc, ctx: ctx, op: op, kind: onDo, effect: effect, own: own}
	if effect == nil {
		r.kind, r.effect = onCall, func() error { return nil }
	}
	return proc.play.call(r)
}

// ReadAny is what [Read] is for values of one type.
func (proc *Process) ReadAny(ctx context.Context, op string, look func() (any, error)) (any, error) {
	if ctx == nil || look == nil {
		panic(fmt.Sprintf("explore: ReadAny(%q) needs a context and a function, got nil", op))
	}
	r := &request{process: proc, ctx: ctx, op: op, kind: onRead}
	r.effect = func() (err error) { r.found, err = look(); return err }
	err := proc.play.call(r)
	return r.found, err
}

// A Caller makes the calls of a plan: a [Process], or that of package reconciletest.
type Caller interface {
	Do(ctx context.Context, op string, effect func() error) error
	ReadAny(ctx context.Context, op string, look func() (any, error)) (any, error)
	Context() context.Context
}

// Read is a call that looks at the world and changes nothing: it returns what read does,
// or fails as [Process.Do] does. In a plan the answer may be stale: one that the same op gave
// before. So what read returns is not changed later: it is a copy of what the world
// holds.
func Read[V any](ctx context.Context, c Caller, op string, read func() (V, error)) (V, error) {
	if ctx == nil || c == nil || read == nil {
		panic(fmt.Sprintf("explore: Read(%q) needs a context, a Caller and a function, got nil", op))
	}
	found, err := c.ReadAny(ctx, op, func() (any, error) { return read() })
	value, _ := found.(V)
	return value, err
}

// Note writes a line to the journal. It is formatted by [fmt.Sprint] if the journal is
// printed. What several goroutines note at one instant is sorted.
func (proc *Process) Note(what any) { proc.play.note(proc, what) }

// Errorf fails the plan, unless the process has died.
func (proc *Process) Errorf(format string, args ...any) {
	proc.play.mu.Lock()
	defer proc.play.mu.Unlock()
	if !proc.dead {
		proc.play.failLocked(format, args...)
	}
}

// Unfinished lets left say what this process has still to do, or "" if that is nothing.
// As long as it says something the plan does not end well. It is called while nothing
// else runs.
func (proc *Process) Unfinished(left func() string) {
	if left == nil {
		panic("explore: Unfinished needs a function, got nil")
	}
	proc.play.mu.Lock()
	defer proc.play.mu.Unlock()
	proc.unfinished = append(proc.unfinished, left)
}

// Step counts a step of work, as each call is one, for loops that may go round without
// any call; and it lets them see what Steps did. It reports whether the process is there
// still.
func (proc *Process) Step() bool {
	proc.play.mu.Lock()
	defer proc.play.mu.Unlock()
	proc.play.countStepLocked()
	return !proc.play.overLocked(proc)
}

// An Environment is what the Steps of a [Scenario] has in hand. Its methods are for the
// goroutine of Steps.
type Environment struct{ play *play }

// Advance lets d pass, and returns when everything that is to happen by then has
// happened. While Steps does anything else, the controller stands still.
func (s *Environment) Advance(d time.Duration) {
	s.play.advance(s.play.now() + d)
	s.play.phase()
}

// Event tells the processes that are there that something happened, as [Process.Event]
// does, once time passes. While none is there, nobody hears it.
func (s *Environment) Event(event any) { s.play.receive(nil, event, nil) }

// Note writes a line to the journal.
func (s *Environment) Note(what any) { s.play.note(nil, what) }
