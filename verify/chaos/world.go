// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package chaos runs the whole loop, with all that can go wrong in it at once,
// and judges what it did. Feeders die, panic, hang and flood; runs fail, panic,
// exit, ignore their contexts and take their time; members of groups come and
// go; groups end at any moment and others take over their queue.
package chaos

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reconkernel/reconcile"
)

// A World holds the assets that the loop looks after, and is the referee: it
// knows of each asset when it changed and when it was looked at.
type World struct {
	start  time.Time
	exact  bool // the clock stands still while anybody works
	assets []asset

	changes, runs, polls atomic.Int64
	outcomes             sync.Map // of reconcile.Outcome to *atomic.Int64

	mu    sync.Mutex // guards the fields below
	found map[Check]int
	first []string

	counting sync.Mutex // guards stats
	stats    reconcile.Stats
}

// An asset is what an item stands for.
type asset struct {
	want  atomic.Uint64 // its version: how often it changed
	seen  atomic.Uint64 // the version that its last run found when it began
	runs  atomic.Int32  // going on
	begun atomic.Int64  // so far

	mu        sync.Mutex    // guards the fields below
	owed      bool          // the loop said that a run follows, because work is left
	notBefore time.Duration // what it said, in time since the start; 0 is nothing
	notAfter  time.Duration // when the item is ready at the latest
	promised  time.Duration // what notAfter was when the run that goes on began
}

// A Check is something that the referee looks at.
type Check string

// The checks.
const (
	Missed   Check = "an item's last run started before its last change"
	Twice    Check = "two runs of one item at once"
	TooEarly Check = "a run inside a hold"
	TooLate  Check = "an item that was ready only after the time that was promised"
	Owed     Check = "a next run that was announced and did not come"
	Blind    Check = "an item in order that was offered, and was not ready for it"
	Unseen   Check = "an EnqueueAndWait that returned before a run saw the change"
	Fell     Check = "a count of the queue that fell"
	Left     Check = "something left in the queue"
	Ended    Check = "a group that did not end as it should"
)

func newWorld(items int, exact bool) *World {
	return &World{start: time.Now(), exact: exact, assets: make([]asset, items), found: map[Check]int{}}
}

// complain keeps how often a check failed, and the first few times in words.
func (w *World) complain(c Check, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found[c]++
	if len(w.first) < 10 {
		w.first = append(w.first, fmt.Sprintf("%v: %s", c, fmt.Sprintf(format, args...)))
	}
}

// now is never 0, which stands for no time.
func (w *World) now() time.Duration { return time.Since(w.start) + 1 }

// change changes an asset and returns its version. Whoever does so tells the queue
// afterwards.
func (w *World) change(item int) (version uint64) {
	w.changes.Add(1)
	return w.assets[item].want.Add(1)
}

// applied is called when the items were dealt with, since they had these versions.
func (w *World) applied(items []int, versions []uint64) {
	for i, item := range items {
		if seen := w.assets[item].seen.Load(); seen < versions[i] {
			w.complain(Unseen, "item %d: version %d, seen %d", item, versions[i], seen)
		}
	}
}

// count looks whether what the queue has counted has fallen.
func (w *World) count(stats func() reconcile.Stats) {
	w.counting.Lock()
	defer w.counting.Unlock()
	s, was := stats(), w.stats
	if s.Enqueued < was.Enqueued || s.Coalesced < was.Coalesced || s.Taken < was.Taken || s.Requeued < was.Requeued {
		w.complain(Fell, "%+v after %+v", s, was)
	}
	w.stats = s
}

// begin is called first in each run.
func (w *World) begin(item int) {
	w.runs.Add(1)
	a := &w.assets[item]
	a.begun.Add(1)
	if n := a.runs.Add(1); n != 1 {
		w.complain(Twice, "item %d: %d of them", item, n)
	}
	now := w.now()
	a.mu.Lock()
	notBefore := a.notBefore
	a.owed, a.notBefore = false, 0
	// A run of which there is no result, because a hook panicked, promises nothing.
	a.promised, a.notAfter = a.notAfter, 0
	a.mu.Unlock()
	if now < notBefore && !overridden(item) {
		w.complain(TooEarly, "item %d: %v before its end", item, notBefore-now)
	}
	a.seen.Store(a.want.Load())
}

// end is called last in each run, however it ends.
func (w *World) end(item int) { w.assets[item].runs.Add(-1) }

// result is OnResult of every loop.
func (w *World) result(r reconcile.Result[int], holdRetries bool) {
	n, ok := w.outcomes.Load(r.Outcome)
	if !ok {
		n, _ = w.outcomes.LoadOrStore(r.Outcome, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(1)

	now := w.now()
	ready := now - r.Duration - r.Waited
	a := &w.assets[r.Item]
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.exact && a.promised > 0 && ready > a.promised && !overridden(r.Item) {
		w.complain(TooLate, "item %d: by %v", r.Item, ready-a.promised)
	}
	a.promised, a.notAfter = 0, 0
	_, wait := reconcile.Classify(r.Err, r.Failures, atOnce)
	switch r.Outcome {
	case reconcile.Aborted:
		a.owed = true
	case reconcile.Succeeded:
		if wait.Recheck { // it is to be looked at again
			a.notAfter = now + r.Next
		}
	case reconcile.Requeued, reconcile.Retrying:
		a.owed = true
		hold := wait.Hold
		if r.Outcome == reconcile.Retrying { // by its back-off, or by the floor of another step
			hold = holdRetries || wait.Hold && r.Next == wait.Delay
		}
		if hold {
			a.notBefore = now + r.Next
		} else {
			a.notAfter = now + r.Next
		}
	}
	if overridden(r.Item) {
		a.owed, a.notAfter = false, 0 // what was announced may be removed
	}
}

func atOnce(error, int) (time.Duration, bool) { return 0, true }

// offered is called around an Offer of an item: one that was settled is to be ready
// for it, unless it has had a run since.
func (w *World) offered(q Queue, item int) {
	begun := w.assets[item].begun.Load()
	was := q.State(item)
	q.Offer(item)
	if is := q.State(item); was.Recheck && is.Recheck && w.assets[item].begun.Load() == begun {
		w.complain(Blind, "item %d: %+v after %+v", item, is, was)
	}
}

// judge is called when all is in order. Polls still go on, and may offer items. A
// queue that is closed has dropped the looks that were to come.
func (w *World) judge(closed bool) {
	now := w.now()
	for i := range w.assets {
		a := &w.assets[i]
		if want, seen := a.want.Load(), a.seen.Load(); want != seen {
			w.complain(Missed, "item %d: version %d, seen %d", i, want, seen)
		}
		a.mu.Lock()
		owed := a.owed || w.exact && !closed && a.notAfter > 0 && a.notAfter < now
		a.mu.Unlock()
		if owed {
			w.complain(Owed, "item %d", i)
		}
	}
}

// The items are of three kinds.

// polled reports whether an item is found by polls alone: nobody tells the queue
// of its changes.
func polled(item int) bool { return item%10 >= 8 }

// overridden reports whether EnqueueNow and Remove are called for an item: they
// overrule a hold, and take back what was promised.
func overridden(item int) bool { return item%10 == 6 || item%10 == 7 }

// A Report is what came of a round.
type Report struct {
	Items                                 int
	Changes, Runs, Polls, Groups, Members int64
	Outcomes                              map[reconcile.Outcome]int64
	Virtual                               time.Duration // how long it took by its own clock
	Stats                                 reconcile.Stats
	Found                                 map[Check]int // what is wrong
	First                                 []string      // some of it, in words
}

// Add sums up reports of rounds.
func (r *Report) Add(o Report) {
	r.Items = max(r.Items, o.Items)
	r.Changes += o.Changes
	r.Runs += o.Runs
	r.Polls += o.Polls
	r.Groups += o.Groups
	r.Members += o.Members
	r.Virtual += o.Virtual
	r.Stats.Enqueued += o.Stats.Enqueued
	r.Stats.Coalesced += o.Stats.Coalesced
	r.Stats.Taken += o.Stats.Taken
	r.Stats.Requeued += o.Stats.Requeued
	if r.Outcomes == nil {
		r.Outcomes = map[reconcile.Outcome]int64{}
	}
	for k, n := range o.Outcomes {
		r.Outcomes[k] += n
	}
}

func (r Report) String() string {
	return fmt.Sprintf("%d changes of %d items, %d runs %v, %d polls, %d groups of %d members in all, %d events coalesced, %v by their clock",
		r.Changes, r.Items, r.Runs, r.Outcomes, r.Polls, r.Groups, r.Members, r.Stats.Coalesced, r.Virtual.Round(time.Second))
}

func (w *World) report() Report {
	r := Report{
		Items: len(w.assets), Changes: w.changes.Load(), Runs: w.runs.Load(), Polls: w.polls.Load(),
		Outcomes: map[reconcile.Outcome]int64{}, Virtual: time.Since(w.start), Found: w.found, First: w.first,
	}
	w.outcomes.Range(func(k, n any) bool {
		r.Outcomes[k.(reconcile.Outcome)] = n.(*atomic.Int64).Load()
		return true
	})
	return r
}
