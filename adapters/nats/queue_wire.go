// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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

// A wire sends requests about one stream.
type wire struct {
	nc      *nats.Conn
	js      jetstream.JetStream
	s       jetstream.Stream
	api     string        // the prefix of the API's subjects
	timeout time.Duration // of one request
}

func newWire(js jetstream.JetStream, s jetstream.Stream, timeout time.Duration) wire {
	api := jetstream.DefaultAPIPrefix
	switch o := js.Options(); {
	case o.Domain != "":
		api = "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		api = strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return wire{nc: js.Conn(), js: js, s: s, api: api, timeout: timeout}
}

// recordRoom is how many bytes the message of an item takes at most, beside the
// item.
const recordRoom = 8192

// largest returns how long a message may be.
func (w *wire) largest() int {
	most := int(w.nc.MaxPayload())
	if n := int(w.s.CachedInfo().Config.MaxMsgSize); n > 0 {
		most = min(most, n)
	}
	return most
}

// tooLong reports whether a message was refused because of its length, by the
// client or by the stream.
func tooLong(err error) bool {
	const code = 10054
	var refused *jetstream.APIError
	return errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &refused) && refused.ErrorCode == code
}

// publish stores a message if the last one with its subject has the sequence
// last, 0 for none. It returns the sequence of the new one.
func (w *wire) publish(ctx context.Context, subject string, last uint64, data []byte, more ...jetstream.PublishOpt) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	ack, err := w.js.Publish(ctx, subject, data, append([]jetstream.PublishOpt{
		jetstream.WithExpectStream(w.s.CachedInfo().Config.Name),
		jetstream.WithExpectLastSequencePerSubject(last),
	}, more...)...)
	if err == nil {
		return ack.Sequence, nil
	}
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		switch refused.ErrorCode {
		// The second is said while another message for the subject is on its way.
		case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			return 0, errConflict
		}
	}
	return 0, err
}

// epoch returns what to add to the sequences of the stream.
func (w *wire) epoch(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	info, err := w.s.Info(ctx)
	if err != nil {
		return 0, err
	}
	return epoch(info.Created), nil
}

// A stored is a message in the stream.
type stored struct {
	subject string
	seq     uint64
	data    []byte
}

// last returns the last message with a subject, or errNoRecord. The leader of
// the stream answers, never a follower.
func (w *wire) last(ctx context.Context, subject string) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return got(w.s.GetLastMsgForSubject(ctx, subject))
}

// next returns the first message from a sequence on whose subject matches.
func (w *wire) next(ctx context.Context, filter string, seq uint64) (stored, error) {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	return got(w.s.GetMsg(ctx, max(1, seq), jetstream.WithGetMsgSubject(filter)))
}

func got(m *jetstream.RawStreamMsg, err error) (stored, error) {
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return stored{}, errNoRecord
	case err != nil:
		return stored{}, err
	}
	return stored{m.Subject, m.Sequence, m.Data}, nil
}

// remove deletes the message with a sequence. It is errConflict if the server
// refuses: nearly always as the message is not there any more (10043, or 10057
// if it never was). nats.go hands on no code.
func (w *wire) remove(ctx context.Context, seq uint64) error {
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	err := w.s.DeleteMsg(ctx, seq)
	if errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
		return fmt.Errorf("%w: %w", errConflict, err)
	}
	return err
}

// drop deletes a message that nobody needs, some time. What stays ends by its
// TTL.
func (w *wire) drop(seq uint64) {
	w.nc.Publish(w.api+"STREAM.MSG.DELETE."+w.s.CachedInfo().Config.Name, fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, seq))
}

// A message is how a record stands in the stream.
type message struct {
	Phase    string    `json:"phase"` // ready, waiting, in flight, or idle
	Since    time.Time `json:"since,omitzero"`
	Next     string    `json:"next,omitempty"` // what follows a run in flight, or the kind of wait
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
		return record{}, m, fmt.Errorf("natsadapter: message %d, %s, is no record: %w", s.seq, s.subject, err)
	}
	bad := func(what string) error {
		return fmt.Errorf("natsadapter: message %d, %s: %s", s.seq, s.subject, what)
	}
	r = record{
		since: nanoseconds(m.Since), due: nanoseconds(m.Due),
		owner: m.Owner, fence: m.Fence, failures: m.Failures, err: m.Err,
	}
	n := slices.Index(nextNames[:], m.Next)
	if n < 0 || next(n) == nextSettled {
		return record{}, m, bad("unknown next " + m.Next)
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
		return record{}, m, bad("unknown phase " + strconv.Quote(m.Phase))
	}
	return r, m, nil
}
