// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// This file decides whether the world is as it must be: after each step, by the
// invariant, and at the end, when nothing changes any more.

const (
	advancesMax = 100_000 // calls of Environment.Advance

	atOnceMax = 5_000 // steps and calls at one instant, or callsMax for each goroutine that makes calls
	callsMax  = 10
	idleMax   = 100_000         // steps and calls in an hour in which nothing changes
	pauseMax  = 5 * time.Minute // from one check to the next while there is work left
)

// checkWorld checks the world, if it may have changed.
func (p *play) checkWorld() {
	p.mu.Lock()
	now := p.now()
	needed := p.dirty || now != p.checkedAt
	p.dirty, p.checkedAt = false, now
	p.undescribed = p.undescribed || needed
	p.mu.Unlock()
	if !needed {
		return
	}
	if err := p.check(); err != nil {
		p.failf("Invariant: %v", err)
	}
	if p.steady {
		p.compareWorld()
	}
}

// compareWorld compares the world with what it was. A description may cost as much as many
// calls, so this is done only before time passes, or if it makes a difference.
func (p *play) compareWorld() {
	text := p.describe()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undescribed = false
	if p.clean == nil && text != p.seen {
		p.seen, p.outcome.byController = text, true
	}
	if text == p.outcome.state {
		return
	}
	if p.steady {
		p.checkSteadyLocked(text)
	}
	was := p.outcome.state
	p.outcome.state = text
	if p.settling && p.now() > p.faultAt+p.within {
		p.changedLocked("the world changes:\n" + difference(was, text, "(before)"))
		return
	}
	p.restartRestLocked()
}

// checkSteadyLocked fails if the world was as it has to be in this phase, and is not any more.
func (p *play) checkSteadyLocked(text string) {
	was := p.outcome.state
	p.texts = append(p.texts, text)
	n := len(p.outcome.phases)
	if p.clean == nil || n >= len(p.clean.phases) || len(p.texts) == 1 {
		return // the first State follows a change by Steps
	}
	want := p.clean.phases[n]
	lags := slices.ContainsFunc(p.outcome.happened, func(i injection) bool { return i.fault == Stale || i.fault == StaleWatch })
	if was == want.state && !want.unsteady && !lags {
		p.failLocked("Stable: the world was what it has to be, and then was not:\n%s", difference(was, text, "(before)"))
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

// restartRestLocked notes that something changes.
func (p *play) restartRestLocked() {
	p.restAt = p.now()
	p.outcome.idle, p.outcome.rest = 0, len(p.outcome.journal)
	p.idleTurn++
	p.recheckAt = min(p.recheckAt, p.restAt+time.Second)
}

// changedLocked notes that something changes, and fails if it should not any more.
func (p *play) changedLocked(what string) {
	p.restartRestLocked()
	if p.settling && p.now() > p.faultAt+p.within {
		p.failLocked("it does not converge: %v after the last fault, or the end of Steps, %s", p.within, what)
	}
}

// countStepLocked counts a step or a call, and ends a loop.
func (p *play) countStepLocked() {
	if now := p.now(); now != p.instant {
		p.instant, p.atOnce = now, 0
	}
	p.atOnce++
	if p.outcome.idle++; p.instant < p.faultAt { // which may be an outage
		p.outcome.idle = 0
	}
	switch {
	case p.atOnce > max(atOnceMax, callsMax*p.most):
		p.failNowLocked("it does not come to rest: there are more than %d runs and calls at one instant%s", max(atOnceMax, callsMax*p.most), p.commonestLocked())
	case p.settling && p.outcome.idle > max(atOnceMax, int(idleMax*p.within.Hours())):
		p.failNowLocked("it does not stay at rest: there are %d runs and calls in %v in which nothing changes%s", p.outcome.idle, p.now()-p.restAt, p.commonestLocked())
	}
}

// commonestLocked names the call or event that has come most often, if there is one.
func (p *play) commonestLocked() string {
	most := &placeCount{}
	for _, name := range slices.Sorted(maps.Keys(p.counts)) {
		if s := p.counts[name]; s.nth > most.nth {
			most = s
		}
	}
	if most.nth == 0 {
		return ""
	}
	return fmt.Sprintf("; %q has come %d times", most.name, most.nth)
}

// awaitRest waits until nothing has changed for long enough, and until p.until at least. It
// checks often at first, because the world may change without a call.
func (p *play) awaitRest() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settling, p.dirty, p.faultAt = true, true, max(p.faultAt, p.now())
	p.restartRestLocked()
	pause, busy := time.Second, false
	for p.outcome.failure == "" {
		now, rest := p.now(), max(p.restAt, p.faultAt)
		if pause = min(2*pause, pauseMax); !busy {
			pause = max(time.Second, now-rest)
		}
		next := min(rest+p.within, now+pause)
		if now < p.faultAt {
			next = p.faultAt
		}
		if now >= next {
			next = p.until
		}
		if now >= next {
			return
		}
		p.recheckAt = next
		left := p.workLeftLocked(next)
		switch {
		case left != "":
			p.changedLocked(left)
		case busy: // and is done
			p.restartRestLocked()
		}
		busy = left != ""
	}
}

// workLeftLocked lets the time pass until then, and returns the work that the living processes
// still have, "" if none. It gives up the lock, also if the scenario panics meanwhile.
func (p *play) workLeftLocked(until time.Duration) string {
	p.mu.Unlock()
	defer p.mu.Lock()
	p.pass(until)
	for _, s := range p.slots {
		if p.over(s.process) {
			continue
		}
		for _, ask := range s.process.unfinished {
			if left := ask(); left != "" {
				return left
			}
		}
	}
	return ""
}

// checkEnd compares the world at the end with that of the plan without faults. The error
// is that of Final, if there is one.
func (p *play) checkEnd(final error, compare bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if final != nil {
		p.failLocked("Final: %v", final)
	}
	p.outcome.end = p.now()
	if p.clean == nil {
		return
	}
	if p.outcome.idle > 2*p.clean.idle+20 {
		p.outcome.restless = fmt.Sprintf("it does not stay at rest: there are %d runs and calls in the %v in which nothing changes; without faults there are %d", p.outcome.idle, p.within, p.clean.idle)
	}
	if compare && p.outcome.state != p.clean.state && p.outcome.failure == "" {
		p.outcome.differs = true
		p.failLocked("the world is not what it is without faults:\n%s", difference(p.clean.state, p.outcome.state, "(without faults)"))
	}
	if p.outcome.restless != "" {
		p.failLocked("%s", p.outcome.restless)
	}
}

// stepsAct notes that Steps changes something.
func (o *outcome) stepsAct() {
	if !o.stepped {
		o.stepped, o.callsBefore = true, o.calls
	}
}

// noteSteps notes whether Steps has changed the state since it was described last, in the
// plan without faults.
func (p *play) noteSteps() {
	if p.clean != nil || p.over(nil) {
		return
	}
	if text := p.describe(); text != p.seen {
		p.seen = text
		p.outcome.stepsAct()
	}
}

// whyNoTest says why a plan without faults is no test of the controller; "" if it is one.
func (o *outcome) whyNoTest() string {
	switch {
	case o.calls == 0:
		return "the controller makes no call by Do, Read or Transport, so there is nothing to inject a fault into"
	case o.returned == 0:
		return fmt.Sprintf("no call returns, so there is little to inject a fault into; the first one is %q", o.points[slices.IndexFunc(o.points, func(p point) bool { return p.kind != onEvent })].what)
	case o.stepped && o.calls == o.callsBefore:
		return "the controller makes no call after Steps has changed the world: does it still run, and does it learn of changes?"
	case o.state != "" && !o.byController:
		return "the controller never changes the state of the world, so no fault could make a difference. The state is:\n" + o.state
	}
	return ""
}

// countAdvance fails a plan whose Steps does not end.
func (p *play) countAdvance() {
	p.advances++
	switch {
	case p.advances > advancesMax:
		p.failf("Steps does not end: it has called Advance %d times. Does it wait for a state that the world never reaches?", p.advances)
	case p.clean != nil && p.now() > 10*p.clean.steps+5*p.within:
		p.failf("Steps does not end: %v have passed, and without faults %v. Does it wait for a state that the world never reaches?", p.now(), p.clean.steps)
	}
}

// A rateCount counts the calls of one name at an instant and within a second, and keeps
// the largest counts.
type rateCount struct {
	instant, second     int
	instantAt, secondAt time.Duration
	atOnce, inASecond   int
}

const (
	atOnceOfNameMax = 40 // calls of one name at one instant
	inASecondMax    = 60 // and within a second; each plus three times the number without faults
)

// countRateLocked counts a call, and fails a plan that calls again and again without a
// pause.
func (p *play) countRateLocked(name string) {
	r := p.outcome.rates[name]
	if r == nil {
		r = &rateCount{instantAt: -1, secondAt: -time.Hour}
		p.outcome.rates[name] = r
	}
	now := p.now()
	if now != r.instantAt {
		r.instantAt, r.instant = now, 0
	}
	if now >= r.secondAt+time.Second {
		r.secondAt, r.second = now, 0
	}
	r.instant++
	r.second++
	if p.clean == nil {
		r.atOnce, r.inASecond = max(r.atOnce, r.instant), max(r.inASecond, r.second)
		return
	}
	clean := cmp.Or(p.clean.rates[name], &rateCount{})
	switch {
	case r.instant > atOnceOfNameMax+3*clean.atOnce:
		p.failLocked("it retries without a pause: %q comes %d times at one instant, and without faults %d times at most", name, r.instant, clean.atOnce)
	case r.second > inASecondMax+3*clean.inASecond:
		p.failLocked("it retries without a pause: %q comes %d times within a second, and without faults %d times at most", name, r.second, clean.inASecond)
	}
}
