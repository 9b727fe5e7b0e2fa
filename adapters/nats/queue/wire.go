// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
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

	// purge deletes the message with a subject, if there is one. A sequence would not do: the
	// request may arrive after an outage, when another message has that sequence.
	purge(ctx context.Context, subject string) error

	// room returns how many bytes the stream may still take by its own limit, and
	// whether there is a message with a subject.
	room(ctx context.Context, subject string) (free int64, there bool, err error)

	// drop deletes a message that nobody needs, some time.
	drop(seq uint64)

	// scan calls fn for the records of all items, in the order of the stream. It reports
	// whether some may be missing because they were written meanwhile.
	scan(ctx context.Context, fn func(m stored, at time.Time)) (moved bool, err error)

	// epoch returns what to add to the sequences of the stream.
	epoch(ctx context.Context) (uint64, error)

	// consumer returns how far the consumer is.
	consumer(ctx context.Context) (progress, error)

	// wrongSettings says which settings of the stream and of its consumer are not those of a
	// queue any more, and whether the consumer is paused.
	wrongSettings(ctx context.Context) ([]string, error)

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
	outages() uint64 // how often the connection was lost and came back
	closed() error   // not nil if the connection will not come back

	// connects sends when the connection is there again, until stop is called.
	connects() (again chan nats.Status, stop func())
}

// How long a request for messages lasts, and how often the server says that it does.
const (
	pullExpires   = 30 * time.Second
	pullHeartbeat = time.Second
)

// slowAnswer is how long to wait for an answer that may take long.
const slowAnswer = 15 * time.Second

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

// errFull says that an item waits for room.
var errFull = errors.New("the store is full")

// isFull reports whether the server refused a message as there is no room for it.
func isFull(err error) bool {
	if err == errFull {
		return true
	}
	var refused *jetstream.APIError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.ErrorCode {
	case 10002, // of the account
		10023, 10028, 10047, // of the server
		10077: // of the stream
		return true
	}
	return false
}

// tooLong reports whether a message was refused because of its length, by the
// client or by the stream.
func tooLong(err error) bool {
	const code = 10054
	var refused *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &refused) && refused.ErrorCode == code
}
