// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
)

// This file looks after what members leave behind that are gone. member.go has the
// list of who writes what.
//
// Every fifth of a lease a member asks for the message of the eldest:
//
//   - The eldest is this member: it is the janitor. It reads all members, declares those
//     gone that are silent, and checks all records.
//   - It has a new beat, or none for less than a lease: nothing is to be done.
//   - It is silent for a lease: this member stands in for the janitor, once.
//   - It has a grave for less than a lease, not marked as looked at: nothing is to be
//     done, as the member that wrote the grave checks the records. After a lease, this
//     member stands in, because that one may have died as well.
//   - It left, has a grave marked as looked at, or no message: this member looks for
//     the next eldest.
//
// A check of all records is due when a member becomes the janitor, after each grave
// and once more a lease later, three quarters of a lease after the connection came
// back, and else every three leases, 10 s, or twenty times as long as a check takes,
// whichever is longest. lookAround has what it does. TestPlays plays all of this with
// random faults, and TestSavedPlans what found something once.

// others is what this process knows of the members.
type others struct {
	born    time.Time
	members map[string]*seenMember
	dead    map[string]time.Time // declared gone, and when we learned it
	elder   string               // the eldest member, if that is another; empty if there was none
	soon    chan struct{}        // told when the janitor is to look at all records soon; room for one
}

// A seenMember is a member as it was last seen.
type seenMember struct {
	beat
	seq   uint64
	since time.Time // from when on we know of no later beat
}

// hurry has the janitor look at all records soon: the server may have started
// anew, see lookAround.
func (o *others) hurry() {
	select {
	case o.soon <- struct{}{}:
	default:
	}
}

// keepOrder looks again and again whether the eldest member lives. If that is this
// process, it is the janitor: it reads the signs of life of all members, and does
// what is to be done about those that are gone. If it is another, and is gone, this
// one does so once: whose business it is may die as well before it gets to it.
func (q *Queue[T]) keepOrder() {
	tick := time.NewTicker(q.cfg.Lease / 5)
	defer tick.Stop()
	var (
		janitor, standsIn bool
		look              time.Time // when the last look at all records began
		due               = time.Now()
		adopt             = true // what waits may have no timer anywhere
	)
	for {
		was := janitor
		janitor, standsIn = q.readMembers(standsIn)
		if janitor && !was || standsIn {
			due, adopt = time.Now(), true // whoever had it before may have left work
		}
		if janitor || standsIn && q.isMember() {
			sure := q.declareSilent()
			graves := q.graves()
			for _, g := range graves {
				if g.since.After(look) {
					due, adopt = earlier(due, g.since), true
				}
			}
			if sure && !time.Now().Before(due) {
				began := time.Now()
				if err := q.lookAround(q.life, adopt); err == nil {
					look, adopt, standsIn = began, false, false
					due = time.Now().Add(max(3*q.cfg.Lease, 10*time.Second, 20*time.Since(began)))
					for id, g := range graves {
						if janitor && began.Sub(g.since) >= q.cfg.Lease {
							q.removeGrave(id)
							continue
						}
						q.markGrave(id, g)
						due, adopt = earlier(due, g.since.Add(q.cfg.Lease)), true
					}
					q.calm(&q.unseen, "all records are checked again")
					q.checkSettings()
				} else {
					q.troubled(err, "looking at all records")
					q.alarm(&q.unseen, began, q.cfg.Lease, "cannot check all records: items in flight in processes that died do not run again", err)
					due = time.Now().Add(q.cfg.Lease / 5)
				}
			}
		}
		select {
		case <-q.life.Done():
			return
		case <-q.others.soon:
			// The members have to show first what they know of.
			due, adopt = earlier(due, time.Now().Add(q.cfg.Lease*3/4)), true
		case <-tick.C:
		}
	}
}

// checkSettings warns, at most once a minute, while the stream or its consumer is not as a queue
// needs it: an operator may have changed it since [New] checked it.
func (q *Queue[T]) checkSettings() {
	began := time.Now()
	wrong, err := q.wire.wrongSettings(q.life)
	switch {
	case len(wrong) > 0:
		q.alarm(&q.settings, began, 0, "the stream or its consumer has other settings: the queue may lose items, or stop", errors.New(strings.Join(wrong, "; ")))
	case err != nil:
		q.troubled(err, "looking at the settings of the stream")
	default:
		q.calm(&q.settings, "the stream and its consumer are as the queue needs them again")
	}
}

// graves returns the members that are declared gone.
func (q *Queue[T]) graves() map[string]seenMember {
	q.mu.Lock()
	defer q.mu.Unlock()
	graves := make(map[string]seenMember)
	for id, s := range q.others.members {
		if s.Gone != "" {
			graves[id] = *s
		}
	}
	return graves
}

func (q *Queue[T]) removeGrave(id string) {
	q.wire.purge(q.life, q.cfg.Name+".m."+id)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.others.members, id)
}

// markGrave lets the others know that somebody has looked at all records since.
func (q *Queue[T]) markGrave(id string, g seenMember) {
	if g.Looked || g.Left {
		return
	}
	g.Looked, g.Write = true, q.newWrite()
	if _, err := q.wire.publish(q.life, q.cfg.Name+".m."+id, g.seq, encodeBeat(g.beat)); err != nil {
		q.troubled(err, "marking a dead member", "member", id)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// eachMember calls fn for all members, and for those declared gone, until it
// returns false: the eldest first. What no member can have written is left alone.
func (q *Queue[T]) eachMember(ctx context.Context, fn func(id string, b beat, seq uint64) bool) error {
	prefix := q.cfg.Name + ".m."
	subjects, err := q.wire.subjects(ctx, prefix+">")
	if err != nil {
		return err
	}
	slices.Sort(subjects)
	for _, subject := range subjects {
		id := strings.TrimPrefix(subject, prefix)
		if err := checkID(id); err != nil {
			q.leaveAlone(subject, fmt.Errorf("natsadapter: message %s: the id of a member: %w", brief(subject), err))
			continue
		}
		m, err := q.wire.last(ctx, subject)
		switch {
		case errors.Is(err, errNoRecord): // since a moment ago
		case err != nil:
			return err
		case !fn(id, decodeBeat(m.data), m.seq):
			return nil
		}
	}
	return nil
}

// readMembers looks whether the eldest member lives, which costs one request. If it
// does not, or standsIn is set, it looks at others as well. It reports whether this
// member is the janitor, as it is the eldest, or stands in for it.
//
// Who is not the janitor minds the eldest, and not any that is older: of three that
// die one after the other, each may die before it sees that the one before is silent.
func (q *Queue[T]) readMembers(standsIn bool) (janitor, stillStandsIn bool) {
	q.mu.Lock()
	own, elder := q.member, q.others.elder
	q.mu.Unlock()
	if own.id == "" {
		return false, standsIn
	}
	if elder != "" && !standsIn {
		m, err := q.wire.last(q.life, q.cfg.Name+".m."+elder)
		if err != nil && !errors.Is(err, errNoRecord) {
			q.troubled(err, "reading a member")
			return false, false
		}
		if err == nil {
			b := decodeBeat(m.data)
			switch lives := q.see(elder, b, m.seq); {
			case lives && elder < own.id:
				return false, false
			case lives, b.Left, b.Looked:
			case b.Gone != "" && !q.goneForALease(elder):
				return false, false // who declared it gone is at it
			default:
				standsIn = true
			}
		} // else it left, or the janitor has removed its grave
	}
	elder = ""
	found := make(map[string]bool)
	err := q.eachMember(q.life, func(id string, b beat, seq uint64) bool {
		found[id] = true
		if q.see(id, b, seq) && id < own.id {
			elder = cmp.Or(elder, id)
		}
		return elder == "" || standsIn
	})
	if err != nil {
		q.troubled(err, "reading the members")
		return false, standsIn
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.others.elder = elder; elder != "" && !standsIn {
		return false, false
	}
	for id := range q.others.members {
		if !found[id] {
			delete(q.others.members, id)
		}
	}
	for id, at := range q.others.dead {
		if !found[id] && time.Since(at) > time.Hour {
			delete(q.others.dead, id)
		}
	}
	return elder == "" && q.member.valid(), standsIn
}

// see takes note of a member as it stands, and reports whether it lives.
func (q *Queue[T]) see(id string, b beat, seq uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.others.members[id]
	switch {
	case s != nil && s.seq == seq:
	case s != nil && s.Gone != "" && b.Gone != "": // it is as gone as before
		s.beat, s.seq = b, seq
	default:
		s = &seenMember{b, seq, time.Now()}
		if b.Gone == "" { // many may have died before we first saw them
			s.since = q.member.silentSince(seq)
		}
		q.others.members[id] = s
	}
	if _, known := q.others.dead[id]; b.Gone != "" && !known {
		q.others.dead[id] = time.Now()
	}
	return b.Gone == "" && time.Since(s.since) < q.cfg.Lease
}

func (q *Queue[T]) isMember() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.member.valid()
}

func (q *Queue[T]) goneForALease(id string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.others.members[id] // nil if this process has joined anew meanwhile
	return s != nil && time.Since(s.since) >= q.cfg.Lease
}

// declareSilent declares those gone that have shown no sign of life for the time
// of a lease. It reports whether it is sure that none is left.
func (q *Queue[T]) declareSilent() (sure bool) {
	q.mu.Lock()
	own := q.member
	silent := make(map[string]uint64)
	for id, s := range q.others.members {
		if id != q.member.id && s.Gone == "" && time.Since(s.since) >= q.cfg.Lease {
			silent[id] = s.seq
		}
	}
	q.mu.Unlock()
	if own.id == "" {
		return false
	}
	if len(silent) > 0 {
		// In a stream made anew, and in one that has lost its last messages, sequences may
		// be smaller than those of this member: see silentSince. Its own last one is gone then.
		if m, err := q.wire.last(q.life, q.cfg.Name+".m."+own.id); err != nil || m.seq < own.seq {
			return false
		}
	}
	sure = true
	for id, seq := range silent {
		grave, at, err := q.declareGone(q.life, id, seq, false)
		if err != nil {
			sure = false // it lives, or another was faster
			q.troubled(err, "declaring a member dead", "member", id)
			continue
		}
		q.see(id, grave, at)
		q.cfg.Logger.Warn("member sent no sign of life and is declared dead: its items run again once all records are checked",
			"queue", q.cfg.Name, "member", id)
	}
	return sure
}

// alive reports whether the owner of a run may still be at it. If it does not
// know, it asks; if it cannot know, it says yes: the janitor comes by.
func (q *Queue[T]) alive(item T, s seen) bool {
	q.mu.Lock()
	_, dead := q.others.dead[s.owner]
	_, known := q.others.members[s.owner]
	own := s.owner == q.member.id
	h := q.held[item]
	here := h != nil && h.owner == s.owner || q.intake.claims[item].owner == s.owner
	q.mu.Unlock()
	switch {
	case here:
		return true // even if the lease is lost: it will be given back
	case own:
		return false // a claim that came to be without our knowing
	case dead:
		return false
	case known:
		return true
	}
	ctx, cancel := context.WithTimeout(q.life, 2*q.timeout)
	defer cancel()
	m, err := q.wire.last(ctx, q.cfg.Name+".m."+s.owner)
	switch {
	case err == nil:
		b := decodeBeat(m.data)
		q.see(s.owner, b, m.seq)
		return b.Gone == ""
	case errors.Is(err, errNoRecord):
		// A leader that was deposed may have told us so. Only the true one can
		// take this.
		_, _, err := q.declareGone(ctx, s.owner, 0, false)
		return err != nil
	}
	return true
}

// reclaim gives back a run that nobody is at. If its process died, it failed.
func (q *Queue[T]) reclaim(item T, s seen) {
	o := op{verb: verbReclaim, at: time.Now().UnixNano(), owner: s.owner, fence: s.fence}
	q.mu.Lock()
	_, dead := q.others.dead[s.owner]
	who := s.owner
	if m := q.others.members[s.owner]; m != nil {
		dead = dead && !m.Left // with nothing in flight: the server remembers an old record
		who = m.Owner + ", " + who
	}
	q.mu.Unlock()
	if !dead {
		q.post(item, o, s)
		return
	}
	err := fmt.Errorf("%w: %s", ErrGone, who)
	failures := s.failures + 1
	delay, again := q.askGone(err, failures)
	o.fail, o.err, o.due, o.giveUp = true, errorText(err), after(o.at, delay), !again
	q.post(item, o, s)
	say := []any{"queue", q.cfg.Name, "item", brief(item), "failures", failures, "err", err}
	switch {
	case s.removed:
	case again:
		q.cfg.Logger.Warn("item requeued: the process that ran it died", append(say, "in", delay)...)
	default:
		q.cfg.Logger.Error("item not retried: the process that ran it died", say...)
	}
}

// askGone asks the policy, and corrects its delay as the kernel does.
func (q *Queue[T]) askGone(err error, failures int) (delay time.Duration, again bool) {
	defer func() {
		if p := recover(); p != nil {
			q.cfg.Logger.Error("the policy panicked", "queue", q.cfg.Name, "panic", p)
			delay, again = goneRetry(err, failures)
		}
	}()
	_, o := reconcile.Classify(err, failures, q.cfg.Gone)
	return o.Delay, !o.Done
}

// post hands an op of the queue's own to the outbox. After Close has begun, or
// without a connection, that is the business of others.
func (q *Queue[T]) post(item T, o op, s seen) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.overLocked() != nil {
		return
	}
	q.hintLocked(item, q.postLocked(item, s.tokens, o, nil), s)
}

// lookAround looks at all records once: it makes ready what is in flight with
// nobody or overdue, has delivered again what the consumer thinks is done with,
// but is ready, and gives a timer to all that waits if it is to adopt them.
//
// Such records are not only of processes that are gone. A server that was killed
// may remember an item as it stood before: of a message that was replaced by
// another with its subject, its file store keeps no trace but the later one, and
// that may be deleted. So an item that was done with may stand again as it did
// before its last run, or in it. That does no harm but for one more run, if
// somebody notices.
func (q *Queue[T]) lookAround(ctx context.Context, adopt bool) error {
	at, err := q.wire.consumer(ctx)
	if err != nil {
		return err
	}
	long := time.Now().Add(-2 * q.cfg.Lease)
	// What is written meanwhile is delivered.
	_, err = q.scan(ctx, func(item T, s seen, stored time.Time) {
		switch {
		case s.running:
			if q.disowned(s) || !q.alive(item, s) {
				q.reclaim(item, s)
			}
		case s.waiting() && (adopt || s.due < time.Now().Add(-q.cfg.Lease).UnixNano()):
			q.schedule(item, s)
		case s.ready() && (s.seq <= at.floor || s.seq <= at.delivered && stored.Before(long)):
			q.post(item, op{verb: verbTouch, at: time.Now().UnixNano()}, s)
		}
	})
	return err
}

// disowned reports whether the owner of a run shows that it knows nothing of it.
func (q *Queue[T]) disowned(s seen) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.others.members[s.owner]
	return m != nil && m.Gone == "" && m.disowns(shorten(s.tokens), s)
}

// scan calls fn for all records, in the order of the stream. It reports whether some may be
// missing because they were written meanwhile.
func (q *Queue[T]) scan(ctx context.Context, fn func(item T, s seen, stored time.Time)) (moved bool, err error) {
	return q.wire.scan(ctx, func(m stored, at time.Time) {
		if item, s, ok := q.known(m); ok {
			fn(item, s, at)
		}
	})
}

// known reads a message of an item. It is not ok if the queue knows no such item.
func (q *Queue[T]) known(m stored) (item T, s seen, ok bool) {
	item, s, err := q.decode(m)
	s.outages = q.wire.outages()
	if err != nil {
		q.leaveAlone(m.subject, err)
	}
	return item, s, err == nil && s.record != record{}
}
