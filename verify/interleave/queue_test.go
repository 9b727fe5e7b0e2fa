// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build instrumented

package interleave

import (
	"slices"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/verify/interleave/faulty"
)

func newReal() subject { return reconcile.NewQueue[string]() }

// settledA leaves a to be looked at again.
const settledA = "Enqueue a; Dequeue; Requeue a 9 settled"

// programs are those that the faults of earlier queues live in.
var programs = map[string][]program{
	"wake-up": {
		{threads: []string{"Enqueue a", "Dequeue; Done ?"}},
		{threads: []string{"Enqueue a; Enqueue b", "Dequeue; Done ?", "Dequeue; Done ?"}},
		{threads: []string{"Enqueue a", "Enqueue b", "Dequeue; Dequeue"}},
		{threads: []string{"Enqueue a; Enqueue b", "Dequeue; Dequeue", "Enqueue a; Enqueue b"}},
		{threads: []string{"Enqueue a; Enqueue a; Enqueue a; Enqueue a", "Dequeue; Done ?; Dequeue; Done ?"}},
		{threads: []string{"Enqueue a; Enqueue b; Enqueue a; Enqueue b", "Dequeue; Done ?; Dequeue; Done ?"}},
		{threads: []string{"Offer a; Enqueue a", "Offer a; EnqueueNow a", "Dequeue; Done ?; Dequeue"}},
		{threads: []string{"Enqueue a; Remove a", "Enqueue b", "Dequeue; Done ?"}},
	},
	"in flight": {
		{before: "Enqueue a; Dequeue", threads: []string{"Enqueue a", "Done a", "Dequeue; Done ?"}},
		{before: "Enqueue a; Dequeue", threads: []string{"Done a", "Done a", "Enqueue a; Dequeue; Dequeue"}},
		{before: "Enqueue a; Dequeue", threads: []string{"Requeue a 0", "Done a", "Dequeue; Dequeue"}},
		{before: "Enqueue a; Dequeue", threads: []string{"Requeue a 0; Requeue a 0", "Enqueue a", "Dequeue; Dequeue"}},
		{before: "Enqueue a; Dequeue", threads: []string{"EnqueueNow a", "Requeue a 1 hold", "Dequeue; Done ?"}},
		{before: "Enqueue a; Dequeue", threads: []string{"EnqueueAfter a 1; EnqueueNow a", "Requeue a 1 hold", "Remove a; Dequeue"}},
		{before: "Enqueue a; Dequeue", threads: []string{"EnqueueWithin a 1; Enqueue a", "Requeue a 0", "Remove a; Dequeue"}},
	},
	"close": {
		{threads: []string{"Close; Close", "Dequeue", "Dequeue"}},
		{threads: []string{"Enqueue a; Close", "Dequeue; Done ?; Dequeue", "Dequeue; Done ?"}},
		{before: "Enqueue a; Dequeue; Enqueue a", threads: []string{"Close; Dequeue", "Done a", "Dequeue; Done ?; Dequeue"}},
		{before: "Enqueue a; Dequeue; Enqueue a", threads: []string{"Close; Dequeue", "Requeue a 1 hold", "Dequeue"}},
		{before: "Enqueue a; Dequeue; Enqueue a", threads: []string{"Close; Dequeue", "Remove a", "Dequeue"}},
		{before: "Enqueue a; Dequeue; EnqueueNow a", threads: []string{"Close; Dequeue", "Requeue a 1 hold", "Dequeue"}},
		{before: "Enqueue a; Dequeue", threads: []string{"Close; Dequeue", "Requeue a 0", "Enqueue a; Dequeue"}},
	},
	"background": {
		{threads: []string{"Offer a; Enqueue b", "Dequeue; Done ?; Dequeue"}, background: 2},
		{threads: []string{"Offer a; Enqueue a", "Enqueue b", "Dequeue; Done ?"}, background: 2},
		{before: "Offer a; Enqueue b", threads: []string{"Enqueue c", "Dequeue; Dequeue", "EnqueueNow a"}, background: 2},
		{before: "Offer a; Enqueue b", threads: []string{"Enqueue c; Remove a", "Dequeue; Dequeue"}, background: 2},
		{before: "Offer a; Offer b; Enqueue c; Enqueue d", threads: []string{"Dequeue; Dequeue", "Dequeue; Dequeue"}, background: 3},
		{threads: []string{"Dequeue 1", "Offer a; Cancel 1", "Enqueue b; Dequeue"}, background: 2},
		{threads: []string{"Dequeue 1", "Offer a; Cancel 1", "Offer b; Dequeue"}, background: 2},
		{threads: []string{"Offer a; Enqueue b; Close", "Dequeue; Done ?; Dequeue; Done ?; Dequeue"}, background: 2},
	},
	"minimum": {
		{before: "Enqueue a; Dequeue", threads: []string{"Requeue a 9 minimum", "Enqueue a; State a"}, ticks: 1},
		{before: "Enqueue a; Dequeue", threads: []string{"Requeue a 9 minimum done failed", "Enqueue a; Dequeue"}, ticks: 1},
		{before: "Enqueue a; Dequeue; Requeue a 9 minimum", threads: []string{"Enqueue a; Dequeue", "EnqueueNow a; State a"}, ticks: 1},
		{before: "Enqueue a; Dequeue; Enqueue a", threads: []string{"Requeue a 9 minimum; Dequeue", "Close"}},
	},
	"settled": {
		{before: "Enqueue a; Dequeue", threads: []string{"Requeue a 9 settled", "Offer a; Dequeue", "State a"}},
		{before: "Enqueue a; Dequeue; Enqueue a", threads: []string{"Requeue a 9 settled", "Offer a; Dequeue", "State a"}},
		{before: settledA, threads: []string{"Offer a; Offer a", "Dequeue; Done ?", "Offer a; Dequeue"}},
		{before: settledA, threads: []string{"Offer a", "Enqueue a; Dequeue", "Offer b; Dequeue"}, background: 2},
		{before: settledA, threads: []string{"Offer a", "Remove a; State a", "Dequeue; Done ?"}},
		{before: settledA, threads: []string{"Offer a; Stats", "EnqueueWithin a 9; EnqueueAfter a 9", "Dequeue"}},
		{before: settledA, threads: []string{"Offer a; Close", "Dequeue; Requeue ? 9 settled; Dequeue"}},
		{before: settledA, threads: []string{"Offer a; WaitIdle", "Dequeue; Requeue ? 9 settled", "State a"}},
		{before: settledA, threads: []string{"EnqueueAndWait a", "Offer a; Dequeue; Requeue ? 9 settled"}},
		{before: "Enqueue a; Dequeue", threads: []string{"Requeue a 9 reason", "Enqueue a; Dequeue; State a", "Offer a; State a"}},
		{before: "Enqueue a; Dequeue; Enqueue a", threads: []string{"Requeue a 9 failed done", "EnqueueAndWait a", "Dequeue; Done ?"}},
		{threads: []string{"EnqueueAndWait a", "Dequeue; Requeue ? 0 failed done"}},
		{before: "Enqueue a; Dequeue; Requeue a 1 settled", threads: []string{"Offer a; State a", "Dequeue; Done ?"}, ticks: 1},
		{before: "Enqueue a; Dequeue; Requeue a 1 settled", threads: []string{"Offer a; Dequeue", "EnqueueWithin a 2; State a"}, ticks: 1},
		{before: "Enqueue a; Dequeue; Requeue a 1 settled", threads: []string{"Offer a", "Enqueue b; Dequeue; State a"}, ticks: 1, background: 2},
	},
	"cancellation": {
		{threads: []string{"Dequeue 1", "Cancel 1", "Enqueue a"}},
		{threads: []string{"Dequeue 1; Done ?", "Enqueue a; Cancel 1", "Enqueue b; Len"}},
		{threads: []string{"Dequeue 1", "Dequeue", "Enqueue a; Cancel 1"}},
		{threads: []string{"Dequeue 1; Done ?", "Enqueue a; Cancel 1", "Dequeue; Done ?"}},
		{threads: []string{"Dequeue 1", "Dequeue 2", "Enqueue a; Cancel 1; Cancel 2"}},
		{threads: []string{"Dequeue 1", "Dequeue 2", "Enqueue a; Enqueue b; Cancel 1; Cancel 2"}},
		{threads: []string{"Dequeue 1; Done ?", "Enqueue a; Cancel 1", "Close; Dequeue"}},
		{threads: []string{"Dequeue 1", "Enqueue a; Cancel 1", "Remove a; Enqueue a"}},
		{threads: []string{"Dequeue 1", "Enqueue a; Enqueue b", "Cancel 1; Dequeue"}},
		{threads: []string{"Dequeue 1", "Enqueue a; EnqueueAfter a 1", "Cancel 1; State a"}},
		{threads: []string{"Dequeue 1", "Enqueue a; EnqueueNow a", "Cancel 1; Stats"}},
	},
	"waiting for the end": {
		{threads: []string{"Enqueue a; WaitIdle", "Dequeue; Done ?"}},
		{threads: []string{"EnqueueAndWait a", "Dequeue; Done ?"}},
		{threads: []string{"EnqueueAndWait a; WaitIdle", "Enqueue a; Dequeue; Done ?"}},
		{threads: []string{"EnqueueAndWait a", "Enqueue b; WaitIdle", "Dequeue; Done ?; Dequeue; Done ?"}},
		{threads: []string{"EnqueueAndWait a", "EnqueueAndWait a", "Dequeue; Requeue ? 1 settled"}},
		{threads: []string{"EnqueueAndWait a", "EnqueueAndWait b", "Dequeue; Requeue ? 1"}},
		{threads: []string{"Enqueue a; WaitIdle", "Remove a", "Dequeue; Done ?"}},
		{threads: []string{"Enqueue a; WaitIdle", "WaitIdle", "Close; Dequeue; Requeue ? 1"}},
		{threads: []string{"EnqueueAndWait a", "Close; Dequeue; Requeue ? 1 settled"}},
		{threads: []string{"EnqueueAndWait a", "Remove a", "Dequeue; Requeue ? 0 aborted"}},
		{before: "Enqueue a; Dequeue", threads: []string{"WaitIdle", "Enqueue a; Done a", "Remove a"}},
		{before: "Enqueue a; Dequeue", threads: []string{"EnqueueAndWait a", "Requeue a 1 settled; Dequeue; Done a"}},
		{before: "Enqueue a; Dequeue", threads: []string{"WaitIdle", "Requeue a 1 settled", "EnqueueWithin a 2"}},
		{before: "Enqueue a; Dequeue; EnqueueAfter a 1", threads: []string{"EnqueueAndWait a", "Close", "Done a"}},
		{threads: []string{"Enqueue a; WaitIdle 1", "Cancel 1", "Dequeue; Done ?"}},
		{threads: []string{"EnqueueAndWait a 1", "Cancel 1", "Dequeue; Done ?"}},
		{threads: []string{"Dequeue 1", "EnqueueAndWait a", "Cancel 1; Dequeue; Done ?"}},
	},
	"timer": {
		{threads: []string{"Dequeue; Done ?", "EnqueueAfter a 1"}, ticks: 2},
		{threads: []string{"Dequeue; Done ?", "EnqueueAfter a 1; EnqueueAfter b 1"}, ticks: 2},
		{threads: []string{"Dequeue; Done ?", "EnqueueAfter a 1; Enqueue b"}, ticks: 1},
		{threads: []string{"Dequeue; Done ?", "EnqueueWithin a 1; Enqueue a"}, ticks: 1},
		{threads: []string{"Dequeue; Done ?", "EnqueueAfter a 1; EnqueueNow a"}, ticks: 1},
		{threads: []string{"Dequeue; Dequeue", "EnqueueAfter a 2; EnqueueAfter b 1"}, ticks: 2},
		{threads: []string{"Dequeue; Done ?", "EnqueueAfter a 1; Close"}, ticks: 1},
		{threads: []string{"Enqueue a; WaitIdle", "Dequeue; EnqueueAfter b 1; Done ?"}, ticks: 1},
		{threads: []string{"EnqueueAndWait a", "Dequeue; EnqueueWithin a 1; Done ?"}, ticks: 1},
		{threads: []string{"WaitIdle", "Enqueue a; Dequeue; Requeue ? 1 settled"}, ticks: 1},
		{threads: []string{"Dequeue 1; Done ?", "EnqueueAfter a 1; Cancel 1"}, ticks: 1},
		{threads: []string{"Dequeue; Done ?", "EnqueueAfter a 1; Remove a", "EnqueueWithin a 1; Enqueue a"}, ticks: 1},
		{before: "Enqueue a; Dequeue; EnqueueAfter a 1", threads: []string{"EnqueueNow a", "Requeue a 1 hold", "Dequeue"}, ticks: 1},
		{before: "Enqueue a; Dequeue; EnqueueWithin a 1", threads: []string{"Close", "Requeue a 1", "Dequeue"}, ticks: 1},
	},
}

// tally sums up what many programs came to.
type tally struct{ programs, schedules, histories int }

func (n *tally) explore(t *testing.T, p program, preemptions int) {
	t.Helper()
	r := p.explore(t, preemptions, newReal)
	if r.err != nil {
		t.Error(r.err)
	}
	n.programs++
	n.schedules += r.schedules
	n.histories += r.histories
}

func (n *tally) log(t *testing.T) {
	t.Helper()
	t.Logf("%d programs, %d schedules, %d histories", n.programs, n.schedules, n.histories)
}

func TestPrograms(t *testing.T) {
	for name, group := range programs {
		t.Run(name, func(t *testing.T) {
			var n tally
			for _, p := range group {
				n.explore(t, p, -1)
			}
			n.log(t)
		})
	}
}

// What the search leaves out comes to no history that it has not seen. If the
// preemptions are limited it leaves out nothing, and this limit is never reached.
func TestNothingIsLeftOut(t *testing.T) {
	for _, p := range []program{
		{threads: []string{"Enqueue a; Enqueue b", "Dequeue; Dequeue"}},
		{threads: []string{"Enqueue a; Close", "Dequeue; Done ?; Dequeue"}},
		{threads: []string{"Enqueue a", "Enqueue b", "Dequeue; Done ?"}},
		{threads: []string{"Dequeue 1", "Cancel 1", "Enqueue a"}},
		{threads: []string{"EnqueueAndWait a", "Dequeue; Requeue ? 1 settled"}},
		{threads: []string{"Enqueue a; WaitIdle", "Dequeue; Done ?"}},
		{threads: []string{"Dequeue; Done ?", "EnqueueAfter a 1"}, ticks: 1},
		{threads: []string{"Dequeue 1; Done ?", "EnqueueAfter a 1; Cancel 1"}, ticks: 1},
		{threads: []string{"Enqueue a; WaitIdle", "Remove a", "Dequeue; Done ?"}},
		{before: settledA, threads: []string{"Offer a; State a", "Dequeue; Done ?"}},
		{before: "Enqueue a; Dequeue", threads: []string{"Requeue a 0", "Done a", "Dequeue"}},
		{before: "Enqueue a; Dequeue; EnqueueAfter a 1", threads: []string{"EnqueueAndWait a", "Close", "Done a"}},
	} {
		some, all := p.explore(t, -1, newReal), p.explore(t, 1000, newReal)
		if some.err != nil || all.err != nil {
			t.Fatal(some.err, all.err)
		}
		if !slices.Equal(some.keys, all.keys) {
			t.Errorf("%v: %d histories of %d schedules, %d of %d without leaving out any", p, some.histories, some.schedules, all.histories, all.schedules)
		}
		t.Logf("%v: %d schedules of %d", p, some.schedules, all.schedules)
	}
}

// Larger programs have too many schedules for all of them. Here a goroutine
// gives way in the middle, where it could go on, twice at most.
func TestLargerPrograms(t *testing.T) {
	var n tally
	for _, p := range []program{
		{threads: []string{"Dequeue; Done ?; Dequeue; Done ?", "Dequeue; Requeue ? 0; Dequeue; Done ?", "Enqueue a; Enqueue b; Enqueue a; Enqueue b"}},
		{threads: []string{"Dequeue; Done ?; Dequeue; Done ?", "Enqueue a; Enqueue b; Enqueue a; Close", "Enqueue b; EnqueueNow a; Remove b; Enqueue b"}},
		{threads: []string{"Dequeue 1; Done ?; Dequeue 1; Done ?", "Enqueue a; Enqueue b; Cancel 1; Enqueue a", "Dequeue; Done ?; Dequeue; Done ?"}},
		{threads: []string{"Dequeue 1; Dequeue", "Dequeue 2; Dequeue", "Enqueue a; Cancel 1; Enqueue b; Cancel 2"}},
		{threads: []string{"Dequeue 1; Done ?; Dequeue", "Enqueue a; Cancel 1; Enqueue b; Close", "Dequeue; Requeue ? 0; Dequeue; Done ?"}},
		{threads: []string{"Dequeue; RequeueHeld ?; Dequeue; Done ?", "EnqueueAfter a 1; EnqueueWithin b 1; EnqueueNow a; Enqueue b", "Enqueue a; Remove a; Enqueue b"}, ticks: 1},
	} {
		for i := range p.threads {
			p.threads[i] = strings.ReplaceAll(p.threads[i], "RequeueHeld ?", "Requeue ? 1 hold")
		}
		n.explore(t, p, 2)
	}
	n.log(t)
}

// pairs are all the ways to do two of the verbs one after the other.
func pairs(verbs ...string) (all []string) {
	for _, a := range verbs {
		for _, b := range verbs {
			all = append(all, a+"; "+b)
		}
	}
	return all
}

// TestAllPairs is every program of two goroutines with two verbs each, on an
// item that is unknown, or in flight, or settled, at first.
func TestAllPairs(t *testing.T) {
	all := pairs("Offer a", "Enqueue a", "EnqueueNow a", "EnqueueAfter a 1", "EnqueueWithin a 1", "Enqueue b", "Remove a",
		"Done a", "Requeue a 0", "Requeue a 1 reason", "Requeue a 1 hold", "Requeue a 1 settled", "Dequeue", "Close")
	var n tally
	for _, before := range []string{"", "Enqueue a; Dequeue", settledA} {
		for i, one := range all {
			for _, other := range all[i:] {
				n.explore(t, program{before: before, threads: []string{one, other}}, -1)
			}
		}
	}
	n.log(t)
}

// TestWithAConsumer is every program of one consumer and two goroutines that do
// something beside it.
func TestWithAConsumer(t *testing.T) {
	verbs := []string{"Enqueue a", "EnqueueNow a", "Requeue a 0", "Enqueue b", "Remove a", "Close"}
	var n tally
	for i, one := range pairs(verbs...) {
		for _, other := range verbs[i/len(verbs):] {
			n.explore(t, program{threads: []string{"Dequeue; Done ?", one, other}}, -1)
		}
	}
	n.log(t)
}

// TestWithACancellation is every program of one consumer whose context ends and
// one other goroutine that does something.
func TestWithACancellation(t *testing.T) {
	var n tally
	for _, other := range pairs("Enqueue a", "EnqueueNow a", "EnqueueAfter a 1", "Remove a", "Dequeue", "Close", "State a", "Stats") {
		n.explore(t, program{threads: []string{"Dequeue 1", "Cancel 1", other}}, -1)
		n.explore(t, program{threads: []string{"Dequeue 1", "Enqueue b; Cancel 1", other}}, -1)
	}
	n.log(t)
}

// TestAsTimePasses is every program of a goroutine that does two things as the
// first of them falls due, and one that waits.
func TestAsTimePasses(t *testing.T) {
	var n tally
	for _, before := range []string{
		"EnqueueAfter a 1", "EnqueueWithin a 1", "Enqueue a; Dequeue; EnqueueAfter a 1", "Enqueue a; Dequeue; EnqueueWithin a 1",
		"Enqueue a; Dequeue; Requeue a 1 settled",
	} {
		for _, other := range pairs("Offer a", "Enqueue a", "EnqueueNow a", "EnqueueAfter a 1", "EnqueueWithin a 1", "Remove a",
			"Done a", "Requeue a 1 hold", "Requeue a 1", "Requeue a 1 settled", "Close", "State a", "Len") {
			n.explore(t, program{before: before, threads: []string{"Dequeue", other}, ticks: 1}, -1)
		}
	}
	n.log(t)
}

// Queues that have a fault must be found out, or the search proves nothing; one
// that has none must not.
func TestFaultsAreFound(t *testing.T) {
	small := []program{
		{threads: []string{"Enqueue a", "Dequeue; Done ?"}},
		{threads: []string{"Enqueue a; Enqueue b", "Dequeue; Done ?", "Dequeue; Done ?"}},
		{threads: []string{"Enqueue a; Enqueue a", "Dequeue; Done ?; Dequeue"}},
		{before: "Enqueue a; Dequeue", threads: []string{"Enqueue a", "Dequeue; Done ?"}},
		{threads: []string{"Dequeue 1", "Cancel 1", "Enqueue a"}},
		{threads: []string{"Dequeue 1", "Dequeue", "Enqueue a; Cancel 1"}},
	}
	for fault, name := range map[faulty.Fault]string{
		faulty.NonBlockingSignal:  "the ancestor's signal that does not wait",
		faulty.OneSignalForAll:    "one signal for two items",
		faulty.WokenWithoutALook:  "a woken consumer that does not look",
		faulty.ForgottenInFlight:  "an event lost in flight",
		faulty.TwiceInLine:        "an item in two hands",
		faulty.GoneWithTheContext: "an item gone with a context",
		faulty.NoFault:            "none",
	} {
		t.Run(name, func(t *testing.T) {
			n, found := 0, 0
			for _, p := range small {
				r := p.explore(t, -1, func() subject { return faulty.New(fault) })
				n += r.schedules
				if r.err == nil {
					continue
				}
				if found++; found == 1 {
					t.Logf("schedule %d: %v", n, r.err)
				}
			}
			if (found > 0) != (fault != faulty.NoFault) {
				t.Errorf("%d of %d programs fail, in %d schedules", found, len(small), n)
			}
			t.Logf("%d of %d programs fail, in %d schedules", found, len(small), n)
		})
	}
}
