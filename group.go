// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// A Runner works until ctx is done, and returns when all of it has ended:
// [Reconciler], [Poller], [Group], and what [Feed], [After] and [Restart]
// return. It returns nil, or ctx's own error, if it ended well.
type Runner interface {
	Run(ctx context.Context) error
}

// RunFunc makes a Runner of a function.
type RunFunc func(ctx context.Context) error

// Run calls f.
func (f RunFunc) Run(ctx context.Context) error { return f(ctx) }

// A Group runs its members together: if one fails, the others are ended. When
// it ends, it first ends those that feed, and waits for them; only then it tells
// the Reconcilers. So nothing enters a queue that nobody serves.
//
// A Reconciler is known as such also within After, Restart and another Group,
// but not within a RunFunc. The zero Group is ready. Its methods may be called
// from any goroutine.
type Group struct {
	Logger *slog.Logger // nil means slog.Default(); not to be changed while Run goes on

	mu      sync.Mutex // guards the fields below
	begun   bool
	ending  bool           // nothing is started any more
	start   func(*member)  // starts a member; nil unless Run goes on
	members []*member      // those that have not ended
	first   error          // of the member that failed first
	running sync.WaitGroup // a goroutine for each member
	changed chan struct{}  // told after members or first changed; room for one
}

type member struct {
	name   string
	runner Runner
	cancel context.CancelCauseFunc // nil until it is started
	ended  chan struct{}
}

// Add adds a member, before Run or while it goes on. In a group that is ending,
// or has ended, the member never runs.
//
// Stop ends that member alone and waits for it; before Run it takes it out of
// the group. It may be called again, and from any goroutine but the member's.
func (g *Group) Add(name string, r Runner) (stop func()) {
	m := &member{name: name, runner: r, ended: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending {
		return func() {}
	}
	g.members = append(g.members, m)
	if g.start != nil {
		g.start(m)
	}
	return func() { g.stop(m) }
}

func (g *Group) stop(m *member) {
	g.mu.Lock()
	started := m.cancel != nil
	if !started {
		g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	}
	g.mu.Unlock()
	if started {
		m.cancel(nil)
		<-m.ended
	}
}

// Run runs the members until ctx is done, one of them fails, or all have ended;
// so a group without members returns at once. It returns once every member has
// returned: the error of the one that failed first, wrapped with its name, be it
// before ctx was done or after, and nil if none failed. A panic is a failure,
// with a [*PanicError]. What fails later is logged.
//
// The contexts of the members carry the values of ctx, but not its deadline,
// because they end one after the other.
//
// A Group runs once: another Run, at the same time or later, is a [Terminal]
// error.
func (g *Group) Run(ctx context.Context) error {
	if err := g.begin(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil && g.healthy() {
		select {
		case <-ctx.Done():
		case <-g.changed:
		}
	}

	g.mu.Lock()
	g.ending, g.start = true, nil
	cause := g.first
	g.mu.Unlock()
	if cause == nil {
		cause = context.Cause(ctx)
	}
	g.end(cause, func(m *member) bool { return !reconciles(m.runner) })
	g.end(cause, func(*member) bool { return true })
	g.running.Wait()
	return g.first
}

// begin starts the members added so far.
func (g *Group) begin(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.begun {
		return Terminal(errors.New("reconcile: Group.Run was called before; a Group runs once"))
	}
	g.begun = true
	g.changed = make(chan struct{}, 1)
	// The members end one after the other, so not all of them when ctx does.
	base := context.WithoutCancel(ctx)
	g.start = func(m *member) {
		own, cancel := context.WithCancelCause(base)
		m.cancel = cancel
		g.running.Go(func() {
			defer cancel(nil)
			g.ended(m, guard(func() error {
				err := m.run(own)
				if isOwn(ctx, err) { // the member knows ctx by another way
					return nil
				}
				return err
			}))
		})
	}
	for _, m := range g.members {
		g.start(m)
	}
	return nil
}

// run returns nil if the member ended well.
func (m *member) run(ctx context.Context) error {
	if m.runner == nil {
		return errors.New("reconcile: Group needs a Runner, got nil")
	}
	err := m.runner.Run(ctx)
	if isOwn(ctx, err) {
		return nil
	}
	return err
}

// isOwn reports whether err says no more than that ctx is done.
func isOwn(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// ended takes note of a member that has returned.
func (g *Group) ended(m *member, err error) {
	if err != nil {
		err = fmt.Errorf("%s: %w", m.name, err)
	}
	g.mu.Lock()
	g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	late := g.first != nil
	if !late {
		g.first = err
	}
	g.mu.Unlock()
	if err != nil && late {
		g.log(slog.LevelError, "another member failed", "err", err)
	}
	close(m.ended)
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// healthy reports whether no member failed and some have not ended.
func (g *Group) healthy() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first == nil && len(g.members) > 0
}

// end ends the members that are among those meant, and waits for them.
func (g *Group) end(cause error, meant func(*member) bool) {
	g.mu.Lock()
	members := slices.Clone(g.members)
	g.mu.Unlock()
	members = slices.DeleteFunc(members, func(m *member) bool { return !meant(m) })
	for _, m := range members {
		m.cancel(cause)
	}
	begin := time.Now()
	patience := time.NewTimer(10 * time.Second)
	defer patience.Stop()
	for _, m := range members {
		for waiting := true; waiting; {
			select {
			case <-m.ended:
				waiting = false
			case <-patience.C:
				age := time.Since(begin)
				g.log(slog.LevelWarn, "a member has not ended, though its context did", "member", m.name, "for", age)
				patience.Reset(age)
			}
		}
	}
}

func (g *Group) log(level slog.Level, msg string, args ...any) {
	logGuarded(cmp.Or(g.Logger, slog.Default()), level, msg, args...)
}

// reconciles reports whether r is a Reconciler, or runs one.
func reconciles(r Runner) bool {
	m, ok := r.(interface{ reconciles() bool })
	return ok && m.reconciles()
}

func (g *Group) reconciles() bool {
	g.mu.Lock()
	members := slices.Clone(g.members)
	g.mu.Unlock()
	return slices.ContainsFunc(members, func(m *member) bool { return reconciles(m.runner) })
}

// After returns a Runner that runs r once ready has returned nil: when caches
// are synced, a list is primed, this process is the leader. If ready fails, so
// does the Runner; if ctx is done first, r does not run.
func After(ready func(ctx context.Context) error, r Runner) Runner { return after{ready, r} }

type after struct {
	ready func(ctx context.Context) error
	Runner
}

func (a after) Run(ctx context.Context) error {
	if a.ready == nil || a.Runner == nil {
		return errors.New("reconcile: After needs a function and a Runner, got nil")
	}
	err := a.ready(ctx)
	switch {
	case ctx.Err() != nil && (err == nil || isOwn(ctx, err)):
		return nil
	case err != nil:
		return fmt.Errorf("not ready: %w", err)
	}
	return a.Runner.Run(ctx)
}

func (a after) reconciles() bool { return reconciles(a.Runner) }

// Restart returns a Runner that runs r again, as p says, when it fails or
// panics; a nil p means [DefaultRetry]. It returns nil when r does, or when ctx
// ends a pause, and r's error when p gives up, when the error is [Terminal], or
// when ctx is done and r failed for another reason. A run of a
// minute or more resets the count of failures. Each restart is logged to
// [slog.Default].
func Restart(p RetryPolicy, r Runner) Runner { return restart{p, r} }

type restart struct {
	policy RetryPolicy
	Runner
}

func (s restart) Run(ctx context.Context) error {
	if s.Runner == nil {
		return errors.New("reconcile: Restart needs a Runner, got nil")
	}
	timer := idleTimer()
	defer timer.Stop()
	for failures := 1; ; failures++ {
		begin := time.Now()
		err := guard(func() error { return s.Runner.Run(ctx) })
		if err == nil || isOwn(ctx, err) {
			return nil
		}
		if time.Since(begin) >= time.Minute {
			failures = 1
		}
		delay, again := s.policy.orDefault()(err, failures)
		if ctx.Err() != nil || !again || errors.Is(err, ErrTerminal) {
			return err
		}
		logGuarded(slog.Default(), slog.LevelWarn, "runner failed, to be restarted",
			"err", err, "failures", failures, "next", delay)
		timer.Reset(delay)
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
	}
}

func (s restart) reconciles() bool { return reconciles(s.Runner) }

// guard calls f, and makes an error of a panic or a runtime.Goexit in it. It
// uses a goroutine, because there is no other way to outlive a Goexit.
func guard(f func() error) (err error) {
	var call sync.WaitGroup
	call.Go(func() {
		returned := false
		defer func() {
			if !returned {
				p := &PanicError{Value: recover(), Stack: debug.Stack()}
				if p.Value == nil {
					p.Value = errGoexit
				}
				err = p
			}
		}()
		err = f()
		returned = true
	})
	call.Wait()
	return err
}
