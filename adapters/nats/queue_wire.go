// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// This file holds what a [Queue] says to the server: three requests, each with
// a time limit of its own, and each answered with what happened or with
// errUnsure.

var (
	errConflict = errors.New("the record has changed")
	errUnsure   = errors.New("no answer: it may have happened or not")
	errNoRecord = errors.New("no record")
)

// Codes of JetStream's errors.
const (
	codeWrongLast         = 10071 // the sequence expected is not the last of the subject
	codeWrongLastConstant = 10164 // the same, while another message for the subject is on its way
	codeNoMessage         = 10037 // to be read
	codeNoSequence        = 10043 // to be deleted
	codeNotDeleted        = 10057 // also as the message is not there
)

// A wire sends requests about one stream.
type wire struct {
	nc      *nats.Conn
	api     string // the prefix of the API's subjects
	stream  string
	timeout time.Duration // of one request
}

func newWire(js jetstream.JetStream, stream string, timeout time.Duration) wire {
	api := jetstream.DefaultAPIPrefix
	switch o := js.Options(); {
	case o.Domain != "":
		api = "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		api = strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return wire{nc: js.Conn(), api: api, stream: stream, timeout: timeout}
}

type apiError struct {
	Code        int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.Code) }

// ask sends a request and waits for its answer. An error that is not errUnsure
// is for good.
func (w *wire) ask(ctx context.Context, m *nats.Msg) ([]byte, error) {
	attempt, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	answer, err := w.nc.RequestMsgWithContext(attempt, m)
	switch {
	case err == nil:
		return answer.Data, nil
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrBadSubject),
		errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrHeadersNotSupported):
		return nil, err
	}
	return nil, fmt.Errorf("%w (%w)", errUnsure, err)
}

// publish stores a message if the last one with its subject has the sequence
// last, 0 for none. It returns the sequence of the new one.
func (w *wire) publish(ctx context.Context, subject string, last uint64, data []byte, headers ...string) (uint64, error) {
	m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		"Nats-Expected-Last-Subject-Sequence": {strconv.FormatUint(last, 10)},
		"Nats-Expected-Stream":                {w.stream},
	}}
	for i := 0; i+1 < len(headers); i += 2 {
		m.Header[headers[i]] = []string{headers[i+1]}
	}
	b, err := w.ask(ctx, m)
	if err != nil {
		return 0, err
	}
	if seq, ok := quickAck(b); ok {
		return seq, nil
	}
	var ack struct {
		Seq   uint64    `json:"seq"`
		Error *apiError `json:"error"`
	}
	switch err := json.Unmarshal(b, &ack); {
	case err != nil:
		return 0, fmt.Errorf("%w: answer %q", errUnsure, b)
	case ack.Error == nil:
		return ack.Seq, nil
	case ack.Error.Code == codeWrongLast, ack.Error.Code == codeWrongLastConstant:
		return 0, errConflict
	default: // a server that is out of order for now, or a limit
		return 0, fmt.Errorf("%w: %w", errUnsure, ack.Error)
	}
}

// quickAck reads the answer to a publish that succeeded, which is of one form.
func quickAck(b []byte) (seq uint64, ok bool) {
	const key = `"seq":`
	s := string(b)
	if strings.Contains(s, `"error"`) {
		return 0, false
	}
	i := strings.Index(s, key)
	if i < 0 {
		return 0, false
	}
	s = s[i+len(key):]
	end := strings.IndexAny(s, ",} ")
	if end < 0 {
		return 0, false
	}
	seq, err := strconv.ParseUint(s[:end], 10, 64)
	return seq, err == nil && seq > 0
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
	b, err := json.Marshal(map[string]any{"last_by_subj": subject})
	if err != nil {
		return stored{}, err
	}
	return w.get(ctx, b)
}

// next returns the first message from a sequence on whose subject matches.
func (w *wire) next(ctx context.Context, filter string, seq uint64) (stored, error) {
	b, err := json.Marshal(map[string]any{"seq": max(1, seq), "next_by_subj": filter})
	if err != nil {
		return stored{}, err
	}
	return w.get(ctx, b)
}

func (w *wire) get(ctx context.Context, request []byte) (stored, error) {
	b, err := w.ask(ctx, &nats.Msg{Subject: w.api + "STREAM.MSG.GET." + w.stream, Data: request})
	if err != nil {
		return stored{}, err
	}
	var answer struct {
		Error   *apiError `json:"error"`
		Message struct {
			Subject string `json:"subject"`
			Seq     uint64 `json:"seq"`
			Data    []byte `json:"data"`
		} `json:"message"`
	}
	switch err := json.Unmarshal(b, &answer); {
	case err != nil:
		return stored{}, fmt.Errorf("%w: answer %q", errUnsure, b)
	case answer.Error == nil:
		m := answer.Message
		return stored{m.Subject, m.Seq, m.Data}, nil
	case answer.Error.Code == codeNoMessage:
		return stored{}, errNoRecord
	default:
		return stored{}, fmt.Errorf("%w: %w", errUnsure, answer.Error)
	}
}

// remove deletes the message with a sequence. A message that is not there any
// more is errConflict.
func (w *wire) remove(ctx context.Context, seq uint64) error {
	b, err := w.ask(ctx, w.removal(seq))
	if err != nil {
		return err
	}
	var answer struct {
		Error   *apiError `json:"error"`
		Success bool      `json:"success"`
	}
	switch err := json.Unmarshal(b, &answer); {
	case err != nil:
		return fmt.Errorf("%w: answer %q", errUnsure, b)
	case answer.Success:
		return nil
	case answer.Error == nil, answer.Error.Code == codeNoSequence, answer.Error.Code == codeNotDeleted:
		return errConflict
	default:
		return fmt.Errorf("%w: %w", errUnsure, answer.Error)
	}
}

// drop deletes a message that nobody needs, some time.
func (w *wire) drop(seq uint64) {
	w.nc.PublishMsg(w.removal(seq)) // what stays ends by its TTL
}

func (w *wire) removal(seq uint64) *nats.Msg {
	return &nats.Msg{
		Subject: w.api + "STREAM.MSG.DELETE." + w.stream,
		Data:    append(strconv.AppendUint([]byte(`{"seq":`), seq, 10), `,"no_erase":true}`...),
	}
}

// A message is how a record stands in the stream.
type message struct {
	Phase    string `json:"phase"` // ready, waiting, in flight, or idle
	Since    string `json:"since,omitempty"`
	Next     string `json:"next,omitempty"` // what follows a run in flight, or the kind of wait
	Due      string `json:"due,omitempty"`
	Settled  bool   `json:"settled,omitempty"` // with next within, at rest: all is well
	Owner    string `json:"owner,omitempty"`
	Fence    uint64 `json:"fence,omitempty"`
	Failures int    `json:"failures,omitempty"`
	Err      string `json:"err,omitempty"`
	Item     string `json:"item,omitempty"` // its tokens, if they are too long for the subject
	Write    string `json:"write"`          // names the write, so that its writer knows it again
}

func formatTime(ns int64) string {
	if ns == 0 {
		return ""
	}
	return time.Unix(0, ns).UTC().Format(time.RFC3339Nano)
}

func parseTime(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	return t.UnixNano(), err
}

// encodeRecord returns the message of a record.
func encodeRecord(r *record, tokens, write string) []byte {
	m := message{
		Since: formatTime(r.since), Owner: r.owner, Fence: r.fence,
		Failures: r.failures, Err: r.err, Write: write,
	}
	if len(tokens) > maxTokens {
		m.Item = tokens
	}
	switch {
	case r.running:
		m.Phase, m.Next, m.Due = "in flight", nextNames[r.next], formatTime(r.due)
	case r.next.later():
		m.Phase, m.Next, m.Due = "waiting", nextNames[r.next], formatTime(r.due)
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
	r = record{owner: m.Owner, fence: m.Fence, failures: m.Failures, err: m.Err}
	if r.since, err = parseTime(m.Since); err != nil {
		return record{}, m, bad(err.Error())
	}
	if r.due, err = parseTime(m.Due); err != nil {
		return record{}, m, bad(err.Error())
	}
	for n, name := range nextNames {
		if name == m.Next {
			r.next = next(n)
		}
	}
	if nextNames[r.next] != m.Next || r.next == nextSettled {
		return record{}, m, bad("unknown next " + m.Next)
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
		if r.next == nextWithin && m.Settled {
			r.next = nextSettled
		}
	case "in flight":
		r.running = true
		if r.fence == 0 {
			r.fence = s.seq
		}
	default:
		return record{}, m, bad("unknown phase " + strconv.Quote(m.Phase))
	}
	return r, m, nil
}
