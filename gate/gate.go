// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package gate is a rate limiter and a circuit breaker for the runs of a
// [reconcile.Reconciler], and not for calls or listings. It limits the runs per time and the
// concurrent runs, and it stops all runs while the remote API asks for a pause.
//
//	cloud := &gate.Gate{
//		Every: time.Second / 80, Burst: 20, // of the 100 calls a second that the cloud allows
//		Pause: func(err error) time.Duration { // a 429 or 503 pauses all runs
//			var e *api.Error
//			if errors.As(err, &e) && (e.Code == 429 || e.Code == 503) {
//				return max(e.RetryAfter, 10*time.Second)
//			}
//			return 0
//		},
//	}
//	disks := &reconcile.Reconciler[string]{…, Timeout: time.Minute, Admit: cloud.Admit}
//	machines := &reconcile.Reconciler[string]{…, Timeout: time.Minute, Admit: cloud.Admit}
//
// The field Admit of a Reconciler also takes other functions: a limiter of
// golang.org/x/time/rate, a semaphore, or a function that calls several of them.
package gate

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Gate limits the runs of one or more Reconcilers: its [Gate.Admit] is their Admit.
// It admits runs first come, first served. One worker of each Run at a time waits in
// Admit, with one item in flight. So Reconcilers that share a Gate take turns, and the
// other items wait in their queues, which de-duplicate their events.
//
// A Gate does not know the items. For a limit per item, return
// [reconcile.RequeueAfter], because an item that waited in Admit would block the other
// items of its Run.
//
// # Limit
//
// The limit bounds the concurrent runs of all Reconcilers that share the Gate; Workers
// bounds those of one Reconciler. To change the number of concurrent runs while Run goes
// on, set enough Workers and call [Gate.SetLimit]. The limit begins at Max. With a Slow
// function it adapts:
//
//   - A slow result sets the limit to half of the number of runs in flight, if that is
//     lower than the limit, as TCP does with the data in flight (RFC 5681). The results
//     of runs that started before that do not count any more.
//   - The limit rises by one after as many successful or rescheduled runs as the limit
//     says. Only runs count that used the last free place, so a limit that is never
//     reached does not rise (as in RFC 7661).
//   - Other failures and aborted runs do not count.
//
// # Pause
//
// During a pause no run starts. Items stay in their queues and keep their failures. Runs
// in flight go on. If there are several pauses, the latest end counts. When the pause
// ends, one run starts as a probe, and the other runs wait for its result:
//
//   - If the probe asks for a pause again, the gate stays paused until that pause ends.
//   - If the probe was aborted, or Pause panicked, another run is the probe.
//   - Otherwise the gate resumes.
//
// A probe that hangs keeps the gate paused: give the Reconciler a Timeout.
//
// The zero Gate admits every run. Its fields must not change while a run waits in Admit
// or is in flight. The methods may be called from any goroutine, at any time. A Gate must
// not be copied. It has no goroutine of its own, and a timer only while a run waits for a
// time.
type Gate struct {
	// Every is the rate limit: one run may start per Every, by the monotonic
	// clock. 0 means no rate limit.
	Every time.Duration

	// Burst is the number of runs that may start at once after a time without
	// runs. 0 means 1. Rates of many runs a second need a higher Burst, because
	// otherwise each run starts as late as its timer.
	Burst int

	// Min and Max bound the limit of concurrent runs. 0 means 1 for Min, and no
	// bound for Max. Without Max there is no limit until the first slow result or
	// SetLimit.
	Min, Max int

	// Slow reports whether the result of a run shows that the remote API is
	// overloaded, for example by a slow response. It is called after each run that
	// was not aborted, concurrently. The argument err is the error that Reconcile
	// returned, nil included, or a *reconcile.PanicError. If Slow panics, the limit
	// stays, and Pause is called all the same. Nil means that only SetLimit changes the
	// limit.
	Slow func(err error, took time.Duration) bool

	// Pause returns for how long no run may start after the result of a run, such
	// as a 429 with Retry-After or a 503. 0 means no pause. A pause stops the runs
	// of all items: return 0 for a response that does not concern all of them. The
	// response to a write may concern only its item, or a quota. Pause is called as
	// Slow is, and after it. A negative result, such as the time until a
	// date in the past, or an overflow, counts as ten seconds.
	Pause func(err error) time.Duration

	// MaxPause limits the pauses that Pause asks for, so that a wrong Retry-After
	// does not stop all runs for days. 0 means an hour. It does not limit PauseUntil.
	MaxPause time.Duration

	// Logger gets a line when the gate is paused, and one when it resumes. Nil means
	// slog.Default().
	Logger *slog.Logger

	// mu guards the fields below. These always hold (see check in the tests):
	//
	//   - While a run waits, the gate is paused and a probe is in it, or there is no
	//     room, or the timer is armed for when the first may start, which is not over.
	//   - While no run waits, the timer is not armed.
	//   - While a pause lasts, or a probe is in the gate, it is paused.
	mu      sync.Mutex
	base    time.Time // of the clock, see nowLocked
	waiting []*pass   // first come, first served
	timer   *time.Timer
	armed   int64 // when the timer fires; 0 if it is not armed
	free    *pass // for the next runs

	fullAt  int64  // when the budget is, or was, whole
	running int    // runs that were let in and have not left
	started uint64 // runs that were let in
	limit   int    // 0 if there is none
	moved   bool   // the limit has been moved; until then it is Max
	epoch   uint64 // how many had started when the limit was halved last
	good    int    // runs since the limit moved that count for one more
	halved  uint64

	paused  bool  // by a pause, and no probe has succeeded since
	probing bool  // a probe is in the gate
	until   int64 // when the latest pause ends
	since   int64 // when it was paused
	cause   error // the error for which Pause asked for the pause until then; nil if PauseUntil did
	pauses  uint64
}

// Stats describes a Gate at the time of a call of [Gate.Stats].
type Stats struct {
	Limit    int           // of concurrent runs; 0 means no limit
	InFlight int           // admitted runs that have not ended
	Waiting  int           // runs that wait in Admit, at most one of each Run
	Halved   uint64        // slow results that halved the limit, or found it at Min
	Next     time.Duration // until the rate limit and the pauses allow a run; 0 if they do now

	Pauses      uint64    // pauses that began while the gate was not paused
	PausedSince time.Time // start of the pause; zero if the gate is not paused
	Until       time.Time // end of the latest pause, also while the probe is in flight; zero if the gate is not paused
	Err         error     // the error for which Pause asked for the pause until Until; nil if that is a pause by PauseUntil, or if the gate is not paused
}

// A pass is what a run has at the gate. Passes are used again, so that no run costs
// an allocation.
type pass struct {
	gate     *Gate
	wake     chan struct{} // notified when the run was let in; room for one
	doneFunc func(o reconcile.Outcome, err error, took time.Duration)
	next     *pass  // in Gate.free
	number   uint64 // of those that were let in
	last     bool   // it took the last room: the limit was in the way
	probe    bool
}

// Admit is the value for [reconcile.Reconciler.Admit]. It blocks until a run may start or
// ctx is done. In the second case it returns the cause of ctx, and the rate limit is not
// charged. Done must be called once, with the result of the run. If a field of g is out of
// range, Admit returns an error that names the field.
func (g *Gate) Admit(ctx context.Context) (done func(o reconcile.Outcome, err error, took time.Duration), err error) {
	if err := g.check(); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	g.mu.Lock()
	p := g.free
	if p == nil {
		p = &pass{gate: g, wake: make(chan struct{}, 1)}
		p.doneFunc = p.done
	} else {
		g.free = p.next
	}
	if now := g.nowLocked(); len(g.waiting) == 0 && g.isOpenLocked(now) {
		g.startLocked(p, now)
		g.mu.Unlock()
		return p.doneFunc, nil
	}
	g.waiting = append(g.waiting, p)
	g.letInUnlock()
	select {
	case <-p.wake:
		if ctx.Err() == nil {
			return p.doneFunc, nil
		}
	case <-ctx.Done():
	}
	g.mu.Lock()
	if i := slices.Index(g.waiting, p); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	} else { // let in at the same moment
		g.fullAt -= g.every()
		g.endLocked(p)
	}
	g.letInUnlock() // p is not used again, since it may have been notified
	return nil, context.Cause(ctx)
}

// SetLimit sets the limit of concurrent runs. An n below Min, or below 1, means Min or 1;
// an n above Max means Max. If the limit rises, waiting runs start at once, as far as the
// rate limit allows. If it falls, the runs in flight go on, and no run starts until fewer
// than n are in flight. With Slow, the limit adapts from there. SetLimit does not block.
func (g *Gate) SetLimit(n int) {
	g.mu.Lock()
	g.setLimitLocked(n)
	g.letInUnlock()
}

// PauseUntil stops all runs until t: a pause by an operator. A time in the past has no
// effect. The zero time ends all pauses, also those that Pause asked for, and the probe
// starts. PauseUntil does not block, but it may write a line to the Logger.
func (g *Gate) PauseUntil(t time.Time) {
	g.mu.Lock()
	now := g.nowLocked()
	pauses := false
	if t.IsZero() {
		g.until = now
	} else if d := time.Until(t); d > 0 {
		pauses = g.pauseLocked(now, d, nil)
	}
	g.letInUnlock()
	if pauses {
		g.logger().Warn("gate paused by PauseUntil", "until", t)
	}
}

// Stats returns the counts as they are now.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.nowLocked()
	s := Stats{
		Limit: g.limitLocked(), InFlight: g.running, Waiting: len(g.waiting), Halved: g.halved,
		Next: time.Duration(max(0, g.dueLocked()-now)), Pauses: g.pauses,
	}
	if g.paused {
		// Not base.Add: the wall clock may have been stepped since base was read.
		clock := time.Now()
		now := int64(clock.Sub(g.base))
		s.PausedSince, s.Until, s.Err = clock.Add(time.Duration(g.since-now)), clock.Add(time.Duration(g.until-now)), g.cause
	}
	return s
}

// check returns an error if a field is wrong.
func (g *Gate) check() error {
	switch {
	case g.Every < 0:
		return fmt.Errorf("gate: Gate.Every is %v, want 0 (which means no budget) or more", g.Every)
	case g.Burst < 0:
		return fmt.Errorf("gate: Gate.Burst is %d, want 0 (which means 1) or more", g.Burst)
	case g.Min < 0:
		return fmt.Errorf("gate: Gate.Min is %d, want 0 (which means 1) or more", g.Min)
	case g.Max < 0:
		return fmt.Errorf("gate: Gate.Max is %d, want 0 (which means no limit) or more", g.Max)
	case g.MaxPause < 0:
		return fmt.Errorf("gate: Gate.MaxPause is %v, want 0 (which means an hour) or more", g.MaxPause)
	case g.Max > 0 && g.Min > g.Max:
		return fmt.Errorf("gate: Gate.Min is %d, want no more than Max, which is %d", g.Min, g.Max)
	}
	return nil
}

func (g *Gate) logger() *slog.Logger {
	if g.Logger != nil {
		return g.Logger
	}
	return slog.Default()
}

// nowLocked returns the time as the gate keeps it. It is never 0.
func (g *Gate) nowLocked() int64 {
	if g.base.IsZero() {
		g.base = time.Now().Add(-1)
	}
	return int64(time.Since(g.base))
}

// later returns the time d after now, or the end of time.
func later(now int64, d time.Duration) int64 { return now + min(int64(d), math.MaxInt64-now) }

// limitLocked returns the limit; 0 if there is none. Bounds that were changed between
// two Runs bind it.
func (g *Gate) limitLocked() int {
	if g.moved {
		return g.clampLimit(g.limit)
	}
	return g.Max
}

func (g *Gate) setLimitLocked(n int) { g.limit, g.moved, g.good = g.clampLimit(n), true, 0 }

// clampLimit brings a limit within its bounds.
func (g *Gate) clampLimit(n int) int {
	n = max(n, g.Min, 1)
	if g.Max > 0 {
		n = min(n, g.Max)
	}
	return n
}

// hasRoomLocked reports whether the limit lets one more run start.
func (g *Gate) hasRoomLocked() bool {
	limit := g.limitLocked()
	return limit == 0 || g.running < limit
}

// every returns Every, or so much less that an empty bucket is full again in 146
// years, half of what an int64 holds: then no calculation with it overflows.
func (g *Gate) every() int64 {
	return min(int64(g.Every), math.MaxInt64/2/int64(max(1, g.Burst)))
}

// dueLocked returns when the budget and the pauses let the next run start. The
// budget is a bucket of Burst tokens; all that has to be kept of it is when it is
// full again.
func (g *Gate) dueLocked() int64 {
	due := int64(0)
	if g.Every > 0 {
		due = g.fullAt - int64(max(1, g.Burst)-1)*g.every()
	}
	if g.paused {
		due = max(due, g.until)
	}
	return due
}

// onlyTimeLocked reports whether nothing but time keeps the next run from starting.
func (g *Gate) onlyTimeLocked() bool { return g.hasRoomLocked() && !g.probing }

func (g *Gate) isOpenLocked(now int64) bool { return g.onlyTimeLocked() && g.dueLocked() <= now }

// startLocked lets a run in.
func (g *Gate) startLocked(p *pass, now int64) {
	g.running++
	g.started++
	if g.Every > 0 {
		g.fullAt = max(g.fullAt, now) + g.every()
	}
	p.number, p.last, p.probe = g.started, !g.hasRoomLocked(), g.paused
	g.probing = g.paused
}

// endLocked takes a run out.
func (g *Gate) endLocked(p *pass) {
	g.running--
	if p.probe {
		g.probing = false
	}
}

// pauseLocked lets no run start for d, and reports whether that paused the gate.
func (g *Gate) pauseLocked(now int64, d time.Duration, cause error) bool {
	if end := later(now, d); end > g.until { // if not paused, until is over
		g.until, g.cause = end, cause
	}
	if g.paused {
		return false
	}
	g.paused, g.since = true, now
	g.pauses++
	return true
}

// A finding is what the result of a run says of the remote API.
type finding struct {
	slow  bool
	well  bool
	pause time.Duration
	asked bool // Pause has answered, or there is none
}

// negativePause replaces an answer of Pause below zero.
const negativePause = 10 * time.Second

// find asks Slow and Pause, which are code of the user, and may panic.
func (g *Gate) find(f *finding, o reconcile.Outcome, err error, took time.Duration) {
	defer func() { // also if Slow panics
		if g.Pause != nil {
			if f.pause = g.Pause(err); f.pause < 0 {
				f.pause = negativePause
			}
			f.pause = min(f.pause, cmp.Or(g.MaxPause, time.Hour))
		}
		f.asked = true
	}()
	if g.Slow != nil {
		f.slow = g.Slow(err, took)
		f.well = o == reconcile.OutcomeSucceeded || o == reconcile.OutcomeRequeued
	}
}

// done takes out a run.
func (p *pass) done(o reconcile.Outcome, err error, took time.Duration) {
	g := p.gate
	var f finding
	defer func() { // also if find panics
		g.mu.Lock()
		g.adaptLocked(p, f)
		g.endLocked(p)
		pauses, opens, since := false, false, time.Duration(0)
		switch {
		case f.pause > 0:
			pauses = g.pauseLocked(g.nowLocked(), f.pause, err)
		case p.probe && f.asked:
			now := g.nowLocked()
			since, opens = time.Duration(now-g.since), g.until <= now
			g.paused = !opens
		}
		p.next, g.free = g.free, p
		g.letInUnlock() // p is no longer ours
		switch {
		case pauses:
			g.logger().Warn("gate paused by the result of a run", "for", f.pause, "err", err)
		case opens:
			g.logger().Info("gate resumed", "after", since)
		}
	}()
	if o != reconcile.OutcomeAborted {
		g.find(&f, o, err, took)
	}
}

// adaptLocked moves the limit by what a run found that leaves.
func (g *Gate) adaptLocked(p *pass, f finding) {
	limit := g.limitLocked()
	switch {
	case p.number <= g.epoch: // what it met is what the limit was halved for
	case f.slow:
		half := g.running / 2
		if limit > 0 {
			half = min(half, limit)
		}
		g.setLimitLocked(half)
		g.halved++
		g.epoch = g.started
	case f.well && p.last && limit != g.Max:
		if g.good++; g.good >= limit {
			g.setLimitLocked(limit + 1)
		}
	}
}

// letInUnlock ends every method that changed the gate. It lets in those that may
// start, and arms the timer for the others.
func (g *Gate) letInUnlock() {
	defer g.mu.Unlock()
	if len(g.waiting) == 0 && g.armed == 0 {
		return
	}
	now := g.nowLocked()
	for len(g.waiting) > 0 && g.isOpenLocked(now) {
		p := g.waiting[0]
		g.waiting = slices.Delete(g.waiting, 0, 1)
		g.startLocked(p, now)
		p.wake <- struct{}{} // does not block: it has room for one
	}
	at := int64(0)
	if len(g.waiting) > 0 && g.onlyTimeLocked() {
		at = g.dueLocked()
	}
	if at == g.armed {
		return
	}
	g.armed = at
	switch {
	case at == 0:
		g.timer.Stop()
	case g.timer == nil:
		g.timer = time.AfterFunc(time.Duration(at-now), func() { g.mu.Lock(); g.letInUnlock() })
	default:
		g.timer.Reset(time.Duration(at - now))
	}
}
