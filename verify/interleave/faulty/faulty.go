// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package faulty has queues with the faults that the systematic search must
// find, or it would prove nothing. The first is the way in which the ancestor
// of the kernel woke its consumers.
package faulty

import (
	"context"
	"sync"
)

// Fault is what is wrong with a Queue.
type Fault uint8

const (
	// NonBlockingSignal: a consumer looks, lets go of the lock, and then waits
	// for a signal. Enqueue signals only to whoever waits at that instant.
	NonBlockingSignal Fault = iota
	// OneSignalForAll: the signal is kept for one consumer, but a second item
	// enqueued before it was seen has none.
	OneSignalForAll
	// WokenWithoutALook: a consumer that was woken takes the first item without
	// looking whether another came before it.
	WokenWithoutALook
	// ForgottenInFlight: an item enqueued while it is in flight is dropped.
	ForgottenInFlight
	// TwiceInLine: an item enqueued while it is in flight can be taken at once.
	TwiceInLine
	// GoneWithTheContext: a consumer whose context ended keeps what it took.
	GoneWithTheContext
	// None of these: the control of the controls.
	NoFault
)

// Queue is a queue of items, each known once.
type Queue struct {
	fault  Fault
	signal chan struct{}

	mu     sync.Mutex
	line   []string
	flying map[string]bool // whether it comes again
}

// New returns a queue with a fault.
func New(f Fault) *Queue {
	room := 64
	switch f {
	case NonBlockingSignal:
		room = 0
	case OneSignalForAll:
		room = 1
	}
	return &Queue{fault: f, signal: make(chan struct{}, room), flying: map[string]bool{}}
}

// Enqueue adds an item.
func (q *Queue) Enqueue(item string) {
	q.mu.Lock()
	if _, ok := q.flying[item]; ok && q.fault != TwiceInLine {
		q.flying[item] = q.fault != ForgottenInFlight
		q.mu.Unlock()
		return
	}
	for _, known := range q.line {
		if known == item {
			q.mu.Unlock()
			return
		}
	}
	q.line = append(q.line, item)
	q.mu.Unlock()
	q.tell()
}

func (q *Queue) tell() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// Dequeue waits for an item.
func (q *Queue) Dequeue(ctx context.Context) (string, error) {
	for woken := false; ; woken = true {
		if ctx.Err() != nil {
			if woken { // by a signal that was for somebody else, perhaps
				q.tell()
			}
			return "", context.Cause(ctx)
		}
		q.mu.Lock()
		if len(q.line) > 0 || woken && q.fault == WokenWithoutALook {
			item := ""
			if len(q.line) > 0 {
				item = q.line[0]
				q.line = q.line[1:]
			}
			q.flying[item] = false
			q.mu.Unlock()
			if q.fault == GoneWithTheContext && woken && ctx.Err() != nil {
				return "", context.Cause(ctx)
			}
			return item, nil
		}
		q.mu.Unlock()
		select {
		case <-q.signal:
		case <-ctx.Done():
		}
	}
}

// Done gives an item back.
func (q *Queue) Done(item string) {
	q.mu.Lock()
	again, ok := q.flying[item]
	delete(q.flying, item)
	if again && ok {
		q.line = append(q.line, item)
	}
	q.mu.Unlock()
	if again {
		q.tell()
	}
}

// Len is the number of items that can be taken.
func (q *Queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.line)
}
