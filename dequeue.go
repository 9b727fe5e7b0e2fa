// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import "context"

// This file holds the way out of a [Queue]: how items are taken, and how a
// consumer waits for one.
//
// A ready item is handed over under the lock, and its consumer told after it.
// So a waiting consumer and a ready item never coexist: no wake-up can be lost,
// none is needless, and nobody overtakes a consumer that waits.

// Dequeue waits for an item and takes it: it is then in flight until it is given
// back by [Queue.Done] or [Queue.Requeue]. Consumers that wait are served in the
// order in which they came.
//
// When ctx is done, Dequeue returns its [context.Cause] at once, even if items
// are ready, and takes nothing. When the queue is closed and empty it returns
// [ErrClosed].
func (q *Queue[T]) Dequeue(ctx context.Context) (T, error) {
	done := ctx.Done()
	if isDone(done) {
		var none T
		return none, context.Cause(ctx)
	}
	now := q.now() // before the lock, to hold it for less time
	q.lock()
	if i, r := q.next(now); r != nil {
		q.take(i, r, now)
		item := r.item
		q.unlock()
		return item, nil
	}
	var g grant[T]
	err := q.await(ctx, done, &g)
	return g.item, err
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

// A grant is an item taken, with what its worker wants to know.
type grant[T comparable] struct {
	item     T
	ready    int64 // when it became ready
	taken    int64 // when it was taken
	failures int   // in a row, before this run
	index    uint32
	turn     uint16
	woken    bool // its consumer had to wait for it
	offered  bool // handed to a consumer that waited, not enqueued
}

// first takes an item for a worker of a [Reconciler]. If there is an error, g is
// as it was.
func (q *Queue[T]) first(ctx context.Context, g *grant[T]) error {
	done := ctx.Done()
	if isDone(done) {
		return context.Cause(ctx)
	}
	now := q.now()
	q.lock()
	return q.grant(ctx, done, now, g)
}

// exchange gives back one item and takes the next under one lock. It is what
// the workers of a [Reconciler] do between two runs. The time is theirs.
func (q *Queue[T]) exchange(ctx context.Context, g *grant[T], v verdict, w *Wait, now int64) error {
	done := ctx.Done()
	q.mu.Lock()
	q.accept(g, v, w, now)
	if isDone(done) {
		q.unlock()
		return context.Cause(ctx)
	}
	return q.grant(ctx, done, now, g)
}

// giveBack is the first half of exchange.
func (q *Queue[T]) giveBack(g *grant[T], v verdict, w *Wait, now int64) {
	q.mu.Lock()
	q.accept(g, v, w, now)
	q.unlock()
}

// accept is called with the lock held.
func (q *Queue[T]) accept(g *grant[T], v verdict, w *Wait, now int64) {
	switch i, r := q.held(g.index, g.item); {
	case r == nil: // given back already, by somebody who did not have it
	case v == verdictDone:
		q.done(i, r, now)
	default:
		q.requeue(i, r, w, now, v == verdictAbort)
	}
}

// over returns a channel that is closed when the queue is closed and empty: for a
// worker that waits for something else.
func (q *Queue[T]) over() <-chan struct{} {
	q.mu.Lock()
	defer q.unlock()
	if q.ended == nil {
		q.ended = make(chan struct{})
	}
	return q.ended
}

// grant is called with the lock held and gives it up.
func (q *Queue[T]) grant(ctx context.Context, done <-chan struct{}, now int64, g *grant[T]) error {
	if i, r := q.next(now); r != nil {
		q.handOut(i, r, now, g)
		q.unlock()
		return nil
	}
	return q.await(ctx, done, g)
}

// next takes the record whose turn it is off the list of ready items that it is
// in; 0 and nil if none is ready.
func (q *Queue[T]) next(now int64) (uint32, *record[T]) {
	if len(q.delays) > 0 {
		q.promote(now)
	}
	i := q.front.next
	if q.offered > 0 {
		if i, q.inRow = q.choose(i, q.back.next, q.inRow); i == q.back.next {
			q.offered--
		}
	}
	if i == front {
		return 0, nil
	}
	r := q.records.at(i)
	q.unlist(r)
	return i, r
}

// choose returns whose turn it is, the first of the front or of the back, while
// the back has any, and how many of the front have then been taken in a row.
func (q *Queue[T]) choose(ofFront, ofBack uint32, inRow int) (uint32, int) {
	if ofFront == front || inRow >= q.Background-1 {
		return ofBack, 0
	}
	return ofFront, inRow + 1
}

// await waits for an item. It is called with the lock held and gives it up.
func (q *Queue[T]) await(ctx context.Context, done <-chan struct{}, g *grant[T]) error {
	if q.drained() {
		q.unlock()
		return ErrClosed
	}
	c := q.consumers.push()
	q.unlock()

	told := false
	select {
	case <-c.wake:
		told = true
	case <-done:
	}
	ended := !told || isDone(done)

	q.mu.Lock()
	switch {
	case told:
	case c.waiting:
		q.consumers.remove(c)
	default: // handed an item meanwhile: the wake-up is on its way
		q.mu.Unlock()
		<-c.wake
		q.mu.Lock()
		told = true
	}
	closed := c.closed
	if told && !closed {
		q.handed--
		if ended {
			q.putBack(&c.grant)
		} else {
			*g = c.grant
			g.woken = true
		}
	}
	q.consumers.recycle(c)
	q.unlock()
	switch {
	case ended:
		return context.Cause(ctx)
	case closed:
		return ErrClosed
	}
	return nil
}

// take makes a ready record, already out of the list, one in flight.
func (q *Queue[T]) take(i uint32, r *record[T], now int64) {
	r.running, r.run, r.turn = true, runNone, takeTurn(q.takenSum)
	r.since = max(now, r.since)
	q.last = i
	q.inFlight++
	q.takenSum++
}

// handOut is take, and tells all that a worker wants to know.
func (q *Queue[T]) handOut(i uint32, r *record[T], now int64, g *grant[T]) {
	*g = grant[T]{item: r.item, ready: r.since, index: i}
	q.take(i, r, now)
	g.taken, g.turn = r.since, r.turn
	if r.failed != nil {
		g.failures = r.failed.count
	}
}

// takeTurn tells apart, and puts in order, those takes that may be undone at the
// same time: the last 15 bits of their number. It is never 0.
func takeTurn(n uint64) uint16 { return uint16(n)<<1 | 1 }

// putBack undoes a take, as if it had never been: for a consumer whose context
// ended before it could see its item. The item goes before all others of its
// list, but for those put back that were taken before it.
func (q *Queue[T]) putBack(g *grant[T]) {
	i := q.records.find(q.hash(g.item), g.item)
	if i == 0 {
		return // given back by somebody who never had it
	}
	r := q.records.at(i)
	if !r.running || r.turn != g.turn {
		return // and even taken anew
	}
	q.takenSum--
	q.inFlight--
	run, head, list := runReady, uint32(front), q.list
	switch {
	case r.run.delayed():
		q.undelay(r)
	case r.run != runNone:
		q.again--
		g.offered = false // an event came since
	}
	if g.offered {
		run, head, list = runOffered, back, q.listOffered
	}
	r.running, r.run = false, run
	r.since = g.ready
	if q.consumers.head != nil {
		q.hand(i, r, g.taken)
		return
	}
	behind := head
	for n := q.records.at(head).next; n != head; n = q.records.at(n).next {
		if turn := q.records.at(n).turn; turn == 0 || int16(turn-g.turn) > 0 {
			break
		}
		behind = n
	}
	list(i, r, behind)
}

// hand gives a ready record, not in the list, to the consumer that waits longest.
func (q *Queue[T]) hand(i uint32, r *record[T], now int64) {
	c := q.consumers.pop()
	offered := r.run == runOffered
	q.handOut(i, r, now, &c.grant)
	c.grant.offered = offered
	q.handed++
	q.wake(c)
}

// A consumer is a Dequeue that waits.
type consumer[T comparable] struct {
	wake       chan struct{} // told once when it was handed something; room for one
	grant      grant[T]
	closed     bool // handed nothing: the queue is closed and empty
	waiting    bool // in the list
	prev, next *consumer[T]
}

// consumers is a list of those that wait, oldest first, and of some that may be
// used again.
type consumers[T comparable] struct {
	head, tail, idle *consumer[T]
	idles            int
}

// maxIdles is how many consumers are kept to be used again.
const maxIdles = 64

// push adds a consumer to the list.
func (l *consumers[T]) push() *consumer[T] {
	c := l.idle
	if c == nil {
		c = &consumer[T]{wake: make(chan struct{}, 1)}
	} else {
		l.idle = c.next
		l.idles--
	}
	c.waiting = true
	c.prev, c.next = l.tail, nil
	if l.tail == nil {
		l.head = c
	} else {
		l.tail.next = c
	}
	l.tail = c
	return c
}

// pop takes the oldest consumer off the list; nil if none waits.
func (l *consumers[T]) pop() *consumer[T] {
	c := l.head
	if c != nil {
		l.remove(c)
	}
	return c
}

func (l *consumers[T]) remove(c *consumer[T]) {
	if c.prev == nil {
		l.head = c.next
	} else {
		c.prev.next = c.next
	}
	if c.next == nil {
		l.tail = c.prev
	} else {
		c.next.prev = c.prev
	}
	c.prev, c.next, c.waiting = nil, nil, false
}

// recycle keeps a consumer for later. Nothing of its item stays reachable.
func (l *consumers[T]) recycle(c *consumer[T]) {
	if l.idles < maxIdles {
		*c = consumer[T]{wake: c.wake, next: l.idle}
		l.idle = c
		l.idles++
	}
}

// wake has unlock tell a consumer that was handed something. They are told in
// the order in which they were handed it.
func (q *Queue[T]) wake(c *consumer[T]) {
	if q.woken == nil {
		q.woken = c
	} else {
		q.wokenLast.next = c
	}
	q.wokenLast = c
}
