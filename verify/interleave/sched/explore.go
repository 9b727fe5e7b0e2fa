// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"fmt"
	"slices"
)

// An Effect is what a step shares with other goroutines.
type Effect uint8

const (
	Locks   Effect = 1 << iota // it holds the mutex
	Offers                     // it sends a token, and does not wait
	Takes                      // it receives a token
	Meets                      // it has to do with any other channel, or with a context
	Calls                      // an operation begins
	Returns                    // an operation ends
	Ticks                      // time passes
)

// meets reports whether two steps of different goroutines may come to something
// else in the other order. Of two that offer a token one is dropped, or both are
// kept: they are all the same. Where an operation holds the mutex it may end, as
// far as its history is concerned: see [Now].
func (e Effect) meets(o Effect) bool {
	both := func(a, b Effect) bool { return e&a != 0 && o&b != 0 || e&b != 0 && o&a != 0 }
	return e&o&(Locks|Takes|Meets) != 0 || both(Offers, Takes) || both(Calls, Locks|Returns) || (e|o)&Ticks != 0
}

// A Way is a step that could be next: that of a goroutine, or of the time, which
// is -1. If the goroutine is at a select, the case says which case it prefers.
type Way struct{ Thread, Case int }

// Explorer goes through all schedules, one a round, depth first. Of those that
// differ only in the order of steps that do not meet it goes through one, by
// sleep sets: a step that was tried at one place is not tried again behind steps
// that it does not meet. If the preemptions are limited it goes through all.
type Explorer struct {
	Preemptions int // at most so many in a schedule; below 0: any number
	Rounds      int
	Redundant   bool // this round repeats another one

	path []node
	at   int
}

// A node is a place where there were several ways to go on.
type node struct {
	ways   []Way
	own    int
	way    int      // which of them was taken last
	did    []Effect // of the ways that were taken
	asleep []sleeper
}

// A sleeper is a way that was taken elsewhere, with the same result.
type sleeper struct {
	Way
	did Effect
}

func (n *node) sleeps(way int) bool {
	return slices.ContainsFunc(n.asleep, func(s sleeper) bool { return s.Way == n.ways[way] })
}

// next are those that sleep after the way that was taken last.
func (n *node) next() (asleep []sleeper) {
	all := slices.Clone(n.asleep)
	for i, w := range n.ways[:n.way] {
		if !n.sleeps(i) {
			all = append(all, sleeper{w, n.did[i]})
		}
	}
	return slices.DeleteFunc(all, func(s sleeper) bool {
		return s.Thread == n.ways[n.way].Thread || s.did.meets(n.did[n.way])
	})
}

// Next begins a round, and reports whether there is one left.
func (e *Explorer) Next() bool {
	if e.Rounds > 0 {
		e.path = e.path[:e.at] // a round may have ended early
		for len(e.path) > 0 && !e.advance() {
			e.path = e.path[:len(e.path)-1]
		}
		if len(e.path) == 0 {
			return false
		}
	}
	e.Rounds++
	e.at, e.Redundant = 0, false
	return true
}

// advance takes the next way at the last node, and reports whether there is one.
func (e *Explorer) advance() bool {
	last := &e.path[len(e.path)-1]
	for last.way++; last.way < len(last.ways); last.way++ {
		if e.affords() && !last.sleeps(last.way) {
			return true
		}
	}
	return false
}

// affords reports whether the path has no more preemptions than are allowed.
func (e *Explorer) affords() bool {
	n := 0
	for _, s := range e.path {
		if s.own > 0 && s.way >= s.own {
			n++
		}
	}
	return e.Preemptions < 0 || n <= e.Preemptions
}

// Choose is the [Scheduler.Choose] of this round. A program that does not do
// the same again when it is told the same is a panic.
func (e *Explorer) Choose(ways []Way, own int, did Effect) int {
	e.End(did)
	if e.Redundant {
		return 0
	}
	if e.at == len(e.path) {
		n := node{ways: slices.Clone(ways), own: own, did: make([]Effect, len(ways))}
		if e.at > 0 && e.Preemptions < 0 {
			n.asleep = e.path[e.at-1].next()
		}
		for n.way < len(ways) && n.sleeps(n.way) {
			n.way++
		}
		if n.way == len(ways) {
			e.Redundant = true
			return 0
		}
		e.path = append(e.path, n)
	}
	n := e.path[e.at]
	if !slices.Equal(n.ways, ways) || n.own != own {
		panic(fmt.Sprintf("sched: step %d has the ways %v now, %v before: the program is not deterministic", e.at, ways, n.ways))
	}
	e.at++
	return n.way
}

// End says what the last step did.
func (e *Explorer) End(did Effect) {
	if e.at > 0 && !e.Redundant {
		n := &e.path[e.at-1]
		n.did[n.way] = did
	}
}
