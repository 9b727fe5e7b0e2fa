// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/nats/internal/lease"
)

// This file keeps the lease of a [Queue]: the sign of life of this process, on
// which all items that it has in flight depend.
//
// The lease is valid for three quarters of its time from when its last renewal
// was sent. Others declare a member gone when they have seen the same renewal
// for the whole time, and a renewal cannot be seen before it is sent. So a
// quarter is left for the runs to end. Declaring it gone is a write over that
// renewal, which fails if there is a newer one, and after which the member's own
// renewals fail.
//
// A process that takes items is a member. Its id begins with the time at which it
// was made, so the eldest member has the least. Its message is a beat or a grave:
// see beat. Each write names the sequence of the message that it replaces, 0 for
// none, and fails if another is there:
//
//   - A process without a lease writes a beat over nothing: at once, then every fifth
//     of a lease. If that fails, it reads: its own write, which was not answered,
//     makes it a member; for a grave, or a beat of another, it takes a fresh id. It
//     does so too a lease after its first attempt with an id.
//   - A member writes a beat over its last one, every fifth of a lease. If that fails,
//     it reads: over a newer beat of its own it writes again; after anything else, also an
//     older one, which a server that has lost messages has, its lease is lost. A lease is
//     lost as well three quarters of it after the last beat that was stored was sent. Then
//     the contexts of all its runs end at once, their items stay in flight here until they
//     are given back, and it joins as another.
//   - The janitor, or a member that stands in for it, writes a grave over a beat that
//     it has seen unchanged for a lease. If that fails, the member lives, or another
//     was faster.
//   - A process that finds a run of a member without a message writes a grave over
//     nothing, at once: a deposed leader may have said that there is none, and takes
//     no write. If that fails, the owner lives.
//   - A member that is closed writes a grave with left over its last beat, when nothing
//     is in flight there. If that fails, the others find out.
//   - A member that has checked all records writes the same grave with looked.
//   - The janitor deletes a grave that it has seen for a lease, when a check that began
//     after that is over.
//
// A beat that was sent long ago and arrives now fails if it was to renew a lease. If
// it was to join, it is stored once its grave is gone: the others see a member that
// stays silent, and declare it gone; nothing is in flight there.
//
// So an id never means two members. It is used for a lease and a quarter at most,
// from its first attempt until it has joined. Others write a grave over it after a
// lease without a new beat at the earliest, and delete that a lease later. With clocks
// that run 10 % apart, 1.25 × 1.05 is less than 2 × 0.95, so no grave was written for
// a process whose first beat was stored over nothing and answered.

// A beat with a TTL of the server, and its delete marker as the grave, was tried and
// left out, with nats-server 2.15.2:
//
//   - The wall clock of the server decides. If it jumps ahead, members that live have a
//     marker and a valid lease; if it is put back, the dead live longer by as much.
//   - If the consumer of the items hands out the markers too, a marker comes after all
//     items that are ready, and no process receives it while no Dequeue waits.
//   - A full server stores no marker, and nor does a full stream with replicas.
//   - Records are checked for more reasons than deaths, so there is a janitor even so.

// A member is this process as the others see it. A process that has lost its
// lease becomes another one.
type member struct {
	id    string // empty if it is none
	seq   uint64
	lease *lease.Lease // nil while it is none
	epoch uint64       // of the stream when it joined
	past  []past       // oldest first: one that is a lease old, and those that are younger
}

// A past is a sign of life that this member has stored.
type past struct {
	seq uint64
	at  time.Time // when that was known
}

// silentSince returns since when at the latest another member is silent whose
// last sign of life has the sequence seq: all that this member has stored since
// has a higher one, unless the stream was made anew or has lost messages meanwhile.
func (m *member) silentSince(seq uint64) time.Time {
	for _, p := range m.past {
		if p.seq > seq {
			return p.at
		}
	}
	return time.Now()
}

// stored notes a sign of life.
func (m *member) stored(seq uint64, lease time.Duration) {
	m.seq = seq
	m.past = append(m.past, past{seq, time.Now()})
	for len(m.past) > 1 && time.Since(m.past[1].at) >= lease {
		m.past = m.past[1:]
	}
}

// beatLocked returns a beat that tells of all runs here, also of those that are
// being claimed or given back.
func (q *Queue[T]) beatLocked() beat {
	b := beat{
		Owner: q.cfg.Owner,
		Since: q.others.born.UTC(),
		Seen:  time.Now().UTC(),
		Prev:  q.member.seq,
		Write: q.newWrite(),
	}
	size, most := 0, min(maxBeat, q.wire.largest()-recordRoom)
	add := func(tokens string, fence uint64) {
		r := run{shorten(tokens), fence}
		if size += len(r.Item) + 40; size > most {
			b.More = true
			return
		}
		b.Held = append(b.Held, r)
	}
	for _, h := range q.held {
		add(h.tokens, h.fence)
	}
	for _, c := range q.intake.claims {
		add(c.tokens, 0)
	}
	return b
}

// valid reports whether this process holds its lease.
func (m *member) valid() bool { return m.id != "" && !m.lease.Over() }

// keepLease renews the lease until life ends, and becomes a new member when it
// is lost. It also sees to it that pull requests that got lost are replaced.
func (q *Queue[T]) keepLease() {
	connected, stop := q.wire.connects()
	defer stop()
	tick := time.NewTicker(min(200*time.Millisecond, q.cfg.Lease/10))
	defer tick.Stop()
	var renewed, recreated time.Time
	for {
		if time.Since(renewed) >= q.cfg.Lease/5 {
			if q.renew() {
				renewed = time.Now()
			}
			q.pull()
		}
		select {
		case <-q.life.Done():
			return
		case <-connected:
			q.missPulls(true)
			q.others.hurry()
		case <-tick.C:
			if err := q.wire.closed(); err != nil {
				q.fail(err)
			}
			q.missPulls(false)
			q.mu.Lock()
			suspect := q.intake.suspect
			q.mu.Unlock()
			if suspect && time.Since(recreated) > 2*time.Second {
				recreated = time.Now()
				q.recreateConsumer()
			}
		}
	}
}

// renew renews the lease, or begins one. It reports whether that is stored.
func (q *Queue[T]) renew() bool {
	q.mu.Lock()
	if q.member.id != "" && !q.member.valid() {
		q.loseLeaseLocked()
	}
	m := q.member
	joins := m.id == ""
	if joins {
		// An attempt that was not answered may have been stored, so the next one has
		// the same id. But a lease after it the others may declare that id gone, and
		// later forget the grave: who joins over that is dead to all of them.
		if q.joining == "" || time.Since(q.tries) > q.cfg.Lease {
			q.joining, q.tries = newID(), time.Now()
		}
		m.id = q.joining
	}
	b := q.beatLocked()
	q.mu.Unlock()
	if !q.wire.connected() {
		return false // what is sent now would arrive with all else when it is back
	}

	ctx, cancel := context.WithTimeout(q.life, q.cfg.Lease/4)
	defer cancel()
	var sent time.Time
	subject := q.cfg.Name + ".m." + m.id
	seq, err := lease.Rewrite(m.seq, func(last uint64) (uint64, error) {
		sent = time.Now()
		return q.wire.publish(ctx, subject, last, encodeBeat(b))
	}, isConflict, func() (uint64, error) {
		last, err := q.wire.last(ctx, subject)
		found := decodeBeat(last.data)
		switch {
		case errors.Is(err, errNoRecord) && joins: // it may come yet
			return 0, err
		case errors.Is(err, errNoRecord), err == nil && (found.Gone != "" || !strings.HasPrefix(found.Write, q.prefix+"-")):
			return 0, nil // somebody has declared us gone
		case err == nil && last.seq < m.seq:
			return 0, nil // the server has lost messages: our runs may be among them
		}
		return last.seq, err
	})
	if err != nil {
		q.troubled(err, "renewing the lease")
		if isFull(err) {
			q.filled(err)
			q.spend(ctx)
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if err == reconcile.ErrLeaseLost {
			q.loseLeaseLocked()
			q.joining = ""
		} else {
			q.trouble = err
		}
		return false
	}
	if joins {
		// Asked after it, as the stream may have been made anew just before.
		m.epoch, err = q.wire.epoch(q.life)
		if err != nil {
			q.troubled(err, "joining")
			return false
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.life.Err() != nil {
		return false
	}
	if !joins && q.member.id != m.id {
		return false // it ended meanwhile
	}
	q.joining, q.trouble = "", nil
	m.stored(seq, q.cfg.Lease)
	until := sent.Add(q.cfg.Lease * 3 / 4)
	if joins {
		clear(q.others.members) // how long they are silent may be measured by sequences that are gone
		m.lease = lease.New(context.Background(), until)
		context.AfterFunc(m.lease, func() { q.overdue(m.id) })
	}
	q.member = m
	if !m.lease.Extend(until) || !m.valid() { // the answer came too late
		q.loseLeaseLocked()
		return false
	}
	if joins {
		q.cfg.Logger.Debug("joined the queue", "queue", q.cfg.Name, "member", m.id)
	}
	return true
}

// overdue is called when the lease may have ended.
func (q *Queue[T]) overdue(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.member.id == id {
		q.loseLeaseLocked()
	}
}

var errHeldUp = errors.New("nothing was sent: the process was suspended or not connected")

// loseLeaseLocked ends the runs in flight here.
func (q *Queue[T]) loseLeaseLocked() {
	if q.member.id == "" {
		return
	}
	q.member.lease.End(reconcile.ErrLeaseLost)
	q.member = member{}
	runs := 0
	for _, h := range q.held {
		if !h.lost && !h.giving {
			runs++
		}
		h.lose()
	}
	q.counted.LeasesLost++
	if q.life.Err() == nil {
		go q.cfg.Logger.Warn("lost the lease: it could not be renewed in time", "queue", q.cfg.Name, "runs", runs, "err", cmp.Or(q.trouble, errHeldUp))
	}
}

// leave lets the others know that this process is gone. They would find out.
func (q *Queue[T]) leave() {
	q.mu.Lock()
	m := q.member
	q.member = member{}
	q.mu.Unlock()
	if m.id == "" {
		return
	}
	m.lease.End(reconcile.ErrLeaseLost)
	ctx, cancel := context.WithTimeout(context.Background(), q.timeout)
	defer cancel()
	if _, _, err := q.declareGone(ctx, m.id, m.seq, true); err != nil {
		q.troubled(err, "leaving")
	}
}

// declareGone writes over the last sign of life of a member, if it is the one
// with the sequence seq, and returns what it wrote.
func (q *Queue[T]) declareGone(ctx context.Context, id string, seq uint64, left bool) (beat, uint64, error) {
	q.mu.Lock()
	owner := id
	if m := q.others.members[id]; m != nil {
		owner = m.Owner
	}
	q.mu.Unlock()
	b := beat{Owner: owner, Seen: time.Now().UTC(), Gone: q.cfg.Owner, Left: left, Write: q.newWrite()}
	seq, err := q.wire.publish(ctx, q.cfg.Name+".m."+id, seq, encodeBeat(b))
	return b, seq, err
}

// recreateConsumer creates the consumer again after it was deleted: then all records are
// delivered again, which does no harm.
func (q *Queue[T]) recreateConsumer() {
	began := time.Now()
	ctx, cancel := context.WithTimeout(q.life, q.timeout)
	defer cancel()
	err := q.wire.createConsumer(ctx)
	var now uint64
	if err == nil {
		now, err = q.wire.epoch(ctx)
	}
	switch {
	case err == nil:
		q.mu.Lock()
		q.intake.suspect, q.intake.deleted = false, false
		if q.member.id != "" && q.member.epoch != now {
			q.loseLeaseLocked() // nobody knows this member
		}
		q.mu.Unlock()
		q.calm(&q.missing, "the queue has a stream again")
	case errors.Is(err, jetstream.ErrStreamNotFound):
		q.alarm(&q.missing, began, 0, "the stream of the queue was deleted", err)
	default:
		q.troubled(err, "looking for the consumer")
	}
}

// newID returns a name that nobody else has. Those of earlier times sort before
// those of later ones.
func newID() string {
	return fmt.Sprintf("%09s", strconv.FormatInt(time.Now().UnixMilli(), 36)) + "-" + strings.ToLower(rand.Text()[:12])
}
