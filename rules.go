// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"math"
	"time"
)

// This file holds the rules of a [Queue]: what becomes of the next run of an
// item when something is asked for it ([asked]), and when it is given back
// ([judged]). An item in flight follows the same rules as one at rest. One
// function, moveLocked, carries out what they say.
//
//	              none          ready    within 2h   settled 2h  held 2h    in flight, and next none / ready / within 2h / held 2h
//	Offer         ready (*)     –        –           ready (*)   –          –        –      –          –
//	Enqueue       ready         –        ready       ready       –          ready    –      ready      –
//	EnqueueAfter  held 1h       –        held 1h     held 1h     –          held 1h  –      held 1h    –
//	EnqueueWithin within 1h     –        within 1h   within 1h   –          within   –      within 1h  –
//	EnqueueNow    ready         –        ready       ready       ready      now      now    now        now
//
//	given back by                                                           none     ready  within 2h  held 2h   now
//	Done                                                                    –        ready  within 2h  held 2h   ready
//	Requeue 3h                                                              within   ready  within 2h  held 2h   ready
//	Requeue 3h, Recheck                                                     settled  ready  within 2h  held 2h   ready
//	Requeue 3h, Hold                                                        held 3h  held   held 3h    held 3h   ready
//
// A dash changes nothing. What was settled 2h is not settled after any verb: where
// the table has a dash, it is within 2h. (*) If the queue has a Background: ready
// there, out of which Enqueue and EnqueueNow take it to the other ready items; for
// all else it is ready. Only an item at rest can be settled.

// A nextRun says whether and when an item runs next.
type nextRun struct {
	kind runKind
	due  int64 // of those that are delayed, in nanoseconds of Queue.now; else 0
}

type runKind uint8

const (
	runNone    runKind = iota // none: only in flight
	runReady                  // now, unless the verdict of the run in flight delays it
	runOffered                // only at rest: now, but behind events, see Queue.Background
	runNow                    // only in flight: now, whatever the verdict
	runWithin                 // no later than it is due
	runSettled                // only at rest: the same, and all is well
	runHeld                   // not before it is due
)

func (k runKind) delayed() bool { return k >= runWithin }

// asked returns what a verb makes of a next run; ask is what the verb asks for. An
// Offer comes here only for an item that is settled.
func asked(old, ask nextRun) nextRun {
	if old.kind == runSettled {
		old.kind = runWithin
	}
	switch {
	case old.kind == runNone, ask.kind == runNow:
		return ask
	case old.kind == runOffered && ask.kind == runReady:
		return ask
	case old.kind == runWithin && ask.due <= old.due:
		return ask
	}
	return old
}

// judged returns what the verdict of a run makes of the next run that its item
// has.
func judged(old, verdict nextRun) nextRun {
	switch {
	case old.kind == runNow, verdict.kind == runNone:
		return old
	case old.kind == runNone, verdict.kind == runHeld:
		return verdict
	case verdict.due < old.due:
		if verdict.kind == runSettled { // an event is still to be answered
			verdict.kind = runWithin
		}
		return verdict
	}
	return old
}

// nextRun returns the next run that the options ask for.
func (w *RequeueOptions) nextRun(now int64) nextRun {
	switch {
	case w.Delay <= 0:
		return nextRun{kind: runReady}
	case w.Hold:
		return nextRun{runHeld, later(now, w.Delay)}
	case w.settled():
		return nextRun{runSettled, later(now, w.Delay)}
	}
	return nextRun{runWithin, later(now, w.Delay)}
}

// nextRunLocked returns the next run of an entry. Close has dropped all that were
// delayed.
func (q *Queue[T]) nextRunLocked(e *entry[T]) nextRun {
	switch {
	case !e.kind.delayed():
		return nextRun{kind: e.kind}
	case q.closed:
		return nextRun{}
	}
	return nextRun{e.kind, q.delays.node(int(e.prev)).due}
}

// moveLocked gives an entry a next run, and puts it where that and inFlight say:
// out of the list or the heap, and into another. An entry that has neither is
// removed. When is the time at which the entry enters its phase, if it changes that.
func (q *Queue[T]) moveLocked(i uint32, e *entry[T], to nextRun, inFlight bool, when int64) {
	was := q.nextRunLocked(e)
	if to == was && inFlight == e.inFlight {
		return
	}
	stays := to.kind.delayed() && to.due == was.due // in the heap; what is not delayed is due at 0

	q.countLocked(e, -1)
	if !stays {
		q.leaveLocked(e, was)
	}
	if e.inFlight != inFlight || was.kind.delayed() && !to.kind.delayed() && !inFlight {
		e.since = when
	}
	if was.kind == runSettled {
		e.pending = when
	}
	e.kind, e.inFlight = to.kind, inFlight
	q.countLocked(e, +1)
	if q.watchers != nil {
		q.notifyMovedLocked(i, e, nil)
	}
	if !stays {
		q.enterLocked(i, e, to, when)
	}
}

// countLocked counts an entry, or uncounts it if n is -1. The lists count what
// is ready.
func (q *Queue[T]) countLocked(e *entry[T], n int) {
	switch {
	case e.inFlight:
		q.inFlight += n
		if e.readyNext() {
			q.again += n
		}
	case e.kind.delayed():
		q.waiting += n
		if e.kind == runSettled {
			q.settled += n
		}
	}
}

// readyNext reports whether an item in flight has a next run that is ready.
func (e *entry[T]) readyNext() bool { return e.kind == runReady || e.kind == runNow }

// leaveLocked takes an entry out of the list or heap that it is in.
func (q *Queue[T]) leaveLocked(e *entry[T], was nextRun) {
	switch {
	case was.kind.delayed():
		q.delays.remove(&q.store, int(e.prev))
		if q.delays.len == 0 {
			q.disarmLocked()
		}
	case e.inFlight:
	case was.kind == runOffered:
		q.store.unlink(&q.offered, e)
	case was.kind == runReady:
		q.store.unlink(&q.events, e)
	}
}

// enterLocked puts an entry into the list or heap that its next run asks for.
func (q *Queue[T]) enterLocked(i uint32, e *entry[T], to nextRun, now int64) {
	switch {
	case to.kind.delayed():
		q.delayOrder++
		q.delays.push(&q.store, delay{to.due, q.delayOrder, i})
		q.armLocked(now)
	case e.inFlight:
	case to.kind == runReady:
		q.store.push(&q.events, i, e)
	case to.kind == runOffered:
		if q.offered.len == 0 {
			q.inRow = 0
		}
		q.store.push(&q.offered, i, e)
	default:
		q.store.remove(i)
	}
}

// promoteDueLocked makes ready what is due, in order: all of it, unless that
// would take long. What is left then is promoted by the calls that follow, and by
// the timer.
func (q *Queue[T]) promoteDueLocked(now int64) {
	for n := 0; n < promoteMax && q.delays.first() <= now; n++ {
		first := *q.delays.node(0)
		e := q.store.entry(first.index)
		q.moveLocked(first.index, e, nextRun{kind: runReady}, e.inFlight, first.due)
	}
}

const promoteMax = 1024

// restingLocked returns the next run that an item at rest gets: to, or if that is
// ready while others, which are due before, are left to be promoted, one that is
// due now, and so comes after them. What is due itself keeps its turn.
func (q *Queue[T]) restingLocked(was, to nextRun, now int64) nextRun {
	if to.kind == runNow {
		to.kind = runReady
	}
	if to.kind == runReady && q.delays.first() <= now {
		to = nextRun{runWithin, now}
		if was.kind.delayed() {
			to.due = min(now, was.due)
		}
	}
	return to
}

// now returns the time as the entries keep it: nanoseconds since base, by the
// monotonic clock. A reading is among the dearest parts of an Enqueue, so it is
// taken only where an entry needs it.
func (q *Queue[T]) now() int64 { return int64(time.Since(q.base)) }

// later returns now + d, or the end of time: one before math.MaxInt64, which
// Queue.firesAt keeps for itself.
func later(now int64, d time.Duration) int64 {
	return now + min(int64(d), math.MaxInt64-1-now)
}

// armLocked makes the timer fire when the first delay is due. When the first
// delay is removed, the timer is not put off: it fires early and is armed anew.
func (q *Queue[T]) armLocked(now int64) {
	if q.delays.first() >= q.firesAt {
		return
	}
	q.firesAt = q.delays.first()
	d := time.Duration(q.firesAt - now)
	if q.timer == nil {
		q.timer = time.AfterFunc(d, q.fire)
	} else {
		q.timer.Reset(d)
	}
}

func (q *Queue[T]) disarmLocked() {
	if q.firesAt != math.MaxInt64 {
		q.timer.Stop()
		q.firesAt = math.MaxInt64
	}
}

// fire is called by the timer.
func (q *Queue[T]) fire() {
	q.mu.Lock()
	now := q.now()
	q.firesAt = math.MaxInt64
	q.promoteDueLocked(now)
	q.armLocked(now)
	q.unlock()
}
