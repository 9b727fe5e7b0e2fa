// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// This file holds the intake of a [Queue]: it asks the consumer for as many
// messages as there are Dequeues that wait, and for no more, so that no item
// waits here while another process is idle.

type intake[T comparable] struct {
	started  bool
	sub      *nats.Subscription
	inbox    string
	pulls    []pullRequest // oldest first
	lastPull uint64
	heard    time.Time   // when the consumer last said anything
	handling int         // messages that are being looked at
	claims   map[T]claim // items that are being claimed
	claiming int         // how many they are
	suspect  bool        // the consumer may be gone
	deleted  bool        // it is, so the stream may be another
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

const (
	pullExpires   = 30 * time.Second
	pullHeartbeat = time.Second
)

func (i *intake[T]) init() { i.claims = make(map[T]claim) }

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
	if err := errClosedConn(q.wire.nc); err != nil {
		return err
	}
	i.inbox = q.wire.nc.NewInbox()
	sub, err := q.wire.nc.Subscribe(i.inbox+".*", q.receive)
	if err != nil {
		return fmt.Errorf("natsadapter: subscribing: %w", err)
	}
	sub.SetPendingLimits(-1, -1) // no more comes than was asked for
	i.sub, i.started = sub, true
	q.running.Go(q.keepLease)
	q.running.Go(q.keepOrder)
	return nil
}

// pull asks for the messages that are missing.
func (q *Queue[T]) pull() {
	q.mu.Lock()
	n := q.missingLocked()
	if n <= 0 || !q.wire.nc.IsConnected() { // keepLease pulls when it is back
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
	// A request that gets lost is missed by its heartbeat.
	q.wire.nc.PublishRequest(
		q.wire.api+"CONSUMER.MSG.NEXT."+q.cfg.Name+"."+consumerName,
		i.inbox+"."+strconv.FormatUint(id, 10),
		fmt.Appendf(nil, `{"batch":%d,"expires":%d,"idle_heartbeat":%d}`, n, pullExpires, pullHeartbeat))
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
	return n
}

// receive is called with what the consumer sends.
func (q *Queue[T]) receive(m *nats.Msg) {
	status := ""
	if len(m.Data) == 0 {
		status = m.Header.Get("Status")
	}
	i := &q.intake
	q.mu.Lock()
	i.heard = time.Now()
	switch {
	case status == "":
		i.answered(0, 1)
		if q.closed {
			q.mu.Unlock()
			q.answer(m, "-NAK")
			return
		}
		i.handling++
		q.running.Go(func() { q.handle(m) })
		q.mu.Unlock()
	case status == "100": // a heartbeat
		q.mu.Unlock()
	case status == "408", status == "404": // the request is over
		id, _ := strconv.ParseUint(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], 10, 64)
		n, _ := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
		i.answered(id, n)
		q.mu.Unlock()
		q.pull()
	default: // keepLease asks anew, so that a server in trouble is not flooded
		i.pulls = nil
		i.suspect = true
		i.deleted = i.deleted || strings.Contains(m.Header.Get("Description"), "Deleted")
		q.mu.Unlock()
		q.troubled(fmt.Errorf("status %s %s", status, m.Header.Get("Description")), "pulling")
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
