// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"strings"

	"github.com/reconkernel/reconcile"
)

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
	bound int // at least perItem
	items map[T]*entry[T]
	lists [2]entry[T] // the heads of two rings, by list
	held  [2]int      // runs, by list
	spare *entry[T]   // the last one that was forgotten, to be used again; or nil
}

// An entry is an item and its runs. The entries of a list are in a ring, from
// the one that was active last to the one that was active first.
type entry[T comparable] struct {
	item       T
	newest     *node // of its runs, which are in a ring: the next one is the oldest
	count      int   // at most perItem
	list       int   // the list it is in, wellList or failedList
	next, prev *entry[T]
}

const (
	wellList   = 0
	failedList = 1
)

type node struct {
	run
	next *node // the next newer run of the same item
}

func newBook[T comparable](bound int) *book[T] {
	b := &book[T]{bound: bound, items: make(map[T]*entry[T])}
	for i := range b.lists {
		head := &b.lists[i]
		head.next, head.prev = head, head
	}
	return b
}

// add remembers a run.
func (b *book[T]) add(item T, r run) {
	if item != item { // a NaN: it would never be found again
		return
	}
	e := b.items[item]
	if e == nil {
		if e = b.spare; e == nil {
			e = new(entry[T])
		}
		b.spare = nil
		*e = entry[T]{item: item}
		b.items[item] = e
	} else {
		b.unlink(e)
	}
	if r.Outcome != reconcile.OutcomeAborted { // which says nothing about how the item fares
		e.list = wellList
		if r.Failed() {
			e.list = failedList
		}
	}
	if e.count > 0 && r.Error == e.newest.Error {
		r.Error = e.newest.Error // the same text is kept once
	} else {
		r.Error = strings.Clone(r.Error) // it may be a part of something large
	}
	n := b.room(e)
	n.run = r
	if e.count == 0 {
		n.next = n
	} else {
		n.next, e.newest.next = e.newest.next, n
	}
	e.newest = n
	e.count++
	b.link(e)
}

// room returns a node for one more run of e, which is in no list now.
func (b *book[T]) room(e *entry[T]) *node {
	switch {
	case e.count == perItem:
		return e.takeOldest()
	case b.held[wellList]+b.held[failedList]+e.count < b.bound:
		return new(node)
	}
	list := wellList
	if 2*b.held[failedList] > b.bound || b.held[wellList] == 0 {
		list = failedList
	}
	victim := b.lists[list].prev
	b.held[list]--
	n := victim.takeOldest()
	if victim.count == 0 {
		b.unlink(victim)
		delete(b.items, victim.item)
		b.spare = victim
	}
	return n
}

func (e *entry[T]) takeOldest() *node {
	n := e.newest.next
	e.newest.next = n.next
	e.count--
	return n
}

func (b *book[T]) link(e *entry[T]) {
	head := &b.lists[e.list]
	e.prev, e.next = head, head.next
	e.prev.next, e.next.prev = e, e
	b.held[e.list] += e.count
}

func (b *book[T]) unlink(e *entry[T]) {
	e.prev.next, e.next.prev = e.next, e.prev
	b.held[e.list] -= e.count
}

// history returns the runs of an item, the latest first.
func (b *book[T]) history(item T) []run {
	e := b.items[item]
	if e == nil {
		return nil
	}
	all := make([]run, e.count)
	n := e.newest
	for i := range all {
		n = n.next
		all[len(all)-1-i] = n.run
	}
	return all
}
