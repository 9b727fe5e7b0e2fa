// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package sched runs a few goroutines one step at a time, in an order that
// somebody chooses. A step ends where a goroutine is about to lock a mutex, to
// send, to receive or to select, or to look at a context: there it stops and
// waits to be chosen.
//
// No stop is left out that another order could show in, as long as goroutines
// meet at nothing but locks, channels, contexts and the clock, which is what the
// race detector watches over elsewhere:
//
//   - Behind a channel operation there is none. What follows is the goroutine's
//     own up to the next lock, channel or context, and that has its own stop.
//   - A look at a context has none if no context of the goroutine ever ends and
//     no time passes: the look then tells the same at any moment. If time may
//     pass, this stop parts a reading of the clock before a lock from what was
//     read at the call.
//   - The first stop of an operation falls together with its beginning, see
//     [Begin]: nothing but what is the goroutine's own lies between the two.
//     Unless the lock is held then: that is waited for at the lock.
//
// Of the orders that differ only in steps that do not meet, one is gone through:
// see [Explorer]. Two steps meet if both hold the mutex, or have to do with a
// channel or a context. Channels of tokens, which are those to which something is
// sent without waiting, count apart from all others, because the queue offers a
// token after nearly every operation.
//
// The code under test is not written for it. A rewritten copy uses [Mutex] in
// place of sync.Mutex and calls [Point] and [Choose] around its channels. All
// runs in a synctest bubble, which tells when every goroutine has come to a
// stop, be it here or in a real channel operation.
package sched

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"
)

// current is the scheduler at work. Without one, everything here does nothing.
var current atomic.Pointer[Scheduler]

// Scheduler runs goroutines. It is used once.
type Scheduler struct {
	Ticks int           // how often time may pass
	Unit  time.Duration // how much of it, each time

	// Choose picks one of the ways to go on. The first own of them go on with the
	// goroutine that ran last: if there are any, the others are preemptions. It is
	// told what the step before did.
	Choose func(ways []Way, own int, did Effect) int
	// OnTick is called after time passed.
	OnTick func()

	mu      sync.Mutex // guards the fields below; they are read when all have stopped
	threads map[int64]*thread
	running int     // threads that have not ended, and are not parked
	loose   int     // threads that were woken, and have not parked since
	last    *thread // that was chosen; nil if time passed since
	step    int64   // counts steps
	did     Effect  // of the step under way
	trace   []choice

	tokens map[uintptr]bool // whether a channel is one for tokens
}

// Step is how many steps there were. It is for OnTick, and after Run.
func (s *Scheduler) Step() int64 { return s.step }

type choice struct {
	t   *thread // nil if time passed
	at  string
	way int
}

// Trace is the schedule so far, a line for each step.
func (s *Scheduler) Trace() string {
	var b strings.Builder
	for _, c := range s.trace {
		if c.t == nil {
			b.WriteString("time passes\n")
		} else {
			fmt.Fprintf(&b, "%s: %s %d\n", c.t.name, c.at, c.way)
		}
	}
	return b.String()
}

type thread struct {
	id     int
	name   string
	wake   chan int
	parked bool
	ended  bool
	ways   int    // how many ways there are to go on from here
	at     string // what comes next
	wants  *Mutex
	oneWay bool
	looks  bool
	begun  bool // it was chosen where it called Begin
	loose  bool
	sends  bool   // what comes next is a send that does not wait
	seen   int64  // its last step, without those sends
	next   Effect // of the receives that come next
}

// Go adds a goroutine; f calls [Begin] first. If it is oneWay, no more than one
// case of any of its selects can be ready, so there is nothing to choose. It
// looks if a context that it looks at may end, or the time may pass: there is a
// stop before each look.
func (s *Scheduler) Go(name string, oneWay, looks bool, f func()) {
	current.Store(s)
	born := make(chan struct{})
	go func() {
		t := s.add(goroutine(), name)
		t.oneWay, t.looks = oneWay, looks
		close(born)
		f()
		s.mu.Lock()
		t.ended = true
		s.running--
		if t.loose {
			s.loose--
		}
		s.mu.Unlock()
	}()
	<-born
}

func (s *Scheduler) add(g int64, name string) *thread {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.threads == nil {
		s.threads = map[int64]*thread{}
	}
	t := &thread{id: len(s.threads), name: name, wake: make(chan int)}
	s.threads[g] = t
	s.running++
	return t
}

// Run chooses until nothing is left to choose: every goroutine has ended, or
// waits for something that none of the others will do any more.
// It returns what the last step did.
func (s *Scheduler) Run() (did Effect) {
	defer current.Store(nil)
	for {
		synctest.Wait()
		ready := s.ready()
		var ways []Way
		for _, t := range ready {
			for i := range t.ways {
				ways = append(ways, Way{t.id, i})
			}
		}
		if s.Ticks > 0 {
			ways = append(ways, Way{-1, 0})
		}
		if len(ways) == 0 {
			return s.did
		}
		own := 0
		if len(ready) > 0 && ready[0] == s.last {
			own = s.last.ways
		}
		way := ways[s.Choose(ways, own, s.did)]
		s.step++
		s.did = 0
		if way.Thread < 0 {
			s.did = Ticks
			s.Ticks--
			s.trace = append(s.trace, choice{})
			s.last = nil
			time.Sleep(s.Unit)
			synctest.Wait()
			s.OnTick()
			continue
		}
		t := ready[slices.IndexFunc(ready, func(t *thread) bool { return t.id == way.Thread })]
		s.trace = append(s.trace, choice{t, t.at, way.Case})
		s.mu.Lock()
		s.last = t
		t.parked = false
		if !t.sends {
			t.seen = s.step
		}
		s.running++
		s.mu.Unlock()
		t.wake <- way.Case
	}
}

// ready are the goroutines that can go on, the one that ran last first.
func (s *Scheduler) ready() (ready []*thread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.threads {
		if t.parked && (t.wants == nil || !t.wants.held.Load()) {
			ready = append(ready, t)
		}
	}
	slices.SortFunc(ready, func(a, b *thread) int {
		if a == s.last || b == s.last {
			return map[bool]int{true: -1, false: 1}[a == s.last]
		}
		return cmp.Compare(a.id, b.id)
	})
	return ready
}

// park stops a goroutine until it is chosen for a step that does what did says.
// The first stop after Begin is none.
func (s *Scheduler) park(t *thread, ways int, at string, wants *Mutex, did Effect) int {
	s.mu.Lock()
	did |= t.next
	t.next = 0
	if t.oneWay {
		ways = 1
	}
	if t.begun {
		t.begun = false
		if ways == 1 && (wants == nil || !wants.held.Load()) {
			s.did |= did
			s.mu.Unlock()
			return 0
		}
	}
	if t.loose {
		t.loose = false
		s.loose--
	}
	t.parked, t.ways, t.at, t.wants = true, ways, at, wants
	t.sends = at == offers
	s.running--
	s.mu.Unlock()
	way := <-t.wake
	s.note(did)
	return way
}

func (s *Scheduler) note(did Effect) {
	s.mu.Lock()
	s.did |= did
	s.mu.Unlock()
}

// offers is what the point before a send that does not wait is called.
const offers = "offer"

// self is the calling goroutine. One that is not known is that of a timer.
//
// To ask the runtime which goroutine this is takes longer than all the rest. It
// is the one that was chosen, unless others run too: those whose channel
// operation the chosen one let go on, and they come to the point behind it.
func (s *Scheduler) self(woken bool) *thread {
	s.mu.Lock()
	t := s.last
	if t == nil || t.parked || t.ended || s.loose > 0 || woken && s.running > 1 {
		s.mu.Unlock()
		g := goroutine()
		s.mu.Lock()
		t = s.threads[g]
		if t == nil {
			s.mu.Unlock()
			return s.add(g, "timer")
		}
	}
	s.mu.Unlock()
	return t
}

// Stuck are the goroutines that wait for a lock when Run has returned.
func (s *Scheduler) Stuck() (names []string) {
	for _, t := range s.threads {
		if t.parked {
			names = append(names, t.name)
		}
	}
	return names
}

// Begin ends a step where an operation is called. The next step goes on over the
// first stop: what comes before the first lock of an operation is not shared.
func Begin(at string) {
	if s := current.Load(); s != nil {
		t := s.self(false)
		s.park(t, 1, at, nil, Calls)
		t.begun = true
	}
}

// Now is the number of the step that the caller is in. A send that does not wait,
// such as that of a wake-up, is no step in this sense: an operation that ends with
// it has ended before, as far as anybody can tell. Without that, each order of
// such a send and of other operations would be another history. It is 0 if there
// is no Scheduler.
func Now() int64 {
	s := current.Load()
	if s == nil {
		return 0
	}
	t := s.self(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.seen == s.step {
		s.did |= Returns
	}
	return t.seen
}

// Point ends a step.
func Point(at string) {
	if s := current.Load(); s != nil {
		s.park(s.self(false), 1, at, nil, Meets)
	}
}

// Offer ends a step before a token is sent, if there is a channel for it.
func Offer[T any](c chan<- T) {
	if s := current.Load(); s != nil && c != nil {
		s.meet(c, Offers)
		s.park(s.self(false), 1, offers, nil, Offers)
	}
}

// Touch stands before what ends no step, and meets those who wait: a close.
func Touch[T any](c chan<- T) {
	if s := current.Load(); s != nil {
		s.meet(c, Meets)
		s.note(Meets)
	}
}

// meet notes that a channel is one for tokens, or is not: its name in the source
// says so, and is wrong if another name of the same channel says otherwise.
func (s *Scheduler) meet(channel any, as Effect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tokens == nil {
		s.tokens = map[uintptr]bool{}
	}
	p := reflect.ValueOf(channel).Pointer()
	if was, known := s.tokens[p]; known && was != (as != Meets) {
		panic("sched: a channel for tokens has a second name that does not say so")
	}
	s.tokens[p] = as != Meets
}

// Receives stands before what receives from a channel, be it one case of a
// select. It ends no step.
func Receives[T any](c <-chan T, token bool) {
	if s := current.Load(); s != nil && c != nil {
		did := Meets
		if token {
			did = Takes
		}
		s.meet(c, did)
		t := s.self(false)
		t.next |= did
	}
}

// Woken stands behind whatever may have waited. It ends no step: what comes next
// and is shared has its own stop.
func Woken() {
	if s := current.Load(); s != nil {
		t := s.self(true)
		s.mu.Lock()
		if !t.loose {
			t.loose = true
			s.loose++
		}
		t.seen = s.step
		s.mu.Unlock()
	}
}

// Look ends a step before a look at a context, if that can tell anything.
func Look(at string) {
	if s := current.Load(); s != nil {
		if t := s.self(false); t.looks {
			s.park(t, 1, at, nil, Meets)
		}
	}
}

// LookAt is Look, at the channel that is closed when the context ends.
func LookAt[T any](c <-chan T) {
	if s := current.Load(); s != nil && c != nil {
		s.meet(c, Meets)
		Look("context")
	}
}

// Receive ends a step before a receive: see [Receives].
func Receive() {
	if s := current.Load(); s != nil {
		s.park(s.self(false), 1, "receive", nil, 0)
	}
}

// Choose ends a step, and chooses one of n ways for the next one: which case a
// select prefers, if several are ready.
func Choose(n int, at string) int {
	if s := current.Load(); s != nil {
		return s.park(s.self(false), n, at, nil, 0)
	}
	return 0
}

// Mutex is used like a sync.Mutex.
type Mutex struct {
	mu   sync.Mutex
	held atomic.Bool
}

// Lock ends a step. The next one begins with the mutex locked.
func (m *Mutex) Lock() {
	if s := current.Load(); s != nil {
		s.park(s.self(false), 1, "lock", m, Locks)
	}
	m.mu.Lock()
	m.held.Store(true)
}

// TryLock is Lock: a thread that has to wait is not scheduled before it gets the lock.
func (m *Mutex) TryLock() bool {
	m.Lock()
	return true
}

// Unlock unlocks.
func (m *Mutex) Unlock() {
	m.held.Store(false)
	m.mu.Unlock()
}

// goroutine is the number of the calling goroutine.
func goroutine() int64 {
	var buf [32]byte
	b := bytes.TrimPrefix(buf[:runtime.Stack(buf[:], false)], []byte("goroutine "))
	n, err := strconv.ParseInt(string(b[:bytes.IndexByte(b, ' ')]), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}
