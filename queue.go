// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"reflect"
	"sync"
	"time"
)

// A Queue holds items that need a run, each of them at most once. It hands out each item
// to one worker at a time, in the order in which the items became ready; see also
// Background.
//
// An item is an identity, never a payload. The queue keeps one entry for each: whether it
// is in flight (taken and not yet given back), its next run, and its failures in a row. An
// item with neither a run in flight nor a next run has no entry.
//
// A next run is due at [State].Due at the latest, and no event starts it before
// [State].NotBefore. The package comment has the table of what each method does with it.
// Only Remove and Close cancel an event.
//
// Make a Queue with [NewQueue]; the methods of a zero Queue panic. All methods panic, and
// change nothing, for an item that could never be found again: a NaN, or an interface that
// holds a value that cannot be compared. All may be called from any goroutine. Only Dequeue,
// EnqueueAndWait and WaitIdle block. A queue has no goroutine of its own, and one timer
// while an item waits.
type Queue[T comparable] struct {
	// Background, if it is n > 0, splits the ready items into two lines, so that an event
	// does not wait behind a poll of all items, or behind the retries of an outage. Items
	// with an event join the first line. Items that only an Offer, a retry, a scheduled run or
	// a recheck made ready join the second, the background. The first line is taken first, but
	// of every n items at least one is taken from the background while it has any. An event
	// moves its item from the background to the tail of the first line.
	//
	// 0 means one line. 8 is good for most services. With 1 the first line waits for the
	// background. Set it before the first use.
	Background int

	base time.Time // of the clock, see now
	seed maphash.Seed
	made bool // by NewQueue

	// What is above is read without the lock. It does not share a cache line
	// with what is below, which changes hands with the lock.
	_ [64]byte

	// mu guards the fields below. These always hold (see check in the tests):
	//
	//   - An entry at rest has a next run; runNow occurs only in flight,
	//     runBackground and runRecheck only at rest.
	//   - The lists hold just the entries at rest that are ready, in the order
	//     in which they will be taken: background those of runBackground, line the
	//     others. While background has any, sinceBackground items were taken from
	//     line since one was taken from background.
	//   - The heap holds just the entries whose next run is due later. Of these,
	//     waiting are at rest, and rechecks of them wait only for a recheck.
	//   - inFlight entries are in flight; again of them have a next run that
	//     is ready.
	//   - Once closed, the heap is empty, and the entries that were in it are not known
	//     any more. They stay in the store until all others are removed.
	//   - While a consumer is blocked and an entry is ready, or the queue is
	//     drained, there is a token in wake, or a consumer that took it and has
	//     not looked yet.
	//   - While the heap is not empty, the timer is armed for no later than the
	//     first delay.
	//   - A watcher of an item is at an entry that does not wait for a recheck.
	mu              sync.Mutex
	closed          bool
	store           store[T]
	line            list
	background      list
	sinceBackground int
	delays          delays[T]
	delayOrder      uint32        // of the last delay
	timer           *time.Timer   // nil until the first delay
	firesAt         int64         // when the timer fires; math.MaxInt64 if it is not armed
	lastTaken       uint32        // the entry that was taken last; perhaps it is gone
	wake            chan struct{} // room for one token; nil until a consumer blocks
	blocked         int           // consumers that wait for a token
	watchers        watchers

	waiting, rechecks, inFlight, again   int
	enqueued, coalesced, taken, requeued uint64
}

// NewQueue returns an empty queue. It panics if T is a pointer, a channel or a function type,
// because equal items would not be found equal: use a key, such as a name or a struct of
// names. It does not check the fields of a struct.
func NewQueue[T comparable]() *Queue[T] {
	t := reflect.TypeFor[T]()
	switch t.Kind() {
	case reflect.Pointer, reflect.UnsafePointer, reflect.Chan, reflect.Func:
		panic(fmt.Sprintf("reconcile: NewQueue[%v]: a %v is no identity; "+
			"use a comparable key, such as a string or a struct of strings", t, t.Kind()))
	}
	return &Queue[T]{
		made:    true,
		base:    time.Now(),
		seed:    maphash.MakeSeed(),
		firesAt: math.MaxInt64,
	}
}

// Enqueue reports an event: something happened to the item. The item becomes ready now, or
// at the NotBefore of its next run. If it is in flight, that is the run after this one. On a
// closed queue Enqueue does nothing.
func (q *Queue[T]) Enqueue(item T) { q.add(item, askReady, 0) }

// EnqueueAfter is an Enqueue that asks for a run after d, which no other event starts
// sooner. If the item has a next run that is ready, due before d, or not to be started by an
// event, its times stay. Otherwise the next run moves to d, or to its NotBefore if that is
// later. A d of zero or less is Enqueue.
//
// In client-go and controller-runtime an event starts the item sooner; see EnqueueWithin.
func (q *Queue[T]) EnqueueAfter(item T, d time.Duration) { q.add(item, askAfter, d) }

// EnqueueWithin is an Enqueue that asks for a run after d at the latest; an event starts it
// sooner. If the next run is due before d, its times stay. Otherwise it becomes due at d, or
// at its NotBefore if that is later. A d of zero or less is Enqueue.
func (q *Queue[T]) EnqueueWithin(item T, d time.Duration) { q.add(item, askWithin, d) }

// EnqueueNow is an Enqueue that no NotBefore delays. If the item is in flight, it is ready as
// soon as it is given back, whatever its run returns.
func (q *Queue[T]) EnqueueNow(item T) { q.add(item, askNow, 0) }

// Offer reports that the item exists, as a poll does. An item that is unknown, or waits only
// for a recheck, becomes ready. In all other cases it is in flight or has a next run, and
// Offer does nothing.
func (q *Queue[T]) Offer(item T) { q.add(item, askOffer, 0) }

// Remove cancels the next run of the item, and reports whether there was one. It never stops
// a run in flight. If the item is not in flight, its count of failures and its NotBefore end
// too: a later Enqueue starts it at once.
func (q *Queue[T]) Remove(item T) bool {
	hash := q.hash(item)
	q.lock()
	defer q.unlock()
	i, e := q.store.find(hash, item)
	if e == nil || q.nextRunLocked(e).kind == runNone {
		return false
	}
	q.moveLocked(i, e, nextRun{}, e.inFlight, e.since)
	return true
}

// Dequeue blocks until an item is ready, and takes it: the item is then in flight until
// [Queue.Done] or [Queue.Requeue] gives it back. Which of several waiting consumers gets the
// next item is not defined. When ctx is done, Dequeue takes nothing and returns its
// [context.Cause] at once. When the queue is closed and empty, it returns [ErrClosed].
func (q *Queue[T]) Dequeue(ctx context.Context) (T, error) {
	var t takenItem[T]
	err := q.giveBackAndTake(ctx, &t, nil, 0)
	return t.item, err
}

// Done gives back an item and schedules no run. A next run that was asked for during the run
// stays. The count of failures is reset. Done does nothing for an item that is not in
// flight.
func (q *Queue[T]) Done(item T) { q.giveBack(item, RequeueOptions{Done: true}) }

// Requeue gives back an item and schedules its next run as o says. If the item was asked for
// during the run, the sooner of the two next runs is kept, and o.MinDelay delays it; only
// EnqueueNow overrides that. Requeue does nothing for an item that is not in flight. After
// Close it drops a next run that is not due yet, and ignores MinDelay.
func (q *Queue[T]) Requeue(item T, o RequeueOptions) { q.giveBack(item, o) }

// RequeueAfter is Requeue(item, RequeueOptions{Delay: d, MinDelay: d}).
func (q *Queue[T]) RequeueAfter(item T, d time.Duration) {
	q.Requeue(item, RequeueOptions{Delay: d, MinDelay: d})
}

// Close ends the queue. It accepts no more items, and drops the next runs that are not due
// yet. Ready items can still be taken. So can items in flight, once they are given back, if
// an event came during the run or the run asks to go on at once. Then Dequeue returns
// [ErrClosed]. Closing twice is allowed.
func (q *Queue[T]) Close() {
	q.lock()
	defer q.unlock()
	if q.closed {
		return
	}
	for now := q.now(); q.delays.first() <= now; {
		q.promoteDueLocked(now)
	}
	q.closed = true
	for i := range q.watchers {
		if e := q.store.entry(i); i != 0 && e.kind.isLater() {
			q.watchers.notify(i, ErrClosed)
		}
	}
	q.delays = delays[T]{}
	q.waiting, q.rechecks = 0, 0
	q.disarmLocked()
}

// A verb is one of the methods above.
type verb uint8

const (
	askOffer  verb = iota // Offer
	askReady              // Enqueue
	askNow                // EnqueueNow
	askAfter              // EnqueueAfter
	askWithin             // EnqueueWithin
)

func (q *Queue[T]) add(item T, ask verb, d time.Duration) {
	hash := q.hash(item)
	q.lock()
	if !q.closed {
		q.addLocked(hash, item, ask, d)
	}
	q.unlock()
}

func (q *Queue[T]) addLocked(hash uint32, item T, ask verb, d time.Duration) {
	if ask >= askAfter && d <= 0 {
		ask = askReady
	}
	i, e := q.store.find(hash, item)
	switch {
	case e == nil:
	case ask == askOffer && e.kind != runRecheck, e.kind == runReady && (ask != askNow || !e.inFlight): // Most events of a storm.
		q.coalesced++
		return
	case e.inFlight && e.kind == runNone && ask < askAfter: // Most events of an item in flight.
		q.enqueued++
		q.again++
		e.kind = runReady
		if ask == askNow {
			e.kind = runNow
		}
		return
	}
	var now int64
	if e == nil || !e.inFlight || ask >= askAfter {
		now = q.now()
		if q.delays.len > 0 {
			q.promoteDueLocked(now) // Items that became due earlier go first.
		}
	}
	asked := nextRun{kind: runReady}
	switch ask {
	case askOffer:
		asked.kind = q.readyKindLocked(false)
	case askNow:
		asked.kind = runNow
	case askAfter:
		t := later(now, d)
		asked = nextRun{runLater, t, t}
	case askWithin:
		asked = nextRun{kind: runLater, due: later(now, d)}
	}
	if e == nil {
		q.enqueued++
		to := asked
		if to.kind == runNow || q.delays.len > 0 {
			to = q.behindDueLocked(nextRun{}, asked, now)
		}
		i, e = q.store.insert(hash, item)
		e.kind, e.event, e.since, e.pending = to.kind, ask != askOffer, now, now
		if to.kind.isLater() {
			e.setNotBefore(to)
		}
		q.countLocked(e, +1)
		q.linkLocked(i, e, to, now)
		return
	}
	was := q.nextRunLocked(e)
	if was.kind == runNone {
		q.enqueued++
	} else {
		q.coalesced++
	}
	if e.inFlight {
		q.moveLocked(i, e, was.afterVerb(asked, now), true, now)
		return
	}
	e.event = e.event || ask != askOffer
	if was.kind.isLater() && was.due <= now { // It is ready since then, and only not promoted yet.
		q.moveLocked(i, e, nextRun{kind: runLater, due: was.due}, false, was.due)
		return
	}
	q.moveLocked(i, e, q.behindDueLocked(was, was.afterVerb(asked, now), now), false, now)
}

// giveBack gives back an item, if it is in flight. It looks first at the entry
// that was taken last. If that is the one, it needs no hash, and in a big queue no
// cache miss, to find it.
func (q *Queue[T]) giveBack(item T, w RequeueOptions) {
	q.lock()
	i := q.lastTaken
	e := q.inFlightAtLocked(i, item)
	if e == nil {
		q.mu.Unlock()
		hash := q.hash(item) // may panic
		q.lock()
		i, e = q.store.find(hash, item)
	}
	if e != nil && e.inFlight {
		q.giveBackLocked(i, e, &w, clockNotRead)
	}
	q.unlock()
}

// clockNotRead stands for the time where it is read only if it is needed.
const clockNotRead = math.MinInt64

// inFlightAtLocked returns the entry at an index that was used once, if it is that
// of the item, and in flight; otherwise nil.
func (q *Queue[T]) inFlightAtLocked(i uint32, item T) *entry[T] {
	if e := q.store.peek(i); e != nil && e.inFlight && e.item == item {
		return e
	}
	return nil
}

// giveBackLocked gives back an item that is in flight.
func (q *Queue[T]) giveBackLocked(i uint32, e *entry[T], o *RequeueOptions, now int64) {
	aborted := o.Aborted
	done := o.Done && !aborted
	if !done {
		q.requeued++
	} else if e.kind == runNone {
		q.endLocked(i, e, o.Err)
		return
	}
	if now == clockNotRead {
		now = q.now()
	}
	if q.delays.len > 0 {
		q.promoteDueLocked(now)
	}
	var own nextRun
	var minimum int64
	switch {
	case aborted:
		own.kind = runReady
	case done:
		e.last = nil
	default:
		e.note(o)
		own = o.nextRun(now)
	}
	if o.MinDelay > 0 && !aborted && !q.closed {
		minimum = later(now, o.MinDelay)
	}
	if done && o.Err == nil || o.isRecheck() {
		e.pending = e.since // The run covers what came before it began.
	}
	was := q.nextRunLocked(e)
	e.event = was.kind != runNone || aborted && e.event
	to := was.afterRun(own, minimum)
	err := o.Err
	if q.closed && to.kind.isLater() {
		if to.kind != runRecheck {
			err = errors.Join(ErrClosed, o.Err, o.Reason)
		}
		to = nextRun{}
	}
	if to.kind == runNone {
		q.endLocked(i, e, err)
		return
	}
	if to.kind == runReady {
		to.kind = q.readyKindLocked(e.event)
	}
	if q.delays.len > 0 {
		to = q.behindDueLocked(was, to, now)
	}
	q.moveLocked(i, e, to, false, now)
}

// endLocked removes an entry that was in flight. Err is why its item is not retried.
func (q *Queue[T]) endLocked(i uint32, e *entry[T], err error) {
	q.countLocked(e, -1)
	if q.watchers != nil {
		e.inFlight, e.kind = false, runNone
		notifyMoved(&q.watchers, i, e, err)
	}
	q.store.remove(i)
}

// note keeps why an item runs again, and counts a failure, or resets the count.
func (e *entry[T]) note(o *RequeueOptions) {
	failures, err := 0, o.Reason
	switch {
	case o.isRecheck():
		err = nil
	case o.Err != nil:
		failures, err = 1, o.Err
		if e.last != nil {
			failures += e.last.failures
		}
	}
	switch {
	case err == nil:
		e.last = nil
	case e.last == nil:
		e.last = &lastRun{failures: failures, err: err}
	default:
		*e.last = lastRun{failures: failures, err: err}
	}
}

// A takenItem is one that was handed out, with what its worker wants to know.
type takenItem[T comparable] struct {
	item       T
	readySince int64
	takenAt    int64
	failures   int    // in a row, before this run
	index      uint32 // of its entry
}

// giveBackAndTake gives back one item, if w is not nil, and takes the next under the
// same lock. It is what the workers of a [Reconciler] do between two runs. Now is
// the time at which the item is given back. If it returns an error, it has taken
// nothing, and t is as it was.
func (q *Queue[T]) giveBackAndTake(ctx context.Context, t *takenItem[T], w *RequeueOptions, now int64) error {
	done := ctx.Done()
	if w == nil {
		now = q.now() // before the lock, to hold it for less time
	}
	q.lock()
	if w != nil {
		q.giveBackTakenLocked(t, w, now)
	}
	if isDone(done) {
		q.unlock()
		return context.Cause(ctx)
	}
	return q.takeOrWaitUnlock(ctx, done, now, t)
}

// giveBackTaken is the first half of giveBackAndTake.
func (q *Queue[T]) giveBackTaken(t *takenItem[T], w *RequeueOptions, now int64) {
	q.lock()
	q.giveBackTakenLocked(t, w, now)
	q.unlock()
}

func (q *Queue[T]) giveBackTakenLocked(t *takenItem[T], w *RequeueOptions, now int64) {
	if e := q.inFlightAtLocked(t.index, t.item); e != nil { // nil if another caller gave it back
		q.giveBackLocked(t.index, e, w, now)
	}
}

// takeOrWaitUnlock takes the next item as soon as there is one. It checks the context
// before it takes an item, so it never has to put one back.
func (q *Queue[T]) takeOrWaitUnlock(ctx context.Context, done <-chan struct{}, now int64, t *takenItem[T]) error {
	for !q.takeNextLocked(now, t) {
		if q.drainedLocked() {
			q.unlock()
			return ErrClosed
		}
		if q.wake == nil { // not before, so that the queue of a package can be used in a synctest bubble
			q.wake = make(chan struct{}, 1)
		}
		wake := q.wake
		q.blocked++
		q.unlock()
		select {
		case <-wake:
		case <-done:
		}
		now = q.now()
		q.lock()
		q.blocked--
		if isDone(done) {
			q.unlock() // passes on the token
			return context.Cause(ctx)
		}
	}
	q.unlock()
	return nil
}

// isDone reports whether a context is done. Its Done, as all user code, is called
// before the lock is taken.
func isDone(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// takeNextLocked takes the item whose turn it is, if one is ready.
func (q *Queue[T]) takeNextLocked(now int64, t *takenItem[T]) bool {
	if q.delays.len > 0 {
		q.promoteDueLocked(now)
	}
	from := &q.line
	if q.background.len > 0 {
		from, q.sinceBackground = q.chooseLocked(from.len > 0, q.sinceBackground)
	}
	i := from.first
	if i == 0 {
		return false
	}
	e := q.store.entry(i)
	*t = takenItem[T]{item: e.item, index: i, readySince: e.since, takenAt: max(now, e.since)}
	if e.last != nil {
		t.failures = e.last.failures
	}
	q.store.unlink(from, e)
	e.inFlight, e.kind, e.since = true, runNone, t.takenAt
	q.lastTaken = i
	q.inFlight++
	q.taken++
	return true
}

// chooseLocked returns the list that the next item is taken from while background
// has any, and how many will have been taken from line since one was taken from
// background.
func (q *Queue[T]) chooseLocked(anyInLine bool, sinceBackground int) (*list, int) {
	if !anyInLine || sinceBackground >= q.Background-1 {
		return &q.background, 0
	}
	return &q.line, sinceBackground + 1
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
		notifyMoved(&q.watchers, i, e, nil)
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

// readyKindLocked returns what a next run is once it is due; event says whether an
// event asked for it.
func (q *Queue[T]) readyKindLocked(event bool) runKind {
	if event || q.Background <= 0 {
		return runReady
	}
	return runBackground
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

// catchUpLocked makes ready what is due, in case the timer is late.
func (q *Queue[T]) catchUpLocked() {
	if q.delays.len > 0 {
		q.promoteDueLocked(q.now())
	}
}

// idleLocked reports whether there is nothing left to do.
func (q *Queue[T]) idleLocked() bool {
	q.catchUpLocked()
	return q.readyLocked() == 0 && q.inFlight == 0 && q.waiting == q.rechecks
}

// now returns the time as the entries keep it: nanoseconds by the monotonic clock,
// more than 0. A reading is among the dearest parts of an Enqueue, so it is taken
// only where an entry needs it.
func (q *Queue[T]) now() int64 { return atBase + int64(time.Since(q.base)) }

// atBase is the time that now returns at Queue.base. A queue that was made outside of
// a synctest bubble and is used in it, where it is the year 2000, may look back in
// time; base itself is not moved, because a time before 1885 has no monotonic reading.
const atBase = int64(100 * 365 * 24 * time.Hour)

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
	q.lock()
	now := q.now()
	q.firesAt = math.MaxInt64
	q.promoteDueLocked(now)
	q.armLocked(now)
	q.unlock()
}

func (q *Queue[T]) readyLocked() int { return q.line.len + q.background.len }

// drainedLocked reports whether the queue is closed and nothing is ready or
// will become so.
func (q *Queue[T]) drainedLocked() bool { return q.closed && q.readyLocked() == 0 && q.again == 0 }

// lock tries a while before it waits for the lock, which is held for less time than it
// takes to put a goroutine to sleep. [sync.Mutex] does not spin while other goroutines can
// run, as in a crowd of producers and workers (BenchmarkCrowd and BenchmarkStorm in bench).
func (q *Queue[T]) lock() {
	q.mustBeMade()
	for range 100 {
		if q.mu.TryLock() {
			return
		}
	}
	q.mu.Lock()
}

func (q *Queue[T]) mustBeMade() {
	if !q.made {
		panic("reconcile: this Queue was not created by NewQueue")
	}
}

// hash is called without the lock: it is the only step that can panic, and it
// needs no shared data.
func (q *Queue[T]) hash(item T) uint32 {
	q.mustBeMade()
	if item != item { // true for a NaN
		panic(fmt.Sprintf("reconcile: item %v is not equal to itself, and would never be found again", item))
	}
	return max(1, uint32(maphash.Comparable(q.seed, item))) // 0 is the hash of no item
}

// unlock ends every method that changed the queue: it notifies those who wait for the
// queue to be idle, and passes the token on if a consumer is blocked that could go on.
func (q *Queue[T]) unlock() {
	if q.blocked > 0 || q.watchers != nil || q.closed {
		q.unlockAndNotify()
		return
	}
	q.mu.Unlock()
}

func (q *Queue[T]) unlockAndNotify() {
	if q.watchers[0] != nil && q.idleLocked() { // may make items ready
		q.watchers.notify(0, nil)
	}
	var wake chan struct{}
	if q.blocked > 0 && (q.readyLocked() > 0 || q.drainedLocked()) {
		wake = q.wake
	}
	if q.closed && q.inFlight == 0 && q.readyLocked() == 0 {
		q.store = store[T]{}
	}
	q.mu.Unlock()
	select {
	case wake <- struct{}{}:
	default: // No consumer has to be woken, or a token is there.
	}
}
