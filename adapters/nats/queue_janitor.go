// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// This file looks after what members leave behind that are gone.

// others is what this process knows of the members.
type others struct {
	born    time.Time
	members map[string]*seenMember
	dead    map[string]time.Time // declared gone, and when we learned it
	elder   string               // a member that lived and was older than this one; empty if there was none
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

// keepOrder looks again and again whether an older member lives. If none does,
// this process is the janitor: it reads the signs of life of all members, and does
// what is to be done about those that are gone.
func (q *Queue[T]) keepOrder() {
	tick := time.NewTicker(q.cfg.Lease / 5)
	defer tick.Stop()
	var (
		janitor bool
		look    time.Time // when the last look at all records began
		due     = time.Now()
		adopt   = true // what waits may have no timer anywhere
	)
	for {
		graves, ok := q.readMembers()
		was := janitor
		janitor = ok
		if janitor && !was {
			due, adopt = time.Now(), true // whoever had it before may have left work
		}
		if janitor {
			if q.declareSilent() {
				due, adopt = time.Now(), true
			}
			for _, g := range graves {
				if g.since.After(look) {
					due, adopt = earlier(due, g.since), true
				}
			}
			if !time.Now().Before(due) {
				began := time.Now()
				if err := q.lookAround(q.life, adopt); err == nil {
					look, adopt = began, false
					due = time.Now().Add(max(3*q.cfg.Lease, 10*time.Second, 20*time.Since(began)))
					for id, g := range graves {
						if began.Sub(g.since) >= q.cfg.Lease {
							q.wire.remove(q.life, g.seq)
							q.mu.Lock()
							delete(q.others.members, id)
							q.mu.Unlock()
						} else {
							due, adopt = earlier(due, g.since.Add(q.cfg.Lease)), true
						}
					}
				} else {
					q.troubled(err, "looking at all records")
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

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// eachMember calls fn for all members, and for those declared gone, until it
// returns false. It begins after the message with the sequence from, and ends
// with that.
func (q *Queue[T]) eachMember(ctx context.Context, from uint64, fn func(id string, b beat, seq uint64) bool) error {
	prefix := q.cfg.Name + ".m."
	for _, part := range [][2]uint64{{from + 1, math.MaxUint64}, {1, from}} {
		for seq := part[0]; seq <= part[1]; {
			m, err := q.wire.next(ctx, prefix+">", seq)
			if errors.Is(err, errNoRecord) || err == nil && m.seq > part[1] {
				break
			}
			if err != nil {
				return err
			}
			if !fn(strings.TrimPrefix(m.subject, prefix), decodeBeat(m.data), m.seq) {
				return nil
			}
			seq = m.seq + 1
		}
	}
	return nil
}

// readMembers looks whether there is a living member that is older than this
// one, its elder: first at the one that it was the last time, so that it costs
// one request. If there is none, it has looked at all members, and returns those
// that are declared gone. Each looks from where it is itself in the stream, so
// that they do not all mind the same one.
func (q *Queue[T]) readMembers() (graves map[string]seenMember, ok bool) {
	q.mu.Lock()
	own, elder := q.member, q.others.elder
	q.mu.Unlock()
	if own.id == "" {
		return nil, false
	}
	if elder != "" {
		m, err := q.wire.last(q.life, q.cfg.Name+".m."+elder)
		if err != nil && !errors.Is(err, errNoRecord) {
			q.troubled(err, "reading a member")
			return nil, false
		}
		if err == nil && q.see(elder, decodeBeat(m.data), m.seq) && elder < own.id {
			return nil, false
		}
		elder = ""
	}
	graves = make(map[string]seenMember)
	found := make(map[string]bool)
	err := q.eachMember(q.life, own.seq, func(id string, b beat, seq uint64) bool {
		found[id] = true
		if q.see(id, b, seq) && id < own.id {
			elder = id
			return false
		}
		if b.Gone != "" {
			q.mu.Lock()
			graves[id] = *q.others.members[id]
			q.mu.Unlock()
		}
		return true
	})
	if err != nil {
		q.troubled(err, "reading the members")
		return nil, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.others.elder = elder; elder != "" {
		return nil, false
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
	return graves, q.member.valid()
}

// see takes note of a member as it stands, and reports whether it lives.
func (q *Queue[T]) see(id string, b beat, seq uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.others.members[id]
	if s == nil || s.seq != seq {
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

// declareSilent declares those gone that have shown no sign of life for the time
// of a lease. It reports whether there were any.
func (q *Queue[T]) declareSilent() (any bool) {
	q.mu.Lock()
	silent := make(map[string]uint64)
	for id, s := range q.others.members {
		if id != q.member.id && s.Gone == "" && time.Since(s.since) >= q.cfg.Lease {
			silent[id] = s.seq
		}
	}
	q.mu.Unlock()
	for id, seq := range silent {
		if _, err := q.declareGone(q.life, id, seq, false); err != nil {
			q.troubled(err, "declaring a member gone", "member", id)
			continue
		}
		q.cfg.Logger.Warn("a member has shown no sign of life, and its items run again",
			"queue", q.cfg.Name, "member", id)
		q.mu.Lock()
		q.others.dead[id] = time.Now()
		q.mu.Unlock()
		any = true
	}
	return any
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
	ctx, cancel := context.WithTimeout(q.life, 2*q.wire.timeout)
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
		_, err := q.declareGone(ctx, s.owner, 0, false)
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
		q.cfg.Logger.Warn("an item is to run again, as its process was gone", append(say, "in", delay)...)
	default:
		q.cfg.Logger.Error("gave up an item, as its process was gone", say...)
	}
}

// askGone asks the policy.
func (q *Queue[T]) askGone(err error, failures int) (delay time.Duration, again bool) {
	defer func() {
		if p := recover(); p != nil {
			q.cfg.Logger.Error("the policy panicked", "queue", q.cfg.Name, "panic", p)
			delay, again = goneRetry(err, failures)
		}
	}()
	return q.cfg.Gone(err, failures)
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
	c, err := q.js.Consumer(ctx, q.cfg.Name, consumerName)
	if err != nil {
		return err
	}
	floor, delivered := c.CachedInfo().AckFloor.Stream, c.CachedInfo().Delivered.Stream
	long := time.Now().Add(-2 * q.cfg.Lease)
	return q.scan(ctx, func(item T, s seen, stored time.Time) {
		switch {
		case s.running:
			if q.disowned(s) || !q.alive(item, s) {
				q.reclaim(item, s)
			}
		case s.waiting() && (adopt || s.due < time.Now().Add(-q.cfg.Lease).UnixNano()):
			q.schedule(item, s)
		case s.ready() && (s.seq <= floor || s.seq <= delivered && stored.Before(long)):
			q.post(item, op{verb: verbTouch, at: time.Now().UnixNano()}, s)
		}
	})
}

// disowned reports whether the owner of a run shows that it knows nothing of it.
func (q *Queue[T]) disowned(s seen) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.others.members[s.owner]
	return m != nil && m.Gone == "" && m.disowns(shorten(s.tokens), s)
}

// scan calls fn for all records, in the order of the stream.
func (q *Queue[T]) scan(ctx context.Context, fn func(item T, s seen, stored time.Time)) error {
	c, err := q.js.CreateConsumer(ctx, q.cfg.Name, jetstream.ConsumerConfig{
		Description:       "Reads all records once",
		FilterSubject:     q.cfg.Name + ".i.>",
		DeliverPolicy:     jetstream.DeliverAllPolicy,
		AckPolicy:         jetstream.AckNonePolicy,
		MemoryStorage:     true,
		Replicas:          1,
		InactiveThreshold: 30 * time.Second,
	})
	if err != nil {
		return err
	}
	defer q.js.DeleteConsumer(context.WithoutCancel(ctx), q.cfg.Name, c.CachedInfo().Name)
	for left := c.CachedInfo().NumPending; left > 0; {
		// A server that dies meanwhile forgets this consumer: then there are no
		// heartbeats, and that is an error.
		msgs, err := c.Fetch(int(min(500, left)), jetstream.FetchMaxWait(2*time.Second), jetstream.FetchHeartbeat(500*time.Millisecond))
		if err != nil {
			return err
		}
		some := false
		for m := range msgs.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			some, left = true, meta.NumPending
			item, s, err := q.decode(stored{m.Subject(), meta.Sequence.Stream, m.Data()})
			if err != nil {
				q.cfg.Logger.Error("unreadable record is left alone", "queue", q.cfg.Name, "err", err)
				continue
			}
			if s.record != (record{}) {
				fn(item, s, meta.Timestamp)
			}
		}
		if err := msgs.Error(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if !some {
			break // the rest was deleted meanwhile
		}
	}
	return nil
}
