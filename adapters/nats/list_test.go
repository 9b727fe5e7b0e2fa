// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A scripted consumer sends messages, and says how many are to come, as a server does in
// a moment that a test cannot wait for.
type scripted struct {
	jetstream.PushConsumer
	total   int       // as the answer to its creation says
	first   []message // sent after that
	answers []counted // to the questions of the client; the last one again and again

	msgs  chan *nats.Msg
	sent  int
	asked int
}

// A message says that left others are to come.
type message struct {
	key   string
	since time.Duration // when it was written, after the consumer was made
	left  int
}

// A counted is what a server sends before an answer, and what it says there.
type counted struct {
	more []message
	sent int // messages so far
	left int // messages to come
}

var scriptedCreation = time.Unix(1e9, 0)

func (s *scripted) send(messages []message) {
	for _, m := range messages {
		s.sent++
		s.msgs <- &nats.Msg{
			Subject: m.key, Sub: new(nats.Subscription),
			Reply: fmt.Sprintf("$JS.ACK.KV_b.c.1.%d.%d.%d.%d", s.sent, s.sent, scriptedCreation.Add(m.since).UnixNano(), m.left),
		}
	}
}

func (s *scripted) CachedInfo() *jetstream.ConsumerInfo {
	return &jetstream.ConsumerInfo{NumPending: uint64(s.total), Created: scriptedCreation, PushBound: true}
}

func (s *scripted) Info(context.Context) (*jetstream.ConsumerInfo, error) {
	a := s.answers[min(s.asked, len(s.answers)-1)]
	s.asked++
	s.send(a.more)
	synctest.Wait() // what was sent before the answer comes before it
	info := s.CachedInfo()
	info.NumPending, info.Delivered.Consumer = uint64(a.left), uint64(a.sent)
	return info, nil
}

// A list ends when it has all, also if the server counts a message that is replaced off
// before it counts the one in its place, and asks only if it cannot know.
func TestListIsComplete(t *testing.T) {
	const before, since = -time.Second, time.Second
	for name, c := range map[string]struct {
		scripted
		want []string
		asks int
	}{
		"nothing is written": {
			scripted{total: 2, first: []message{{"m", before, 1}, {"k", before, 0}}},
			[]string{"m", "k"},
			0,
		},
		"one that is to come is replaced": {
			scripted{total: 2, first: []message{{"m", before, 0}}, answers: []counted{{nil, 1, 1}, {[]message{{"k", since, 0}}, 2, 0}}},
			[]string{"m", "k"},
			2,
		},
		"one that is to come is replaced, before it is counted": {
			scripted{total: 2, first: []message{{"m", before, 0}}, answers: []counted{{[]message{{"k", since, 0}}, 2, 0}}},
			[]string{"m", "k"},
			1,
		},
		"a new one comes in the place of it": {
			scripted{total: 2, first: []message{{"m", before, 1}, {"new", since, 0}}, answers: []counted{{[]message{{"k", since, 0}}, 3, 0}}},
			[]string{"m", "new", "k"},
			1,
		},
		"the first one is replaced as well": {
			scripted{total: 2, first: []message{{"m", before, 1}, {"m", since, 0}}, answers: []counted{{nil, 2, 1}, {[]message{{"k", since, 0}}, 3, 0}}},
			[]string{"m", "m", "k"},
			2,
		},
		"the only one is replaced as the consumer is made": {
			scripted{total: 0, answers: []counted{{[]message{{"k", since, 0}}, 1, 0}}},
			[]string{"k"},
			1,
		},
		"one that is to come is deleted": {
			scripted{total: 2, first: []message{{"m", before, 0}}, answers: []counted{{nil, 1, 0}}},
			[]string{"m"},
			1,
		},
		"there is nothing": {
			scripted{total: 0, answers: []counted{{nil, 0, 0}}},
			nil, 1,
		},
		"more is written all the time": {
			scripted{total: 2, first: []message{{"m", before, 0}}, answers: []counted{{[]message{{"k", since, 0}, {"k", since, 0}}, 2, 0}, {[]message{{"k", since, 0}}, 2, 0}}},
			[]string{"m", "k", "k"},
			1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := c.scripted
				s.msgs = make(chan *nats.Msg, 256)
				s.send(s.first)
				var got []string
				d := &delivery{consumer: &s, msgs: s.msgs}
				err := d.each(t.Context(), &reader{works: func() {}}, func(msg *nats.Msg, _ *nats.MsgMetadata) error {
					got = append(got, msg.Subject)
					return nil
				}, func(bool) (bool, error) { return true, errEnd })
				if err != errEnd || !slices.Equal(got, c.want) || s.asked != c.asks {
					t.Errorf("the list has %q, %v, and asked %d times; want %q and %d times", got, err, s.asked, c.want, c.asks)
				}
			})
		})
	}
}

// A settled stream says what it has.
type settled struct {
	jetstream.Stream
	state jetstream.StreamState // as it was asked beside the list
	now   map[string]uint64     // its subjects, as it is asked now
	asked int
}

func (s *settled) CachedInfo() *jetstream.StreamInfo { return &jetstream.StreamInfo{State: s.state} }

func (s *settled) Info(context.Context, ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	s.asked++
	return &jetstream.StreamInfo{State: jetstream.StreamState{Subjects: s.now}}, nil
}

// What the server says of a consumer is not believed while the bucket is written.
func TestListIsCompleteByTheStream(t *testing.T) {
	const whole, part = "$KV.b.>", "$KV.b.x.>"
	type subjects = map[string]uint64
	for name, c := range map[string]struct {
		filter  string
		seen    subjects // with the sequences of their first messages
		state   jetstream.StreamState
		now     subjects
		quiet   bool
		lenient bool
		want    bool
		asks    int
	}{
		"nothing is written":           {filter: whole, seen: subjects{"m": 1, "k": 2}, state: jetstream.StreamState{LastSeq: 2, NumSubjects: 2}, want: true},
		"there is nothing":             {filter: whole, want: true},
		"one is missing":               {filter: whole, seen: subjects{"m": 1}, state: jetstream.StreamState{LastSeq: 2, NumSubjects: 2}, now: subjects{"m": 1, "k": 1}, quiet: true, asks: 1},
		"a new one is in its place":    {filter: whole, seen: subjects{"m": 1, "new": 3}, state: jetstream.StreamState{LastSeq: 2, NumSubjects: 2}, now: subjects{"m": 1, "k": 1, "new": 1}, quiet: true, asks: 1},
		"one was replaced":             {filter: whole, seen: subjects{"m": 1, "k": 4}, state: jetstream.StreamState{LastSeq: 3, NumSubjects: 2}, now: subjects{"m": 1, "k": 1}, want: true, asks: 1},
		"one was deleted":              {filter: whole, seen: subjects{"m": 1, "gone": 2}, state: jetstream.StreamState{LastSeq: 2, NumSubjects: 1}, now: subjects{"m": 1}, want: true, asks: 1},
		"a part is quiet":              {filter: part, seen: subjects{"m": 1}, state: jetstream.StreamState{LastTime: scriptedCreation.Add(-time.Minute)}, quiet: true, want: true},
		"a part is not":                {filter: part, seen: subjects{"m": 1}, state: jetstream.StreamState{LastTime: scriptedCreation.Add(-time.Minute)}, now: subjects{"m": 1, "k": 1}, asks: 1},
		"a part is written meanwhile":  {filter: part, seen: subjects{"m": 1}, state: jetstream.StreamState{LastTime: scriptedCreation}, now: subjects{"m": 1, "k": 1}, quiet: true, asks: 1},
		"that does not matter to this": {filter: part, seen: subjects{"m": 1}, state: jetstream.StreamState{LastTime: scriptedCreation}, quiet: true, lenient: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &tail{root: "$KV.b.", filters: []string{c.filter}, seen: c.seen, lenient: c.lenient}
			stream := &settled{state: c.state, now: c.now}
			got, err := l.complete(t.Context(), &reader{}, &delivery{consumer: new(scripted)}, stream, c.quiet)
			if err != nil || got != c.want || stream.asked != c.asks {
				t.Errorf("complete: %t, %v, and asked %d times; want %t and %d times", got, err, stream.asked, c.want, c.asks)
			}
		})
	}
}

// A server that leaves out a key is an error after a while: a list without that key would
// take it for vanished, and one that waits would wait for ever.
func TestListWithoutAKeyIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &tail{root: "$KV.b.", filters: []string{"$KV.b.>"}, seen: map[string]uint64{"m": 1}}
		stream := &settled{state: jetstream.StreamState{LastSeq: 2, NumSubjects: 2}, now: map[string]uint64{"m": 1, "k": 1, "j": 1}}
		check := func() error {
			all, err := l.complete(t.Context(), &reader{}, &delivery{consumer: new(scripted)}, stream, true)
			if all {
				t.Error("it is complete without k")
			}
			return err
		}
		for range 3 { // as long as others come
			if err := check(); err != nil {
				t.Error(err)
			}
			time.Sleep(patience - 1)
			l.seen[fmt.Sprint("new", len(l.seen))] = 3
		}
		if err := check(); err != nil {
			t.Error(err)
		}
		time.Sleep(patience)
		if err := check(); !errors.Is(err, errOther) {
			t.Errorf("after %v: %v, want an error", patience, err)
		}
	})
}
