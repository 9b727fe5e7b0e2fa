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
// The code under test is not written for it. A rewritten copy uses [Mutex] in
// place of sync.Mutex and calls [Point] and [Choose] around its channels. All
// runs in a synctest bubble, which tells when every goroutine has come to a
// stop, be it here or in a real channel operation.
package sched

import (
	"bytes"
	"cmp"
	"fmt"
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

	// Choose picks one of n ways to go on. The first own of them go on with the
	// goroutine that ran last: if there are any, the others are preemptions.
	Choose func(n, own int) int
	// OnTick is called after time passed.
	OnTick func()

	mu      sync.Mutex // guards the fields below; they are read when all have stopped
	threads map[int64]*thread
	running int     // threads that have not ended, and are not parked
	loose   int     // threads that were woken, and have not parked since
	last    *thread // that was chosen; nil if time passed since
	trace   []choice
}

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
func (s *Scheduler) Run() {
	defer current.Store(nil)
	for {
		synctest.Wait()
		ready := s.ready()
		ways := 0
		for _, t := range ready {
			ways += t.ways
		}
		tick := ways
		if s.Ticks > 0 {
			ways++
		}
		if ways == 0 {
			return
		}
		own := 0
		if len(ready) > 0 && ready[0] == s.last {
			own = s.last.ways
		}
		way := s.Choose(ways, own)
		if way == tick {
			s.Ticks--
			s.trace = append(s.trace, choice{})
			s.last = nil
			time.Sleep(s.Unit)
			synctest.Wait()
			s.OnTick()
			continue
		}
		for _, t := range ready {
			if way < t.ways {
				s.trace = append(s.trace, choice{t, t.at, way})
				s.mu.Lock()
				s.last = t
				t.parked = false
				s.running++
				s.mu.Unlock()
				t.wake <- way
				break
			}
			way -= t.ways
		}
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

// park stops a goroutine until it is chosen. The first stop after Begin is none.
func (s *Scheduler) park(t *thread, ways int, at string, wants *Mutex) int {
	s.mu.Lock()
	if t.oneWay {
		ways = 1
	}
	if t.begun {
		t.begun = false
		if ways == 1 && (wants == nil || !wants.held.Load()) {
			s.mu.Unlock()
			return 0
		}
	}
	if t.loose {
		t.loose = false
		s.loose--
	}
	t.parked, t.ways, t.at, t.wants = true, ways, at, wants
	s.running--
	s.mu.Unlock()
	return <-t.wake
}

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
		s.park(t, 1, at, nil)
		t.begun = true
	}
}

// Point ends a step.
func Point(at string) {
	if s := current.Load(); s != nil {
		s.park(s.self(false), 1, at, nil)
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
		s.mu.Unlock()
	}
}

// Look ends a step before a look at a context, if that can tell anything.
func Look(at string) {
	if s := current.Load(); s != nil {
		if t := s.self(false); t.looks {
			s.park(t, 1, at, nil)
		}
	}
}

// Choose ends a step, and chooses one of n ways for the next one: which case a
// select prefers, if several are ready.
func Choose(n int, at string) int {
	if s := current.Load(); s != nil {
		return s.park(s.self(false), n, at, nil)
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
		s.park(s.self(false), 1, "lock", m)
	}
	m.mu.Lock()
	m.held.Store(true)
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
