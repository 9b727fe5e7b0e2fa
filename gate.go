// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// A Gate holds back the runs of one or more [Reconciler]s: to a budget of runs
// per time, and to a limit of runs at once, which may adapt to what the far side
// can take.
//
// One worker of each Run at a time is between its queue and the Gate: it takes an
// item and waits until the Gate lets it in. So one item at most of each Run waits
// in flight, where an event makes another run follow its own; the others wait in
// the queue. Reconcilers that call the same far side may share a Gate. Their Runs
// are let in first come, first served, so tenants get fair turns if each has a
// Queue and a Reconciler of its own.
//
// A Gate knows no items. A limit for each item is a plan, such as [RequeueAfter], since an
// item that waited here would hold up the others of its Run.
//
// A limit is not a number of workers: [Reconciler.Workers] is the most that one
// Reconciler has, and the limit how many of all may run. To change how many work
// while Run goes on, give it enough Workers, and call [Gate.SetLimit].
//
// The limit begins at Max, and adapts if there is a Slow:
//
//   - A slow result makes the limit half of the number of runs in flight, as TCP
//     does with the data in flight (RFC 5681), if that is less than it was. What the
//     other runs say that had started by then does not count any more.
//   - As many runs as the limit says, if they went well, with nil or a plan, raise
//     it by one. Only those count that took the last place: a limit that is not in
//     the way does not grow (the idea of RFC 7661).
//   - Other failures, aborted runs, and those that ended early by [UntilChanged]
//     count neither way.
//
// The zero Gate lets everything through. Its fields may not change while Run goes
// on; the methods may be called from any goroutine, at any time, and none blocks.
// A Gate must not be copied. It has no goroutine of its own, and a timer only
// while a worker waits for the budget.
type Gate struct {
	// Every is the budget: one run may start in each such time, by the
	// monotonic clock; 0 means no budget.
	Every time.Duration

	// Burst is how many runs of the budget may start at once after a pause, of
	// however long; 0 means 1. Many a second need more, as no timer is that exact.
	Burst int

	// Min and Max are bounds of the limit; 0 means 1 for Min, and none for Max.
	// Without Max there is no limit at all before the first slow result, or
	// SetLimit.
	Min, Max int

	// Slow reports whether the result of a run says that the far side has too
	// much to do, as an answer 429 does. It is asked after each run that was not
	// aborted, from many goroutines at once; err is what Reconcile returned, nil
	// included, or a *PanicError. If it panics, the result counts neither way.
	// Nil means that the limit moves only by SetLimit.
	Slow func(err error, took time.Duration) bool

	// mu guards the fields below. These always hold (see check in the tests):
	//
	//   - Without a limit, or below it, there is room; then roomless is false.
	//   - While a Run waits, there is no room, or no token yet and the timer is
	//     armed for when there is one.
	//   - While no Run waits, the timer is not armed.
	mu        sync.Mutex
	base      time.Time // of the clock, see now; set by begin
	limit     int       // 0 if there is none
	moved     bool      // the limit has been moved; until then it is Max
	running   int       // runs that were let in and have not left
	roomless  bool      // the limit is reached
	roomSince int64     // when there was room again
	fullAt    int64     // when the budget is, or was, whole
	started   uint64    // runs that were let in
	epoch     uint64    // how many of them had started when the limit was halved last
	good      int       // runs since the limit moved that count for one more
	halved    uint64
	waiting   []*gatePlace // first come, first served
	timer     *time.Timer
	armed     int64 // when the timer fires; 0 if it is not armed
}

// GateStats is what [Gate.Stats] returns.
type GateStats struct {
	Limit    int           // of runs at once; 0 means that there is none
	InFlight int           // runs that were let in and are not judged yet
	Waiting  int           // calls of Run that it holds back
	Halved   uint64        // slow results that halved the limit, or found it at Min
	Next     time.Duration // until the budget allows a run; 0 if it does now
}

// SetLimit sets the limit of runs at once. An n below Min, or 1, means that, and one
// above Max means Max. If the limit rises, those that wait are let in at once, as far
// as the budget allows. If it falls, the runs in flight go on, and none starts until
// fewer than n are left. With Slow, the limit adapts from there.
func (g *Gate) SetLimit(n int) {
	g.mu.Lock()
	g.setLimitLocked(n)
	g.unlock()
}

// Stats returns the counts as they are now.
func (g *Gate) Stats() GateStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return GateStats{
		Limit:    g.limitLocked(),
		InFlight: g.running,
		Waiting:  len(g.waiting),
		Halved:   g.halved,
		Next:     time.Duration(max(0, g.dueLocked()-g.now())),
	}
}

// begin checks the fields, and makes the gate ready for a loop.
func (g *Gate) begin() error {
	switch {
	case g.Every < 0:
		return fmt.Errorf("reconcile: Reconciler.Gate.Every is %v, want 0 (which means no budget) or more", g.Every)
	case g.Burst < 0:
		return fmt.Errorf("reconcile: Reconciler.Gate.Burst is %d, want 0 (which means 1) or more", g.Burst)
	case g.Min < 0:
		return fmt.Errorf("reconcile: Reconciler.Gate.Min is %d, want 0 (which means 1) or more", g.Min)
	case g.Max < 0:
		return fmt.Errorf("reconcile: Reconciler.Gate.Max is %d, want 0 (which means no limit) or more", g.Max)
	case g.Max > 0 && g.Min > g.Max:
		return fmt.Errorf("reconcile: Reconciler.Gate.Min is %d, want no more than Max, which is %d", g.Min, g.Max)
	}
	g.mu.Lock()
	if g.base.IsZero() {
		g.base = time.Now()
	}
	if g.moved && g.limit != g.clampLimit(g.limit) { // the bounds are other ones
		g.setLimitLocked(g.limit)
	}
	g.unlock()
	return nil
}

// now returns the time as the gate keeps it. Without a budget none is needed, and
// before begin it has not begun.
func (g *Gate) now() int64 {
	if g.Every == 0 || g.base.IsZero() {
		return 0
	}
	return int64(time.Since(g.base))
}

// limitLocked returns the limit; 0 if there is none.
func (g *Gate) limitLocked() int {
	if g.moved {
		return g.limit
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

// dueLocked returns when the budget lets the next run start. The budget is a
// bucket of Burst tokens; all that has to be kept of it is when it is full again.
func (g *Gate) dueLocked() int64 {
	if g.Every == 0 {
		return 0
	}
	return g.fullAt - int64(max(1, g.Burst)-1)*g.every()
}

// every returns Every, or so much less that an empty bucket is full again in 146
// years, half of what an int64 holds: then no calculation with it overflows.
func (g *Gate) every() int64 {
	return min(int64(g.Every), math.MaxInt64/2/int64(max(1, g.Burst)))
}

func (g *Gate) isOpenLocked(now int64) bool { return g.hasRoomLocked() && g.dueLocked() <= now }

// A gatePass is what a run has that was let in.
type gatePass struct {
	number uint64
	last   bool // it took the last room: the limit was in the way
}

// A gatePlace is what a loop waits with.
type gatePlace struct {
	wake  chan struct{} // told when the run was let in; room for one
	since int64         // since when the run has all that it needs, except the gate
	pass  gatePass      // once it was let in
	next  *gatePlace    // of those that unlock wakes
}

// tryEnter lets a run in if the gate is open.
func (g *Gate) tryEnter(p *gatePlace) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if len(g.waiting) > 0 || !g.isOpenLocked(now) {
		return false
	}
	g.startLocked(p, now)
	return true
}

// enter waits until a run is let in. It reports whether that was so before done,
// lost and parent; parent may end others, and so open the gate, before done.
func (g *Gate) enter(p *gatePlace, done, lost, parent <-chan struct{}) bool {
	g.mu.Lock()
	g.waiting = append(g.waiting, p)
	g.unlock()
	notified := false
	select {
	case <-p.wake:
		notified = true
	case <-done:
	case <-lost:
	}
	if notified && !isDone(lost) && !isDone(parent) {
		return true
	}
	g.mu.Lock()
	defer g.unlock()
	if i := slices.Index(g.waiting, p); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
		return false
	}
	if !notified { // let in at the same moment
		<-p.wake // on its way, without the lock
	}
	g.running--
	g.fullAt -= g.every()
	return false
}

// startLocked lets a run in. Its token is charged for the instant at which the
// run could have started, so the pace does not drift with timers and goroutines
// that are late. A run that is late by Every or more is charged for now: there
// was a pause.
func (g *Gate) startLocked(p *gatePlace, now int64) {
	g.running++
	g.started++
	g.roomless = !g.hasRoomLocked()
	if g.Every > 0 {
		at := max(g.fullAt, g.roomSince, p.since)
		if now-at >= g.every() {
			at = now
		}
		g.fullAt = at + g.every()
	}
	p.pass = gatePass{g.started, g.roomless}
}

// A finding is what the result of a run says of the far side.
type finding uint8

const (
	foundNothing finding = iota
	foundWell
	foundSlow
)

// leave takes out a run.
func (g *Gate) leave(p gatePass, f finding) {
	g.mu.Lock()
	limit := g.limitLocked()
	switch {
	case p.number <= g.epoch: // what it met is what the limit was halved for
	case f == foundSlow:
		half := g.running / 2
		if limit > 0 {
			half = min(half, limit)
		}
		g.setLimitLocked(half)
		g.halved++
		g.epoch = g.started
	case f == foundWell && p.last && limit != g.Max:
		if g.good++; g.good >= limit {
			g.setLimitLocked(limit + 1)
		}
	}
	g.running--
	g.unlock()
}

// unlock ends every method that changed the gate. It lets in those that may, and
// arms the timer for the others.
func (g *Gate) unlock() {
	now := g.now()
	if room := g.hasRoomLocked(); g.roomless == room {
		g.roomless = !room
		g.roomSince = now // read only if there is room
	}
	var first *gatePlace
	for last := &first; len(g.waiting) > 0 && g.isOpenLocked(now); last = &(*last).next {
		p := g.waiting[0]
		g.waiting = slices.Delete(g.waiting, 0, 1)
		g.startLocked(p, now)
		p.next = nil
		*last = p
	}
	g.armLocked(now)
	g.mu.Unlock()
	for p := first; p != nil; {
		next := p.next // p is no longer ours once it is woken
		p.wake <- struct{}{}
		p = next
	}
}

// armLocked makes the timer fire when the next token is there, if a Run waits for
// that.
func (g *Gate) armLocked(now int64) {
	at := int64(0)
	if len(g.waiting) > 0 && g.hasRoomLocked() {
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
		g.timer = time.AfterFunc(time.Duration(at-now), g.fire)
	default:
		g.timer.Reset(time.Duration(at - now))
	}
}

func (g *Gate) fire() {
	g.mu.Lock()
	g.armed = 0
	g.unlock()
}
