// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrStillRunning is matched by the error of a [Group] that returned before all
// of its members had, because its ShutdownTimeout was over.
var ErrStillRunning = errors.New("reconcile: members still running")

// A Runner works until ctx is done, and returns when everything that it started has
// ended. It returns nil, or the error of ctx, unless it failed. [Reconciler], [Poller] and
// [Group] are Runners. [Feed], [After] and [Restart] return Runners.
//
// A Runner that runs another one may also have a method
//
//	Unwrap() Runner
//
// that returns the other one, or nil. A [Group] calls it to find a Reconciler.
type Runner interface {
	Run(ctx context.Context) error
}

// RunFunc makes a Runner of a function.
type RunFunc func(ctx context.Context) error

// Run calls f.
func (f RunFunc) Run(ctx context.Context) error { return f(ctx) }

// A Group runs its members together: if one fails, the others are ended.
//
// A Group ends in two steps. Feeders are all members that are not Reconcilers, also those
// in the Groups inside it.
//
//	                                 feeders    Reconcilers          runs in flight
//	ctx is done, a member failed     are ended  take items           continue
//	feeders have returned, or 1 s               take no items        continue
//	the Grace of a Reconciler later             wait for their runs  contexts end
//	their runs have returned                    return
//
// Reconcilers take items in the first step, so that a feeder can wait until its items are
// done. Each Reconciler has its whole Grace if ShutdownTimeout is at least Grace plus one
// second. Items that are still queued stay in their queues.
//
// A member counts as a Reconciler if it is one, if it is a Group that has one, or if its
// Unwrap method leads to one, as those of After and Restart do. A RunFunc never does.
//
// The zero Group is ready. Its methods may be called from any goroutine. The exported
// fields must not be changed while Run goes on.
type Group struct {
	// Logger is the logger of the Group and its members: the context of a member
	// carries it, with the name of the member as the attribute "member", and
	// [Logger] returns it. In a Group within a Group the names are joined by
	// slashes. Nil means the Logger of the Group around this one, or else
	// slog.Default().
	Logger *slog.Logger

	// ShutdownTimeout is how long Run waits for its members once it has begun to
	// end them; 0 means as long as it takes. A value of at least the longest Grace of its
	// Reconcilers plus one second leaves each of them its whole Grace.
	ShutdownTimeout time.Duration

	mu           sync.Mutex    // guards the fields below
	start        func(*member) // starts a member; nil before Run
	members      []*member     // those that have not ended
	first        error         // of the member that failed first
	feedersEnded bool          // no feeder is started any more
	ending       bool          // no member is started any more
	over         chan struct{} // closed when a member failed, or all have ended
	returned     bool
	shutdown     *shutdown
}

// A shutdown is how a Group and the Groups inside it end together.
type shutdown struct {
	around       *shutdown     // of the Group around; nil if there is none
	begun        chan struct{} // closed when the feeders have to end
	cause        error         // why they do; set before begun is closed
	feedersEnded chan struct{} // closed when no feeder is waited for any more

	mu     sync.Mutex // guards the field below
	inside []*shutdown
}

// add has s wait for the feeders of a Group inside.
func (s *shutdown) add(inside *shutdown) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside = slices.DeleteFunc(s.inside, func(i *shutdown) bool { // those that have ended
		select {
		case <-i.feedersEnded:
			return true
		default:
			return false
		}
	})
	s.inside = append(s.inside, inside)
}

// hasBegun reports whether the Group of s, or one around it, has begun to end.
func (s *shutdown) hasBegun() bool {
	for ; s != nil; s = s.around {
		if isDone(s.begun) {
			return true
		}
	}
	return false
}

type shutdownKey struct{}

// feedersTime is how long the Reconcilers wait for feeders that have to end.
const feedersTime = time.Second

type member struct {
	name   string
	runner Runner
	log    memberLog
	cancel context.CancelCauseFunc // nil until it is started
	ended  chan struct{}           // closed when it has returned
}

// Add adds a member, before Run or while Run goes on. After Run has returned, the member
// never runs. A member that is added while the group ends runs only if it is a Reconciler,
// and only until the contexts of the other Reconcilers end.
//
// Stop ends that member alone and waits for it; before Run it takes it out of
// the group. It may be called again, and from any goroutine except those that the
// member waits for: its own, and, if it is a Reconciler, those of its functions,
// such as Reconcile and OnResult. There it would wait for itself, for ever.
func (g *Group) Add(name string, r Runner) (stop func()) {
	m := &member{name: name, runner: r, ended: make(chan struct{})}
	feeds := !reconciles(r)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ending || g.feedersEnded && feeds {
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
		g.removeLocked(m)
	}
	g.mu.Unlock()
	if started {
		m.cancel(nil)
		<-m.ended
	}
}

func (g *Group) removeLocked(m *member) {
	g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
}

// Run runs the members until ctx is done, one of them fails, or all have ended; a group
// without members returns at once. It returns once every member has returned. Its error is
// that of the member that failed first, before or after the end of ctx, wrapped with the
// member's name; it is nil if none failed. A panic is a failure, with a [*PanicError].
// After the end of ctx, an error that wraps the error of ctx is not a failure. An
// [errors.Join] of that error and another one is a failure. Later failures are logged.
//
// If members have not returned when ShutdownTimeout is over, Run returns all the
// same. Its error matches [ErrStillRunning], names those members, and is joined
// with the error of the member that failed first, if one did. By then the
// contexts of all members have ended, also those of the Reconcilers.
//
// The contexts of the members carry the values of ctx, but not its deadline,
// because they end one after the other. Each has ended once its member has
// returned.
//
// If ctx is done at the call, no member starts. If Run is called while a Group around
// this one ends, only Reconcilers start.
//
// A Group runs once: another Run, at the same time or later, is a [Terminal]
// error. So is a ShutdownTimeout below zero.
func (g *Group) Run(ctx context.Context) error {
	if g.ShutdownTimeout < 0 {
		return Terminal(fmt.Errorf("reconcile: Group.ShutdownTimeout is %v, want 0 (which means none) or more", g.ShutdownTimeout))
	}
	around, _ := ctx.Value(shutdownKey{}).(*shutdown)
	var aroundBegun <-chan struct{}
	if around != nil {
		aroundBegun = around.begun
	}
	if err := g.begin(ctx, around); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-g.over:
	case <-aroundBegun:
	}

	began := time.Now()
	giveUp := make(chan struct{})
	if g.ShutdownTimeout > 0 {
		defer time.AfterFunc(g.ShutdownTimeout, func() { close(giveUp) }).Stop()
	}
	g.mu.Lock()
	g.feedersEnded = true
	g.shutdown.cause = cmp.Or(g.first, context.Cause(ctx))
	withAround := g.shutdown.cause == nil && !g.ending
	if withAround {
		g.shutdown.cause = around.cause
	}
	members := slices.Clone(g.members)
	g.mu.Unlock()
	g.endFeeders(members, giveUp)
	close(g.shutdown.feedersEnded)
	if withAround { // The Reconcilers wait for the feeders around, too.
		select {
		case <-ctx.Done():
		case <-g.over:
		case <-giveUp:
		}
	}

	g.mu.Lock()
	g.ending = true
	members = slices.Clone(g.members)
	g.mu.Unlock()
	for _, m := range members {
		m.cancel(g.shutdown.cause)
	}
	awaitMembers(members, began, giveUp)

	g.mu.Lock()
	defer g.mu.Unlock()
	g.returned = true
	if len(g.members) == 0 {
		return g.first
	}
	var names []string
	for _, m := range g.members {
		names = append(names, m.name)
	}
	return errors.Join(g.first, fmt.Errorf("%w after %v: %q", ErrStillRunning, g.ShutdownTimeout, names))
}

// begin starts the members added so far: none if ctx is done, and only Reconcilers if a
// Group around has begun to end.
func (g *Group) begin(ctx context.Context, around *shutdown) error {
	done := ctx.Err() != nil
	var late []*member
	if around.hasBegun() {
		g.mu.Lock()
		late = slices.Clone(g.members)
		g.mu.Unlock()
		late = feedersOf(late)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.start != nil {
		return Terminal(errors.New("reconcile: Group.Run was called before; a Group runs once"))
	}
	log, _ := ctx.Value(memberKey{}).(memberLog)
	g.shutdown = &shutdown{around: around, begun: make(chan struct{}), feedersEnded: make(chan struct{})}
	if around != nil {
		around.add(g.shutdown)
	}
	g.start = func(m *member) {
		m.log.logger = cmp.Or(g.Logger, log.logger, slog.Default())
		m.log.path = strings.Trim(log.path+"/"+m.name, "/")
		m.log.run = ctx.Value(runKey{})
		// The members end one after the other, so not all of them when ctx does.
		own := context.WithValue(context.WithoutCancel(ctx), memberKey{}, m.log)
		own = context.WithValue(own, shutdownKey{}, g.shutdown)
		own, m.cancel = context.WithCancelCause(own)
		go func() {
			g.ended(m, runGuarded(m.runner, own, ctx))
		}()
	}
	if done {
		g.members = nil
	}
	for _, m := range late {
		g.removeLocked(m)
	}
	for _, m := range g.members {
		g.start(m)
	}
	g.over = make(chan struct{})
	g.checkOverLocked()
	return nil
}

// runGuarded runs r under ctx. It returns nil if r returned nil, or the error of
// ctx or of around after the end of that context.
func runGuarded(r Runner, ctx, around context.Context) error {
	return guard(func() error {
		if r == nil {
			return Terminal(errors.New("reconcile: Runner is required, and nil"))
		}
		err := r.Run(ctx)
		if isOwn(ctx, err) || isOwn(around, err) {
			return nil
		}
		return err
	})
}

// isOwn reports whether err says no more than that ctx is done. Each member of an
// errors.Join must say so, and a panic never does.
func isOwn(ctx context.Context, err error) bool {
	if ctx.Err() == nil {
		return false
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		_, panicked := e.(*PanicError)
		joined := reflect.TypeOf(e) == joinType
		if !panicked && !joined || errors.Is(context.Cause(ctx), e) { // The cause may be one of them itself.
			continue
		}
		return joined && !slices.ContainsFunc(e.(interface{ Unwrap() []error }).Unwrap(), func(member error) bool { return !isOwn(ctx, member) })
	}
	return errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))
}

// ended records that a member has returned. It is the last that the goroutine of
// the member does.
func (g *Group) ended(m *member, err error) {
	m.cancel(nil)
	failure := err
	if err != nil && m.name != "" {
		panicked := guard(func() error { failure = fmt.Errorf("%s: %w", m.name, err); return nil })
		if panicked != nil {
			failure = fmt.Errorf("%s: %w", m.name, panicked)
		}
	}
	g.mu.Lock()
	late := g.first != nil || g.returned
	if err != nil && !late {
		g.first = failure
	}
	g.mu.Unlock()
	if err != nil && late {
		m.log.write(slog.LevelError, "another member failed", "err", err)
	}
	g.mu.Lock()
	g.removeLocked(m)
	g.checkOverLocked()
	g.mu.Unlock()
	close(m.ended)
}

// checkOverLocked ends the group if a member failed or none is left.
func (g *Group) checkOverLocked() {
	if !g.ending && (g.first != nil || len(g.members) == 0) {
		g.ending = true
		close(g.over)
	}
}

// endFeeders ends the members that are not Reconcilers, and waits for them, and for those
// of the Groups inside, until giveUp is closed or feedersTime is over.
func (g *Group) endFeeders(members []*member, giveUp <-chan struct{}) {
	feeders := feedersOf(members)
	close(g.shutdown.begun)
	for _, m := range feeders {
		m.cancel(g.shutdown.cause)
	}
	g.shutdown.mu.Lock()
	inside := slices.Clone(g.shutdown.inside)
	g.shutdown.mu.Unlock()
	ended := make([]<-chan struct{}, 0, len(feeders)+len(inside))
	for _, m := range feeders {
		ended = append(ended, m.ended)
	}
	for _, s := range inside {
		ended = append(ended, s.feedersEnded)
	}
	late := time.NewTimer(feedersTime)
	defer late.Stop()
	for _, c := range ended {
		select {
		case <-c:
		case <-late.C:
			return
		case <-giveUp:
			return
		}
	}
}

// feedersOf returns those of members that are not Reconcilers. It changes members.
func feedersOf(members []*member) []*member {
	return slices.DeleteFunc(members, func(m *member) bool { return reconciles(m.runner) })
}

// awaitMembers waits for members until giveUp is closed, and warns of those that have not
// ended long after the Group began to.
func awaitMembers(members []*member, began time.Time, giveUp <-chan struct{}) {
	remind := time.NewTimer(10*time.Second - time.Since(began))
	defer remind.Stop()
	for len(members) > 0 {
		select {
		case <-members[0].ended:
			members = members[1:]
		case <-giveUp:
			return
		case <-remind.C:
			age := time.Since(began)
			members[0].log.write(slog.LevelWarn, "waiting for a member that has not ended yet", "for", age)
			remind.Reset(age)
		}
	}
}

// reconciles reports whether r is a Reconciler, or runs one. An Unwrap that panics leads
// to none.
func reconciles(r Runner) (found bool) {
	_ = guard(func() error {
		for {
			if m, ok := r.(interface{ reconciles() bool }); ok && m.reconciles() {
				found = true
				return nil
			}
			w, ok := r.(interface{ Unwrap() Runner })
			if !ok {
				return nil
			}
			r = w.Unwrap()
		}
	})
	return found
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
		return Terminal(errors.New("reconcile: After needs a function and a Runner, got nil"))
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

func (a after) Unwrap() Runner { return a.Runner }

// Ready returns the function that Run waits for. With it, the status page
// distinguishes a member that waits from one that runs.
func (a after) Ready() func(ctx context.Context) error { return a.ready }

// Restart returns a Runner that runs r again, as p says, when it fails or panics; a nil p
// means [DefaultRetry]. It returns
//
//   - nil when r does, or when ctx ends a pause;
//   - the error of r when p says no, when the error is [Terminal], as that of a wrong
//     field is, or when ctx is done and r failed for another reason. A joined error is
//     Terminal if each failure in it is, as for [Classify]; a panic never is.
//
// After a run that lasted at least ten times as long as the pause before it, the next
// pause is as short as the first one. A pause of zero counts as one second in this
// comparison. So a healthy stream that a proxy cuts each minute is up most of the time. A
// run of a minute or more resets the count of failures that [RetryPolicy.Limit] compares.
// A negative delay of p counts as five minutes, and zero as one second from the second
// failure on.
//
// Restart logs to the [Logger] of ctx: the 1st, 2nd, 4th, 8th … failure since a run of a
// minute or more.
func Restart(p RetryPolicy, r Runner) Runner { return restart{p, r} }

type restart struct {
	policy RetryPolicy
	Runner
}

func (s restart) Run(ctx context.Context) error {
	var log failureLog
	var pause time.Duration
	failures, doublings := 0, 0 // The policy says by the first whether to go on, and by the second when.
	for {
		begin := time.Now()
		err := runGuarded(s.Runner, ctx, ctx)
		if err == nil {
			return nil
		}
		lasted := time.Since(begin)
		if lasted >= time.Minute {
			failures, log = 0, failureLog{}
		}
		if lasted >= 10*cmp.Or(pause, time.Second) {
			doublings = 0
		}
		failures++
		doublings++
		delay, again := s.decide(ctx, err, failures)
		if again && doublings != failures {
			if other, also := s.decide(ctx, err, doublings); also {
				delay = other
			}
		}
		if ctx.Err() != nil || !again {
			return err
		}
		pause = sanitized(delay, doublings)
		log.add(Logger(ctx), slog.LevelWarn, "runner failed, restarting", err, "next", pause)
		sleep(ctx, pause, nil)
		if ctx.Err() != nil {
			return nil
		}
	}
}

// decide calls the policy, unless the error is terminal. A policy, or a method of the error,
// that panics is replaced, as with a Reconciler.
func (s restart) decide(ctx context.Context, failure error, failures int) (delay time.Duration, again bool) {
	err := guard(func() error {
		if !answerOf(failure).isTerminal() {
			delay, again = s.policy.orDefault()(failure, failures)
		}
		return nil
	})
	if err != nil {
		logGuarded(Logger(ctx), slog.LevelError, "the retry policy, or a method of the error, panicked; the runner is restarted with the default back-off", "err", err)
		return DefaultRetry(failure, failures)
	}
	return delay, again
}

func (s restart) Unwrap() Runner { return s.Runner }
