// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"
)

// This file delivers events and answers calls, and injects the faults of the plan.
//
// A place is the nth time that a call or event of that name comes. What happens there:
//
//	an event   receive -> deliverLocked -> the listeners of the process
//	a call     call -> grantLocked -> the effect -> answered
//
// Both ask decideLocked which fault the plan has there.

const (
	lateness = time.Minute + time.Second // of an event that is late, or comes again
	slowness = time.Minute               // of a slow call whose deadline is not sooner

	deadCallsMax = 100 // calls of a process that is dead
	outageMax    = 100 // calls that fail in an outage
	outagesMax   = 3   // the first places of a name where an outage may begin

	idleEnough = 2 // places of a name where faults are injected while nothing changes
)

// mark stands before a fault in the journal.
const mark = "  <== "

// A kind says where a fault can be injected.
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
	kind   kind
	stale  bool // a Read that gave another answer before
	behind bool // and there were events since
	first  bool // of its instant
	idle   bool // of its name there were enough while nothing changes
	last   bool // of its name before a change by Steps, in the plan without faults
	ends   bool // its context has a deadline
	own    []Fault
}

// tried reports whether faults are tried there, unless a plan names it.
func (p point) tried() bool { return !p.idle || p.last }

// allows reports whether a fault of its kind can be there.
func (p point) allows(f Fault) bool {
	switch f {
	case NoAnswer:
		return p.ends
	case Stale:
		return p.stale
	case StaleWatch:
		return p.behind
	case Outage: // these go on for long
		return p.nth <= outagesMax
	case Blackout:
		return p.first && p.nth <= outagesMax
	}
	return true
}

// An injection is a fault at a place.
type injection struct {
	place
	fault Fault
}

func (i injection) String() string {
	if i.nth == 0 {
		return fmt.Sprintf("%s: %s", i.what, i.fault)
	}
	return fmt.Sprintf("%s #%d: %s", i.what, i.nth, i.fault)
}

// An outage is a time in which calls fail.
type outage struct {
	until time.Duration
	left  int // of the calls that fail
}

// A placeCount counts how often a call or event of one name has come.
type placeCount struct {
	name     string
	nth      int
	idle     int // since nothing changes
	idleTurn int
	last     int // of the points of the outcome, the last one of this name
}

// A delivery is an event on its way, or one that came.
type delivery struct {
	event   any
	what    string
	process *Process
	at      time.Duration
	decided bool // that it comes
	own     map[Fault]func()
}

// A request is one call of the world.
type request struct {
	process *Process
	ctx     context.Context
	op      string
	kind    kind
	effect  func() error
	own     map[Fault]func() error // in place of effect
	web     *exchange              // nil if it is no request of Transport
	found   any                    // of a read, by effect

	turn  chan struct{} // closed when the call may go on
	what  string
	line  int // of the journal, counted from 1, if its fault is noted there
	lasts time.Duration
	point int // among those of the outcome
	injection
}

// An answer is the result of a read.
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
	lent         memory        // of the last one, in the plan without faults
}

func (a answer) equal(b answer) bool {
	return suffix(a.err) == suffix(b.err) && reflect.DeepEqual(a.value, b.value)
}

// A memory is the memory to which an answer refers, by its addresses.
type memory map[uintptr]content

// A content is a value at an address, and a hash of it, in which other memory is an address.
type content struct {
	value reflect.Value
	hash  uint64
}

var memorySeed = maphash.MakeSeed()

// hash returns the hash of a value, and notes the memory to which it refers if m is not nil.
// The locations of times are no part of a value.
func (m memory) hash(v reflect.Value) uint64 {
	switch v.Kind() {
	case reflect.Interface:
		return m.hash(v.Elem())
	case reflect.Struct, reflect.Array:
		return m.hashElements(v)
	case reflect.Map, reflect.Slice, reflect.Pointer:
		at := v.Pointer()
		if _, known := m[at]; m != nil && !known && !v.IsNil() && v.Type() != reflect.TypeFor[*time.Location]() {
			m[at] = content{value: v} // it may refer to itself
			m[at] = content{v, m.hashElements(v)}
		}
		return uint64(at)
	}
	return maphash.String(memorySeed, fmt.Sprintf("%#v", v))
}

func (m memory) hashElements(v reflect.Value) (sum uint64) {
	switch {
	case v.Kind() == reflect.Pointer:
		return m.hash(v.Elem())
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			sum = sum*31 + m.hash(v.Field(i))
		}
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8:
		return maphash.Bytes(memorySeed, v.Bytes())
	default:
		for k, e := range v.Seq2() { // those of a map come in any order
			sum += m.hash(k)*31 ^ m.hash(e)
		}
	}
	return sum
}

// changed reports whether memory of an earlier answer has changed to which m refers too. A
// controller may change a copy that it was given.
func (m memory) changed(earlier memory) bool {
	for at, was := range earlier {
		if _, shared := m[at]; shared && memory(nil).hashElements(was.value) != was.hash {
			return true
		}
	}
	return false
}

// errStopped is the cause of the end of a context of a process that stops. It is a
// [context.Canceled] too, for which a controller may ask.
var errStopped = fmt.Errorf("explore: the process has to stop: %w", context.Canceled)

// errDied is what the calls of a process return after its end.
var errDied = errors.New("explore: the process has died")

// decideLocked notes that a place is reached, and decides which fault is injected there.
// Of the places of one name that are reached while nothing changes, the first few are
// enough, and the last one: see newPlaces.
func (p *play) decideLocked(what string, at point) injection {
	s := p.reachLocked(p.placeName(what))
	if s.idleTurn != p.idleTurn {
		s.idle, s.idleTurn = 0, p.idleTurn
	}
	at.place = place{s.name, s.nth}
	if at.kind != onEvent {
		now := p.now()
		at.first = p.calledAt != now
		p.calledAt = now
	}
	s.idle++
	at.idle = s.idle > idleEnough
	i := injection{at.place, p.decide(at.place)}
	if slices.Contains(p.own, i.fault) && !slices.Contains(at.own, i.fault) {
		i.fault = "" // what is done there is something else now
	}
	s.last = len(p.outcome.points)
	p.outcome.points = append(p.outcome.points, at)
	return i
}

// newPlaces lets faults be injected at calls that were repeated while nothing changed:
// Steps may have changed something that State does not show. The last ones before that may
// be under way when it changes.
func (p *play) newPlaces() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idleTurn++
	for _, s := range p.counts {
		if p.clean == nil {
			p.outcome.points[s.last].last = true
		}
	}
}

// reachLocked counts that a place of that name is reached, and returns the count.
func (p *play) reachLocked(name string) *placeCount {
	s := p.counts[name]
	if s == nil {
		s = &placeCount{name: name}
		p.counts[name] = s
	}
	s.nth++
	return s
}

// injectLocked notes a fault, which lasts so long.
func (p *play) injectLocked(what string, i injection, lasts time.Duration) {
	p.outcome.journal = append(p.outcome.journal, entry{at: p.now(), turn: p.turn, what: what, fault: i.fault})
	p.outcome.happened = append(p.outcome.happened, i)
	p.outcome.after = len(p.outcome.points)
	p.faultAt, p.otherAt = max(p.faultAt, p.now()+lasts), max(p.otherAt, p.now()+lasts)
	if !i.fault.outage() {
		p.otherAt = max(p.otherAt, p.now()+lasts)
	}
	p.restartRestLocked()
}

// receive takes in an event for a process; nil means those that are there.
func (p *play) receive(proc *Process, event any, own map[Fault]func()) {
	what := fmt.Sprintf("event %v", event)
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case proc == nil:
		for _, s := range p.slots {
			p.events = append(p.events, delivery{event: event, what: what + s.process.name, process: s.process, at: p.now()})
		}
	case !proc.dead:
		p.arrived = append(p.arrived, delivery{event: event, what: what + proc.name, process: proc, at: p.now(), own: own})
	}
	p.wakeLocked()
}

// deliverLocked decides about an event, and returns what delivers it.
func (p *play) deliverLocked(d delivery) func() {
	if d.process.dead {
		p.lineLocked(d.what + ": no process is running")
		return nothing
	}
	if now := p.now(); now < d.process.behind { // its reads and its events are one stream
		d.at = d.process.behind
		p.events = append(p.events, d)
		return nothing
	}
	p.dirty = true
	var i injection
	if !d.decided {
		i = p.decideLocked(d.what, point{kind: onEvent, own: ownOf(p.explorer, d.own)})
	}
	if i.fault == "" {
		p.lineLocked(d.what)
	} else { // a world may notice a loss, as late as it notices a late event, and correct it
		p.injectLocked(d.what, i, lateness)
	}
	if i.fault == Late || i.fault == Twice {
		p.events = append(p.events, delivery{event: d.event, what: d.what, process: d.process, at: d.at + lateness, decided: true})
	}
	switch {
	case slices.Contains(p.own, i.fault):
		return func() { d.own[i.fault]() } // which panics if it is nil
	case i.fault == Late || i.fault == Lost:
		return nothing
	}
	d.at = p.now()
	p.history = append(p.history, d)
	listeners := slices.Clone(d.process.listeners)
	return func() {
		for _, hear := range listeners {
			hear(d.event)
		}
	}
}

func nothing() {}

// call makes a call of the world, once it has its turn.
func (p *play) call(r *request) error {
	proc := r.process
	p.mu.Lock()
	if err := context.Cause(r.ctx); err != nil || p.overLocked(proc) {
		stop := false
		if p.overLocked(proc) {
			proc.deadCalls++
			stop = proc.deadCalls > deadCallsMax // it may go on for ever
		} else {
			p.countStepLocked()
			p.outcome.journal = append(p.outcome.journal, entry{at: p.now(), turn: p.turn, noted: true, what: "call " + r.op + proc.name, err: err})
		}
		p.mu.Unlock()
		if stop {
			runtime.Goexit()
		}
		return cmp.Or(err, errDied)
	}
	r.turn = make(chan struct{})
	if p.immediate { // the caller may hold a mutex for which others wait
		let := p.grantLocked(r)
		p.wakeLocked()
		p.mu.Unlock()
		let()
		return p.goOn(r)
	}
	at, _ := slices.BinarySearchFunc(p.callers, r, func(other, r *request) int {
		return cmp.Or(strings.Compare(other.op, r.op), strings.Compare(other.process.name, r.process.name), -1) // behind those that are equal
	})
	p.callers = slices.Insert(p.callers, at, r)
	p.most = max(p.most, len(p.callers))
	p.wakeLocked()
	p.mu.Unlock()
	return p.goOn(r)
}

// goOn waits for the turn of a call, and makes it.
func (p *play) goOn(r *request) error {
	proc := r.process
	select {
	case <-proc.died:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.callers = without(p.callers, r)
		return errDied
	case <-r.turn:
	}
	if r.fault == Fails {
		return ErrInjected
	}
	err := errDied // unless it returns
	if r.fault != DiesBefore {
		p.oneAtATime(func() { p.protect(proc, "call "+r.op, func() { err = r.effect() }) })
		if r.line > 0 && err != nil {
			p.mu.Lock()
			p.outcome.journal[r.line-1].err = err
			p.mu.Unlock()
		}
	}
	switch r.fault {
	case AnswerLost:
		return ErrInjected
	case DiesBefore, DiesAfter:
		r.found = nil
		p.kill(proc)
		return errDied
	case Slow, NoAnswer:
		return p.late(r, err)
	}
	return p.answered(r, err)
}

// late returns the answer of a call that is slow, or the error of its context if that ends
// before, as it does without an answer.
func (p *play) late(r *request, err error) error {
	lasts, answers := p.left(r), (<-chan time.Time)(nil)
	if r.fault == Slow && lasts > 0 { // else the effect has waited for the deadline
		lasts = min(slowness, lasts/10*9)
		answers = time.After(lasts)
	}
	p.mu.Lock()
	p.slow = append(p.slow, r)
	p.faultAt, p.otherAt = max(p.faultAt, p.now()+lasts), max(p.otherAt, p.now()+lasts)
	p.mu.Unlock()
	select {
	case <-answers:
	case <-r.process.died:
	case <-r.ctx.Done():
		r.found, err = nil, context.Cause(r.ctx)
	}
	p.mu.Lock() // so that the caller sees the changes of Steps
	defer p.mu.Unlock()
	p.slow = without(p.slow, r)
	if p.overLocked(r.process) {
		r.found, err = nil, errDied
	}
	return err
}

// left returns the time until the deadline of a call, as far as the plan waits for that.
func (p *play) left(r *request) time.Duration {
	if end, ok := r.ctx.Deadline(); ok {
		return min(p.within, time.Until(end))
	}
	return p.within
}

// oneAtATime calls an effect when no other one runs. The director sees to that, but where
// each call is let through as it is made. An effect may make a call itself.
func (p *play) oneAtATime(effect func()) {
	if !p.immediate {
		effect()
		return
	}
	me, _ := goroutines(make([]byte, 64))
	if p.effectOf.Load() == me {
		effect()
		return
	}
	p.effects <- struct{}{} // a channel, because the clock goes on while one waits for it
	p.effectOf.Store(me)
	defer func() {
		p.effectOf.Store("")
		<-p.effects
	}()
	effect()
}

// grantLocked lets a call through.
func (p *play) grantLocked(r *request) func() {
	p.callers = without(p.callers, r)
	p.countStepLocked()
	p.outcome.calls++
	p.dirty = p.dirty || r.kind != onRead
	r.what = "call " + r.op + r.process.name
	p.countRateLocked(p.placeName(r.what))
	if p.inOutageLocked(r) {
		r.fault = Fails
		p.lineLocked(r.what + ": " + ErrInjected.Error())
		close(r.turn)
		return nothing
	}
	r.injection = p.decideLocked(r.what, point{kind: r.kind, ends: p.left(r) < p.within, own: ownOf(p.explorer, r.own)})
	r.point = len(p.outcome.points) - 1
	if slices.Contains(p.own, r.fault) {
		r.effect, r.lasts = r.own[r.fault], lateness
	}
	switch r.fault {
	case "", Stale, StaleWatch: // if it was another
	case Outage, Blackout:
		p.injectLocked(r.what, r.injection, p.within)
		name := r.place.what
		if r.fault == Blackout {
			name = r.process.name
		}
		p.outages[name] = &outage{p.now() + p.within, outageMax - 1}
		r.fault = Fails
	case Stops:
		if r.process.stopping {
			break
		}
		p.injectLocked(r.what, r.injection, grace+downtime)
		r.line = len(p.outcome.journal)
		p.stopLocked(r.process)
		return func() { r.process.end(errStopped); close(r.turn) }
	default:
		p.injectLocked(r.what, r.injection, r.lasts)
		r.line = len(p.outcome.journal)
	}
	close(r.turn)
	return nothing
}

// inOutageLocked reports whether a call fails since something is down for a while.
func (p *play) inOutageLocked(r *request) bool {
	if len(p.outages) == 0 {
		return false
	}
	name := p.placeName(r.what)
	for _, of := range []string{name, r.process.name} {
		o := p.outages[of]
		if o == nil {
			continue
		}
		if o.left--; o.left > 0 && p.now() < o.until {
			p.reachLocked(name)
			return true
		}
		delete(p.outages, of)
		if len(p.outages) == 0 {
			p.faultAt = min(p.faultAt, max(p.otherAt, p.now()))
		}
	}
	return false
}

func without(list []*request, r *request) []*request {
	return slices.DeleteFunc(list, func(other *request) bool { return other == r })
}

// answered returns the answer of a call; or the answer before, if that is its fault.
func (p *play) answered(r *request, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.overLocked(r.process) {
		return errDied
	}
	p.outcome.returned++
	if err == nil && p.clean != nil { // what succeeds is not retried; without faults each call counts
		rate := p.outcome.rates[p.placeName(r.what)]
		rate.instant, rate.second = 0, 0
	}
	key, again := r.op+r.process.name, r.kind == onRead && !slices.Contains(p.own, r.fault)
	if y, ok := r.found.(*reply); ok && y != nil {
		key, again = key+y.key, again && y.lasts()
	}
	at := &p.outcome.points[r.point]
	if r.web != nil && !r.web.hasBody() {
		at.own = slices.DeleteFunc(at.own, func(f Fault) bool { return f == BodyCut })
	}
	line := func(suffix string, err error) {
		if r.line == 0 { // a second line would look like a second call
			p.outcome.journal = append(p.outcome.journal, entry{at: p.now(), turn: p.turn, what: r.what + suffix, err: err})
		}
	}
	if !again {
		line("", err)
		return err
	}
	a, now := p.answers[key], p.now()
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
	if p.clean == nil && is.value != nil && r.web == nil { // a response is a copy
		lent := memory{}
		if lent.hash(reflect.ValueOf(is.value)); lent.changed(a.lent) {
			p.failNowLocked("the value of %q changes with the world, so that no answer is stale: return a copy", r.op)
		}
		a.lent = lent
	}
	if a.n == 0 || reflect.TypeOf(a.before.value) != reflect.TypeOf(is.value) { // that is the answer of another read
		line("", err)
		return err
	}
	since := p.since(r.process, a.beforeAt)
	switch {
	case now < a.behind:
		line(" (as it was)", a.before.err)
	case r.fault == StaleWatch && len(since) > 0:
		p.injectLocked(r.what, r.injection, lateness)
		a.behind, r.process.behind = now+lateness, now+lateness
		for _, d := range since {
			d.at, d.decided = now+lateness, true
			p.events = append(p.events, d)
		}
	case r.fault == Stale:
		p.injectLocked(r.what, r.injection, 0)
	default:
		at.stale, at.behind = true, len(since) > 0
		line("", err)
		return err
	}
	r.found = a.before.value
	return a.before.err
}

// since returns the events that came to a process since then.
func (p *play) since(proc *Process, at time.Duration) []delivery {
	i := len(p.history)
	for i > 0 && p.history[i-1].at >= at {
		i--
	}
	var since []delivery
	seen := map[string]bool{}
	for _, d := range p.history[i:] {
		if d.process == proc && !seen[d.what] {
			seen[d.what] = true
			since = append(since, d)
		}
	}
	return since
}
