// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"container/heap"
	"time"
)

// This file holds the timers of a [Queue]: the waiting items that this process
// was told of. When one is due it is made ready, by whoever is first.

type timers[T comparable] struct {
	known   map[T]*alarm[T]
	heap    alarms[T]
	settled int // of the heap
	timer   *time.Timer
}

type alarm[T comparable] struct {
	seen
	item T
	at   int // in the heap
}

func (t *timers[T]) init() { t.known = make(map[T]*alarm[T]) }

// set sets an item's alarm to a record, which waits and is newer.
func (t *timers[T]) set(a *alarm[T], s seen) {
	t.count(a, -1)
	a.record, a.seq = s.record, s.seq
	t.count(a, +1)
	heap.Fix(&t.heap, a.at)
}

// remove removes an alarm.
func (t *timers[T]) remove(a *alarm[T]) {
	t.count(a, -1)
	heap.Remove(&t.heap, a.at)
	delete(t.known, a.item)
	if len(t.heap) == 0 {
		t.known = make(map[T]*alarm[T]) // so that the memory of a burst goes back
		t.heap = nil
	}
}

func (t *timers[T]) count(a *alarm[T], n int) {
	if a.next == nextSettled {
		t.settled += n
	}
}

// replaced notes that the record of an item with the sequence before is now s.
func (t *timers[T]) replaced(item T, before uint64, s seen) {
	switch a := t.known[item]; {
	case a == nil || a.seq > before:
	case s.waiting():
		t.set(a, s)
	default:
		t.remove(a)
	}
}

// maxSleep bounds how long the timer relies on the two clocks going alike.
const maxSleep = 30 * time.Second

// schedule has an item made ready when it is due.
func (q *Queue[T]) schedule(item T, s seen) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.life.Err() != nil {
		return
	}
	t := &q.timers
	a := t.known[item]
	switch {
	case a == nil:
		a = &alarm[T]{seen: s, item: item}
		t.known[item] = a
		t.count(a, +1)
		heap.Push(&t.heap, a)
	case a.seq < s.seq:
		t.set(a, s)
	default:
		return
	}
	q.setTimerLocked()
}

func (q *Queue[T]) setTimerLocked() {
	t := &q.timers
	if len(t.heap) == 0 || q.life.Err() != nil {
		return
	}
	d := min(time.Duration(t.heap[0].due-time.Now().UnixNano()), maxSleep)
	if t.timer == nil {
		t.timer = time.AfterFunc(d, q.ring)
	} else {
		t.timer.Reset(d)
	}
}

// ring makes ready what is due.
func (q *Queue[T]) ring() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.overLocked() != nil {
		return
	}
	now := time.Now().UnixNano()
	t := &q.timers
	for len(t.heap) > 0 && t.heap[0].due <= now {
		a := t.heap[0]
		t.remove(a)
		q.hintLocked(a.item, q.postLocked(a.item, a.tokens, op{verb: verbDue, at: now}, nil), a.seen)
	}
	q.setTimerLocked()
}

type alarms[T comparable] []*alarm[T]

func (h alarms[T]) Len() int           { return len(h) }
func (h alarms[T]) Less(i, j int) bool { return h[i].due < h[j].due }
func (h alarms[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *alarms[T]) Push(x any) {
	a := x.(*alarm[T])
	a.at = len(*h)
	*h = append(*h, a)
}

func (h *alarms[T]) Pop() any {
	old := *h
	a := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return a
}
