// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// This file holds what stands in the messages of the stream: the records of items,
// and the members.

// A stored is a message in the stream.
type stored struct {
	subject string
	seq     uint64
	data    []byte
}

// A seen is a record, and the sequence of its message; 0 if there is none.
type seen struct {
	record
	seq     uint64
	tokens  string // of the item, if the record was delivered
	write   string
	read    bool   // it was read or written, and is not a guess
	outages uint64 // of the connection before that: after another one, seq may be of another record
}

// A message is how a record stands in the stream.
type message struct {
	Phase     string    `json:"phase"` // ready, waiting, in flight, or idle
	Since     time.Time `json:"since,omitzero"`
	Pending   time.Time `json:"pending,omitzero"` // if that is not since; none while it waits for a recheck
	Next      string    `json:"next,omitempty"`   // of a run in flight and of one that waits: see nextName
	Due       time.Time `json:"due,omitzero"`
	NotBefore time.Time `json:"not_before,omitzero"` // with next within: no event starts it sooner
	Recheck   bool      `json:"recheck,omitempty"`   // with next within, at rest: it is only a recheck
	Owner     string    `json:"owner,omitempty"`
	Fence     uint64    `json:"fence,omitempty"`
	Failures  int       `json:"failures,omitempty"`
	Err       string    `json:"err,omitempty"`
	Removed   bool      `json:"removed,omitempty"`
	Item      string    `json:"item,omitempty"` // its tokens, if they are too long for the subject
	Write     string    `json:"write"`          // names the write, so that its writer knows it again
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

// nextName returns how the next run of a record is written. Processes of versions that
// do not know notBefore and rechecks read it too.
func nextName(r *record) string {
	switch {
	case r.next == nextReady:
		return "ready"
	case r.next == nextNow:
		return "now"
	case !r.next.later():
		return ""
	case r.notBefore == r.due:
		return "held"
	}
	return "within"
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
		m.Phase, m.Next, m.Due, m.Removed = "in flight", nextName(r), asTime(r.due), r.removed
	case r.next.later():
		m.Phase, m.Next, m.Due, m.Recheck = "waiting", nextName(r), asTime(r.due), r.next == nextRecheck
	case r.next == nextReady:
		m.Phase = "ready"
	default:
		m.Phase = "idle"
	}
	if m.Next == "within" {
		m.NotBefore = asTime(r.notBefore)
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
	switch m.Next {
	case "":
	case "ready":
		r.next = nextReady
	case "now":
		r.next = nextNow
	case "within":
		r.next, r.notBefore = nextLater, min(r.due, nanoseconds(m.NotBefore))
	case "held":
		r.next, r.notBefore = nextLater, r.due
	default:
		return record{}, m, bad("unknown next " + brief(m.Next))
	}
	switch m.Phase {
	case "idle":
		return record{}, m, nil
	case "ready":
		r.next = nextReady
	case "waiting":
		if !r.next.later() {
			return record{}, m, bad("it waits for nothing")
		}
		if m.Next == "within" && m.Recheck && r.notBefore == 0 {
			r.next = nextRecheck
		}
	case "in flight":
		r.running, r.removed = true, m.Removed
		if r.fence == 0 {
			r.fence = s.seq
		}
	default:
		return record{}, m, bad("unknown phase " + strconv.Quote(brief(m.Phase)))
	}
	if r.pending == 0 && r.next != nextRecheck {
		r.pending = r.since
	}
	return r, m, nil
}

// A beat is how a member stands in the stream.
type beat struct {
	Owner  string    `json:"owner"`            // see Config
	Since  time.Time `json:"since,omitzero"`   // when it became a member
	Seen   time.Time `json:"seen"`             // when this was written, by its own clock
	Prev   uint64    `json:"prev,omitempty"`   // the sequence of the beat before, stored when this was written
	Held   []run     `json:"held,omitempty"`   // items in flight there
	More   bool      `json:"more,omitempty"`   // and more, for which there was no room
	Gone   string    `json:"gone,omitempty"`   // who has declared it gone
	Left   bool      `json:"left,omitempty"`   // it did so itself, with nothing in flight
	Looked bool      `json:"looked,omitempty"` // somebody has looked at all records since it is gone
	Write  string    `json:"write"`
}

// A run is an item in flight as a beat tells of it.
type run struct {
	Item  string `json:"item"`            // its tokens, as in the subject
	Fence uint64 `json:"fence,omitempty"` // 0 while it is being claimed
}

// maxBeat is how many bytes a beat tells of runs, where the server takes such messages. If
// a process has more in flight, its runs cannot be told from those that it knows nothing
// of.
const maxBeat = 200_000

// disowns reports whether a run of this member, as a record tells of it, is none
// in truth. The beat before was stored after the record was, and this one was
// written after that; so if the member knew of the run it would say so.
func (b *beat) disowns(tokens string, s seen) bool {
	if b.Prev <= s.seq || b.More {
		return false
	}
	for _, r := range b.Held {
		if r.Item == tokens && (r.Fence == s.fence || r.Fence == 0) {
			return false
		}
	}
	return true
}

func encodeBeat(b beat) []byte {
	data, err := json.Marshal(b)
	if err != nil {
		panic("natsadapter: " + err.Error()) // it is strings and numbers
	}
	return data
}

func decodeBeat(data []byte) (b beat) {
	if json.Unmarshal(data, &b) != nil {
		return beat{} // nobody we know: gone once nobody renews it
	}
	return b
}

// checkID returns an error if a member cannot have this id. It becomes part of a
// subject, and a server closes the connection of those who publish to one that is
// too long or is none.
func checkID(id string) error {
	const most = 64
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' || strings.IndexByte(".*>", c) >= 0 {
			return fmt.Errorf("%q is not one token of a subject", brief(id))
		}
	}
	if id == "" || len(id) > most {
		return fmt.Errorf("%q has %d bytes, want 1 to %d", brief(id), len(id), most)
	}
	return nil
}
