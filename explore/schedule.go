// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"fmt"
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

// This file plays one plan: it decides what comes next.
//
// One goroutine, the director, plays the scenario in a bubble. It lets the time pass
// from one step to the next, and at each instant goes through these stages, each when
// all other goroutines of the bubble are at rest:
//
//	checking    checks the world, if it may have changed        Invariant     converge.go
//	comparing   describes the world, before time passes         State        converge.go
//	starting    starts a process in place of a dead one         Start        schedule.go
//	ending      ends a process that stops                                     schedule.go
//	delivering  decides about the first event, and delivers it  listeners    deliver.go
//	granting    decides about one call, and lets it through     the effect   deliver.go
//	waiting     until the next event, start, end or call                     schedule.go
//
// The first stage that has something to do is the step; then the director begins again.
// The third column is the code of the user that a stage calls. An event or call that is
// decided about is a point: a fault may be injected there. After Steps, awaitRest
// (converge.go) lets the time pass until nothing changes any more, and checkEnd compares the
// world with that of the plan without faults.

const (
	downtime  = time.Second      // from a crash to the next Start
	grace     = 30 * time.Second // from the end of a context to the death of its process
	endingMax = time.Hour        // until all goroutines have ended
)

// A phase is the time between two changes by Steps.
type phase struct {
	state    string // at its end
	unsteady bool   // it was that before, and then something else
}

// An outcome is the result of a plan.
type outcome struct {
	failure  string // "" if there is none
	differs  bool   // it is that the world is another one
	restless string // it is that there is no rest; "" if there is
	hung     bool   // the plan did not end
	held     string // it hung during this call, over which a mutex is held
	locked   bool   // it hung because log.Fatal ended the process while that held a mutex
	state    string // of the world at the end
	phases   []phase
	points   []point
	happened []injection
	after    int           // of the points, the first after all of these
	idle     int           // steps and calls since nothing changes
	steps    time.Duration // when Steps returned
	end      time.Duration
	calls    int // that were let through
	returned int // of these

	// What the plan without faults shows of the scenario and the controller.
	byController bool // the controller changed the state
	stepped      bool // Steps changed the state, or sent an event
	callsBefore  int  // calls when Steps did so first

	rates   map[string]*rateCount // of the calls of a name
	journal []entry
	rest    int // of its entries, those before that
}

// A play is a plan under way.
type play struct {
	*explorer
	number   int
	slots    []*slot       // these four are set by direct
	check    func() error  // says what is wrong with the world
	describe func() string // describes it
	close    func()        // ends it
	plan     plan          // its faults
	clean    *outcome      // of the plan without faults; nil if this is that
	until    time.Duration // it lasts until then at least

	begun    time.Time
	wake     chan struct{}  // there is something to let through
	timer    *time.Timer    // of the director
	work     sync.WaitGroup // of all processes
	progress atomic.Int64   // of the director
	effects  chan struct{}  // has room for the effect that runs, in the immediate mode
	effectOf atomic.Value   // the name of its goroutine
	exited   atomic.Bool    // a process has ended by log.Fatal or Exit
	finished bool           // finish has returned

	mu        sync.Mutex          // guards the fields below
	bubble    string              // its name in stacks
	processes map[string]*Process // by the goroutines in which their functions run
	outcome   outcome
	ending    []*Process // processes that stop, and end at an instant
	finishing bool       // the processes are ended for good
	turn      int        // of the journal: what several goroutines do in one turn has no order

	// deliver.go
	slow     []*request // the calls that are slow, or have no answer, at this time
	callers  []*request // the calls that wait for their turn, in the order in which they are let through
	arrived  []delivery // the events since all was at rest
	events   []delivery // the events before those that wait to be delivered
	history  []delivery // the events that were delivered
	counts   map[string]*placeCount
	answers  map[string]*answers // by call and process
	outages  map[string]*outage  // by the name of the process, or of a place
	calledAt time.Duration       // when the last call was decided about

	// converge.go
	settling    bool          // Steps has returned
	dirty       bool          // the world may have changed since checkedAt
	undescribed bool          // and since it was described
	checkedAt   time.Duration // when the world was checked
	texts       []string      // the descriptions of the world in this phase
	faultAt     time.Duration // when the last fault is over
	otherAt     time.Duration // when the last one besides outages is, and the last start by Redeploy
	restAt      time.Duration // nothing changes since then
	recheckAt   time.Duration // when awaitRest checks again
	seen        string        // the world as it was described for the activity
	advances    int           // calls of Environment.Advance
	instant     time.Duration // of the last step or call
	atOnce      int           // steps and calls at that instant
	most        int           // calls that waited at the same time
	idleTurn    int           // counts the changes
}

// A slot is where one process follows the other.
type slot struct {
	number    int
	start     func(*Process)
	process   *Process      // the last one
	restartAt time.Duration // when the next one starts, if that is dead
}

// perform plays a plan in a bubble of its own.
func (p *play) perform(t *testing.T) {
	defer func() {
		bubbles.Delete(p.bubble)
		switch r := recover(); {
		case r == nil:
		case !strings.HasPrefix(fmt.Sprint(r), "deadlock"):
			panic(r)
		case p.finished:
			if left := slices.DeleteFunc(stacks(p.bubble), ofOtherModule); len(left) > 0 {
				p.failf("goroutines are left that wait for ever (%v):\n%s", r, strings.Join(left, "\n\n"))
			}
		default:
			p.failf("the scenario waits for ever (%v):\n%s", r, strings.Join(stacks(p.bubble), "\n\n"))
		}
	}()
	synctest.Test(t, func(*testing.T) {
		name := bubbleName()
		p.mu.Lock()
		p.bubble = name
		p.mu.Unlock()
		bubbles.Store(name, p)
		p.begun = time.Now()
		p.wake, p.timer = make(chan struct{}, 1), time.NewTimer(0)
		p.effects = make(chan struct{}, 1)
		p.timer.Stop()
		p.counts, p.answers, p.outages = map[string]*placeCount{}, map[string]*answers{}, map[string]*outage{}
		p.outcome.rates, p.processes = map[string]*rateCount{}, map[string]*Process{}
		p.dirty, p.calledAt = true, -1
		var directing sync.WaitGroup // of a goroutine that the scenario may end by mistake
		directing.Go(func() { p.protect(nil, "the scenario", func() { p.direct(p) }) })
		directing.Wait()
		p.finish()
		p.finished = true
	})
}

// launch starts a process.
func (p *play) launch(s *slot) {
	proc := &Process{play: p, slot: s, died: make(chan struct{})}
	if s.number > 0 {
		proc.name = fmt.Sprintf(" (beside %d)", s.number)
	}
	proc.ctx, proc.end = context.WithCancelCause(context.Background())
	p.mu.Lock()
	if s.process != nil {
		p.lineLocked("start" + proc.name)
	}
	s.process = proc
	for _, a := range p.answers {
		a.behind = 0
	}
	p.mu.Unlock()
	p.work.Go(func() {
		p.register(proc)
		p.protect(proc, "Start", func() { s.start(proc) })
	})
}

// register notes that the calling goroutine is one of this process.
func (p *play) register(proc *Process) {
	own, _ := goroutines(make([]byte, 64))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.processes[own] = proc
}

// kill ends a process: its calls and events have no effect from now on.
func (p *play) kill(proc *Process) {
	p.mu.Lock()
	if !proc.dead {
		close(proc.died)
	}
	proc.dead = true
	if proc.slot.process == proc {
		proc.slot.restartAt = p.now() + downtime
	}
	p.ending = slices.DeleteFunc(p.ending, func(elder *Process) bool { return elder == proc })
	p.wakeLocked() // in the immediate mode it may wait for a later time
	p.mu.Unlock()
	proc.end(errDied)
}

// stopLocked gives a process the grace to end. Its context is to end too, by errStopped.
func (p *play) stopLocked(proc *Process) {
	p.ending = append(p.ending, proc)
	proc.stopping, proc.endsAt = true, p.now()+grace
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
		p.checkWorld()
		act, wait, describe := p.next(until)
		if describe {
			p.compareWorld()
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
			case <-p.wake:
				p.timer.Stop()
			case <-p.timer.C:
			}
		}
	}
}

// next returns the next step. If there is none now, it returns the time to wait for one,
// which ends at until at the latest; or describe, if the world must be described before
// the step is known.
func (p *play) next(until time.Duration) (act func(), wait time.Duration, describe bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.outcome.failure != "" {
		return nil, 0, false
	}
	if p.settling {
		until = min(until, p.recheckAt)
	}
	p.turn++
	if len(p.arrived) > 0 { // by several goroutines, perhaps
		slices.SortStableFunc(p.arrived, func(a, b delivery) int { return strings.Compare(a.what, b.what) })
		p.events = append(p.events, p.arrived...)
		p.arrived = p.arrived[:0]
	}
	for _, s := range p.slots {
		if s.process.dead {
			if s.restartAt <= now {
				return func() { p.launch(s) }, 0, false
			}
			until = min(until, s.restartAt)
		}
	}
	for _, proc := range p.ending {
		if proc.endsAt <= now {
			p.lineLocked("the process ends" + proc.name)
			return func() { p.kill(proc) }, 0, false
		}
		until = min(until, proc.endsAt)
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
	r := p.callers[0]
	if p.undescribed {
		if s := p.counts[p.placeName("call "+r.op+r.process.name)]; s != nil && s.idle >= idleEnough && s.idleTurn == p.idleTurn {
			return nil, 0, true
		}
	}
	return p.grantLocked(r), 0, false
}

func (p *play) wakeLocked() {
	select {
	case p.wake <- struct{}{}:
	default: // it is known already
	}
}

// protect calls a function of the user's, and fails the plan if it does not return.
func (p *play) protect(proc *Process, what string, f func()) {
	returned := false
	defer func() {
		v := recover()
		switch {
		case returned || p.over(proc): // what a dead process does is no matter
		case v == nil:
			p.failf("%s called runtime.Goexit, perhaps by t.FailNow; let Invariant or Final return an error instead", what)
		default:
			p.failf("%s panicked: %v\n%s", what, v, debug.Stack())
		}
	}()
	f()
	returned = true
}

// over reports whether the plan has failed, or the process is dead; it may be nil.
func (p *play) over(proc *Process) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.overLocked(proc)
}

func (p *play) overLocked(proc *Process) bool {
	return p.outcome.failure != "" || proc != nil && proc.dead
}

// failf fails the plan by what happens now: the journal is shown to its end.
func (p *play) failf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failNowLocked(format, args...)
}

func (p *play) failNowLocked(format string, args ...any) {
	if p.outcome.failure == "" {
		p.outcome.rest = len(p.outcome.journal)
	}
	p.failLocked(format, args...)
}

// failLocked fails the plan by its state: the journal is shown up to the last change.
func (p *play) failLocked(format string, args ...any) {
	if p.outcome.failure == "" {
		p.outcome.failure = fmt.Sprintf(format, args...)
	}
}

// finish ends the processes that are left, and closes the world.
func (p *play) finish() {
	p.mu.Lock()
	p.finishing = true
	p.mu.Unlock()
	for _, s := range p.slots {
		if s.process != nil {
			p.kill(s.process)
		}
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
		time.Sleep(time.Second) // those that look from time to time whether to end do so
	case <-timer.C:
		p.failf("goroutines are left: Start or a function of Process.Go has not returned %v after the process was ended:\n%s", endingMax, strings.Join(stacks(p.bubble), "\n\n"))
	}
	if p.close != nil {
		p.protect(nil, "Close", p.close)
	}
}

// stuck returns the outcome of a plan in which nothing has gone on for so many looks, if nothing
// can; else nil.
func (p *play) stuck(looks int) *outcome {
	o, bubble, held := &outcome{hung: true}, "", ""
	if p.mu.TryLock() { // no goroutine locks it for long, but a fault has stopped one
		o.failure, o.journal, o.happened = p.outcome.failure, slices.Clone(p.outcome.journal), slices.Clone(p.outcome.happened)
		bubble = p.bubble
		if waiting := append(slices.Clone(p.callers), p.slow...); len(waiting) > 0 && looks > hangLooks/10 && !p.immediate {
			held = "call " + waiting[0].op
		}
		p.mu.Unlock()
	}
	exited := looks > 1 && bubble != "" && p.exited.Load() // the process may have held a mutex, which no goroutine unlocks
	if !exited && held == "" && looks < hangLooks {
		return nil
	}
	busy := busyOf(bubble)
	mutexes := len(busy) > 0 && !slices.ContainsFunc(busy, func(stack string) bool { return !waitsForMutex(stack) })
	switch {
	case mutexes && exited:
		o.locked = true
	case mutexes && held != "":
		return &outcome{hung: true, held: held, failure: "a mutex is held over a call"}
	case looks < hangLooks:
		return nil
	default:
		o.failure = fmt.Sprintf("it hangs: for %v of the real clock nothing goes on, since these goroutines neither end nor wait for something of the plan.%s\n%s",
			p.hang, reasonOf(busy), strings.Join(busy, "\n\n"))
	}
	return o
}

// busyOf returns the stacks of the goroutines that stop the clock of a bubble.
func busyOf(bubble string) []string {
	return slices.DeleteFunc(stacks(bubble), func(stack string) bool {
		return strings.Contains(stack, " (durable)") || strings.Contains(stack, " [synctest.")
	})
}

// waitsForMutex reports whether this is the stack of a goroutine that does.
func waitsForMutex(stack string) bool {
	return strings.Contains(stack, " [sync.Mutex.Lock") || strings.Contains(stack, " [sync.RWMutex.")
}

// reasonOf says why goroutines may stop the clock, and what to do.
func reasonOf(stacks []string) string {
	has := func(state string) bool {
		return slices.ContainsFunc(stacks, func(stack string) bool { return strings.Contains(stack, state) })
	}
	reason := ""
	if slices.ContainsFunc(stacks, waitsForMutex) {
		reason += " One waits for a mutex: another goroutine holds it over a call, a sleep or a channel operation, or has ended without Unlock. A channel of length 1 is a lock for which the clock does not stop."
	}
	if has(" [select,") || has(" [chan ") {
		reason += " One waits for a channel that was made outside of the plan, such as a variable of a package: make it in Start, or in World."
	}
	if has(" [IO wait") {
		reason += " One waits for a socket: give the handler of a server to Transport instead, and do not listen."
	}
	if has(" [running") || has(" [runnable") {
		reason += " One runs: a loop without a call needs Process.Step, or a pause."
	}
	return reason
}

var (
	bubblePattern = regexp.MustCompile(`synctest bubble \d+\]`)
	ownPattern    = regexp.MustCompile(`synctest\.Run\(|testingSynctestTest\(|explore\.stacks\(|WaitGroup\)\.Wait\(.*\n.*\n\S*explore\.\(\*play\)\.(finish|perform)\.`) // goroutines of explore and of synctest
)

// bubbleName returns that of the calling goroutine, or "".
func bubbleName() string {
	var text [128]byte
	return bubblePattern.FindString(string(text[:runtime.Stack(text[:], false)]))
}

// ofOtherModule reports whether a stack has no function of the module under test.
func ofOtherModule(stack string) bool {
	main := mainModule()
	for line := range strings.Lines(stack) {
		after, ok := strings.CutPrefix(strings.TrimPrefix(line, "created by "), main)
		if ok && (strings.HasPrefix(after, ".") || strings.HasPrefix(after, "/") || strings.HasPrefix(after, "_test.")) {
			return false
		}
	}
	return main != ""
}

var mainModule = sync.OnceValue(func() string {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return ""
	}
	return info.Main.Path
})

// stacks returns those of a bubble, except for our own.
func stacks(bubble string) []string {
	text := make([]byte, 1<<20)
	n := runtime.Stack(text, true)
	for n == len(text) && n < 1<<28 { // the goroutines of the last plan come last
		text = make([]byte, 2*n)
		n = runtime.Stack(text, true)
	}
	return slices.DeleteFunc(strings.Split(string(text[:n]), "\n\n"), func(s string) bool {
		return bubblePattern.FindString(s) != bubble || ownPattern.MatchString(s)
	})
}
