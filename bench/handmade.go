// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"
	"time"
)

// mutex is the queue that one writes by hand in an hour: a mutex, a map of what
// is known about each item, a slice as FIFO, a condition to wait for. It keeps
// no times, no failures and no delays, and gives no memory back: a bound for a
// queue that does.
type mutex[T comparable] struct {
	noDelays[T]
	clock bool // also note since when, as a queue does that can be asked

	mu     sync.Mutex // guards the fields below
	wake   sync.Cond
	items  map[T]mark
	fifo   []T
	first  int // fifo[:first] has been taken
	closed bool
}

type mark struct {
	running, again bool
	since          time.Duration
}

func newMutex[T comparable](int) queue[T] {
	q := &mutex[T]{items: make(map[T]mark)}
	q.wake.L = &q.mu
	return q
}

// newMutexClock is the same queue, paying for three readings of the clock.
func newMutexClock[T comparable](int) queue[T] {
	q := newMutex[T](0).(*mutex[T])
	q.clock = true
	return q
}

var clockBase = time.Now()

func (q *mutex[T]) now() time.Duration {
	if !q.clock {
		return 0
	}
	return time.Since(clockBase)
}

func (q *mutex[T]) Add(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m, known := q.items[item]
	switch {
	case q.closed, m.again, known && !m.running:
		return
	case m.running:
		m.again = true
		q.items[item] = m
		return
	}
	q.items[item] = mark{since: q.now()}
	q.pushLocked(item)
}

func (q *mutex[T]) pushLocked(item T) {
	if q.first > 64 && q.first > len(q.fifo)/2 {
		n := copy(q.fifo, q.fifo[q.first:])
		clear(q.fifo[n:])
		q.fifo, q.first = q.fifo[:n], 0
	}
	q.fifo = append(q.fifo, item)
	q.wake.Signal()
}

func (q *mutex[T]) Get() (item T, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.first == len(q.fifo) {
		if q.closed {
			return item, false
		}
		q.wake.Wait()
	}
	item = q.fifo[q.first]
	q.first++
	q.items[item] = mark{running: true, since: q.now()}
	return item, true
}

func (q *mutex[T]) Done(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.items[item]
	if m.again {
		q.items[item] = mark{since: q.now()}
		q.pushLocked(item)
	} else if m.running {
		delete(q.items, item)
	}
}

func (q *mutex[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.fifo) - q.first
}

func (q *mutex[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

// channel is a buffered channel: no identity, no merging, so a bound for the
// hand-over alone.
type channel[T comparable] struct {
	noDelays[T]
	ch   chan T
	once sync.Once
}

func newChannel[T comparable](room int) queue[T] {
	return &channel[T]{ch: make(chan T, room)}
}

func (q *channel[T]) Add(item T) { q.ch <- item }
func (q *channel[T]) Done(T)     {}
func (q *channel[T]) Len() int   { return len(q.ch) }

func (q *channel[T]) Get() (T, bool) {
	item, ok := <-q.ch
	return item, ok
}

func (q *channel[T]) Close() { q.once.Do(func() { close(q.ch) }) }
