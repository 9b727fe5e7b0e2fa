// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"time"
)

// This file has the workloads of one goroutine: the price of the single verbs,
// and of a million items.

const (
	manyNames = 1024  // that a cycle goes through
	manyHeld  = 65536 // that wait while it does
)

// expect takes the next item, which must be want.
func expect[T comparable](q queue[T], want T) error {
	got, ok := q.Get()
	if !ok {
		return errStuck
	}
	if got != want {
		return fmt.Errorf("took %v, want %v", got, want)
	}
	return nil
}

// drain takes what is left, which must be items, in this order.
func drain[T comparable](q queue[T], items []T) error {
	for _, item := range items {
		if err := expect(q, item); err != nil {
			return err
		}
		q.Done(item)
	}
	return empty(q)
}

func empty[T comparable](q queue[T]) error {
	if n := q.Len(); n != 0 {
		return fmt.Errorf("%d items are left in the queue, want none", n)
	}
	return nil
}

// cycle measures Add, Get, Done with held items in the queue, which are the
// first ones. There are more items than that.
func cycle[T comparable](t *trial, q queue[T], items []T, held int) error {
	in, out, n := held, 0, t.ops()
	t.start()
	for range n {
		q.Add(items[in])
		if in++; in == len(items) {
			in = 0
		}
		item, ok := q.Get()
		if !ok || item != items[out] {
			return fmt.Errorf("took %v, want %v", item, items[out])
		}
		if out++; out == len(items) {
			out = 0
		}
		q.Done(item)
	}
	t.stop("", n)
	if out <= in {
		return drain(q, items[out:in])
	}
	return drain(q, append(append([]T(nil), items[out:]...), items[:in]...))
}

func cycleStrings(t *trial) error {
	return cycle(t, use(t, t.impl.strings(manyNames)), names(manyNames), 0)
}

func cyclePairs(t *trial) error {
	return cycle(t, use(t, t.impl.pairs(manyNames)), pairs(manyNames), 0)
}

func cycleHeld(t *trial) error {
	items := names(manyHeld + manyNames)
	q := use(t, t.impl.strings(len(items)))
	add(q, items[:manyHeld])
	return cycle(t, q, items, manyHeld)
}

// add adds items, and has q notice all of them.
func add[T comparable](q queue[T], items []T) {
	for _, item := range items {
		q.Add(item)
	}
	q.Len()
}

// addQueued measures Add of an item that is queued.
func addQueued(t *trial) error {
	items, q := names(manyNames), use(t, t.impl.strings(manyNames))
	add(q, items)
	n, i := t.ops(), 0
	t.start()
	for range n {
		q.Add(items[i])
		if i++; i == len(items) {
			i = 0
		}
	}
	held := q.Len() // some only now look at what was added
	t.stop("", n)
	if held != len(items) {
		return fmt.Errorf("%d items are queued, want %d", held, len(items))
	}
	return drain(q, items)
}

// addInFlight measures Add of an item in flight, then Done, and Get of the same
// item again.
func addInFlight(t *trial) error {
	items, q := names(1), use(t, t.impl.strings(1))
	item := items[0]
	q.Add(item)
	if err := expect(q, item); err != nil {
		return err
	}
	n := t.ops()
	t.start()
	for range n {
		q.Add(item)
		q.Done(item)
		got, ok := q.Get()
		if !ok || got != item {
			return fmt.Errorf("took %q, want %q", got, item)
		}
	}
	t.stop("", n)
	q.Done(item)
	return empty(q)
}

// burst fills a queue with n items and drains it again: the time of both, and
// the memory before, between and after. The items themselves are not counted.
func burst(t *trial) error {
	items := names(t.n)
	before := liveBytes()
	q := use(t, t.impl.strings(t.n))
	t.values["empty"] = liveBytes() - before

	t.start()
	add(q, items)
	t.stop("fill.", t.n)
	held := liveBytes() - before
	t.values["peak"] = held
	t.values["held"] = held / float64(t.n)

	t.start()
	for _, want := range items {
		item, ok := q.Get()
		if !ok || item != want {
			return fmt.Errorf("took %q, want %q", item, want)
		}
		q.Done(item)
	}
	t.stop("drain.", t.n)
	t.values["wall"] = t.values["fill.wall"] + t.values["drain.wall"]
	t.values["cpu"] = t.values["fill.cpu"] + t.values["drain.cpu"]
	t.values["allocs"] = t.values["fill.allocs"] + t.values["drain.allocs"]
	t.values["bytes"] = t.values["fill.bytes"] + t.values["drain.bytes"]
	t.values["kept"] = liveBytes() - before
	runtime.KeepAlive(items) // it was there before
	return empty(q)
}

// longest measures the longest call while a queue is filled with n items and
// drained, each call by itself: what somebody waits for whose call has the queue
// grow, or give memory back.
func longest(t *trial) error {
	items := names(t.n)
	q := use(t, t.impl.strings(t.n))
	var most time.Duration
	timed := func(call func()) {
		began := time.Now()
		call()
		most = max(most, time.Since(began))
	}
	t.start()
	for _, item := range items {
		timed(func() { q.Add(item) })
	}
	q.Len()
	for _, want := range items {
		var item string
		var ok bool
		timed(func() { item, ok = q.Get() })
		if !ok || item != want {
			return fmt.Errorf("took %q, want %q", item, want)
		}
		timed(func() { q.Done(item) })
	}
	t.stop("", t.n)
	t.values["max"] = float64(most)
	return empty(q)
}
