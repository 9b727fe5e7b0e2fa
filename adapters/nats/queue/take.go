// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/lease"
)

// This file holds the way out of a [Queue]: how records are asked for, how one
// that is delivered becomes an item in flight, and how that is given back.

// A holding is an item in flight here.
type holding struct {
	record
	seq     uint64       // of the message of record, as far as we know
	outages uint64       // as in seen
	tokens  string       // of the item
	giving  bool         // Done or Requeue was called
	lost    bool         // the lease is
	lease   *lease.Lease // of the process, as it was claimed
	epoch   uint64       // of the stream
	ends    []context.CancelCauseFunc
}

// lose ends the contexts of the run. Ending a context calls code of the user,
// so they are ended in goroutines of their own.
func (h *holding) lose() {
	h.lost = true
	for _, end := range h.ends {
		go end(reconcile.ErrLeaseLost)
	}
	h.ends = nil
}

// A waiter is a Dequeue that waits.
type waiter[T comparable] struct {
	item T
	told chan struct{} // closed when it has an item, or none will come
	some bool          // it has an item
}

// maxGiving is how many items may be on their way back before Dequeue waits.
const maxGiving = 256

// Dequeue waits for an item and takes it: it is then in flight here until it is
// given back by [Queue.Done] or [Queue.Requeue], or the lease is lost. When ctx
// is done it returns the cause; once the queue is closed, [reconcile.ErrClosed].
// While the server cannot be reached it waits. It returns another error if the
// connection was closed.
func (q *Queue[T]) Dequeue(ctx context.Context) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	q.mu.Lock()
	if err := q.startTakingLocked(); err != nil {
		q.mu.Unlock()
		return none, err
	}
	w := &waiter[T]{told: make(chan struct{})}
	q.waiters = append(q.waiters, w)
	q.mu.Unlock()
	q.pull()

	select {
	case <-w.told:
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiters, w); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
	}
	switch {
	case w.some && ctx.Err() == nil:
		q.counted.Taken++
		return w.item, nil
	case w.some:
		if h := q.held[w.item]; h != nil {
			q.giveLocked(w.item, h, op{verb: verbAbort})
		}
	}
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	return none, q.overLocked()
}

// overLocked returns why no more items can be taken, or nil.
func (q *Queue[T]) overLocked() error {
	if q.closed {
		return reconcile.ErrClosed
	}
	return q.failed
}

func (q *Queue[T]) endWaitersLocked() {
	for _, w := range q.waiters {
		close(w.told)
	}
	q.waiters = nil
}

// Lease returns a context that carries what [Fence] returns, and ends with
// [reconcile.ErrLeaseLost] when the item is no longer ours. Its Err looks at the
// clock, so that it says so in time also if this process was stopped; that of a
// context with a time limit or a cancel function made from it does not. It never
// blocks.
func (q *Queue[T]) Lease(ctx context.Context, item T) context.Context {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := q.held[item]
	if h == nil || h.giving {
		ctx, end := context.WithCancelCause(ctx)
		end(reconcile.ErrLeaseLost)
		return ctx
	}
	ctx, end := context.WithCancelCause(withFence(ctx, h.epoch+h.fence))
	if h.lost {
		end(reconcile.ErrLeaseLost)
	} else {
		h.ends = append(h.ends, end)
	}
	return &lease.Run{Context: ctx, Lease: h.lease, End: end}
}

type fenceKey struct{}

// Fence returns a number that grows with every run of an item, on whatever machine,
// or 0 if ctx is not that of a run. It is the sequence of a message, plus the time at
// which its stream was created, in nanoseconds since 1970: so it grows on when a
// stream was deleted and is made anew, as long as the clock of the servers is not
// put back. A server that loses its last messages in a power failure may give a number
// again. It fits an int64, and not the number of a JSON reader that takes 53 bits. Hand
// it on with writes to what can refuse those with a smaller number than it has seen: a
// process that was stopped for longer than its lease does not know, at the moment it
// goes on, that another runs its item.
func Fence(ctx context.Context) uint64 {
	n, _ := ctx.Value(fenceKey{}).(uint64)
	return n
}

func withFence(ctx context.Context, n uint64) context.Context {
	return context.WithValue(ctx, fenceKey{}, n)
}

// Done gives back an item whose run needs no other: see [reconcile.Queue.Done].
// It never blocks.
func (q *Queue[T]) Done(item T) { q.giveBack(item, op{verb: verbDone}) }

// Requeue gives back an item that runs again as w says: see
// [reconcile.Queue.Requeue]. It never blocks.
func (q *Queue[T]) Requeue(item T, w reconcile.RequeueOptions) {
	q.giveBack(item, newRequeue(w, time.Now().UnixNano()))
}

func (q *Queue[T]) giveBack(item T, o op) {
	q.mu.Lock()
	h := q.held[item]
	if h == nil || h.giving {
		q.mu.Unlock()
		return
	}
	if o.verb != verbDone {
		q.counted.Requeued++
	}
	ends := h.ends
	h.ends = nil
	q.giveLocked(item, h, o)
	q.mu.Unlock()
	for _, end := range ends {
		end(nil)
	}
}

func (q *Queue[T]) giveLocked(item T, h *holding, o op) {
	o.at, o.owner, o.fence = time.Now().UnixNano(), h.owner, h.fence
	h.giving = true
	q.giving++
	q.postLocked(item, h.tokens, o, nil)
}

// State returns what the queue knows of the item. Of one in flight here it
// knows at once; for others it asks the server, waits for the answer for the
// time of some attempts, and returns the zero State if there is none. What is
// still in the outbox does not show.
func (q *Queue[T]) State(item T) reconcile.State {
	q.mu.Lock()
	if h := q.held[item]; h != nil && !h.giving && !h.lost {
		s := h.state()
		q.mu.Unlock()
		return s
	}
	q.mu.Unlock()
	tokens, err := q.codec.encode(item)
	if err != nil { // there is no such item
		return reconcile.State{}
	}
	ctx, cancel := context.WithTimeout(q.life, 3*q.timeout)
	defer cancel()
	subject := q.subject(tokens)
	for ctx.Err() == nil {
		if s, err := q.read(ctx, subject); err == nil {
			return s.promoteDue(time.Now().UnixNano()).state()
		}
	}
	return reconcile.State{}
}

// handle looks at a record that was delivered.
func (q *Queue[T]) handle(d arrival) {
	defer q.handled()
	var (
		item T
		s    seen
		err  = d.err
	)
	if err == nil {
		item, s, err = q.decode(d.stored)
		s.outages = q.wire.outages()
	}
	if err != nil {
		q.leaveAlone(d.subject, err)
		q.wire.answer(d, "+ACK")
		return
	}
	switch {
	case s.ready():
		q.claim(item, s, d, time.Now().UnixNano())
		return
	case s.waiting():
		q.schedule(item, s)
	case s.running && !q.alive(item, s):
		q.reclaim(item, s)
	}
	q.wire.answer(d, "+ACK")
}

// decode reads a message of an item. It refuses one whose subject is not that of
// the item: two records of one item would be two runs at once.
func (q *Queue[T]) decode(m stored) (item T, s seen, err error) {
	r, text, err := decodeRecord(m)
	if err != nil {
		return item, s, err
	}
	tokens := strings.TrimPrefix(m.subject, q.cfg.Name+".i.")
	if shortened(tokens) {
		if tokens = text.Item; tokens == "" && r == (record{}) {
			return item, seen{record: r, seq: m.seq, write: text.Write, read: true}, nil
		}
	}
	var own string
	if item, err = q.codec.decode(tokens); err == nil {
		own, err = q.codec.encode(item)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("natsadapter: message %d, %s: %w", m.seq, brief(m.subject), err)
	case own != tokens || q.subject(own) != m.subject:
		err = fmt.Errorf("natsadapter: message %d, %s: this is not the subject of its item, %s", m.seq, brief(m.subject), brief(item))
	}
	return item, seen{record: r, seq: m.seq, tokens: tokens, write: text.Write, read: true}, err
}

// maxUnreadable is how many subjects of unreadable messages are remembered as logged.
const maxUnreadable = 100

// leaveAlone counts a message that no Queue writes, and logs it. Janitors read such a
// message again and again, so it is logged once; and as there may be any number of them,
// the later ones are logged at the 128th, 256th … reading of all.
func (q *Queue[T]) leaveAlone(subject string, err error) {
	subject = brief(subject)
	q.mu.Lock()
	q.counted.Unreadable++
	n := q.counted.Unreadable
	logs := !q.unreadable[subject] && (len(q.unreadable) < maxUnreadable || n&(n-1) == 0)
	if logs && len(q.unreadable) < maxUnreadable {
		q.unreadable[subject] = true
	}
	q.mu.Unlock()
	if logs {
		q.cfg.Logger.Error("unreadable record is ignored", "queue", q.cfg.Name, "err", errorText(err), "unreadable", n)
	}
}

// claim makes a ready item one in flight here, if a Dequeue waits for it. It
// goes on until it knows whether it has: else the item would be taken by
// nobody.
func (q *Queue[T]) claim(item T, s seen, d arrival, now int64) {
	q.mu.Lock()
	h := q.held[item]
	owner, me := q.member.id, q.member
	switch {
	case h != nil && !h.giving, q.intake.claims[item] != claim{}:
		// A run whose lease was lost goes on. Nobody is to run it here twice.
		q.mu.Unlock()
		q.wire.answer(d, `-NAK {"delay": 1000000000}`)
		return
	case !q.member.valid(), len(q.waiters) <= q.intake.claiming:
		q.mu.Unlock()
		q.wire.answer(d, "-NAK")
		return
	}
	q.intake.claiming++
	q.intake.claims[item] = claim{owner, s.tokens}
	q.mu.Unlock()

	after, ok := q.writeClaim(item, s, owner, now)

	q.mu.Lock()
	q.intake.claiming--
	delete(q.intake.claims, item)
	if ok {
		h := &holding{record: after.record, seq: after.seq, outages: after.outages, tokens: s.tokens, lease: me.lease, epoch: me.epoch}
		q.held[item] = h
		if after.seq <= me.seq && q.member.id == owner {
			q.loseLeaseLocked() // the stream was made anew, and nobody knows this member
		}
		switch {
		case q.member.id != owner || !q.member.valid() || q.closed || len(q.waiters) == 0:
			q.giveLocked(item, h, op{verb: verbAbort})
		default:
			w := q.waiters[0]
			q.waiters = slices.Delete(q.waiters, 0, 1)
			w.item, w.some = item, true
			close(w.told)
		}
	}
	q.checkEmptyLocked()
	q.mu.Unlock()
	if !ok { // it is gone by then, or can be claimed
		q.wire.answer(d, `-NAK {"delay": 20000000}`)
	}
}

// writeClaim writes the record of a run over that of a ready item. It reports
// whether that is stored; something may have happened to the run since.
func (q *Queue[T]) writeClaim(item T, s seen, owner string, now int64) (seen, bool) {
	b := &batch{base: &s}
	b.add(op{verb: verbClaim, at: now, owner: owner}, nil)
	after, err := q.store(q.life, item, s.tokens, b)
	return after, err == nil && after.running && after.owner == owner && after.since == now
}

// The intake of a [Queue] asks the consumer for as many messages as there are
// Dequeues that wait, and for no more, so that no item waits here while another
// process is idle. Fetch of nats.go subscribes anew for each request, which took
// more of the server and of this process for a message than all else did here.

type intake[T comparable] struct {
	started     bool
	unsubscribe func()
	pulls       []pullRequest // oldest first
	lastPull    uint64
	heard       time.Time   // when the consumer last said anything
	handling    int         // messages that are being looked at
	claims      map[T]claim // items that are being claimed
	claiming    int         // how many they are
	suspect     bool        // the consumer may be gone
	deleted     bool        // it is, so the stream may be another
}

// A pullRequest asks for messages. A message that comes does not say which
// request it answers, so it counts for the oldest: it is the sum that matters.
type pullRequest struct {
	id   uint64
	left int
	sent time.Time
}

// A claim is on its way.
type claim struct {
	owner  string
	tokens string // of the item
}

// answered counts n messages less, for the request with that id if there is one.
func (i *intake[T]) answered(id uint64, n int) {
	at := slices.IndexFunc(i.pulls, func(p pullRequest) bool { return p.id == id })
	for at = max(0, at); n > 0 && at < len(i.pulls); {
		p := &i.pulls[at]
		taken := min(n, p.left)
		n -= taken
		if p.left -= taken; p.left == 0 {
			i.pulls = slices.Delete(i.pulls, at, at+1)
		}
	}
}

// startTakingLocked starts what is needed to take items: the subscription, and
// the goroutines that keep the membership.
func (q *Queue[T]) startTakingLocked() error {
	if err := q.overLocked(); err != nil {
		return err
	}
	i := &q.intake
	if i.started {
		return nil
	}
	if err := q.wire.closed(); err != nil {
		return err
	}
	unsubscribe, err := q.wire.subscribe(q.receive)
	if err != nil {
		return fmt.Errorf("natsadapter: subscribing: %w", err)
	}
	i.unsubscribe, i.started = unsubscribe, true
	q.running.Go(q.keepLease)
	q.running.Go(q.keepOrder)
	return nil
}

// pull asks for the messages that are missing.
func (q *Queue[T]) pull() {
	q.mu.Lock()
	n := min(q.missingLocked(), maxBatch)
	if n <= 0 || !q.wire.connected() { // keepLease pulls when it is back
		q.mu.Unlock()
		return
	}
	i := &q.intake
	i.lastPull++
	id := i.lastPull
	if len(i.pulls) == 0 {
		i.heard = time.Now()
	}
	i.pulls = append(i.pulls, pullRequest{id, n, time.Now()})
	q.mu.Unlock()
	q.wire.pull(id, n)
}

// missingLocked returns how many messages to ask for.
func (q *Queue[T]) missingLocked() int {
	if q.closed || q.intake.deleted || !q.member.valid() || q.giving >= maxGiving {
		return 0
	}
	n := len(q.waiters) - q.intake.handling
	for i := range q.intake.pulls {
		n -= q.intake.pulls[i].left
	}
	if 2*n < len(q.waiters) {
		return 0 // rather one request for many later: each costs a heartbeat a second
	}
	return n
}

// receive is called with what the consumer sends.
func (q *Queue[T]) receive(d arrival) {
	i := &q.intake
	q.mu.Lock()
	i.heard = time.Now()
	switch {
	case d.status == "":
		i.answered(0, 1)
		if q.closed {
			q.mu.Unlock()
			q.wire.answer(d, "-NAK")
			return
		}
		i.handling++
		q.running.Go(func() { q.handle(d) })
		q.mu.Unlock()
	case d.status == "100": // a heartbeat
		q.mu.Unlock()
	case d.status == "408", d.status == "404": // the request is over
		i.answered(d.id, d.left)
		q.mu.Unlock()
		q.pull()
	default: // keepLease asks anew, so that a server in trouble is not flooded
		i.pulls = nil
		i.suspect = true
		i.deleted = i.deleted || strings.Contains(d.text, "Deleted")
		q.mu.Unlock()
		q.troubled(fmt.Errorf("status %s %s", d.status, d.text), "pulling")
	}
}

// handled ends the look at a message.
func (q *Queue[T]) handled() {
	q.mu.Lock()
	q.intake.handling--
	q.mu.Unlock()
	q.pull()
}

// missPulls gives up those requests of which the server says nothing any more;
// all of them if the connection is a new one.
func (q *Queue[T]) missPulls(all bool) {
	q.mu.Lock()
	i := &q.intake
	if all || time.Since(i.heard) > 5*pullHeartbeat/2 {
		i.pulls = nil
	}
	i.pulls = slices.DeleteFunc(i.pulls, func(p pullRequest) bool { return time.Since(p.sent) > pullExpires+5*time.Second })
	q.mu.Unlock()
	q.pull()
}
