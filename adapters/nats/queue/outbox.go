// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// This file holds the outbox of a [Queue]: what is to be stored, a slot for each
// item. While one batch of ops is on its way, the next gathers, and ops that
// change nothing beside the others are left out: so an item costs one slot
// however often it is enqueued, and one write at a time.

// maxSenders is how many writes are on their way at once.
const maxSenders = 64

type outbox[T comparable] struct {
	slots   map[T]*slot
	line    []T // items whose slot has a batch and is not busy
	senders int
	most    int // slots since the map was made
}

type slot struct {
	tokens string // of the item
	busy   *batch // on its way; nil if none
	batch  *batch // the next; nil if none
	parked bool   // the next waits for room
}

// A batch is a list of ops on one item that are stored together.
type batch struct {
	ops   []op
	told  []func(before record) // for each op, called once it is stored; may be nil
	folds int                   // how many ops were left out
	base  *seen                 // the record as it was last seen, if it was
	done  chan struct{}         // closed when it is stored, or refused
	err   error                 // why it was refused; set before done is closed
	more  []*batch              // whose ops are among these
}

// add adds an op, unless it changes nothing.
func (b *batch) add(o op, told func(before record)) {
	folded := false
	if b.ops, folded = fold(b.ops, o); folded {
		b.folds++
	} else {
		b.told = append(b.told, told)
	}
}

// join adds the ops of another batch.
func (b *batch) join(o *batch) {
	for i := range o.ops {
		b.add(o.ops[i], o.told[i])
	}
	b.folds += o.folds
	b.more = append(b.more, o)
}

// finish tells those who wait for the batch that it is stored, or was refused.
func (b *batch) finish(err error) {
	b.err = err
	close(b.done)
	for _, o := range b.more {
		o.finish(err)
	}
}

// postLocked puts an op into the item's slot.
func (q *Queue[T]) postLocked(item T, tokens string, o op, told func(before record)) *batch {
	s := q.outbox.slots[item]
	if s == nil {
		s = &slot{tokens: tokens}
		q.outbox.slots[item] = s
		q.outbox.most = max(q.outbox.most, len(q.outbox.slots))
	}
	if s.batch == nil {
		s.batch = &batch{done: make(chan struct{})}
		if s.busy == nil {
			q.outbox.line = append(q.outbox.line, item)
			q.startSenderLocked()
		}
	}
	s.batch.add(o, told)
	if o.verb == verbRemove { // then there may be nothing to be stored
		q.unparkLocked(item, s)
	}
	return s.batch
}

// hintLocked tells a batch how the record stood a while ago, which spares it to
// read it if that is still so.
func (q *Queue[T]) hintLocked(item T, b *batch, s seen) {
	if b.base == nil && q.held[item] == nil {
		s.read = false // that nothing is to be done must not rest on it
		b.base = &s
	}
}

func (q *Queue[T]) startSenderLocked() {
	if q.outbox.senders < maxSenders && q.life.Err() == nil {
		q.outbox.senders++
		q.running.Go(q.send)
	}
}

// send stores batches until there are none.
func (q *Queue[T]) send() {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := &q.outbox
	for len(o.line) > 0 && q.life.Err() == nil {
		item := o.line[0]
		o.line = o.line[1:]
		s := o.slots[item]
		s.busy, s.batch = s.batch, nil
		h := q.held[item]
		if h != nil && !h.lost && s.busy.base == nil { // once it is lost, the record is read
			s.busy.base = &seen{record: h.record, seq: h.seq, outages: h.outages}
		}
		b := s.busy
		q.mu.Unlock()
		after, err := q.store(q.life, item, s.tokens, b)
		q.mu.Lock()
		s.busy = nil
		switch {
		case err == nil:
			q.storedLocked(item, h, b, after)
		case err == errFull:
			q.parkLocked(item, s, b)
			continue
		case errors.Is(err, errUnreadable):
			if h != nil {
				h.lose() // its record is another one now
			}
			q.storedLocked(item, h, b, seen{}) // the run has no record to come back to
			q.counted.Refused += uint64(len(b.ops))
			go q.leaveAlone(q.subject(s.tokens), err)
		case tooLong(err):
			q.counted.Refused += uint64(len(b.ops) + b.folds)
			go q.cfg.Logger.Error("an item is ignored", "queue", q.cfg.Name, "item", brief(item), "err", err)
		default: // life has ended
			if s.batch == nil {
				s.batch = b
			}
			o.senders--
			return
		}
		b.finish(err)
		switch {
		case s.batch != nil:
			o.line = append(o.line, item)
		default:
			delete(o.slots, item)
			if len(o.slots) == 0 && o.most > 1000 { // the memory of a burst goes back
				o.slots, o.most = make(map[T]*slot), 0
			}
			q.checkEmptyLocked()
		}
	}
	o.senders--
	if len(o.line) == 0 {
		o.line = nil
	}
}

// storedLocked takes note of what was stored. The item may have been claimed anew while
// a give-back waited in line: then h, and what is held, are not the run that it ends.
func (q *Queue[T]) storedLocked(item T, h *holding, b *batch, after seen) {
	q.counted.Coalesced += uint64(b.folds)
	for i := range b.ops {
		o := &b.ops[i]
		if !o.verb.gives() {
			continue
		}
		q.giving--
		if now := q.held[item]; now != nil && now.owner == o.owner && now.fence == o.fence {
			delete(q.held, item)
			q.checkEmptyLocked()
		}
	}
	if h != nil && after.running && after.fence == h.fence {
		h.record, h.seq, h.outages = after.record, after.seq, after.outages
	}
}

// store carries a batch out on the record of the item, and returns what that is
// then. It tries again until it knows that all is stored. Its only errors are
// that ctx is done, errFull, errUnreadable, and that the record is too long: what gives back a
// run is tried again even so.
func (q *Queue[T]) store(ctx context.Context, item T, tokens string, b *batch) (seen, error) {
	subject := q.subject(tokens)
	write := q.newWrite()
	now := seen{}
	if b.base != nil && b.base.outages == q.wire.outages() {
		now = *b.base
	}
	var unread error // why the record could not be read after a write that failed
	for tries := 0; ; tries++ {
		if ctx.Err() != nil {
			return seen{}, context.Cause(ctx)
		}
		began, after := time.Now(), now.record
		touch, verbs := false, false
		for i := range b.ops {
			o := &b.ops[i]
			after = after.apply(o)
			touch = touch || o.verb == verbTouch && after.ready()
			verbs = verbs || o.counted() || o.verb == verbRemove || o.verb == verbClaim
		}
		then := seen{record: after, seq: now.seq, write: write, read: true, outages: q.wire.outages()}
		var data []byte
		var err error
		switch {
		// A server that is back may have lost messages, or have another stream.
		case unread != nil:
			err = unread
		case !q.wire.connected(): // what is sent now would arrive when it is back
			err = nats.ErrDisconnected
		case after == now.record && !touch:
			if !now.read {
				err = errConflict // have it read
			} else if verbs && q.cfg.Replicas > 1 {
				err = q.witness(ctx, subject, now.seq)
			}
		case after == record{}:
			then.seq = 0
			err = q.forget(ctx, subject, tokens, now.seq, write)
		case now.seq == 0 && q.isFull():
			if now.read {
				return seen{}, errFull
			}
			err = errConflict // have it read
		default:
			data = encodeRecord(&after, tokens, write)
			then.seq, err = q.wire.publish(ctx, subject, now.seq, data)
			if after.running && after.fence == 0 {
				then.fence = then.seq
			}
		}
		if err == nil {
			if now.seq == 0 && then.seq > 0 {
				q.grown(len(subject) + len(data))
			}
			q.count(item, b, now, then)
			return then, nil
		}
		if tooLong(err) && !slices.ContainsFunc(b.ops, func(o op) bool { return o.verb.gives() }) {
			return seen{}, fmt.Errorf("natsadapter: item %s: %w", brief(item), err)
		}
		const many = 8 // conflicts in a row, if many write this record at once
		switch {
		case isFull(err):
			q.filled(err)
			if now.seq > 0 {
				q.spend(ctx)
			}
			if tries > 0 {
				q.attempts.Add(1)
				pause(ctx, tries)
			}
		case !isConflict(err), tries > many:
			q.troubled(err, "storing", "item", brief(item))
			q.deny(err)
			q.alarm(&q.unstored, began, unstoredAlarm, "the server stores nothing: items stay in the outbox", err)
			q.attempts.Add(1)
			pause(ctx, tries)
		case tries > 2:
			pause(ctx, -1)
		}
		before := now
		if now, err = q.read(ctx, subject); errors.Is(err, errUnreadable) {
			return seen{}, fmt.Errorf("natsadapter: item %s: %w", brief(item), err)
		} else if unread = err; err != nil {
			now = before
			continue
		}
		if now.write == write { // it was stored, though we were not told
			q.count(item, b, before, now)
			return now, nil
		}
	}
}

// errUnreadable is about a record that no Queue of this version writes.
var errUnreadable = errors.New("its record is unreadable, and is left alone")

// read returns the record of a subject as it stands.
func (q *Queue[T]) read(ctx context.Context, subject string) (seen, error) {
	outages := q.wire.outages()
	m, err := q.wire.last(ctx, subject)
	if errors.Is(err, errNoRecord) {
		return seen{read: true, outages: outages}, nil
	}
	if err != nil {
		q.troubled(err, "reading", "subject", subject)
		q.deny(err)
		pause(ctx, 0)
		return seen{}, err
	}
	r, text, err := decodeRecord(m)
	if err != nil { // somebody else wrote it, or a later version: its item may be in flight there
		return seen{}, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return seen{record: r, seq: m.seq, write: text.Write, read: true, outages: outages}, nil
}

// forget ends the record of an item that the queue need not know any more. It writes an
// idle record over it, and deletes that one. It does not delete the record itself, by its
// sequence, for two reasons: of several servers, the leader may take a write over a record
// after it has taken its deletion; and a server that lost its last messages in a power
// failure, or a stream made anew, gives the same sequence to the record of another item.
func (q *Queue[T]) forget(ctx context.Context, subject, tokens string, seq uint64, write string) error {
	idle, err := q.wire.publishBriefly(ctx, subject, seq, encodeRecord(&record{}, tokens, write))
	if err == nil && q.wire.connected() { // else it would arrive when it is back
		q.wire.drop(idle)
	}
	return err
}

// witness returns nil if the record of a subject is still the one with the
// sequence seq. A leader that was deposed and does not know it may have told us
// of an old one. So it is asked for a write that depends on it, which none but
// the true leader can do.
func (q *Queue[T]) witness(ctx context.Context, subject string, seq uint64) error {
	return q.wire.publishIf(ctx, q.cfg.Name+".w", subject, seq)
}

// count counts what the verbs of a batch did, which made one record another, and
// tells those who want to know.
func (q *Queue[T]) count(item T, b *batch, was, now seen) {
	q.calm(&q.unstored, "the server stores again")
	q.allow()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timers.replaced(item, was.seq, now)
	r := was.record
	for i := range b.ops {
		o := &b.ops[i]
		before := r
		r = r.apply(o)
		switch {
		case o.counted() && before.next == nextNone && r.next != nextNone:
			q.counted.Enqueued++
		case o.counted():
			q.counted.Coalesced++
		}
		if b.told[i] != nil {
			b.told[i](before)
		}
	}
}

// troubled logs that the server did not do what it was asked. If it never will,
// it ends all that waits for it.
func (q *Queue[T]) troubled(err error, what string, args ...any) {
	if q.life.Err() != nil {
		return
	}
	if err := q.wire.closed(); err != nil {
		q.fail(err)
		return
	}
	q.cfg.Logger.Debug("server does not answer as it should; to be tried again",
		append([]any{"queue", q.cfg.Name, "doing", what, "err", err}, args...)...)
}

// deny notes that the server denied what stores something, if that is the error, for
// those who wait; allow notes that something was stored.
func (q *Queue[T]) deny(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	q.mu.Lock()
	first := q.denied == nil
	if first {
		q.denied = fmt.Errorf("natsadapter: %w", err)
		close(q.nowDenied)
	}
	q.mu.Unlock()
	if first {
		q.cfg.Logger.Warn("a permission is missing: items stay in the outbox", "queue", q.cfg.Name, "err", err)
	}
}

func (q *Queue[T]) allow() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.denied != nil {
		q.denied, q.nowDenied = nil, make(chan struct{})
	}
}

// An alarm is about something that does not work.
type alarm struct {
	since time.Time
	last  time.Time // when it was last seen not to work; zero while it works
	said  time.Time // when that was logged
}

// unstoredAlarm is for how long nothing can be stored before that is said.
const unstoredAlarm = 10 * time.Second

// alarm notes that a try that began then did not work, and says so at Warn if that
// lasts, then once a minute. What nobody tried for long is another failure: who looks
// at the records may have been somebody else meanwhile.
func (q *Queue[T]) alarm(a *alarm, began time.Time, after time.Duration, what string, err error) {
	if q.life.Err() != nil {
		return
	}
	q.mu.Lock()
	now := time.Now()
	if began.Sub(a.last) > after+max(time.Minute, 4*q.cfg.Lease) {
		*a = alarm{since: now}
	}
	a.last = now
	lasts := now.Sub(a.since)
	say := lasts >= after && (a.said.IsZero() || now.Sub(a.said) >= time.Minute)
	if say {
		a.said = now
	}
	q.mu.Unlock()
	if say {
		q.cfg.Logger.Warn(what, "queue", q.cfg.Name, "for", lasts, "err", err)
	}
}

// calm notes that it works.
func (q *Queue[T]) calm(a *alarm, what string) {
	q.mu.Lock()
	said := !a.said.IsZero()
	*a = alarm{}
	q.mu.Unlock()
	if said {
		q.cfg.Logger.Info(what, "queue", q.cfg.Name)
	}
}

// pause waits for a while that grows with the tries, or until ctx is done.
func pause(ctx context.Context, tries int) {
	d := 2 * time.Millisecond
	if tries >= 0 {
		d = min(20*time.Millisecond<<min(tries, 10), time.Second)
	}
	t := time.NewTimer(d/2 + rand.N(d/2))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
