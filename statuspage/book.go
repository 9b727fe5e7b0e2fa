// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import "strings"

// perItem is how many runs of one item are remembered.
const perItem = 20

// A book remembers the last runs of the items that were active lately: no more
// than perItem of one item, and no more than bound in all.
//
// When it is full, the item whose last run is longest ago loses its oldest run.
// The items whose last run failed, and the others, are each sure of half of the
// room: so neither does a busy loop wash away why an item was given up, nor does
// a great outage wash away all else.
//
// A book is for one goroutine at a time.
type book[T comparable] struct {
	bound   int
	index   map[T]uint32
	entries slab[entry[T]] // entries 0 and 1 are the heads of the two lists
	runs    slab[runNode]
	free    uint32 // the first of the entries given back, 0 if none
	held    [2]int // runs, by list
}

// An entry is an item and its runs. The entries of a list are in a ring, from
// the one that was active last to the one that was active first.
type entry[T comparable] struct {
	item       T
	next, prev uint32
	newest     uint32 // of its runs, which are in a ring: the next one is the oldest
	count      uint8
	list       uint8 // the list it is in, wellList or failedList
}

const (
	wellList   = 0
	failedList = 1
	firstEntry = 2 // that is of an item
)

type runNode struct {
	run
	next uint32 // the next newer run of the same item
}

func newBook[T comparable](bound int) *book[T] {
	b := &book[T]{bound: bound, index: make(map[T]uint32)}
	for list := range uint32(2) {
		b.entries.grow()
		e := b.entries.at(list)
		e.next, e.prev = list, list
	}
	return b
}

// add remembers a run.
func (b *book[T]) add(item T, r run) {
	if item != item { //nolint:staticcheck // a NaN: it would never be found again
		return
	}
	i := b.index[item]
	known := i != 0
	if !known {
		i = b.newEntry(item)
	}
	e := b.entries.at(i)
	if known {
		b.unlink(e)
		b.held[e.list] -= int(e.count)
	}
	if r.outcome != aborted { // which says nothing about how the item fares
		e.list = wellList
		if r.outcome.failed() {
			e.list = failedList
		}
	}
	if last := b.last(e); last != nil && last.err == r.err {
		r.err = last.err // the same text is kept once
	} else {
		r.err = strings.Clone(r.err) // it may be a part of something large
	}

	n := b.room(e)
	node := b.runs.at(n)
	node.run = r
	if e.count == 0 {
		node.next = n
	} else {
		newest := b.runs.at(e.newest)
		node.next, newest.next = newest.next, n
	}
	e.newest = n
	e.count++
	b.held[e.list] += int(e.count)
	b.link(i, e)
}

// room returns the number of a node for one more run of e, which is in no list
// now.
func (b *book[T]) room(e *entry[T]) uint32 {
	switch {
	case e.count == perItem:
		return b.takeOldest(e)
	case int(b.runs.len) < b.bound:
		return b.runs.grow()
	}
	list := uint32(wellList)
	if 2*b.held[failedList] > b.bound {
		list = failedList
	}
	i := b.entries.at(list).prev
	if i == list { // it is empty
		list = 1 - list
		i = b.entries.at(list).prev
	}
	if i == list { // so is the other: all runs are of this item
		return b.takeOldest(e)
	}
	victim := b.entries.at(i)
	b.held[list]--
	n := b.takeOldest(victim)
	if victim.count == 0 {
		b.unlink(victim)
		delete(b.index, victim.item)
		*victim = entry[T]{next: b.free}
		b.free = i
	}
	return n
}

func (b *book[T]) takeOldest(e *entry[T]) uint32 {
	newest := b.runs.at(e.newest)
	n := newest.next
	newest.next = b.runs.at(n).next
	e.count--
	return n
}

func (b *book[T]) newEntry(item T) uint32 {
	i := b.free
	if i != 0 {
		b.free = b.entries.at(i).next
	} else {
		i = b.entries.grow()
	}
	*b.entries.at(i) = entry[T]{item: item}
	b.index[item] = i
	return i
}

func (b *book[T]) link(i uint32, e *entry[T]) {
	list := uint32(e.list)
	head := b.entries.at(list)
	e.prev, e.next = list, head.next
	b.entries.at(head.next).prev = i
	head.next = i
}

func (b *book[T]) unlink(e *entry[T]) {
	b.entries.at(e.prev).next = e.next
	b.entries.at(e.next).prev = e.prev
}

// last returns the last run of an entry, nil if it has none.
func (b *book[T]) last(e *entry[T]) *run {
	if e.count == 0 {
		return nil
	}
	return &b.runs.at(e.newest).run
}

// history returns the runs of an item, the latest first.
func (b *book[T]) history(item T) []run {
	i := b.index[item]
	if i == 0 {
		return nil
	}
	e := b.entries.at(i)
	all := make([]run, e.count)
	n := e.newest
	for k := range all {
		n = b.runs.at(n).next
		all[len(all)-1-k] = b.runs.at(n).run
	}
	return all
}
