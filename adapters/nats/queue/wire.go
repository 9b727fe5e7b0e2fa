// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// This file holds what a [Queue] says to the server: requests about its stream,
// each with a time limit of its own. An error that is neither errConflict nor
// errNoRecord leaves open whether it has happened.

var (
	errConflict = errors.New("the record has changed")
	errNoRecord = errors.New("no record")
)

func isConflict(err error) bool { return errors.Is(err, errConflict) }

// A wire is all that a [Queue] asks of its server, about one stream and its
// consumer.
type wire interface {
	// publish stores a message if the last one with its subject has the sequence
	// last, 0 for none, else it is errConflict. It returns the sequence of the new
	// one.
	publish(ctx context.Context, subject string, last uint64, data []byte) (uint64, error)

	// publishBriefly is publish of a message that ends by itself in a minute.
	publishBriefly(ctx context.Context, subject string, last uint64, data []byte) (uint64, error)

	// publishIf stores an empty message if the last one with another subject has
	// the sequence last.
	publishIf(ctx context.Context, subject, other string, last uint64) error

	// last returns the last message with a subject, or errNoRecord. The leader of
	// the stream answers, never a follower.
	last(ctx context.Context, subject string) (stored, error)

	// subjects returns the subjects of all messages that match, in no order.
	subjects(ctx context.Context, filter string) ([]string, error)

	// remove deletes the message with a sequence. It is errConflict if the server
	// refuses: nearly always as the message is not there any more.
	remove(ctx context.Context, seq uint64) error

	// purge deletes the message with a subject, if there is one.
	purge(ctx context.Context, subject string) error

	// room returns how many bytes the stream may still take by its own limit, and
	// whether there is a message with a subject.
	room(ctx context.Context, subject string) (free int64, there bool, err error)

	// drop deletes a message that nobody needs, some time.
	drop(seq uint64)

	// scan calls fn for the records of all items, in the order of the stream.
	scan(ctx context.Context, fn func(m stored, at time.Time)) error

	// epoch returns what to add to the sequences of the stream.
	epoch(ctx context.Context) (uint64, error)

	// consumer returns how far the consumer is.
	consumer(ctx context.Context) (progress, error)

	// createConsumer creates the consumer if it is missing.
	createConsumer(ctx context.Context) error

	// subscribe has receive called, by one goroutine, with all that the consumer
	// sends from now on.
	subscribe(receive func(arrival)) (unsubscribe func(), err error)

	// pull asks the consumer for n messages. A request that gets lost is missed by
	// its heartbeat.
	pull(id uint64, n int)

	// answer tells the consumer what became of a message. If that gets lost the
	// message comes again.
	answer(d arrival, what string)

	// patient returns the same wire with time for long messages over slow links.
	patient() wire

	largest() int    // how long a message may be
	connected() bool // else what is sent may arrive with all else when it is back
	closed() error   // not nil if the connection will not come back

	// connects sends when the connection is there again, until stop is called.
	connects() (again chan nats.Status, stop func())
}

// A stored is a message in the stream.
type stored struct {
	subject string
	seq     uint64
	data    []byte
}

// An arrival is what the consumer sends: a message, or if status is not empty a
// word about a request.
type arrival struct {
	stored
	reply  string // where to answer
	err    error  // why the message is none of a stream
	status string // as in HTTP
	text   string // of the status
	id     uint64 // of the request that the status is about
	left   int    // messages that it asked for and did not get
}

// A progress is how far a consumer is.
type progress struct {
	pending   int    // messages that it has not delivered yet
	delivered uint64 // the sequence of the last message that it has delivered
	floor     uint64 // up to this sequence it thinks all are done with
}

// recordRoom is how many bytes the message of an item takes at most, beside the
// item.
const recordRoom = 8192

// tooLong reports whether a message was refused because of its length, by the
// client or by the stream.
func tooLong(err error) bool {
	const code = 10054
	var refused *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &refused) && refused.ErrorCode == code
}

// A message is how a record stands in the stream.
type message struct {
	Phase    string    `json:"phase"` // ready, waiting, in flight, or idle
	Since    time.Time `json:"since,omitzero"`
	Pending  time.Time `json:"pending,omitzero"` // if that is not since; none of what is settled
	Next     string    `json:"next,omitempty"`   // what follows a run in flight, or the kind of wait
	Due      time.Time `json:"due,omitzero"`
	Settled  bool      `json:"settled,omitempty"` // with next within, at rest: all is well
	Owner    string    `json:"owner,omitempty"`
	Fence    uint64    `json:"fence,omitempty"`
	Failures int       `json:"failures,omitempty"`
	Err      string    `json:"err,omitempty"`
	Removed  bool      `json:"removed,omitempty"`
	Item     string    `json:"item,omitempty"` // its tokens, if they are too long for the subject
	Write    string    `json:"write"`          // names the write, so that its writer knows it again
}

// asTime returns a time of a record as it is written.
func asTime(ns int64) (t time.Time) {
	if ns != 0 {
		t = time.Unix(0, ns).UTC()
	}
	return t
}

// nanoseconds undoes asTime.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// encodeRecord returns the message of a record.
func encodeRecord(r *record, tokens, write string) []byte {
	m := message{
		Since: asTime(r.since), Owner: r.owner, Fence: r.fence,
		Failures: r.failures, Err: r.err, Write: write,
	}
	if len(tokens) > maxTokens {
		m.Item = tokens
	}
	if r.pending != r.since {
		m.Pending = asTime(r.pending)
	}
	switch {
	case r.running:
		m.Phase, m.Next, m.Due, m.Removed = "in flight", nextNames[r.next], asTime(r.due), r.removed
	case r.next.later():
		m.Phase, m.Next, m.Due = "waiting", nextNames[r.next], asTime(r.due)
		if r.next == nextSettled { // those who know nothing of it see a time to wait for
			m.Next, m.Settled = nextNames[nextWithin], true
		}
	case r.next == nextReady:
		m.Phase = "ready"
	default:
		m.Phase = "idle"
	}
	b, err := json.Marshal(&m)
	if err != nil {
		panic(fmt.Sprintf("natsadapter: %+v: %v", m, err)) // it is strings and numbers
	}
	return b
}

// decodeRecord reads a message. The fence of a run that began with it is its
// sequence.
func decodeRecord(s stored) (r record, m message, err error) {
	if err := json.Unmarshal(s.data, &m); err != nil {
		return record{}, m, fmt.Errorf("natsadapter: message %d, %s, is no record: %w", s.seq, brief(s.subject), err)
	}
	bad := func(what string) error {
		return fmt.Errorf("natsadapter: message %d, %s: %s", s.seq, brief(s.subject), what)
	}
	r = record{
		since: nanoseconds(m.Since), pending: nanoseconds(m.Pending), due: nanoseconds(m.Due),
		owner: m.Owner, fence: m.Fence, failures: m.Failures, err: m.Err,
	}
	if r.owner != "" || m.Phase == "in flight" {
		if err := checkID(r.owner); err != nil {
			return record{}, m, bad("its owner: " + err.Error())
		}
	}
	n := slices.Index(nextNames[:], m.Next)
	if n < 0 || next(n) == nextSettled {
		return record{}, m, bad("unknown next " + brief(m.Next))
	}
	r.next = next(n)
	switch m.Phase {
	case "idle":
		return record{}, m, nil
	case "ready":
		r.next = nextReady
	case "waiting":
		if !r.next.later() {
			return record{}, m, bad("it waits for nothing")
		}
		if r.next == nextWithin && m.Settled {
			r.next = nextSettled
		}
	case "in flight":
		r.running, r.removed = true, m.Removed
		if r.fence == 0 {
			r.fence = s.seq
		}
	default:
		return record{}, m, bad("unknown phase " + strconv.Quote(brief(m.Phase)))
	}
	if r.pending == 0 && r.next != nextSettled {
		r.pending = r.since
	}
	return r, m, nil
}
