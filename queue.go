// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"reflect"
	"sync"
	"time"
)

// ErrClosed is what [Queue.Dequeue] returns once the queue is closed and empty.
var ErrClosed = errors.New("reconcile: queue closed")

// An Enqueuer takes items that need a run. [Queue] is one; [Filter] and [Map]
// put themselves before one. None of its methods blocks, and all of them may be
// called from any goroutine.
type Enqueuer[T comparable] interface {
	Enqueue(item T)
	EnqueueAfter(item T, d time.Duration)
	Offer(item T)
}

// A Queue holds items that need a run, each of them once. It hands out every
// item to one worker at a time, in the order in which the items became ready; see
// also Background.
//
// An item is an identity, never a payload: what it needs is looked up when it
// runs. For each item the queue keeps one entry, which says whether the item is
// in flight (taken and not yet given back), whether it has a next run, and how
// often it failed in a row. An item with neither has no entry.
//
// An event ([Queue.Enqueue]) asks for a run now, and is never lost: it is
// followed by a run that started after it, also when it comes while the item is
// in flight. An observation ([Queue.Offer]) is ignored when the item is known.
// A hold ([Queue.EnqueueAfter]) answers an event "not yet", a ceiling
// ([Queue.EnqueueWithin]) answers "by then".
//
// Make one with [NewQueue]; the methods of a zero Queue panic. They do so too,
// and leave the queue as it was, for an item that could never be found again: a
// NaN, or an interface that holds what cannot be compared. All methods may be
// called from any goroutine, and none blocks but Dequeue, WaitIdle and WaitItem.
// A queue runs no goroutine of its own, and one timer while an item waits.
type Queue[T comparable] struct {
	// Background, if it is more than 0, has observations wait behind events: an
	// item that is not known joins the background when it is offered, and leaves
	// it for the tail of the others at an Enqueue or EnqueueNow. The others are
	// taken first, but of each Background items taken at least one is from the
	// background, as long as it has any. So an event does not wait for all that a
	// resync offers, and what was offered is not starved by events. 8 is a good
	// start; 1 has the background go first. With 0 there is none, and an item
	// that is offered joins the tail of all. It is set before the first use of
	// the queue, and not changed.
	Background int

	base time.Time // of the clock, see now
	seed maphash.Seed
	made bool // by NewQueue
	nan  bool // T has values that are not equal to themselves

	// What is above is read without the lock. It does not share a cache line
	// with what is below, which changes hands with the lock.
	_ [64]byte

	// mu guards the fields below. These always hold (see check in the tests):
	//
	//   - A resting record has a next run; runNow occurs only in flight.
	//   - The rings from records front and back hold just the resting ready
	//     records, ready of them, each in the order in which they will be taken.
	//     The offered ones in the second have run runOffered. While there are
	//     any, inRow were taken from the first since one was from the second.
	//   - The heap holds just the records whose next run is delayed. Of these,
	//     waiting are at rest, and retrying of them have failed.
	//   - inFlight records are in flight; again of them have a next run that
	//     is not delayed.
	//   - While a consumer waits, no record is ready.
	//   - Once closed, the heap is empty, and a consumer waits only while more
	//     may become ready, see drained.
	//   - A watcher of a run is at a record in flight without a next run that is
	//     ready; one that waits for an item, or the queue, to settle is at one
	//     that has not.
	//   - handed consumers were given an item, and have not seen it yet.
	//   - While the heap is not empty, the timer is armed for no later than the
	//     first delay.
	//
	// Unexported methods are called with mu held, but for hash, now and mustBeMade,
	// which do not need it, and those that take it: lock, add, first, exchange,
	// giveBack, over, untilChanged, snapshot and fire. Those named grant, await,
	// settles, unlock and unlockAndTell give it up, and so does hashLocked when it
	// panics.
	mu        sync.Mutex
	closed    bool
	records   records[T]
	front     *record[T] // where the list of ready items begins and ends
	delays    delays[T]
	last      uint32      // the record that was taken last, perhaps gone by now
	seq       uint32      // of the last delay
	timer     *time.Timer // nil until the first delay
	armed     int64       // when the timer fires; math.MaxInt64 if it is not armed
	consumers consumers[T]
	woken     *consumer[T] // the first of those that unlock tells
	wokenLast *consumer[T]
	ended     chan struct{}       // see over; nil until somebody asks
	watchers  map[uint32]*watcher // by record, and of the queue at 0; nil if there is none
	told      *watcher            // the first of those that unlock tells

	ready, waiting, retrying, inFlight, again, handed int
	enqueued, coalesced, takenSum, requeued           uint64

	back           *record[T] // as front, of those that were offered
	offered, inRow int
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
	q := &Queue[T]{
		made:    true,
		base:    time.Now(),
		seed:    maphash.MakeSeed(),
		nan:     mayBeNaN(t),
		records: newRecords(chunk[T]{}),
		armed:   math.MaxInt64,
	}
	q.front, q.back = q.records.at(front), q.records.at(back)
	q.back.prev, q.back.next = back, back
	return q
}

// mayBeNaN reports whether a value of type t may be unequal to itself.
func mayBeNaN(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128, reflect.Interface:
		return true
	case reflect.Array:
		return mayBeNaN(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if mayBeNaN(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}

// Enqueue reports that something happened to the item. It runs as soon as its
// turn comes, also if it was promised for later, or after the run in flight, or,
// if it is held, when its time comes. Enqueue never blocks; on a closed queue it
// does nothing.
func (q *Queue[T]) Enqueue(item T) { q.add(item, runReady, 0) }

// EnqueueAfter asks for a run of the item in d, and not before: until then an
// [Queue.Enqueue] does not bring it forward. It changes nothing if the item is
// ready, held already, or promised for a sooner time by EnqueueWithin. A d of
// zero or less is Enqueue. EnqueueAfter never blocks.
func (q *Queue[T]) EnqueueAfter(item T, d time.Duration) {
	if d <= 0 {
		q.add(item, runReady, 0)
	} else {
		q.add(item, runHeld, d)
	}
}

// EnqueueWithin asks for a run of the item in d at the latest; an
// [Queue.Enqueue] brings it sooner. It changes nothing if the item is ready,
// held, or promised for a sooner time. A d of zero or less is Enqueue.
// EnqueueWithin never blocks.
func (q *Queue[T]) EnqueueWithin(item T, d time.Duration) {
	if d <= 0 {
		q.add(item, runReady, 0)
	} else {
		q.add(item, runWithin, d)
	}
}

// EnqueueNow is an Enqueue that overrides a hold, the one in force as well as
// the one that a run in flight may ask for. EnqueueNow never blocks.
func (q *Queue[T]) EnqueueNow(item T) { q.add(item, runNow, 0) }

// Offer reports that the item was seen. It is ignored if the item is known at
// all: ready, waiting or in flight. Otherwise the item runs as soon as its turn
// comes, see Background. Offer never blocks.
func (q *Queue[T]) Offer(item T) { q.add(item, runNone, 0) }

// add applies a verb: ask is the next run that it asks for, runNone for Offer.
func (q *Queue[T]) add(item T, ask nextRun, d time.Duration) {
	hash := q.hash(item)
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	if i := q.records.find(hash, item); i == 0 {
		q.admit(hash, item, ask, d)
	} else if r := q.records.at(i); r.run != runReady || ask == runNow {
		q.meet(i, r, ask, d)
	} else { // as most events of a storm do
		q.coalesced++
		q.mu.Unlock()
		return
	}
	q.unlock()
}

// Remove cancels the item's next run, never a run in flight. It reports whether
// there was one. Remove never blocks.
func (q *Queue[T]) Remove(item T) bool {
	hash := q.hash(item)
	q.mu.Lock()
	defer q.unlock()
	i := q.records.find(hash, item)
	if i == 0 {
		return false
	}
	r := q.records.at(i)
	switch {
	case r.run == runNone:
		return false
	case r.run.delayed():
		q.undelay(r)
		if !r.running {
			q.waitsNoMore(r)
		}
	case r.running:
		q.again--
	default:
		q.unlist(r)
		if r.run == runOffered {
			q.offered--
		}
	}
	if r.running {
		r.run = runNone
	} else {
		q.goes(i)
		q.records.remove(i)
	}
	return true
}

// Done gives back an item whose run needs no other. The count of its failures
// is reset; a next run that it has already stands. Done does nothing for an
// item that is not in flight. Done never blocks.
func (q *Queue[T]) Done(item T) {
	q.lock()
	if i, r := q.held(q.last, item); r != nil {
		q.done(i, r, unread)
	}
	q.unlock()
}

// Requeue gives back an item that runs again as w says. With w.Hold that run
// replaces a pending one, unless it was asked for by [Queue.EnqueueNow];
// without, the sooner of the two stays. Requeue does nothing for an item that is
// not in flight. After Close a run that is due later is dropped. Requeue never
// blocks.
func (q *Queue[T]) Requeue(item T, w Wait) {
	q.lock()
	if i, r := q.held(q.last, item); r != nil {
		q.requeue(i, r, &w, unread, false)
	}
	q.unlock()
}

// RequeueAfter is Requeue(item, Wait{Delay: d, Hold: true}).
func (q *Queue[T]) RequeueAfter(item T, d time.Duration) {
	q.Requeue(item, Wait{Delay: d, Hold: true})
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
	q.promote(q.now())
	q.closed = true
	for _, d := range q.delays {
		if r := q.records.at(d.index); r.running {
			r.run = runNone
		} else {
			q.goes(d.index)
			q.records.remove(d.index)
		}
	}
	q.delays = nil
	q.waiting, q.retrying = 0, 0
	q.disarm()
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

// hash is called before the lock is taken, where it can be: it is the only step
// that can panic, and it needs no shared data.
func (q *Queue[T]) hash(item T) uint32 {
	q.mustBeMade()
	if q.nan && item != item { // true for a NaN
		panic(fmt.Sprintf("reconcile: item %v is not equal to itself, and would never be found again", item))
	}
	return max(1, uint32(maphash.Comparable(q.seed, item))) // 0 is the hash of no item
}

// now returns the time as the records keep it: nanoseconds since base, by the
// monotonic clock. A reading is among the dearest parts of an Enqueue, so it is
// taken only where a record needs it.
func (q *Queue[T]) now() int64 { return int64(time.Since(q.base)) }

// later returns now + d, or the end of time: one before math.MaxInt64, which
// Queue.armed keeps for itself.
func later(now int64, d time.Duration) int64 {
	return now + min(int64(d), math.MaxInt64-1-now)
}

// drained reports whether nothing can become ready any more in a closed queue,
// once the list of ready items is empty. An item that was handed to a consumer
// whose context has ended comes back.
func (q *Queue[T]) drained() bool { return q.closed && q.again == 0 && q.handed == 0 }

// unlock ends every method that changed the queue: consumers that were handed
// something, and watchers, are told after the lock is given up.
func (q *Queue[T]) unlock() {
	if q.woken != nil || q.watchers != nil || q.closed {
		q.unlockAndTell()
		return
	}
	q.mu.Unlock()
}

func (q *Queue[T]) unlockAndTell() {
	if q.drained() && q.ready == 0 {
		for c := q.consumers.pop(); c != nil; c = q.consumers.pop() {
			c.closed = true
			q.wake(c)
		}
		if q.ended != nil {
			close(q.ended)
			q.ended = nil // it may have to be told again, of an item that was requeued
		}
	}
	var told *watcher
	if q.watchers != nil {
		told = q.news()
	}
	c := q.woken
	q.woken = nil
	q.mu.Unlock()
	for c != nil {
		next := c.next // c is no longer ours once it is told
		c.wake <- struct{}{}
		c = next
	}
	if told != nil {
		tellAll(told)
	}
}
