// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package sched

import "fmt"

// Explorer goes through all schedules, one a round, depth first.
type Explorer struct {
	Preemptions int // at most so many in a schedule; below 0: any number
	Rounds      int

	path []step
	at   int
}

type step struct{ way, ways, own int }

// Next begins a round, and reports whether there is one left.
func (e *Explorer) Next() bool {
	if e.Rounds > 0 {
		e.path = e.path[:e.at] // a round may have ended early
		for len(e.path) > 0 {
			last := &e.path[len(e.path)-1]
			if last.way++; last.way < last.ways && e.affords() {
				break
			}
			e.path = e.path[:len(e.path)-1]
		}
		if len(e.path) == 0 {
			return false
		}
	}
	e.Rounds++
	e.at = 0
	return true
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
func (e *Explorer) Choose(ways, own int) int {
	if e.at == len(e.path) {
		e.path = append(e.path, step{0, ways, own})
	}
	s := e.path[e.at]
	if s.ways != ways || s.own != own {
		panic(fmt.Sprintf("sched: step %d has %d ways now, %d before: the program is not deterministic", e.at, ways, s.ways))
	}
	e.at++
	return s.way
}
