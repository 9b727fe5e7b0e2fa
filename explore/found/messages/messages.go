// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package messages is a driver of gocloud.dev/pubsub on a [reconcile.Queue]: what
// mempubsub is. It passes their conformance tests, and its own explore both.
package messages

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
	"gocloud.dev/gcerrors"
	"gocloud.dev/pubsub"
	"gocloud.dev/pubsub/driver"
)

var errNone = errors.New("messages: no such topic")

// NewTopic returns a topic, and a function that subscribes to it. A message that is not
// acknowledged within the deadline comes again.
func NewTopic() (*pubsub.Topic, func(deadline time.Duration) *pubsub.Subscription) {
	t := &topic{}
	return pubsub.NewTopic(t, nil), func(deadline time.Duration) *pubsub.Subscription {
		return pubsub.NewSubscription(t.subscribe(deadline), nil, nil)
	}
}

type topic struct {
	mu   sync.Mutex // guards the fields below
	subs []*subscription
	last int
}

func (t *topic) subscribe(deadline time.Duration) *subscription {
	s := &subscription{queue: reconcile.NewQueue[int](), deadline: deadline, messages: map[int]*message{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subs = append(t.subs, s)
	return s
}

func (t *topic) SendBatch(ctx context.Context, messages []*driver.Message) error {
	if t == nil {
		return errNone
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range messages {
		t.last++
		m.AckID, m.LoggableID, m.AsFunc = t.last, fmt.Sprint("message ", t.last), func(any) bool { return false }
		for _, hook := range []func(func(any) bool) error{m.BeforeSend, m.AfterSend} {
			if hook == nil {
				continue
			}
			if err := hook(m.AsFunc); err != nil {
				return err
			}
		}
		for _, s := range t.subs {
			s.add(t.last, m)
		}
	}
	return nil
}

// A message is known until it is acknowledged. Its number is an item of the queue.
type message struct {
	*driver.Message
	deadline *time.Timer // while it is in flight
}

type subscription struct {
	queue    *reconcile.Queue[int]
	deadline time.Duration

	mu       sync.Mutex
	messages map[int]*message // guarded by mu
}

func (s *subscription) add(id int, m *driver.Message) {
	s.mu.Lock()
	s.messages[id] = &message{Message: m}
	s.mu.Unlock()
	s.queue.Enqueue(id)
}

// ReceiveBatch waits a moment for one message, and takes those that are there beside it.
func (s *subscription) ReceiveBatch(ctx context.Context, most int) (batch []*driver.Message, err error) {
	if s == nil {
		return nil, errNone
	}
	short, stop := context.WithTimeout(ctx, 250*time.Millisecond)
	defer stop()
	for len(batch) == 0 || len(batch) < most && s.queue.Len() > 0 {
		id, err := s.queue.Dequeue(short)
		if err != nil {
			return batch, ctx.Err() // nil if only the moment is over
		}
		s.mu.Lock()
		if m := s.messages[id]; m != nil {
			batch = append(batch, m.Message)
			m.deadline = time.AfterFunc(s.deadline, func() { s.queue.Requeue(id, reconcile.RequeueOptions{}) })
		}
		s.mu.Unlock()
	}
	return batch, nil
}

// settle gives messages back.
func (s *subscription) settle(ctx context.Context, ids []driver.AckID, give func(id int)) error {
	if s == nil {
		return errNone
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		id := id.(int)
		if m := s.messages[id]; m != nil {
			m.deadline.Stop()
			give(id)
		}
	}
	return nil
}

func (s *subscription) SendAcks(ctx context.Context, ids []driver.AckID) error {
	return s.settle(ctx, ids, func(id int) {
		delete(s.messages, id)
		s.queue.Remove(id)
		s.queue.Done(id)
	})
}

func (s *subscription) SendNacks(ctx context.Context, ids []driver.AckID) error {
	return s.settle(ctx, ids, func(id int) { s.queue.Requeue(id, reconcile.RequeueOptions{}) })
}

func code(err error) gcerrors.ErrorCode {
	if errors.Is(err, errNone) {
		return gcerrors.NotFound
	}
	return gcerrors.Unknown
}

func (*topic) IsRetryable(error) bool                        { return false }
func (*topic) As(any) bool                                   { return false }
func (*topic) ErrorAs(error, any) bool                       { return false }
func (*topic) ErrorCode(err error) gcerrors.ErrorCode        { return code(err) }
func (*topic) Close() error                                  { return nil }
func (*subscription) CanNack() bool                          { return true }
func (*subscription) IsRetryable(error) bool                 { return false }
func (*subscription) As(any) bool                            { return false }
func (*subscription) ErrorAs(error, any) bool                { return false }
func (*subscription) ErrorCode(err error) gcerrors.ErrorCode { return code(err) }
func (*subscription) Close() error                           { return nil }
