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
// can take. What it holds back waits in the queue, where events are still folded
// into it, and not in a worker.
//
// Reconcilers that call the same far side may share a Gate. An item that a worker
// has taken, when others were quicker to use up what the Gate allows, waits in hand:
// one at most for each Run, first come, first served. It is in flight then: an event
// has another run follow its own. While it waits, every other Run is let in once at
// most. So tenants get fair turns if each has a Queue and a Reconciler of its own.
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
	//   - Without a limit, or below it, there is a place; then shut is false.
	//   - While a worker waits, there is no place, or no token yet and the timer
	//     is armed for when there is one.
	//   - While nobody waits, the timer is not armed.
	mu      sync.Mutex
	base    time.Time // of the clock, see now; set by begin
	limit   int       // 0 if there is none
	moved   bool      // the limit has been moved; until then it is Max
	running int       // runs that have a place
	shut    bool      // no place is left
	placed  int64     // when there was a place again
	full    int64     // when the budget is, or was, whole
	started uint64    // runs that were let in
	epoch   uint64    // how many of them had started when the limit was halved last
	good    int       // runs since the limit moved that count for one more
	halved  uint64
	hands   []*turn // those with an item in hand, first come, first served
	doors   []*turn // those that wait for an open gate, before they take an item
	timer   *time.Timer
	armed   int64 // when the timer fires; 0 if it is not armed

	woken, wokenLast *turn // those that unlock tells
}

// GateStats is what [Gate.Stats] returns.
type GateStats struct {
	Limit    int           // of runs at once; 0 means that there is none
	InFlight int           // runs that were let in and are not judged yet
	Waiting  int           // calls of Run that it holds back, also those whose queue is empty
	Halved   uint64        // slow results that halved the limit, or found it at Min
	Next     time.Duration // until the budget allows a run; 0 if it does now
}

// SetLimit sets the limit of runs at once. An n below Min, or 1, means that, and one
// above Max means Max. If the limit rises, those that wait are let in at once, as far
// as the budget allows. If it falls, the runs in flight go on, and none starts until
// fewer than n are left. With Slow, the limit adapts from there.
func (g *Gate) SetLimit(n int) {
	g.mu.Lock()
	g.setLimit(n)
	g.unlock()
}

// Stats returns the counts as they are now.
func (g *Gate) Stats() GateStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return GateStats{
		Limit:    g.most(),
		InFlight: g.running,
		Waiting:  len(g.hands) + len(g.doors),
		Halved:   g.halved,
		Next:     time.Duration(max(0, g.due()-g.now())),
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
	if g.moved && g.limit != g.within(g.limit) { // the bounds are other ones
		g.setLimit(g.limit)
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

// The methods below are called with mu held, but for those that take it: fire,
// see, try, wait, enter and leave. The one named unlock gives it up.

// most returns the limit; 0 if there is none.
func (g *Gate) most() int {
	if g.moved {
		return g.limit
	}
	return g.Max
}

func (g *Gate) setLimit(n int) { g.limit, g.moved, g.good = g.within(n), true, 0 }

// within brings a limit within its bounds.
func (g *Gate) within(n int) int {
	n = max(n, g.Min, 1)
	if g.Max > 0 {
		n = min(n, g.Max)
	}
	return n
}

// place reports whether the limit lets one more run start.
func (g *Gate) place() bool {
	limit := g.most()
	return limit == 0 || g.running < limit
}

// due returns when the budget lets the next run start. The budget is a bucket of
// Burst tokens; all that has to be kept of it is when it will be full again.
func (g *Gate) due() int64 {
	if g.Every == 0 {
		return 0
	}
	return g.full - int64(max(1, g.Burst)-1)*g.every()
}

// every returns Every, or so much less that an empty bucket is full again in 146
// years, half of what an int64 holds: then no reckoning with it overflows.
func (g *Gate) every() int64 {
	return min(int64(g.Every), math.MaxInt64/2/int64(max(1, g.Burst)))
}

func (g *Gate) open(now int64) bool { return g.place() && g.due() <= now }

// A pass is what a run has that was let in.
type pass struct {
	number uint64
	last   bool // it took the last place: the limit was in the way
}

// admit lets in a run that could have started then, but for the gate. Its token
// counts as spent when the gate opened for it, and not when a timer or a goroutine
// had come around to that, so the pace does not drift. But who comes later by a
// whole Every was paused, and that is not made up for.
func (g *Gate) admit(then, now int64) pass {
	g.running++
	g.started++
	g.shut = !g.place()
	if g.Every > 0 {
		at := max(g.full, g.placed, then)
		every := g.every()
		if now-at >= every {
			at = now
		}
		g.full = at + every
	}
	return pass{g.started, g.shut}
}

// unlock ends every method that changed the gate: it lets in those whose turn
// has come, arms the timer for others, and tells the first after the lock is
// given up.
func (g *Gate) unlock() {
	now := g.now()
	place := g.place()
	if g.shut && place {
		g.placed = now
	}
	g.shut = !place
	for len(g.hands) > 0 && g.open(now) {
		t := g.hands[0]
		g.hands = slices.Delete(g.hands, 0, 1)
		t.pass = g.admit(t.since, now)
		g.tell(t)
	}
	if g.open(now) { // and nobody has an item in hand
		for _, t := range g.doors {
			g.tell(t)
		}
		g.doors = slices.Delete(g.doors, 0, len(g.doors)) // and keeps none of them
	}
	g.arm(now)
	t := g.woken
	g.woken, g.wokenLast = nil, nil
	g.mu.Unlock()
	for t != nil {
		next := t.next // t is no longer ours once it is told
		t.wake <- struct{}{}
		t = next
	}
}

// tell has unlock tell a turn that it is no longer waiting.
func (g *Gate) tell(t *turn) {
	t.waiting, t.next = false, nil
	if g.woken == nil {
		g.woken = t
	} else {
		g.wokenLast.next = t
	}
	g.wokenLast = t
}

// arm sees to it that the timer fires when the next token is there, if somebody
// waits for that.
func (g *Gate) arm(now int64) {
	at := int64(0)
	if len(g.hands)+len(g.doors) > 0 && g.place() {
		at = g.due()
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

// A turn is what one worker of a loop waits for, the one at the door.
type turn struct {
	wake    chan struct{} // told once when it is no longer waiting; room for one
	waiting bool          // in a list, and not told
	since   int64         // since when a run has all that it needs, but the gate
	pass    pass          // of the run, once it was let in
	next    *turn         // in Gate.woken
}

// see reports whether the gate is open.
func (g *Gate) see() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.hands) == 0 && g.open(g.now())
}

// try lets a run in if the gate is open.
func (g *Gate) try(t *turn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if len(g.hands) > 0 || !g.open(now) {
		return false
	}
	t.pass = g.admit(t.since, now)
	return true
}

// wait waits in one of the lists: in doors until the gate is open, in hands until
// the run is let in. It reports whether that was so before done and end.
func (g *Gate) wait(list *[]*turn, t *turn, done, end <-chan struct{}) bool {
	g.mu.Lock()
	t.waiting = true
	*list = append(*list, t)
	g.unlock()

	select {
	case <-t.wake:
		return true
	case <-done:
	case <-end:
	}

	g.mu.Lock()
	if !t.waiting { // told meanwhile: the wake-up is on its way
		g.mu.Unlock()
		<-t.wake
		return true
	}
	i := slices.Index(*list, t)
	*list = slices.Delete(*list, i, i+1)
	g.unlock()
	return false
}

// enter waits for the turn of a run whose item is in hand. It reports whether it
// came before done, lost and all.
func (g *Gate) enter(t *turn, done, lost, all <-chan struct{}) bool {
	if !g.wait(&g.hands, t, done, lost) {
		return false
	}
	if !isDone(done) && !isDone(lost) && !isDone(all) {
		return true
	}
	g.mu.Lock() // it came at the same moment, and is given back
	g.running--
	g.full -= g.every()
	g.unlock()
	return false
}

// A finding is what the result of a run says of the far side.
type finding uint8

const (
	foundNothing finding = iota
	foundWell
	foundSlow
)

// leave gives back the place of a run.
func (g *Gate) leave(p pass, f finding) {
	g.mu.Lock()
	limit := g.most()
	switch {
	case p.number <= g.epoch: // what it met is what the limit was halved for
	case f == foundSlow:
		half := g.running / 2
		if limit > 0 {
			half = min(half, limit)
		}
		g.setLimit(half)
		g.halved++
		g.epoch = g.started
	case f == foundWell && p.last && limit != g.Max:
		if g.good++; g.good >= limit {
			g.setLimit(limit + 1)
		}
	}
	g.running--
	g.unlock()
}
