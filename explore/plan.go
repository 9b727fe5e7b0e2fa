// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// This file plays one plan, and judges it.

const (
	downtime  = time.Second               // from a crash to the next Start
	lateness  = time.Minute + time.Second // of an event that is late, or comes again
	slowness  = time.Minute               // of a slow call whose context has no end
	endingMax = time.Hour                 // until all goroutines have ended

	atOnceMax = 5_000           // steps and calls at one instant
	idleMax   = 100_000         // steps and calls in an hour in which nothing changes
	vainMax   = 100             // calls of a process that is dead
	outageMax = 100             // calls that fail in an outage
	lookMax   = 5 * time.Minute // from one look to the next while there is work left

	idleEnough = 2 // places of a name that are disturbed while nothing changes
)

// mark stands before a fault in the journal.
const mark = "  <== "

// A kind says what can be disturbed.
type kind uint8

const (
	onCall kind = iota // what it does comes after it
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
	since  int // the same as nth, counted since the fault before, or the end of an outage
	kind   kind
	stale  bool // a Read that gave another answer before
	behind bool // and there were events since
	first  bool // of its instant
	own    []Fault
}

// allows reports whether a fault of its kind can be there.
func (p point) allows(f Fault) bool {
	switch f {
	case Stale:
		return p.stale
	case Behind:
		return p.behind
	case Outage: // these go on for long
		return p.nth == 1
	case Blackout:
		return p.first && p.nth <= 2
	}
	return true
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
	differs  bool   // it is that the world is another one
	hung     bool   // the plan did not end
	state    string // of the world at the end
	phases   []phase
	points   []point
	happened []injection
	after    int // of the points, the first after all of these
	idle     int // steps and calls since nothing changes
	journal  []entry
	rest     int // of its entries, those before that
}

// A phase is the time between two changes by Play.
type phase struct {
	state    string // at its end
	unsteady bool   // it was that before, and then something else
}

// A play is a plan under way. One goroutine directs it: it lets the time pass, lets
// through one call or event after the other, each when all else is at rest, and looks
// at the world between them.
type play struct {
	*explorer
	number   int
	direct   func(*play) // plays the scenario, and sets the next four
	slots    []*slot
	check    func() error  // says what is wrong with the world
	describe func() string // describes it
	close    func()        // ends it
	decide   func(point) Fault
	within   time.Duration
	clean    *outcome // of the plan without faults; nil if this is that
	restarts bool     // all processes start once more at the end

	begun    time.Time
	knock    chan struct{}  // there is something to let through
	timer    *time.Timer    // of the director
	work     sync.WaitGroup // of all processes
	progress atomic.Int64   // of the director

	mu          sync.Mutex // guards the fields below
	bubble      string     // as stacks name it
	outcome     outcome
	elders      []*Kit // that go on beside the process which came after them
	settling    bool   // the scenario's Play is over
	dirty       bool   // the world may have changed since lookedAt
	undescribed bool   // and since it was described
	lookedAt    time.Duration
	callers     []*request
	told        []delivery // since all was at rest
	events      []delivery
	history     []delivery // that came
	spots       map[string]*spot
	answers     map[string]*answers
	outages     map[string]*outage // by the name of the kit, or of a place
	turn        int                // of the journal: what several goroutines do in one has no order
	texts       []string           // of the world in this phase
	restAt      time.Duration      // nothing changes since then
	lookAt      time.Duration      // when settle looks again
	faultAt     time.Duration      // when the last fault is over
	instant     time.Duration
	atOnce      int // steps and calls at that instant
	calledAt    time.Duration
	idleTurn    int // counts the changes
}

// A slot is where one process follows the other.
type slot struct {
	number    int
	start     func(*Kit)
	kit       *Kit          // the last one
	restartAt time.Duration // when the next one starts, if that is dead
}

// An outage is a time in which calls fail.
type outage struct {
	until time.Duration
	left  int // of the calls that fail
}

// A spot counts how often a place was met.
type spot struct {
	name     string
	nth      int
	before   int // nth at the last fault, if there were so many faults, or in an outage
	faults   int
	idle     int // since nothing changes
	idleTurn int
}

// A delivery is an event on its way, or one that came.
type delivery struct {
	event   any
	what    string
	kit     *Kit
	at      time.Duration
	decided bool // that it comes
	own     map[Fault]func()
}

// An answer is what a read found.
type answer struct {
	value any
	err   error
}

// answers are those of one read, each another than the one before.
type answers struct {
	last, before answer
	n            int
	beforeAt     time.Duration // when that was given for the last time
	lastAt       time.Duration
	behind       time.Duration // until then the one before comes
}

func (a answer) equal(b answer) bool {
	if suffix(a.err) != suffix(b.err) {
		return false
	}
	switch v := a.value.(type) {
	case nil:
		return b.value == nil
	case string, bool, int:
		return v == b.value
	}
	return reflect.DeepEqual(a.value, b.value)
}

// A request is one call of the world.
type request struct {
	kit    *Kit
	ctx    context.Context
	op     string
	kind   kind
	effect func() error
	own    map[Fault]func() error // in place of effect
	found  any                    // of a read, by effect

	turn  chan struct{} // closed when the call may go on
	what  string
	point int // the last one then
	lasts time.Duration
	injection
}

// errDied is what the calls of a process return after its end.
var errDied = errors.New("explore: the process has died")

// perform plays a plan in a bubble of its own.
func (p *play) perform(t *testing.T) {
	defer func() {
		p.bubbles.Delete(p.bubble)
		switch r := recover(); {
		case r == nil:
		case !strings.HasPrefix(fmt.Sprint(r), "deadlock"):
			panic(r)
		default:
			p.failf("goroutines are left that wait for ever (%v):\n%s", r, strings.Join(stacks(p.bubble), "\n\n"))
		}
	}()
	synctest.Test(t, func(*testing.T) {
		name := bubbleName()
		p.mu.Lock()
		p.bubble = name
		p.mu.Unlock()
		p.bubbles.Store(name, p)
		p.begun = time.Now()
		p.knock, p.timer = make(chan struct{}, 1), time.NewTimer(0)
		p.timer.Stop()
		p.spots, p.answers, p.outages = map[string]*spot{}, map[string]*answers{}, map[string]*outage{}
		p.dirty, p.calledAt = true, -1
		if p.clean != nil { // most plans are a little longer
			n, m := len(p.clean.journal), len(p.clean.points)
			p.outcome.journal, p.outcome.points = make([]entry, 0, n+n/4), make([]point, 0, m+m/4)
		}
		var directing sync.WaitGroup // of a goroutine that the scenario may end by mistake
		directing.Go(func() { p.protect(nil, "the scenario", func() { p.direct(p) }) })
		directing.Wait()
		p.finish()
	})
}

// launch starts a process.
func (p *play) launch(s *slot) {
	k := &Kit{play: p, slot: s}
	if s.number > 0 {
		k.name = fmt.Sprintf(" (beside %d)", s.number)
	}
	k.log = slog.New(journalHandler(p, k))
	k.ctx, k.end = context.WithCancelCause(context.Background())
	p.mu.Lock()
	if s.kit != nil {
		p.lineLocked("start" + k.name)
	}
	s.kit = k
	for _, a := range p.answers {
		a.behind = 0
	}
	p.mu.Unlock()
	p.work.Go(func() { p.protect(k, "Start", func() { s.start(k) }) })
}

// now returns the time since the beginning, as all times of a plan are.
func (p *play) now() time.Duration { return time.Since(p.begun) }

// advance lets the time pass until then, and all happen that is to happen by then.
// The world may have been changed before.
func (p *play) advance(until time.Duration) {
	p.mu.Lock()
	p.dirty = true
	p.mu.Unlock()
	p.pass(until)
}

// pass is advance in a world that was not changed.
func (p *play) pass(until time.Duration) {
	for {
		synctest.Wait()
		p.progress.Add(1)
		p.look()
		act, wait, describe := p.next(until)
		if describe {
			p.compare()
			act, wait, _ = p.next(until)
		}
		switch {
		case act != nil:
			act()
		case wait <= 0:
			return
		default:
			p.timer.Reset(wait)
			select {
			case <-p.knock:
				p.timer.Stop()
			case <-p.timer.C:
			}
		}
	}
}

// look checks the world, if it may have changed.
func (p *play) look() {
	p.mu.Lock()
	now := p.now()
	needed := p.dirty || now != p.lookedAt
	p.dirty, p.lookedAt = false, now
	p.undescribed = p.undescribed || needed
	p.mu.Unlock()
	if !needed {
		return
	}
	if err := p.check(); err != nil {
		p.failf("Check: %v", err)
		p.mu.Lock()
		p.outcome.rest = len(p.outcome.journal) // which ends with what it is about
		p.mu.Unlock()
	}
	if p.steady {
		p.compare()
	}
}

// compare compares the world with what it was. A description may cost as much as many
// calls, so this is done only before time passes, or if it makes a difference.
func (p *play) compare() {
	text := p.describe()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undescribed = false
	if text == p.outcome.state {
		return
	}
	if p.steady {
		p.steadyLocked(text)
	}
	p.outcome.state = text
	p.changeLocked("the world changes")
}

// steadyLocked fails if the world was as it has to be in this phase, and is not any more.
func (p *play) steadyLocked(text string) {
	was := p.outcome.state
	p.texts = append(p.texts, text)
	n := len(p.outcome.phases)
	if p.clean == nil || n >= len(p.clean.phases) || len(p.texts) == 1 {
		return // the first is what Play made of it
	}
	want := p.clean.phases[n]
	lags := slices.ContainsFunc(p.outcome.happened, func(i injection) bool { return i.fault == Stale || i.fault == Behind })
	if was == want.state && !want.unsteady && !lags {
		p.failLocked("Steady: the world was what it has to be, and then was not:\n%s", difference(was, text, "(before)"))
	}
}

// phase notes that a phase is over.
func (p *play) phase() {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := phase{state: p.outcome.state}
	if i := slices.Index(p.texts, end.state); i >= 0 {
		end.unsteady = i < len(p.texts)-1
	}
	p.outcome.phases = append(p.outcome.phases, end)
	p.texts = append(p.texts[:0], p.outcome.state)
}

// next returns what is to be done now; if that is nothing, the time until there may be
// something, or until then; or that the world is to be described before that is known.
func (p *play) next(until time.Duration) (act func(), wait time.Duration, describe bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.outcome.failure != "" {
		return nil, 0, false
	}
	if p.settling {
		until = min(until, p.lookAt)
	}
	p.turn++
	if len(p.told) > 0 { // by several goroutines, perhaps
		slices.SortStableFunc(p.told, func(a, b delivery) int { return strings.Compare(a.what, b.what) })
		p.events = append(p.events, p.told...)
		p.told = p.told[:0]
	}
	for _, s := range p.slots {
		if s.kit.dead {
			if s.restartAt <= now {
				return func() { p.launch(s) }, 0, false
			}
			until = min(until, s.restartAt)
		}
	}
	for _, k := range p.elders {
		if k.endsAt <= now {
			p.lineLocked("the old process ends")
			return func() { p.kill(k) }, 0, false
		}
		until = min(until, k.endsAt)
	}
	for i, d := range p.events {
		if d.at <= now {
			p.events = slices.Delete(p.events, i, i+1)
			return p.deliverLocked(d), 0, false
		}
		until = min(until, d.at)
	}
	if len(p.callers) == 0 {
		return nil, until - now, p.undescribed
	}
	r := p.firstLocked()
	if p.undescribed {
		if s := p.spots[p.placeName("call "+r.op+r.kit.name)]; s != nil && s.idle >= idleEnough && s.idleTurn == p.idleTurn {
			return nil, 0, true
		}
	}
	return p.grantLocked(r), 0, false
}

// deliverLocked decides about an event, and returns what delivers it.
func (p *play) deliverLocked(d delivery) func() {
	if d.kit.dead {
		p.lineLocked(d.what + ": nobody is there")
		return nothing
	}
	if now := p.now(); now < d.kit.behind { // what it reads and what it hears are one stream
		d.at = d.kit.behind
		p.events = append(p.events, d)
		return nothing
	}
	p.dirty = true
	var i injection
	if !d.decided {
		i = p.meetLocked(d.what, onEvent, ownOf(p.explorer, d.own))
	}
	if happens := happening(p.explorer, d.own, i.fault); happens != nil {
		p.disturbLocked(d.what, i, lateness)
		return happens
	}
	switch i.fault {
	case Lost: // a world may notice, as late as with one that comes late, and make good
		p.disturbLocked(d.what, i, lateness)
		return nothing
	case Late, Twice:
		p.disturbLocked(d.what, i, lateness)
		p.events = append(p.events, delivery{event: d.event, what: d.what, kit: d.kit, at: d.at + lateness, decided: true})
		if i.fault == Late {
			return nothing
		}
	default:
		p.lineLocked(d.what)
	}
	d.at = p.now()
	p.history = append(p.history, d)
	listeners := slices.Clone(d.kit.listeners)
	for _, k := range p.elders {
		if k.slot == d.kit.slot && k != d.kit {
			listeners = append(listeners, k.listeners...)
		}
	}
	return func() {
		for _, hear := range listeners {
			hear(d.event)
		}
	}
}

func nothing() {}

// firstLocked returns the call whose text comes first.
func (p *play) firstLocked() *request {
	return slices.MinFunc(p.callers, func(a, b *request) int {
		return cmp.Or(strings.Compare(a.op, b.op), strings.Compare(a.kit.name, b.kit.name))
	})
}

// grantLocked lets a call through.
func (p *play) grantLocked(r *request) func() {
	p.forgetLocked(r)
	p.countLocked()
	p.dirty = p.dirty || r.kind != onRead
	r.what = "call " + r.op + r.kit.name
	if p.downLocked(r) {
		r.fault = Fails
		p.lineLocked(r.what + ": " + ErrInjected.Error())
		close(r.turn)
		return nothing
	}
	r.injection = p.meetLocked(r.what, r.kind, ownOf(p.explorer, r.own))
	r.point = len(p.outcome.points) - 1
	if happens := happening(p.explorer, r.own, r.fault); happens != nil {
		r.effect, r.lasts = happens, lateness
	}
	switch r.fault {
	case "", Stale, Behind: // if it was another
	case Outage, Blackout:
		p.disturbLocked(r.what, r.injection, p.within)
		name := r.place.what
		if r.fault == Blackout {
			name = "" + r.kit.name
		}
		p.outages[name] = &outage{p.now() + p.within, outageMax - 1}
		r.fault = Fails
	case Overlap:
		if r.kit != r.kit.slot.kit || len(p.elders) > 0 {
			break
		}
		p.disturbLocked(r.what, r.injection, lateness)
		old := r.kit
		old.name += " (old)"
		old.endsAt = p.now() + lateness
		p.elders = append(p.elders, old)
		return func() { close(r.turn); p.launch(old.slot) }
	case Slow:
		r.lasts = slowness
		if end, ok := r.ctx.Deadline(); ok && time.Until(end) < p.within {
			r.lasts = time.Until(end) + time.Second
		}
		fallthrough
	default:
		p.disturbLocked(r.what, r.injection, r.lasts)
	}
	close(r.turn)
	return nothing
}

// downLocked reports whether a call fails since something is down for a while.
func (p *play) downLocked(r *request) bool {
	if len(p.outages) == 0 {
		return false
	}
	name := p.placeName(r.what)
	for _, of := range []string{name, r.kit.name} {
		o := p.outages[of]
		if o == nil {
			continue
		}
		if o.left--; o.left > 0 && p.now() < o.until {
			s := p.spotLocked(name)
			s.before = s.nth
			return true
		}
		delete(p.outages, of)
		if len(p.outages) == 0 {
			p.faultAt = min(p.faultAt, p.now())
		}
	}
	return false
}

func (p *play) forgetLocked(r *request) {
	p.callers = slices.DeleteFunc(p.callers, func(other *request) bool { return other == r })
}

// spotLocked returns the spot of that name, which is met.
func (p *play) spotLocked(name string) *spot {
	s := p.spots[name]
	if s == nil {
		s = &spot{name: name}
		p.spots[name] = s
	}
	if n := len(p.outcome.happened); s.faults != n {
		s.before, s.faults = s.nth, n
	}
	s.nth++
	return s
}

// meetLocked notes that a place is met, and decides what happens there. Of what goes
// on while nothing changes, the first few of each are enough. own lists the faults of
// the world's own that can be there.
func (p *play) meetLocked(what string, kind kind, own []Fault) injection {
	s := p.spotLocked(p.placeName(what))
	if s.idleTurn != p.idleTurn {
		s.idle, s.idleTurn = 0, p.idleTurn
	}
	at := point{place: place{s.name, s.nth}, since: s.nth - s.before, kind: kind, own: own}
	if kind != onEvent {
		now := p.now()
		at.first = p.calledAt != now
		p.calledAt = now
	}
	if s.idle++; s.idle > idleEnough {
		return injection{place: at.place}
	}
	p.outcome.points = append(p.outcome.points, at)
	i := injection{at.place, p.decide(at)}
	if slices.Contains(p.own, i.fault) && !slices.Contains(own, i.fault) {
		i.fault = "" // what is done there is something else now
	}
	return i
}

// disturbLocked notes a fault, which lasts so long.
func (p *play) disturbLocked(what string, i injection, lasts time.Duration) {
	p.outcome.journal = append(p.outcome.journal, entry{at: p.now(), turn: p.turn, what: what, fault: i.fault})
	p.outcome.happened = append(p.outcome.happened, i)
	p.outcome.after = len(p.outcome.points)
	p.faultAt = max(p.faultAt, p.now()+lasts)
	p.unrestLocked()
}

// unrestLocked notes that something changes.
func (p *play) unrestLocked() {
	p.restAt = p.now()
	p.outcome.idle, p.outcome.rest = 0, len(p.outcome.journal)
	p.idleTurn++
	p.lookAt = min(p.lookAt, p.restAt+time.Second)
}

// changeLocked notes that something changes, and fails if it should not any more.
func (p *play) changeLocked(what string) {
	p.unrestLocked()
	if p.settling && p.now() > p.faultAt+p.within {
		p.failLocked("it does not converge: %v after the last fault, or the end of Play, %s", p.within, what)
	}
}

// countLocked counts a step or a call, and ends a loop.
func (p *play) countLocked() {
	if now := p.now(); now != p.instant {
		p.instant, p.atOnce = now, 0
	}
	p.atOnce++
	if p.outcome.idle++; p.instant < p.faultAt { // which may be an outage
		p.outcome.idle = 0
	}
	switch {
	case p.atOnce > atOnceMax:
		p.failLocked("it does not come to rest: there are more than %d runs and calls at one instant", atOnceMax)
	case p.settling && p.outcome.idle > max(atOnceMax, int(idleMax*p.within/time.Hour)):
		p.failLocked("it does not stay at rest: there are %d runs and calls in %v in which nothing changes", p.outcome.idle, p.now()-p.restAt)
	}
}

// settle waits until nothing has changed for long enough. It looks often at first,
// for what changes without a call.
func (p *play) settle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settling, p.dirty, p.faultAt = true, true, max(p.faultAt, p.now())
	p.untilRestLocked()
	if p.restarts && p.outcome.failure == "" {
		p.mu.Unlock()
		for _, s := range p.slots {
			p.kill(s.kit)
		}
		p.mu.Lock()
		p.faultAt = p.now() + downtime
		p.untilRestLocked()
	}
}

func (p *play) untilRestLocked() {
	p.unrestLocked()
	pause, busy := time.Second, false
	for p.outcome.failure == "" {
		now, rest := p.now(), max(p.restAt, p.faultAt)
		switch {
		case busy:
			pause = min(2*pause, lookMax)
		default:
			pause = max(time.Second, now-rest)
		}
		next := min(rest+p.within, now+pause)
		if now < p.faultAt {
			next = p.faultAt
		}
		if now >= next {
			return
		}
		p.lookAt = next
		p.mu.Unlock()
		p.pass(next)
		left := p.left()
		p.mu.Lock()
		switch {
		case left != "":
			p.changeLocked(left)
		case busy: // and is done
			p.unrestLocked()
		}
		busy = left != ""
	}
}

// left says what the processes that are there have still to do.
func (p *play) left() string {
	for _, s := range p.slots {
		p.mu.Lock()
		asks := slices.Clone(s.kit.unfinished)
		dead := s.kit.dead
		p.mu.Unlock()
		if dead {
			continue
		}
		for _, ask := range asks {
			if left := ask(); left != "" {
				return left
			}
		}
	}
	return ""
}

// judge looks at what is there at the end. The error is that of Final, if there is one.
func (p *play) judge(final error, compare bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if final != nil {
		p.failLocked("Final: %v", final)
	}
	if p.clean == nil {
		return
	}
	if compare && p.outcome.state != p.clean.state && p.outcome.failure == "" {
		p.outcome.differs = true
		p.failLocked("the world is not what it is without faults:\n%s", difference(p.clean.state, p.outcome.state, "(without faults)"))
	}
	if p.outcome.idle > 2*p.clean.idle+20 {
		p.failLocked("it does not stay at rest: there are %d runs and calls in the %v in which nothing changes; without faults there are %d", p.outcome.idle, p.within, p.clean.idle)
	}
}

// finish ends what is left, and the world.
func (p *play) finish() {
	for _, s := range p.slots {
		if s.kit != nil {
			p.kill(s.kit)
		}
	}
	for _, k := range slices.Clone(p.elders) {
		p.kill(k)
	}
	ended := make(chan struct{})
	go func() {
		p.work.Wait()
		close(ended)
	}()
	timer := time.NewTimer(endingMax)
	defer timer.Stop()
	select {
	case <-ended:
	case <-timer.C:
		p.failf("goroutines are left %v after the process was ended:\n%s", endingMax, strings.Join(stacks(p.bubble), "\n\n"))
	}
	if p.close != nil {
		p.protect(nil, "Close", p.close)
	}
}

// tell takes in an event for a process; nil means those that are there.
func (p *play) tell(k *Kit, event any, own map[Fault]func()) {
	what := fmt.Sprintf("event %v", event)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case k == nil:
		for _, s := range p.slots {
			p.events = append(p.events, delivery{event: event, what: what + s.kit.name, kit: s.kit, at: p.now()})
		}
	case !k.dead:
		p.told = append(p.told, delivery{event: event, what: what + k.name, kit: k, at: p.now(), own: own})
	}
	p.knockLocked()
}

func (p *play) knockLocked() {
	select {
	case p.knock <- struct{}{}:
	default: // it is known already
	}
}

// protect calls a function of the user's, and fails the plan if it does not return.
func (p *play) protect(k *Kit, what string, f func()) {
	returned := false
	defer func() {
		v := recover()
		switch {
		case returned || p.over(k): // what a dead process does is no matter
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
func (p *play) over(k *Kit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.overLocked(k)
}

func (p *play) overLocked(k *Kit) bool {
	return p.outcome.failure != "" || k != nil && k.dead
}

func (p *play) failf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failLocked(format, args...)
}

func (p *play) failLocked(format string, args ...any) {
	if p.outcome.failure == "" {
		p.outcome.failure = fmt.Sprintf(format, args...)
	}
}

// hung is the outcome of a plan in which nothing goes on.
func (p *play) hung(after time.Duration) *outcome {
	o, bubble := outcome{hung: true}, ""
	if p.mu.TryLock() { // nobody holds it for long, but something is wrong here
		o.journal, o.happened = slices.Clone(p.outcome.journal), slices.Clone(p.outcome.happened)
		bubble = p.bubble
		p.mu.Unlock()
	}
	var busy []string
	for _, stack := range stacks(bubble) {
		head, _, _ := strings.Cut(stack, "\n")
		if !strings.Contains(head, "(durable)") && !strings.Contains(head, "[synctest.") {
			busy = append(busy, stack)
		}
	}
	o.failure = fmt.Sprintf("it hangs: for %v of the real clock nothing goes on, since these goroutines neither end nor wait for something of the plan. A mutex that is held over a call is one reason:\n%s",
		after, strings.Join(busy, "\n\n"))
	return &o
}

var bubblePattern = regexp.MustCompile(`synctest bubble \d+\]`)

// bubbleName returns that of the calling goroutine, or "".
func bubbleName() string {
	var text [128]byte
	return bubblePattern.FindString(string(text[:runtime.Stack(text[:], false)]))
}

// stacks returns those of a bubble, except for our own.
func stacks(bubble string) []string {
	text := make([]byte, 1<<20)
	return slices.DeleteFunc(strings.Split(string(text[:runtime.Stack(text, true)]), "\n\n"), func(s string) bool {
		waits := strings.Contains(s, "WaitGroup).Wait(") && strings.Contains(s, "explore.(*play")
		return bubblePattern.FindString(s) != bubble || waits || strings.Contains(s, "testingSynctestTest(")
	})
}

// kill ends a process: what it does from now on has no effect.
func (p *play) kill(k *Kit) {
	p.mu.Lock()
	k.dead = true
	if k.slot.kit == k {
		k.slot.restartAt = p.now() + downtime
	}
	p.elders = slices.DeleteFunc(p.elders, func(elder *Kit) bool { return elder == k })
	p.mu.Unlock()
	k.end(errDied)
}

// ask makes a call, once it has its turn.
func (p *play) ask(r *request) error {
	k := r.kit
	p.mu.Lock()
	if err := context.Cause(r.ctx); err != nil || p.overLocked(k) {
		stop := false
		if p.overLocked(k) {
			k.vain++
			stop = k.vain > vainMax // it may go on for ever
		} else {
			p.countLocked()
		}
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
	case <-k.ctx.Done():
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
		p.protect(k, "call "+r.op, func() { err = r.effect() })
	}
	switch r.fault {
	case AnswerLost:
		return &lostAnswer{}
	case DiesBefore, DiesAfter:
		r.found = nil
		p.kill(k)
		return errDied
	case Slow:
		timer := time.NewTimer(r.lasts)
		defer timer.Stop()
		select {
		case <-timer.C:
			return err
		case <-r.ctx.Done():
			r.found = nil
			return context.Cause(r.ctx)
		}
	}
	return p.answered(r, err)
}

// A lostAnswer is the error of a call that had its effect.
type lostAnswer struct{}

func (*lostAnswer) Error() string { return ErrInjected.Error() }
func (*lostAnswer) Unwrap() error { return ErrInjected }

// answered returns what a call did; or what it did before, if that is its fault.
func (p *play) answered(r *request, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.overLocked(r.kit) {
		return errDied
	}
	streams := false
	if y, ok := r.found.(*reply); ok && y != nil {
		streams = y.stream != nil // which is no answer that could be given again
	}
	if r.kind != onRead || streams {
		p.outcome.journal = append(p.outcome.journal, entry{at: p.now(), turn: p.turn, what: r.what, err: err})
		return err
	}
	key, now := r.op+r.kit.name, p.now()
	a := p.answers[key]
	is := answer{r.found, err}
	switch {
	case a == nil:
		a = &answers{last: is}
		p.answers[key] = a
	case !a.last.equal(is):
		a.before, a.beforeAt, a.n = a.last, a.lastAt, a.n+1
		a.last = is
	}
	a.lastAt = now
	if now < a.behind {
		p.outcome.journal = append(p.outcome.journal, entry{at: now, turn: p.turn, what: r.what + " (as it was)", err: a.before.err})
		r.found = a.before.value
		return a.before.err
	}
	if a.n > 0 {
		since := p.since(r.kit, a.beforeAt)
		switch {
		case r.fault == Behind && len(since) > 0:
			p.disturbLocked(r.what, r.injection, lateness)
			a.behind, r.kit.behind = now+lateness, now+lateness
			for _, d := range since {
				d.at, d.decided = now+lateness, true
				p.events = append(p.events, d)
			}
			fallthrough
		case r.fault == Stale:
			if r.fault == Stale {
				p.disturbLocked(r.what, r.injection, 0)
			}
			r.found = a.before.value
			return a.before.err
		}
		if at := &p.outcome.points[r.point]; at.place == r.place {
			at.stale, at.behind = true, len(since) > 0
		}
	}
	p.outcome.journal = append(p.outcome.journal, entry{at: now, turn: p.turn, what: r.what, err: err})
	return err
}

// since returns the events that came to a process since then.
func (p *play) since(k *Kit, at time.Duration) []delivery {
	i := len(p.history)
	for i > 0 && p.history[i-1].at >= at {
		i--
	}
	var since []delivery
	seen := map[string]bool{}
	for _, d := range p.history[i:] {
		if d.kit == k && !seen[d.what] {
			seen[d.what] = true
			since = append(since, d)
		}
	}
	return since
}
