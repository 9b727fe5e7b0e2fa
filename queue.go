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

var (
	// ErrClosed is what [Queue.Dequeue] returns once the queue is closed and
	// empty.
	ErrClosed = errors.New("reconcile: queue closed")

	// ErrLeaseLost is the [context.Cause] of the context of a [Leaser] once
	// the item is no longer ours.
	ErrLeaseLost = errors.New("reconcile: lease lost")

	// ErrAborted, as the Err of a [RequeueOptions], gives an item back as if it had not
	// run: it is ready, and the count of its failures is kept, whatever else
	// the options say. It counts only as it is, not wrapped.
	ErrAborted = errors.New("reconcile: run aborted")
)

// An Enqueuer takes items that need a run. [Queue] is one; [Filter], [Map] and
// [Coalesce] put themselves before one. None of its methods blocks, and all of
// them may be called from any goroutine.
type Enqueuer[T comparable] interface {
	Enqueue(item T)
	EnqueueAfter(item T, d time.Duration)
	Offer(item T)
}

// A Dequeuer hands out items to workers. [Queue] is one; its methods say what
// the methods of any Dequeuer do. An error of Dequeue that wraps neither the
// cause of ctx nor [ErrClosed] says that it cannot go on, and ends
// [Reconciler.Run]. Of a State, a Reconciler reads Failures. It calls Done after
// a run that returned nil, and Requeue after any other; see RequeueOptions.Done.
type Dequeuer[T comparable] interface {
	Dequeue(ctx context.Context) (item T, err error)
	Done(item T)
	Requeue(item T, o RequeueOptions)
	State(item T) State
}

// A Dequeuer may also be a Leaser, when what it hands out can be lost while a
// run goes on: a queue that machines share. [Reconciler] then runs the item
// under the context that Lease returns. It calls Lease when the run begins, and,
// with a [Reconciler.Admit], once before that for the wait. The context is derived
// from ctx, and ends with [ErrLeaseLost] as its cause when the item is no longer
// ours; it is not nil. Lease does not block.
type Leaser[T comparable] interface {
	Lease(ctx context.Context, item T) context.Context
}

// RequeueOptions say when an item that is given back runs next, and how its run ended.
// The zero RequeueOptions mean now.
type RequeueOptions struct {
	Delay   time.Duration // zero or less means now
	Hold    bool          // not before Delay; otherwise no later than Delay
	Err     error         // why, if the run failed: counts one failure; nil resets the count; see ErrAborted
	Recheck bool          // all is well: the next run is a look, not work that is left; counts only without Hold and Err
	Reason  error         // why, if the run planned the next: no failure, kept for State; counts only without Err and Recheck
	Done    bool          // there is no next run, as after Queue.Done: Delay, Hold, Recheck and Reason do not count, and Err is why the item was given up
}

// settled reports whether the run ended well, and the next is only a look.
func (w *RequeueOptions) settled() bool { return w.Recheck && !w.Hold && w.Err == nil }

// A Queue holds items that need a run, each of them once. It hands out every
// item to one worker at a time, in the order in which the items became ready; see
// also Background.
//
// An item is an identity, never a payload: what it needs is looked up when it
// runs. For each item the queue keeps one entry, which says whether the item is
// in flight (taken and not yet given back), whether it has a next run, whether it
// is settled (its last run ended well, and the next is only a look), and how often
// it failed in a row. An item with neither a run in flight nor a next run has no
// entry.
//
// An event ([Queue.Enqueue]) asks for a run now, and is never lost: it is
// followed by a run that started after it, also when it comes while the item is
// in flight. An observation ([Queue.Offer]) is ignored when a run of the item is
// due or planned anyway, and asks for one when the item is settled or not known.
// A hold ([Queue.EnqueueAfter]) answers an event "not yet", a ceiling
// ([Queue.EnqueueWithin]) answers "by then".
//
// Make one with [NewQueue]; the methods of a zero Queue panic. They do so too,
// and leave the queue as it was, for an item that could never be found again: a
// NaN, or an interface that holds what cannot be compared. All methods may be
// called from any goroutine, and none blocks except Dequeue, EnqueueAndWait and
// WaitIdle. A queue runs no goroutine of its own, and one timer while an item
// waits.
type Queue[T comparable] struct {
	// Background, if it is more than 0, makes observations wait behind events:
	// an item that an Offer makes ready joins the background, and leaves it for
	// the tail of the others at an Enqueue or EnqueueNow. The others are taken
	// first, but of each Background items taken at least one is from the
	// background, as long as it has any. So an event does not wait for all that a
	// resync offers, and what was offered is not starved by events.
	// 8 is a good start; 1 takes the background first. With 0 there is none, and
	// an item that is offered joins the tail of all. It must be set before the
	// first use of the queue, and not changed.
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
	//     runOffered and runSettled only at rest.
	//   - The lists hold just the entries at rest that are ready, in the order
	//     in which they will be taken: offered those of runOffered, events the
	//     others. While offered has any, inRow were taken from events since one
	//     was from offered.
	//   - The heap holds just the entries whose next run is delayed. Of these,
	//     waiting are at rest, and settled of them are settled.
	//   - inFlight entries are in flight; again of them have a next run that
	//     is ready.
	//   - Once closed, the heap is empty, and what was delayed is not known any
	//     more. It stays in the store until all else is gone.
	//   - While a consumer is blocked and an entry is ready, or the queue is
	//     drained, there is a token in wake, or a consumer that took it and has
	//     not looked yet.
	//   - While the heap is not empty, the timer is armed for no later than the
	//     first delay.
	//   - A watcher of a run is at an entry in flight without a next run that is
	//     ready; one of an item is at an entry that is not settled.
	mu         sync.Mutex
	closed     bool
	store      store[T]
	events     list
	offered    list
	inRow      int
	delays     delays[T]
	delayOrder uint32              // of the last delay
	timer      *time.Timer         // nil until the first delay
	firesAt    int64               // when the timer fires; math.MaxInt64 if it is not armed
	lastTaken  uint32              // the entry that was taken last; perhaps it is gone
	wake       chan struct{}       // room for one token; nil until a consumer blocks
	blocked    int                 // consumers that wait for a token
	watchers   map[uint32]*watcher // by entry; those of the queue at 0; nil if there are none
	notified   *watcher            // the first of those that unlock calls

	waiting, settled, inFlight, again    int
	enqueued, coalesced, taken, requeued uint64
}

// NewQueue returns an empty queue. It panics if T is a pointer, a channel or a
// function type, because equal items would not be found equal: use a key, such
// as a name or a struct of names, and look up the rest when the item runs. The
// same holds for what is inside of T, where it is not checked.
func NewQueue[T comparable]() *Queue[T] {
	t := reflect.TypeFor[T]()
	switch t.Kind() {
	case reflect.Pointer, reflect.UnsafePointer, reflect.Chan, reflect.Func:
		panic(fmt.Sprintf("reconcile: NewQueue[%v]: a %v is no identity; "+
			"use a comparable key, such as a string or a struct of strings", t, t.Kind()))
	}
	return &Queue[T]{
		made:    true,
		base:    time.Now().Add(-century), // so that now is positive in a synctest bubble too, where it is the year 2000
		seed:    maphash.MakeSeed(),
		firesAt: math.MaxInt64,
	}
}

const century = 100 * 365 * 24 * time.Hour

// Enqueue reports that something happened to the item. It runs as soon as its
// turn comes, also if it was planned for later, or after the run in flight, or,
// if it is held, when its time comes. Enqueue never blocks; on a closed queue it
// does nothing.
func (q *Queue[T]) Enqueue(item T) { q.add(item, runReady, 0) }

// EnqueueAfter asks for a run of the item in d, and not before: until then
// [Queue.Enqueue] does not bring it forward. It changes nothing if the item is
// ready, held already, or planned for a sooner time by EnqueueWithin. A d of
// zero or less is Enqueue. EnqueueAfter never blocks.
func (q *Queue[T]) EnqueueAfter(item T, d time.Duration) { q.add(item, runHeld, d) }

// EnqueueWithin asks for a run of the item in d at the latest;
// [Queue.Enqueue] brings it sooner. It changes nothing if the item is ready,
// held, or planned for a sooner time. A d of zero or less is Enqueue.
// EnqueueWithin never blocks.
func (q *Queue[T]) EnqueueWithin(item T, d time.Duration) { q.add(item, runWithin, d) }

// EnqueueNow is an Enqueue that overrides a hold, the one in force as well as
// the one that a run in flight may ask for. EnqueueNow never blocks.
func (q *Queue[T]) EnqueueNow(item T) { q.add(item, runNow, 0) }

// Offer reports that the item was seen, as polls do again and again. If the item
// is not known, or settled, it runs as soon as its turn comes, see Background.
// Otherwise a run of it is due or planned anyway (it is ready, in flight, in
// back-off, held, or has a plan), and the Offer is ignored. Offer never blocks.
func (q *Queue[T]) Offer(item T) { q.add(item, runOffered, 0) }

// add applies a verb, which asks for a next run of that kind.
func (q *Queue[T]) add(item T, ask runKind, d time.Duration) {
	hash := q.hash(item)
	q.mu.Lock()
	if !q.closed {
		q.addLocked(hash, item, ask, d)
	}
	q.unlock()
}

func (q *Queue[T]) addLocked(hash uint32, item T, ask runKind, d time.Duration) {
	if ask.delayed() && d <= 0 {
		ask = runReady
	}
	i, e := q.store.find(hash, item)
	switch {
	case e == nil:
	case ask == runOffered && e.kind != runSettled, e.kind == runReady && (ask != runNow || !e.inFlight): // as most events of a storm
		q.coalesced++
		return
	case e.inFlight && e.kind == runNone && !ask.delayed(): // as most events of an item in flight
		q.enqueued++
		q.again++
		e.kind = ask
		if q.watchers != nil {
			q.notifyMovedLocked(i, e, nil)
		}
		return
	}
	to := nextRun{kind: ask}
	var now int64
	if e == nil || !e.inFlight || ask.delayed() {
		now = q.now()
		if q.delays.len > 0 {
			q.promoteDueLocked(now) // others go before it
		}
		if ask.delayed() {
			to.due = later(now, d)
		}
	}
	if ask == runOffered && q.Background <= 0 {
		to.kind = runReady
	}
	if e == nil {
		q.enqueued++
		to = q.restingLocked(nextRun{}, to, now)
		i, e = q.store.insert(hash, item)
		e.kind, e.since, e.pending = to.kind, now, now
		q.countLocked(e, +1)
		q.enterLocked(i, e, to, now)
		return
	}
	was := q.nextRunLocked(e)
	if !e.inFlight && was.kind.delayed() && was.due <= now { // ready since then, and only not promoted yet
		q.coalesced++
		q.moveLocked(i, e, nextRun{runWithin, was.due}, false, was.due)
		return
	}
	if was.kind == runNone {
		q.enqueued++
	} else {
		q.coalesced++
	}
	to = asked(was, to)
	if !e.inFlight {
		to = q.restingLocked(was, to, now)
	}
	q.moveLocked(i, e, to, e.inFlight, now)
}

// Remove cancels the item's next run, never a run in flight. It reports whether
// there was one. Remove never blocks.
func (q *Queue[T]) Remove(item T) bool {
	hash := q.hash(item)
	q.mu.Lock()
	defer q.unlock()
	i, e := q.store.find(hash, item)
	if e == nil || q.nextRunLocked(e).kind == runNone {
		return false
	}
	q.moveLocked(i, e, nextRun{}, e.inFlight, e.since)
	return true
}

// Dequeue waits for an item and takes it: it is then in flight until it is given
// back by [Queue.Done] or [Queue.Requeue]. Which of several consumers that wait
// gets the next item is not defined.
//
// When ctx is done, Dequeue returns its [context.Cause] at once, even if items
// are ready, and takes nothing. When the queue is closed and empty it returns
// [ErrClosed].
func (q *Queue[T]) Dequeue(ctx context.Context) (T, error) {
	var t takenItem[T]
	err := q.exchange(ctx, &t, nil, 0)
	return t.item, err
}

// Done gives back an item whose run needs no other. The count of its failures
// is reset; a next run that it has already stands. Done does nothing for an
// item that is not in flight. Done never blocks.
func (q *Queue[T]) Done(item T) { q.giveBack(item, RequeueOptions{Done: true}) }

// Requeue gives back an item that runs again as o says. With o.Hold that run
// replaces a next run that it has already, unless it was asked for by
// [Queue.EnqueueNow]; without, the sooner of the two stays. With o.Done it is
// [Queue.Done], and says why the item was given up. Requeue does nothing for an
// item that is not in flight. After Close a run that is due later is dropped.
// Requeue never blocks.
func (q *Queue[T]) Requeue(item T, o RequeueOptions) { q.giveBack(item, o) }

// RequeueAfter is Requeue(item, RequeueOptions{Delay: d, Hold: true}).
func (q *Queue[T]) RequeueAfter(item T, d time.Duration) {
	q.Requeue(item, RequeueOptions{Delay: d, Hold: true})
}

// Close ends the queue. Nothing more comes in, and waiting items are dropped,
// also the later next run of an item in flight. What is ready, or ready next
// after its run in flight, can still be taken; then Dequeue returns [ErrClosed].
// Closing twice is fine. Close never blocks.
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
		if e := q.store.entry(i); i != 0 && e.kind.delayed() {
			q.notifyLocked(i, false, ErrClosed)
		}
	}
	q.delays = delays[T]{}
	q.waiting, q.settled = 0, 0
	q.disarmLocked()
}

// lock takes the lock for methods that have no item to hash.
func (q *Queue[T]) lock() {
	q.mustBeMade()
	q.mu.Lock()
}

func (q *Queue[T]) mustBeMade() {
	if !q.made {
		panic("reconcile: this Queue was not made by NewQueue")
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

// unlock ends every method that changed the queue: it passes the token on if a
// consumer is blocked that could go on, and calls watchers after the lock is
// given up.
func (q *Queue[T]) unlock() {
	if q.blocked > 0 || q.watchers != nil || q.closed {
		q.unlockAndNotify()
		return
	}
	q.mu.Unlock()
}

func (q *Queue[T]) unlockAndNotify() {
	notified := q.takeNotifiedLocked() // may make items ready
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
	default: // nobody to wake, or a token is there
	}
	notifyAll(notified)
}

func (q *Queue[T]) readyLocked() int { return q.events.len + q.offered.len }

// drainedLocked reports whether the queue is closed and nothing is ready or
// will become so.
func (q *Queue[T]) drainedLocked() bool { return q.closed && q.readyLocked() == 0 && q.again == 0 }

// A takenItem is one that was handed out, with what its worker wants to know.
type takenItem[T comparable] struct {
	item       T
	readySince int64
	takenAt    int64
	failures   int    // in a row, before this run
	index      uint32 // of its entry
}

// exchange gives back one item, if w is not nil, and takes the next under the
// same lock. It is what the workers of a [Reconciler] do between two runs. Now is
// the time at which the item is given back. If it returns an error, it has taken
// nothing, and t is as it was.
func (q *Queue[T]) exchange(ctx context.Context, t *takenItem[T], w *RequeueOptions, now int64) error {
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

// giveBackTaken is the first half of exchange.
func (q *Queue[T]) giveBackTaken(t *takenItem[T], w *RequeueOptions, now int64) {
	q.mu.Lock()
	q.giveBackTakenLocked(t, w, now)
	q.unlock()
}

func (q *Queue[T]) giveBackTakenLocked(t *takenItem[T], w *RequeueOptions, now int64) {
	if e := q.inFlightAtLocked(t.index, t.item); e != nil { // nil if somebody else gave it back
		q.giveBackLocked(t.index, e, w, now)
	}
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

// takeOrWaitUnlock takes the next item as soon as there is one. Nothing is taken
// before the context was looked at, so nothing has ever to be put back.
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
		q.mu.Lock()
		q.blocked--
		if isDone(done) {
			q.unlock() // passes on the token
			return context.Cause(ctx)
		}
	}
	q.unlock()
	return nil
}

// takeNextLocked takes the item whose turn it is, if one is ready.
func (q *Queue[T]) takeNextLocked(now int64, t *takenItem[T]) bool {
	if q.delays.len > 0 {
		q.promoteDueLocked(now)
	}
	from := &q.events
	if q.offered.len > 0 {
		from, q.inRow = q.chooseLocked(from.len > 0, q.inRow)
	}
	i := from.first
	if i == 0 {
		return false
	}
	e := q.store.entry(i)
	*t = takenItem[T]{item: e.item, index: i, readySince: e.since, takenAt: max(now, e.since)}
	if e.cause != nil {
		t.failures = e.cause.failures
	}
	q.store.unlink(from, e)
	e.inFlight, e.kind, e.since = true, runNone, t.takenAt
	q.lastTaken = i
	q.inFlight++
	q.taken++
	return true
}

// chooseLocked returns the list that is taken from while offered is not empty, and how
// many will have been taken in a row from events.
func (q *Queue[T]) chooseLocked(anyEvents bool, inRow int) (*list, int) {
	if !anyEvents || inRow >= q.Background-1 {
		return &q.offered, 0
	}
	return &q.events, inRow + 1
}

// clockNotRead stands for the time where it is read only if it is needed.
const clockNotRead = math.MinInt64

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
		q.mu.Lock()
		i, e = q.store.find(hash, item)
	}
	if e != nil && e.inFlight {
		q.giveBackLocked(i, e, &w, clockNotRead)
	}
	q.unlock()
}

// inFlightAtLocked returns the entry at an index that was used once, if it is that
// of the item, and in flight; otherwise nil.
func (q *Queue[T]) inFlightAtLocked(i uint32, item T) *entry[T] {
	if e := q.store.peek(i); e != nil && e.inFlight && e.item == item {
		return e
	}
	return nil
}

// giveBackLocked gives back an item that is in flight.
func (q *Queue[T]) giveBackLocked(i uint32, e *entry[T], w *RequeueOptions, now int64) {
	aborted := w.Err == ErrAborted
	done := w.Done && !aborted
	if !done {
		q.requeued++
	} else if e.kind == runNone {
		q.endLocked(i, e, w.Err)
		return
	}
	if now == clockNotRead {
		now = q.now()
	}
	q.promoteDueLocked(now)
	to := nextRun{}
	switch {
	case aborted:
		to.kind = runReady
	case done:
		e.cause = nil
	default:
		e.note(w)
		to = w.nextRun(now)
	}
	if done && w.Err == nil || w.settled() {
		e.pending = e.since // what came before the run began is answered
	}
	was := q.nextRunLocked(e)
	to = judged(was, to)
	err := w.Err
	if q.closed && to.kind.delayed() {
		if to.kind != runSettled {
			err = errors.Join(ErrClosed, w.Err, w.Reason)
		}
		to = nextRun{}
	}
	if to.kind == runNone {
		q.endLocked(i, e, err)
	} else {
		q.moveLocked(i, e, q.restingLocked(was, to, now), false, now)
	}
}

// endLocked removes an entry that was in flight. Err is why it was given up.
func (q *Queue[T]) endLocked(i uint32, e *entry[T], err error) {
	q.countLocked(e, -1)
	if q.watchers != nil {
		e.inFlight, e.kind = false, runNone
		q.notifyMovedLocked(i, e, err)
	}
	q.store.remove(i)
}

// note keeps why an item runs again, and counts a failure, or resets the count.
func (e *entry[T]) note(w *RequeueOptions) {
	failures, err := 0, w.Reason
	switch {
	case w.settled():
		err = nil
	case w.Err != nil:
		failures, err = 1, w.Err
		if e.cause != nil {
			failures += e.cause.failures
		}
	}
	switch {
	case err == nil:
		e.cause = nil
	case e.cause == nil:
		e.cause = &cause{failures, err}
	default:
		*e.cause = cause{failures, err}
	}
}
