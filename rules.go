// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"math"
	"time"
)

// This file holds the rules of a [Queue] as pure functions: what becomes of the
// next run of an item by a verb ([nextRun.afterVerb]), and when the item is given
// back ([nextRun.afterRun]). An item in flight follows the same rules as one at
// rest.
//
// A next run has two times: it is due at the latest then, and no event starts it
// before. In the table, at the time 0:
//
//	ready        due now
//	within 2h    due in 2h; an event starts it at once
//	retry 1s–2h  due in 2h; an event starts it after 1s at the earliest
//	held 2h      due in 2h; no event starts it before
//	recheck 2h   within 2h, and the last run succeeded: only at rest
//	now          ready, whatever the run in flight returns: only in flight
//
//	               none       ready  within 2h  recheck 2h  retry 1s–2h  held 2h | in flight, and next: none / ready / within 2h / held 2h
//	Offer          ready      –      –          ready       –            –         –         –      –          –
//	Enqueue        ready      –      ready      ready       held 1s      –         ready     –      ready      –
//	EnqueueAfter   held 1h    –      held 1h    held 1h     held 1h      –         held 1h   –      held 1h    –
//	EnqueueWithin  within 1h  –      within 1h  within 1h   retry 1s–1h  –         within 1h –      within 1h  –
//	EnqueueNow     ready      –      ready      ready       ready        ready     now       now    now        now
//
//	given back by                    in flight, and next: none         ready    within 2h    held 2h  now
//	Done                                                  none         ready    within 2h    held 2h  ready
//	Done, MinDelay 1s                                     none         held 1s  retry 1s–2h  held 2h  ready
//	Requeue 3h                                            within 3h    ready    within 2h    held 2h  ready
//	Requeue 3h, Recheck                                   recheck 3h   ready    within 2h    held 2h  ready
//	Requeue 3h, MinDelay 1s                               retry 1s–3h  held 1s  retry 1s–2h  held 2h  ready
//	Requeue 3h, MinDelay 3h                               held 3h      held 3h  held 3h      held 3h  ready
//
// A dash changes neither time. A recheck is no longer one after any verb: where the
// table has a dash, it is within 2h.

// A nextRun says whether and when an item runs next.
type nextRun struct {
	kind runKind

	// The times of a run that is due later, in nanoseconds of Queue.now; of others
	// they are 0. NotBefore is never after due; if it is in the past, an event
	// starts the run at once.
	due, notBefore int64
}

type runKind uint8

const (
	runNone       runKind = iota // there is none: only in flight
	runReady                     // due now
	runBackground                // due now, and in the background: only at rest, see Queue.Background
	runNow                       // due now, whatever the run in flight returns: only in flight
	runLater                     // due later
	runRecheck                   // due later, and only a recheck: only at rest
)

// isLater reports whether the run waits for its time.
func (k runKind) isLater() bool { return k >= runLater }

// afterVerb returns what a verb makes of a next run. Asked is what the verb makes
// of none: Enqueue asks for a run that is ready, EnqueueAfter for one that has both
// times, EnqueueWithin for one that has no notBefore. An Offer comes here only for
// a recheck.
func (r nextRun) afterVerb(asked nextRun, now int64) nextRun {
	switch {
	case r.kind == runNone, asked.kind == runNow, asked.kind == runBackground:
		return asked
	case r.kind == runBackground && asked.kind == runReady:
		return asked
	case !r.kind.isLater():
		return r
	}
	r.kind = runLater
	switch {
	case asked.notBefore == 0:
		r.due = min(r.due, max(asked.due, r.notBefore))
	case r.notBefore < r.due && asked.due <= r.due:
		r.due = max(asked.due, r.notBefore)
		r.notBefore = r.due
	}
	if r.due <= now {
		return nextRun{kind: runReady}
	}
	return r
}

// afterRun returns the next run of an item that is given back. R was asked for
// during the run, and own by the options with which the item is given back. Minimum
// is the time before which no event starts the next run, or 0.
func (r nextRun) afterRun(own nextRun, minimum int64) nextRun {
	switch {
	case r.kind == runNow:
		return nextRun{kind: runReady}
	case r.kind == runNone:
		r = own
	case own.kind != runNone && own.due < r.due:
		r = own
		if r.kind == runRecheck { // An event is still to be handled.
			r.kind = runLater
		}
	}
	if r.kind == runNone || minimum == 0 {
		return r
	}
	return nextRun{runLater, max(r.due, minimum), max(r.notBefore, minimum)}
}

// nextRun returns the next run that the options ask for by themselves.
func (o *RequeueOptions) nextRun(now int64) nextRun {
	d := max(o.Delay, o.MinDelay)
	switch {
	case d <= 0:
		return nextRun{kind: runReady}
	case o.isRecheck():
		return nextRun{kind: runRecheck, due: later(now, d)}
	}
	return nextRun{kind: runLater, due: later(now, d)}
}

// nextRunLocked returns the next run of an entry. Close has dropped all that were
// due later.
func (q *Queue[T]) nextRunLocked(e *entry[T]) nextRun {
	switch {
	case !e.kind.isLater():
		return nextRun{kind: e.kind}
	case q.closed:
		return nextRun{}
	}
	due := q.delays.node(int(e.prev)).due
	return nextRun{e.kind, due, e.notBefore(due)}
}

// moveLocked gives an entry a next run, and puts it where that and inFlight say:
// out of the list or the heap, and into another. An entry that has neither is
// removed. When is the time at which the entry enters its phase, if it changes that.
func (q *Queue[T]) moveLocked(i uint32, e *entry[T], to nextRun, inFlight bool, when int64) {
	was := q.nextRunLocked(e)
	if to == was && inFlight == e.inFlight {
		return
	}
	stays := to.kind.isLater() && to.due == was.due // In the heap.

	q.countLocked(e, -1)
	if !stays {
		q.unlinkLocked(e, was)
	}
	if e.inFlight != inFlight || was.kind.isLater() && !to.kind.isLater() && !inFlight {
		e.since = when
	}
	if was.kind == runRecheck {
		e.pending = when
	}
	e.kind, e.inFlight = to.kind, inFlight
	if to.kind.isLater() {
		e.setNotBefore(to)
	}
	q.countLocked(e, +1)
	if q.watchers != nil {
		q.notifyMovedLocked(i, e, nil)
	}
	if !stays {
		q.linkLocked(i, e, to, when)
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
	case e.kind.isLater():
		q.waiting += n
		if e.kind == runRecheck {
			q.rechecks += n
		}
	}
}

// readyNext reports whether an item in flight has a next run that is ready.
func (e *entry[T]) readyNext() bool { return e.kind == runReady || e.kind == runNow }

// unlinkLocked takes an entry out of the list or heap that it is in.
func (q *Queue[T]) unlinkLocked(e *entry[T], was nextRun) {
	switch {
	case was.kind.isLater():
		q.delays.remove(&q.store, int(e.prev))
		if q.delays.len == 0 {
			q.disarmLocked()
		}
	case e.inFlight:
	case was.kind == runBackground:
		q.store.unlink(&q.background, e)
	case was.kind == runReady:
		q.store.unlink(&q.line, e)
	}
}

// linkLocked puts an entry into the list or heap that its next run asks for.
func (q *Queue[T]) linkLocked(i uint32, e *entry[T], to nextRun, now int64) {
	switch {
	case to.kind.isLater():
		q.delayOrder++
		q.delays.push(&q.store, delay{to.due, q.delayOrder, i})
		q.armLocked(now)
	case e.inFlight:
	case to.kind == runReady:
		q.store.push(&q.line, i, e)
	case to.kind == runBackground:
		if q.background.len == 0 {
			q.sinceBackground = 0
		}
		q.store.push(&q.background, i, e)
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
		q.moveLocked(first.index, e, nextRun{kind: q.readyKindLocked(e.inFlight || e.event)}, e.inFlight, first.due)
	}
}

const promoteMax = 1024

// readyKindLocked returns what a next run is once it is due; event says whether an
// event asked for it.
func (q *Queue[T]) readyKindLocked(event bool) runKind {
	if event || q.Background <= 0 {
		return runReady
	}
	return runBackground
}

// behindDueLocked returns the next run that an item at rest gets: to, or if that is
// ready while items that were due before are still to be promoted, one that is due
// now, and so comes after them. An item that was due itself keeps its turn.
func (q *Queue[T]) behindDueLocked(was, to nextRun, now int64) nextRun {
	if to.kind == runNow {
		to.kind = runReady
	}
	if (to.kind == runReady || to.kind == runBackground) && q.delays.first() <= now {
		to = nextRun{kind: runLater, due: now}
		if was.kind.isLater() {
			to.due = min(now, was.due)
		}
	}
	return to
}

// now returns the time as the entries keep it: nanoseconds by the monotonic clock,
// more than 0. A reading is among the dearest parts of an Enqueue, so it is taken
// only where an entry needs it.
func (q *Queue[T]) now() int64 { return atBase + int64(time.Since(q.base)) }

// atBase is the time that now returns at Queue.base. A queue that was made outside of
// a synctest bubble and is used in it, where it is the year 2000, may look back in
// time; base itself is not moved, because a time before 1885 has no monotonic reading.
const atBase = int64(100 * 365 * 24 * time.Hour)

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
