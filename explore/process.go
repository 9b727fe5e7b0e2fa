// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"testing/synctest"
	"time"
)

// A Process stands for one process of the controller in a plan. Through it the controller
// reaches the world, the events, and the journal. Its methods may be called from any
// goroutine of the process. After the death of the process they have no effect.
type Process struct {
	play *play
	slot *slot
	ctx  context.Context // of the process
	end  context.CancelCauseFunc
	died chan struct{} // closed when it dies

	// Guarded by play.mu.
	name       string // what tells its calls from those of other processes
	dead       bool
	deadCalls  int           // calls since then
	behind     time.Duration // until then no event comes
	stopping   bool          // its context has ended, and it has not died
	endsAt     time.Duration // when it dies, if it stops or goes on beside its successor
	listeners  []func(event any)
	unfinished []func() string
}

// Context returns the context of the process, which ends when the process has to stop, or
// dies.
func (proc *Process) Context() context.Context { return proc.ctx }

// Now returns the time since the plan began, as the journal has it.
func (proc *Process) Now() time.Duration { return proc.play.now() }

// Logger returns a logger to the journal of the plan.
func (proc *Process) Logger() *slog.Logger {
	journal := sink(func(text string) { proc.play.note(proc, text) })
	return slog.New(slog.NewTextHandler(journal, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
}

// Go runs a part of the controller until the process ends: run must return when its
// context has ended. An error that it returns before that fails the plan, and so does a
// panic. Go panics if run is nil.
func (proc *Process) Go(run func(ctx context.Context) error) {
	if run == nil {
		panic("explore: Go needs a function, got nil")
	}
	proc.play.work.Go(func() {
		proc.play.register(proc)
		proc.play.protect(proc, "what Go started", func() {
			if err := run(proc.ctx); err != nil && proc.ctx.Err() == nil {
				proc.Errorf("what Go started returned %v, want nil", err)
			}
		})
	})
}

// OnEvent registers a function that is called with each event of this process. It must
// not block.
func (proc *Process) OnEvent(hear func(event any)) {
	if hear == nil {
		panic("explore: OnEvent needs a function, got nil")
	}
	proc.play.mu.Lock()
	defer proc.play.mu.Unlock()
	proc.listeners = append(proc.listeners, hear)
}

// Event reports an event of the world to the process, as a watch does: it calls the
// functions of [Process.OnEvent] when nothing else runs. The journal and the plans name
// the event by fmt.Sprint. A plan may lose, repeat or delay it. Event never blocks.
func (proc *Process) Event(event any) { proc.play.receive(proc, event, nil) }

// EventOr is [Process.Event] with custom faults by name. The function of an injected
// fault is called in place of the event, for example to end the stream that delivers
// events. See Scenario.CustomFaults.
func (proc *Process) EventOr(event any, own map[Fault]func()) { proc.play.receive(proc, event, own) }

// Do is a call that changes the world: it runs effect and returns its error. The op names
// the operation and its object, such as "attach disk-1". A plan may skip effect, or lose
// its response. The error is then [ErrInjected], the cause of ctx, or the error of a
// process that has died. If ctx is already done, effect does not run. A nil effect means
// that the effect of the call comes after Do: its response cannot be lost.
//
// One effect runs at a time, unless it blocks for a time of the bubble or makes a call
// itself. So a world needs no lock.
func (proc *Process) Do(ctx context.Context, op string, effect func() error) error {
	return proc.DoOr(ctx, op, effect, nil)
}

// DoOr is [Process.Do] with custom faults by name. The function of an injected fault runs
// in place of effect, and the call returns its error: for example a rejection, or a
// change by another client followed by effect. See Scenario.CustomFaults.
func (proc *Process) DoOr(ctx context.Context, op string, effect func() error, own map[Fault]func() error) error {
	if ctx == nil {
		panic(fmt.Sprintf("explore: Do(%q) needs a context, got nil", op))
	}
	r := &request{process: proc, ctx: ctx, op: op, kind: onDo, effect: effect, own: own}
	if effect == nil {
		r.kind, r.effect = onCall, func() error { return nil }
	}
	r.exchanged()
	return proc.play.call(r)
}

// ReadAny is [Read] for values of any type.
func (proc *Process) ReadAny(ctx context.Context, op string, read func() (any, error)) (any, error) {
	return proc.ReadAnyOr(ctx, op, read, nil)
}

// ReadAnyOr is [Process.ReadAny] with custom faults by name. The function of an injected
// fault runs in place of read: for example it leaves out a page of a listing. See
// Scenario.CustomFaults.
func (proc *Process) ReadAnyOr(ctx context.Context, op string, read func() (any, error), own map[Fault]func() (any, error)) (any, error) {
	if ctx == nil || read == nil {
		panic(fmt.Sprintf("explore: ReadAny(%q) needs a context and a function, got nil", op))
	}
	r := &request{process: proc, ctx: ctx, op: op, kind: onRead}
	found := func(read func() (any, error)) func() error {
		return func() (err error) { r.found, err = read(); return err }
	}
	r.effect, r.own = found(read), map[Fault]func() error{}
	for f, read := range own {
		r.own[f] = found(read)
	}
	r.exchanged()
	err := proc.play.call(r)
	return r.found, err
}

// exchanged adds the faults of a request of Transport, if that made this call.
func (r *request) exchanged() {
	x, ok := r.ctx.Value(exchangeKey{}).(*exchange)
	if !ok || x.op != r.op {
		return
	}
	r.web, x.process = x, r.process
	serve, own := r.effect, r.own
	r.own = map[Fault]func() error{
		Unreachable: func() error { return errUnreachable },
		BodyCut: func() error {
			err := serve()
			if x.hasBody() { // a handler may abort its response
				x.got.cut = true
			}
			return err
		},
	}
	maps.Copy(r.own, own)
	for f, h := range x.own {
		r.own[f] = func() (err error) { r.found, err = x.serve(h); return err }
	}
}

// A Caller makes the calls of a plan. [Process] is one, and so is the Env of package
// reconciletest.
type Caller interface {
	Do(ctx context.Context, op string, effect func() error) error
	ReadAny(ctx context.Context, op string, read func() (any, error)) (any, error)
	Context() context.Context
}

// Read is a call that reads the world and changes nothing. It returns the result of read,
// or fails as [Process.Do] does. In a plan the response may be stale: an earlier response
// of the same op. So read must return a copy, which does not change with the world: if the
// play without faults shows that the memory of a response changes, it fails.
func Read[V any](ctx context.Context, c Caller, op string, read func() (V, error)) (V, error) {
	if ctx == nil || c == nil || read == nil {
		panic(fmt.Sprintf("explore: Read(%q) needs a context, a Caller and a function, got nil", op))
	}
	found, err := c.ReadAny(ctx, op, func() (any, error) { return read() })
	value, _ := found.(V)
	return value, err
}

// Note writes a line to the journal. The line is formatted by fmt.Sprint when the journal
// is printed. Lines that several goroutines note at the same instant are sorted.
func (proc *Process) Note(v any) { proc.play.note(proc, v) }

// Errorf fails the plan, unless the process has died.
func (proc *Process) Errorf(format string, args ...any) {
	proc.play.mu.Lock()
	defer proc.play.mu.Unlock()
	if !proc.dead {
		proc.play.failNowLocked(format, args...)
	}
}

// Unfinished registers a function that describes the remaining work of this process, or
// returns "" if there is none. A plan does not end well while it returns anything else.
// It is called while nothing else runs.
func (proc *Process) Unfinished(left func() string) {
	if left == nil {
		panic("explore: Unfinished needs a function, got nil")
	}
	proc.play.mu.Lock()
	defer proc.play.mu.Unlock()
	proc.unfinished = append(proc.unfinished, left)
}

// Step counts a step of work, as each call does. It is for loops that may repeat without
// a call, and lets them see the changes of Steps. It reports whether the process may go
// on: it returns false when the process has to stop or has died.
func (proc *Process) Step() bool {
	proc.play.mu.Lock()
	defer proc.play.mu.Unlock()
	proc.play.countStepLocked()
	return !proc.play.overLocked(proc) && !proc.stopping
}

// An Environment is the argument of the Steps of a Scenario. Its methods may be called
// only from the goroutine of Steps.
type Environment struct{ play *play }

// Advance lets d pass. It returns when all work that is due by then is done. While Steps
// does anything else, the controller does not run. A plan fails at the 100,001st call.
//
// If the plan has failed, Advance does not return: it ends the goroutine of Steps.
func (s *Environment) Advance(d time.Duration) {
	s.play.noteSteps()
	s.play.countAdvance()
	s.play.newPlaces()
	s.play.advance(s.play.now() + d)
	s.play.phase()
	if s.play.over(nil) {
		runtime.Goexit() // Steps may wait for a state that this plan never reaches
	}
}

// Event reports an event to all processes, as [Process.Event] does, once time passes. If
// there is no process at that time, the event is lost.
func (s *Environment) Event(event any) {
	s.play.receive(nil, event, nil)
	s.play.outcome.stepsAct()
}

// Redeploy stops each process, as the installation of a new version does: its context ends
// now, and half a minute later, when time passes, the next process starts. Redeploy returns
// when the work that is due at once is done, except for calls: these wait until time passes.
// A process that has died starts as it would without Redeploy. So a plan of one fault has one
// after a second start.
func (s *Environment) Redeploy() {
	p := s.play
	p.mu.Lock()
	var stopped []*Process
	for _, slot := range p.slots {
		proc := slot.process
		if !proc.dead && !proc.stopping {
			p.lineLocked("stop" + proc.name)
			p.stopLocked(proc)
			p.otherAt = max(p.otherAt, proc.endsAt+downtime) // for a Redeploy at the end of Steps
			p.faultAt = max(p.faultAt, p.otherAt)
			stopped = append(stopped, proc)
		}
	}
	p.mu.Unlock()
	for _, proc := range stopped {
		proc.end(errStopped)
	}
	synctest.Wait() // so that nothing runs beside Steps
	p.outcome.stepsAct()
}

// Note writes a line to the journal.
func (s *Environment) Note(v any) { s.play.note(nil, v) }
