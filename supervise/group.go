// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package supervise

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

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/guard"
)

// ErrStillRunning is matched by the error of a [Group] that returned before all of its
// members had, because its ShutdownTimeout was over.
var ErrStillRunning = errors.New("supervise: members still running")

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
// A member counts as a Reconciler if it has the method EndLast, or if its Unwrap method leads
// to one that has it, as those of After and Restart do. A Group has it, because its own
// feeders end with those around. A RunFunc never has.
//
// The zero Group is ready. Its methods may be called from any goroutine. The exported
// fields must not be changed while Run goes on.
type Group struct {
	// Logger is the logger of the Group and its members: the context of a member
	// carries it, with the name of the member as the attribute "member", and
	// [reconcile.Logger] returns it. In a Group within a Group the names are joined by
	// slashes. Nil means the logger of the context of Run.
	Logger *slog.Logger

	// ShutdownTimeout is how long Run waits for its members once it has begun to
	// end them; 0 means as long as it takes. A value of at least the longest Grace of its
	// Reconcilers plus one second leaves each of them its whole Grace.
	ShutdownTimeout time.Duration

	// Set by Run. The contexts of the feeders are made from feeding, and those of the
	// Reconcilers from running. Feeding is made from that of the Group around, so the
	// feeders of all of them end at the same moment.
	ctx                    context.Context // of Run: the members have its values
	logger                 *slog.Logger    // that of its members is made from
	path                   string          // the names of the members that Run is part of
	around                 *Group          // which ends this one; nil if there is none
	feeding, running       context.Context
	endFeeding, endRunning context.CancelCauseFunc

	mu           sync.Mutex    // guards the fields below; may be held when that of around is taken
	started      bool          // by Run
	members      []*member     // those that have not ended
	feeders      []*member     // those of members, and of the Groups inside, that have not ended
	first        error         // of the member that failed first
	feedersEnded bool          // no feeder is started any more
	ending       bool          // no member is started any more
	over         chan struct{} // closed when a member failed, or all have ended
	returned     bool
}

// feedersTime is how long the Reconcilers wait for feeders that have to end.
const feedersTime = time.Second

// memberKey and nameKey are keys of the *member that a context belongs to.
type (
	memberKey struct{}
	nameKey   struct{}
)

// OutsideOfRuns hides the member from the runs of a Reconciler: a Group in a run ends with
// the run, and not with the Group around.
func (memberKey) OutsideOfRuns() {}

type member struct {
	name   string
	runner reconcile.Runner
	feeds  bool // it is not a Reconciler
	group  *Group
	logger *slog.Logger            // of its context
	cancel context.CancelCauseFunc // nil until it is started
	ended  chan struct{}           // closed when it has returned
}

// A memberContext is the context of a member. It ends with one of the contexts of its
// Group, and has the values of that of Run.
type memberContext struct {
	context.Context
	member *member
}

func (c memberContext) Value(key any) any {
	if key == (memberKey{}) || key == (nameKey{}) {
		return c.member
	}
	if v := c.Context.Value(key); v != nil { // Package context finds its own there.
		return v
	}
	return c.member.group.ctx.Value(key)
}

// Add adds a member, before Run or while Run goes on. After Run has returned, the member
// never runs. A member that is added after ctx is done runs only if it is a Reconciler, and
// only until the contexts of the other Reconcilers end. After a member failed, none runs.
//
// Stop ends that member alone and waits for it; before Run it takes it out of
// the group. It may be called again, and from any goroutine except those that the
// member waits for: its own, and, if it is a Reconciler, those of its functions,
// such as Reconcile and OnResult. There it would wait for itself, for ever.
func (g *Group) Add(name string, r reconcile.Runner) (stop func()) {
	m := &member{name: name, runner: r, feeds: !endsLast(r), group: g, ended: make(chan struct{})}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.ending:
		return func() {}
	case !g.started:
		g.members = append(g.members, m)
	case !g.startLocked(m):
		return func() {}
	}
	return func() { g.stop(m) }
}

func (g *Group) stop(m *member) {
	g.mu.Lock()
	started := m.cancel != nil
	if !started {
		g.members = without(g.members, m)
	}
	g.mu.Unlock()
	if started {
		m.cancel(nil)
		<-m.ended
	}
}

func without(members []*member, m *member) []*member {
	return slices.DeleteFunc(members, func(o *member) bool { return o == m })
}

// Run runs the members until ctx is done, one of them fails, or all have ended; a group
// without members returns at once. It returns once every member has returned. Its error is
// that of the member that failed first, before or after the end of ctx, wrapped with the
// member's name; it is nil if none failed. A panic is a failure, with a [*reconcile.PanicError].
// After the end of ctx, an error that wraps the error of ctx is not a failure. An
// [errors.Join] of that error and another one is a failure. Later failures are logged.
//
// If members have not returned when ShutdownTimeout is over, Run returns all the
// same. Its error matches [ErrStillRunning], names those members, and is joined
// with the error of the member that failed first, if one did. By then the
// contexts of its members have ended. Those of a Group inside may last a second longer.
//
// The contexts of the members carry the values of ctx, but not its deadline,
// because they end one after the other. Each has ended once its member has
// returned.
//
// If ctx is done at the call, no member starts. If Run is called while a Group around
// this one ends, only Reconcilers start.
//
// A Group runs once: another Run, at the same time or later, is a [reconcile.Terminal]
// error. So is a ShutdownTimeout below zero.
func (g *Group) Run(ctx context.Context) error {
	if g.ShutdownTimeout < 0 {
		return reconcile.Terminal(fmt.Errorf("supervise: Group.ShutdownTimeout is %v, want 0 (which means none) or more", g.ShutdownTimeout))
	}
	if err := g.begin(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-g.over:
	case <-g.feeding.Done(): // The Group around has begun to end.
	}

	began := time.Now()
	giveUp := make(chan struct{})
	if g.ShutdownTimeout > 0 {
		defer time.AfterFunc(g.ShutdownTimeout, func() { close(giveUp) }).Stop()
	}
	g.mu.Lock()
	g.feedersEnded = true
	cause := cmp.Or(g.first, context.Cause(ctx))
	withAround := cause == nil && !g.ending
	feeders := slices.Clone(g.feeders)
	g.mu.Unlock()
	g.endFeeding(cause)
	awaitFeeders(feeders, giveUp)
	if withAround { // The Reconcilers wait for the feeders around, too.
		select {
		case <-ctx.Done():
		case <-g.over:
		case <-giveUp:
		}
	}

	g.mu.Lock()
	g.ending = true
	members := slices.Clone(g.members)
	g.mu.Unlock()
	g.endRunning(context.Cause(g.feeding))
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
func (g *Group) begin(ctx context.Context) error {
	done := ctx.Err() != nil
	logger, path := reconcile.Logger(ctx), ""
	var around *Group
	parent := context.Background() // The members end one after the other, so not all of them when ctx does.
	nested, _ := ctx.Value(memberKey{}).(*member)
	if nested != nil {
		around, parent = nested.group, nested.group.feeding
	}
	outer, _ := ctx.Value(nameKey{}).(*member)
	if outer != nil && (g.Logger != nil || outer != nested || logger == outer.logger) { // else the logger is one of WithLogger
		logger, path = outer.group.logger, outer.path()
	}
	logger = cmp.Or(g.Logger, logger)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.started {
		return reconcile.Terminal(errors.New("supervise: Group.Run was called before; a Group runs once"))
	}
	g.started, g.ctx, g.logger, g.path, g.around = true, ctx, logger, path, around
	g.over = make(chan struct{})
	g.feeding, g.endFeeding = context.WithCancelCause(parent)
	g.running, g.endRunning = context.WithCancelCause(context.Background())
	members := g.members
	g.members = nil
	for _, m := range members {
		if !done {
			g.startLocked(m)
		}
	}
	g.checkOverLocked()
	return nil
}

// startLocked starts a member, unless it is a feeder that comes too late, and reports
// whether it did.
func (g *Group) startLocked(m *member) bool {
	parent := g.running
	if m.feeds {
		if parent = g.feeding; !g.addFeederLocked(m) {
			return false
		}
	}
	ctx, cancel := context.WithCancelCause(parent)
	m.cancel = cancel
	g.members = append(g.members, m)
	go func() {
		m.logger = g.logger
		_ = guard.Call(func() error { m.logger = g.logger.With(m.attr()...); return nil }) // The handler is code of the user.
		g.ended(m, runGuarded(m.runner, reconcile.WithLogger(memberContext{ctx, m}, m.logger), g.ctx))
	}()
	return true
}

// path returns the name of the member, after those of the members around its Group.
func (m *member) path() string { return strings.Trim(m.group.path+"/"+m.name, "/") }

// attr returns the attribute of the member for a log line; none if it has no name.
func (m *member) attr() []any {
	if path := m.path(); path != "" {
		return []any{"member", path}
	}
	return nil
}

func (m *member) log(level slog.Level, msg string, args ...any) {
	guard.Log(m.group.logger, level, msg, append(args, m.attr()...)...)
}

// addFeederLocked has g, and the Groups around it, wait for a feeder, and reports whether
// none of them has begun to end.
func (g *Group) addFeederLocked(m *member) bool {
	if g.feedersEnded {
		return false
	}
	if g.around != nil {
		g.around.mu.Lock()
		defer g.around.mu.Unlock()
		if !g.around.addFeederLocked(m) {
			return false
		}
	}
	g.feeders = append(g.feeders, m)
	return true
}

// runGuarded runs r under ctx. It returns nil if r returned nil, or the error of
// ctx or of around after the end of that context.
func runGuarded(r reconcile.Runner, ctx, around context.Context) error {
	return guard.Call(func() error {
		if r == nil {
			return reconcile.Terminal(errors.New("supervise: Runner is required, and nil"))
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
		_, panicked := e.(*reconcile.PanicError)
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
		panicked := guard.Call(func() error { failure = fmt.Errorf("%s: %w", m.name, err); return nil })
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
		m.log(slog.LevelError, "another member failed", "err", err)
	}
	for a := g; a != nil && m.feeds; a = a.around {
		a.mu.Lock()
		a.feeders = without(a.feeders, m)
		a.mu.Unlock()
	}
	g.mu.Lock()
	g.members = without(g.members, m)
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

// awaitFeeders waits for feeders until giveUp is closed, or feedersTime is over.
func awaitFeeders(feeders []*member, giveUp <-chan struct{}) {
	late := time.NewTimer(feedersTime)
	defer late.Stop()
	for _, m := range feeders {
		select {
		case <-m.ended:
		case <-late.C:
			return
		case <-giveUp:
			return
		}
	}
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
			members[0].log(slog.LevelWarn, "waiting for a member that has not ended yet", "for", age)
			remind.Reset(age)
		}
	}
}

// EndLast does nothing. A Group within a Group is ended after the feeders around it, and
// its own feeders are ended with these.
func (g *Group) EndLast() {}

// endsLast reports whether r is a Reconciler or a Group, or runs one. An Unwrap that
// panics leads to none. A Group counts, because its feeders end by themselves.
func endsLast(r reconcile.Runner) (found bool) {
	_ = guard.Call(func() error {
		for {
			if _, found = r.(interface{ EndLast() }); found {
				return nil
			}
			w, ok := r.(interface{ Unwrap() reconcile.Runner })
			if !ok {
				return nil
			}
			r = w.Unwrap()
		}
	})
	return found
}

var joinType = reflect.TypeOf(errors.Join(errors.ErrUnsupported))
