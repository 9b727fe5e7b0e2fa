// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// This file plays one plan of [Explore], and judges it.

const (
	downtime  = time.Second               // from a crash to the next Start
	lateness  = time.Minute + time.Second // of an event that is late, or comes again
	slowness  = time.Minute               // of a slow call whose context has no end
	endingMax = time.Hour                 // until all goroutines have ended
	workMax   = time.Minute               // of an item at rest, from one success to the next

	atOnceMax = 5_000   // runs and calls at one instant
	idleMax   = 100_000 // runs and calls in an hour in which nothing changes
	vainMax   = 100     // calls of a process that is dead
)

// mark stands before a fault in the journal.
const mark = "  <== "

// A kind says what can be disturbed.
type kind uint8

const (
	onCall kind = iota // Call, whose effect comes after it
	onDo
	onRead
	onEvent
)

// A place is the nth "call create a" or "event a" of a plan.
type place struct {
	what string
	nth  int
}

// A point is a place where faults can be.
type point struct {
	place
	kind  kind
	stale bool // a Read that gave another answer before
}

// An injection is a fault at a place.
type injection struct {
	place
	fault Fault
}

func (i injection) String() string { return fmt.Sprintf("%s #%d: %s", i.what, i.nth, i.fault) }

// An outcome is what a plan came to.
type outcome struct {
	failure  string // "" if there is none
	state    string // of the world at the end
	points   []point
	happened []injection
	after    int // of the points, the first after all of these
	idle     int // runs and calls since nothing changes
	journal  []string
	rest     int // of its lines, those before that
}

// A play is a plan under way. One goroutine directs it: it lets the time pass, lets
// through one call or event after the other, each when all else is at rest, and looks
// at the world between them.
type play[T comparable] struct {
	direct  func(*play[T]) // plays the scenario, and sets the next three
	start   func(*Kit[T])
	inspect func() (string, error) // describes the world, or says what is wrong with it
	close   func()                 // ends it

	decide  func(point) Fault
	within  time.Duration
	clean   *outcome // of the plan without faults; nil if this is that
	journal bool     // is wanted

	bubble string // as stacks name it
	begun  time.Time
	knock  chan struct{}  // there is something to let through
	work   sync.WaitGroup // of all processes

	mu        sync.Mutex // guards the fields below
	outcome   outcome
	process   *process[T]   // the last one
	restartAt time.Duration // when the next one starts, if that is dead
	settling  bool          // the scenario's Play is over
	callers   []*request
	events    []delivery[T]
	nth       map[string]int      // of each place
	idleNth   map[string]int      // of each place since nothing changes
	answers   map[string][]answer // of reads, by op; each is another than the one before
	restAt    time.Duration       // nothing changes since then
	faultAt   time.Duration       // when the last fault is over
	instant   time.Duration
	atOnce    int           // runs and calls at that instant
	results   int           // lines at the end of the journal that are results
	resultsAt time.Duration // of this instant
}

// A process is the controller from one Start to the next.
type process[T comparable] struct {
	play *play[T]
	kit  *Kit[T]
	end  context.CancelCauseFunc

	dead bool                // guarded by play.mu, as are the fields below
	vain int                 // calls since then
	owed map[T]time.Duration // when the events came that no run has followed
	left map[T]time.Duration // since when there is work left, by their runs
}

// A delivery is an event on its way.
type delivery[T comparable] struct {
	item    T
	process *process[T]
	at      time.Duration
	decided bool // that it comes
}

// An answer is what a read found.
type answer struct {
	value any
	err   error
}

func (a answer) equal(b answer) bool {
	return suffix(a.err) == suffix(b.err) && reflect.DeepEqual(a.value, b.value)
}

// errDied is what the calls of a process return after its end.
var errDied = errors.New("reconciletest: the process has died")

// perform plays a plan in a bubble of its own.
func (p *play[T]) perform(t *testing.T) (o *outcome) {
	defer func() {
		o = &p.outcome
		switch r := recover(); {
		case r == nil:
		case !strings.HasPrefix(fmt.Sprint(r), "deadlock"):
			panic(r)
		default:
			p.failf("goroutines are left that wait for ever (%v):\n%s", r, p.stacks())
		}
	}()
	synctest.Test(t, func(*testing.T) {
		p.bubble = bubble.FindString(stacks(false))
		p.begun = time.Now()
		p.knock = make(chan struct{}, 1)
		p.nth, p.idleNth, p.answers = map[string]int{}, map[string]int{}, map[string][]answer{}
		var directing sync.WaitGroup // of a goroutine that the scenario may end by mistake
		directing.Go(func() { p.protect(nil, "the scenario", func() { p.direct(p) }) })
		directing.Wait()
		p.finish()
	})
	return o
}

// launch starts a process.
func (p *play[T]) launch() {
	s := &process[T]{play: p, owed: map[T]time.Duration{}, left: map[T]time.Duration{}}
	s.kit = newKit[T](s.failf, slog.DiscardHandler)
	s.kit.ctx, s.end = context.WithCancelCause(context.Background())
	s.kit.begun, s.kit.work, s.kit.process = p.begun, &p.work, s
	p.mu.Lock()
	if p.process != nil {
		p.noteLocked("start")
	}
	p.process = s
	p.mu.Unlock()
	p.work.Go(func() { p.protect(s, "Start", func() { p.start(s.kit) }) })
}

// now returns the time since the beginning, as all times of a plan are.
func (p *play[T]) now() time.Duration { return time.Since(p.begun) }

// advance lets the time pass until then, and all happen that is to happen by then.
func (p *play[T]) advance(until time.Duration) {
	for {
		synctest.Wait()
		p.look()
		act, wait := p.next(until)
		switch {
		case act != nil:
			act()
		case wait <= 0:
			return
		default:
			select {
			case <-p.knock:
			case <-time.After(wait):
			}
		}
	}
}

// look looks at the world, which may have changed.
func (p *play[T]) look() {
	text, err := p.inspect()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failLocked("Check: %v", err)
	}
	if text != p.outcome.state {
		p.outcome.state = text
		p.changeLocked("the world changes")
	}
}

// next returns what is to be done now; if that is nothing, the time until there may be
// something, or until then.
func (p *play[T]) next(until time.Duration) (act func(), wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.outcome.failure != "" {
		return nil, 0
	}
	if p.process.dead {
		if p.restartAt <= now {
			return p.launch, 0
		}
		until = min(until, p.restartAt)
	}
	for i, d := range p.events {
		if d.at <= now {
			p.events = slices.Delete(p.events, i, i+1)
			return p.deliverLocked(d), 0
		}
		until = min(until, d.at)
	}
	if len(p.callers) > 0 {
		return p.grantLocked(), 0
	}
	return nil, until - now
}

// deliverLocked decides about an event, and returns what delivers it.
func (p *play[T]) deliverLocked(d delivery[T]) func() {
	what, s := fmt.Sprintf("event %v", d.item), d.process
	if s.dead {
		p.noteLocked("%s: nobody is there", what)
		return func() {}
	}
	var i injection
	if !d.decided {
		i = p.meetLocked(what, onEvent)
	}
	switch i.fault {
	case Lost:
		p.disturbLocked(i, 0)
		return func() {}
	case Late, Twice:
		p.disturbLocked(i, lateness)
		p.events = append(p.events, delivery[T]{d.item, s, d.at + lateness, true})
		if i.fault == Late {
			return func() {}
		}
	default:
		p.noteLocked("%s", what)
	}
	if s.kit.Events == nil {
		s.owed[d.item] = p.now()
	}
	return func() { s.kit.events().Enqueue(d.item) }
}

// grantLocked lets through the call whose text comes first.
func (p *play[T]) grantLocked() func() {
	r := slices.MinFunc(p.callers, func(a, b *request) int { return cmp.Compare(a.op, b.op) })
	p.forgetLocked(r)
	p.countLocked()
	r.injection = p.meetLocked("call "+r.op, r.kind)
	r.point = len(p.outcome.points) - 1
	switch r.fault {
	case "", Stale: // if it was another
	case Slow:
		r.lasts = slowness
		if end, ok := r.ctx.Deadline(); ok && time.Until(end) < p.within {
			r.lasts = time.Until(end) + time.Second
		}
		fallthrough
	default:
		p.disturbLocked(r.injection, r.lasts)
	}
	return func() { close(r.turn) }
}

func (p *play[T]) forgetLocked(r *request) {
	p.callers = slices.DeleteFunc(p.callers, func(other *request) bool { return other == r })
}

// meetLocked notes that a place is met, and decides what happens there. Of what goes
// on while nothing changes, the first two of each are enough.
func (p *play[T]) meetLocked(what string, kind kind) injection {
	p.nth[what]++
	at := point{place: place{what, p.nth[what]}, kind: kind}
	if p.idleNth[what]++; p.idleNth[what] > 2 {
		return injection{place: at.place}
	}
	p.outcome.points = append(p.outcome.points, at)
	return injection{at.place, p.decide(at)}
}

// disturbLocked notes a fault, which lasts so long.
func (p *play[T]) disturbLocked(i injection, lasts time.Duration) {
	p.noteLocked("%s%s%s", i.what, mark, i.fault)
	p.outcome.happened = append(p.outcome.happened, i)
	p.outcome.after = len(p.outcome.points)
	p.faultAt = max(p.faultAt, p.now()+lasts)
	p.unrestLocked()
}

// unrestLocked notes that something changes.
func (p *play[T]) unrestLocked() {
	p.restAt = p.now()
	p.outcome.idle, p.outcome.rest = 0, len(p.outcome.journal)
	clear(p.idleNth)
}

// changeLocked notes that something changes, and fails if it should not any more.
func (p *play[T]) changeLocked(what string) {
	p.unrestLocked()
	if p.settling && p.now() > p.faultAt+p.within {
		p.failLocked("it does not converge: %v after the last fault, or the end of Play, %s", p.within, what)
	}
}

// countLocked counts a run or a call, and ends a loop.
func (p *play[T]) countLocked() {
	if now := p.now(); now != p.instant {
		p.instant, p.atOnce = now, 0
	}
	p.atOnce++
	p.outcome.idle++
	switch {
	case p.atOnce > atOnceMax:
		p.failLocked("it does not come to rest: there are more than %d runs and calls at one instant", atOnceMax)
	case p.settling && p.outcome.idle > max(atOnceMax, int(idleMax*p.within/time.Hour)):
		p.failLocked("it does not stay at rest: there are %d runs and calls in %v in which nothing changes", p.outcome.idle, p.now()-p.restAt)
	}
}

// settle waits until nothing has changed for long enough. It looks often at first,
// for what changes without a call.
func (p *play[T]) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settling, p.faultAt = true, max(p.faultAt, p.now())
	p.unrestLocked()
	for p.outcome.failure == "" && p.now() < p.restAt+p.within {
		next := min(p.restAt+p.within, p.now()+max(time.Second, p.now()-p.restAt))
		p.mu.Unlock()
		p.advance(next)
		p.mu.Lock()
		if item := p.process.unsettledLocked(); item != "" {
			p.changeLocked(item)
		} else if p.now() < p.faultAt {
			p.unrestLocked()
		}
	}
}

// unsettledLocked names an item that has had work left for a while, if there is one.
func (s *process[T]) unsettledLocked() string {
	for item, state := range s.kit.Queue.All() {
		since, known := s.left[item]
		if !known {
			since = state.Since.Sub(s.play.begun)
		}
		if !state.Settled && s.play.now()-since > workMax {
			return s.kit.stateText(item, state)
		}
	}
	return ""
}

// judge looks at what is there at the end. The error is that of Final, if there is one.
func (p *play[T]) judge(final error, compare bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for item, at := range p.process.owed {
		if !p.process.kit.Queue.Has(item) {
			p.failLocked("no run followed the event %v of %v", item, at)
		}
	}
	if final != nil {
		p.failLocked("Final: %v", final)
	}
	if p.clean == nil {
		return
	}
	if compare && p.outcome.state != p.clean.state {
		p.failLocked("the world is not what it is without faults:\n%s", difference(p.clean.state, p.outcome.state))
	}
	if p.outcome.idle > 2*p.clean.idle+20 {
		p.failLocked("it does not stay at rest: there are %d runs and calls in the %v in which nothing changes; without faults there are %d", p.outcome.idle, p.within, p.clean.idle)
	}
}

// finish ends what is left, and the world.
func (p *play[T]) finish() {
	if p.process != nil {
		p.process.kill()
	}
	ended := make(chan struct{})
	go func() {
		p.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(endingMax):
		p.failf("goroutines are left %v after the process was ended:\n%s", endingMax, p.stacks())
	}
	if p.close != nil {
		p.protect(nil, "Close", p.close)
	}
}

// tell takes in an event for a process; nil means the last one.
func (p *play[T]) tell(s *process[T], item T) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s == nil || !s.dead {
		p.events = append(p.events, delivery[T]{item, cmp.Or(s, p.process), p.now(), false})
		p.knockLocked()
	}
}

func (p *play[T]) knockLocked() {
	select {
	case p.knock <- struct{}{}:
	default: // it is known already
	}
}

// protect calls a function of the user's, and fails the plan if it does not return.
func (p *play[T]) protect(s *process[T], what string, f func()) {
	returned := false
	defer func() {
		v := recover()
		switch {
		case returned || p.over(s): // what a dead process does is no matter
		case v == nil:
			p.failf("%s called runtime.Goexit, perhaps by t.FailNow; let Check or Final return an error instead", what)
		default:
			p.failf("%s panicked: %v\n%s", what, v, debug.Stack())
		}
	}()
	f()
	returned = true
}

// over reports whether the plan has failed, or the process is dead; it may be nil.
func (p *play[T]) over(s *process[T]) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.overLocked(s)
}

func (p *play[T]) overLocked(s *process[T]) bool {
	return p.outcome.failure != "" || s != nil && s.dead
}

func (p *play[T]) failf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failLocked(format, args...)
}

func (p *play[T]) failLocked(format string, args ...any) {
	if p.outcome.failure == "" {
		p.outcome.failure = fmt.Sprintf(format, args...)
	}
}

func (p *play[T]) noteLocked(format string, args ...any) {
	p.results = 0
	if p.journal {
		p.outcome.journal = append(p.outcome.journal, fmt.Sprintf("%v ", p.now())+fmt.Sprintf(format, args...))
	}
}

var bubble = regexp.MustCompile(`synctest bubble \d+\]`)

func stacks(all bool) string {
	text := make([]byte, 1<<10)
	if all {
		text = make([]byte, 1<<20)
	}
	return string(text[:runtime.Stack(text, all)])
}

// stacks returns those of the bubble, except for our own.
func (p *play[T]) stacks() string {
	return strings.Join(slices.DeleteFunc(strings.Split(stacks(true), "\n\n"), func(s string) bool {
		waits := strings.Contains(s, "WaitGroup).Wait(") && strings.Contains(s, "reconciletest.(*play[")
		return bubble.FindString(s) != p.bubble || waits || strings.Contains(s, "testingSynctestTest(")
	}), "\n\n")
}

func (s *process[T]) failf(format string, args ...any) {
	s.play.mu.Lock()
	defer s.play.mu.Unlock()
	if !s.dead {
		s.play.failLocked(format, args...)
	}
}

func (s *process[T]) note(format string, args ...any) {
	s.play.mu.Lock()
	defer s.play.mu.Unlock()
	if !s.dead {
		s.play.noteLocked(format, args...)
	}
}

// kill ends the process: what it does from now on has no effect.
func (s *process[T]) kill() {
	s.play.mu.Lock()
	s.dead = true
	s.play.restartAt = s.play.now() + downtime
	s.play.mu.Unlock()
	s.end(errDied)
}

// begin notes that a run begins, and reports whether it may.
func (s *process[T]) begin(item T) bool {
	s.play.mu.Lock()
	defer s.play.mu.Unlock()
	delete(s.owed, item)
	s.play.countLocked()
	return !s.play.overLocked(s)
}

// result notes how a run ended, and reports whether that is of interest.
func (s *process[T]) result(r reconcile.Result[T]) bool {
	p := s.play
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.overLocked(s) {
		return false
	}
	switch _, known := s.left[r.Item]; {
	case r.Outcome != reconcile.Requeued && r.Outcome != reconcile.Retrying:
		delete(s.left, r.Item)
	case !known:
		s.left[r.Item] = p.now()
	}
	if panicked := (*reconcile.PanicError)(nil); errors.As(r.Err, &panicked) {
		p.failLocked("the run of %v panicked: %v\n%s", r.Item, panicked.Value, panicked.Stack)
	}
	if p.journal {
		n := 1
		if now := p.now(); now == p.resultsAt {
			n += p.results
		}
		p.noteLocked("%s", resultText(r))
		slices.Sort(p.outcome.journal[len(p.outcome.journal)-n:]) // several workers have no order
		p.results, p.resultsAt = n, p.now()
	}
	return true
}

// ask makes a call, once it has its turn.
func (s *process[T]) ask(r *request) error {
	p := s.play
	p.mu.Lock()
	if err := context.Cause(r.ctx); err != nil || p.overLocked(s) {
		p.countLocked() // it may go on for ever
		s.vain++
		stop := p.overLocked(s) && s.vain > vainMax
		p.mu.Unlock()
		if stop {
			runtime.Goexit()
		}
		return cmp.Or(err, errDied)
	}
	r.turn = make(chan struct{})
	p.callers = append(p.callers, r)
	p.knockLocked()
	p.mu.Unlock()
	select {
	case <-s.kit.ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.forgetLocked(r)
		return errDied
	case <-r.turn:
	}
	if r.fault == Fails {
		return ErrInjected
	}
	err := errDied // unless it returns
	if r.fault != DiesBefore {
		p.protect(s, "call "+r.op, func() { err = r.effect() })
	}
	switch r.fault {
	case AnswerLost:
		r.revert(nil)
		return ErrInjected
	case DiesBefore, DiesAfter:
		s.kill()
		return errDied
	case Slow:
		select {
		case <-time.After(r.lasts):
			return err
		case <-r.ctx.Done():
			r.revert(nil)
			return context.Cause(r.ctx)
		}
	}
	return s.answered(r, err)
}

// answered returns what a call did; or what it did before, if that is its fault.
func (s *process[T]) answered(r *request, err error) error {
	p := s.play
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.overLocked(s) {
		return errDied
	}
	if r.kind == onRead {
		all, now := p.answers[r.op], answer{r.answer(), err}
		if n := len(all); n == 0 || !all[n-1].equal(now) {
			all = append(all, now)
			p.answers[r.op] = all
		}
		if len(all) > 1 {
			old := all[len(all)-2]
			if r.fault == Stale {
				p.disturbLocked(r.injection, 0)
				r.revert(old.value)
				return old.err
			}
			if at := &p.outcome.points[r.point]; at.place == r.place {
				at.stale = true
			}
		}
	}
	p.noteLocked("%s%s", r.what, suffix(err))
	return err
}

// evenly takes the chance out of the back-off of a Poller: it tries again by itself,
// and a list that failed in part is offered.
func (s *process[T]) evenly(p *reconcile.Poller[T]) func(context.Context) ([]T, error) {
	list := p.GetItems
	return func(context.Context) (items []T, err error) {
		for pause := time.Second; ; pause = min(2*pause, p.Period) {
			ctx, cancel := context.WithTimeout(s.kit.ctx, p.Period)
			err = errDied // unless it returns
			s.play.protect(s, "GetItems", func() { items, err = list(ctx) })
			cancel()
			if err == nil || s.kit.ctx.Err() != nil {
				return items, err
			}
			for _, item := range items {
				p.Queue.Offer(item)
			}
			select {
			case <-time.After(pause):
			case <-s.kit.ctx.Done():
			}
		}
	}
}
