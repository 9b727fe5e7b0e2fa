// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"hash/fnv"
	"net/url"
	"time"

	"github.com/reconkernel/reconcile"
)

// A loop is a Loop whatever its items are.
type loop interface {
	name() string
	bound() int // runs
	hasQueue() bool
	hasActions() bool
	snapshot(interval time.Duration) *snapshot
	choose(interval time.Duration, chosen func(*row) bool) []handle
}

// A handle is an item, whatever its type.
type handle interface {
	name() string // as it is shown
	id() string   // tells it from others that are shown alike
	describe() string
	look() (r row, runs []run, base time.Time)
	do(a action) bool
}

func (l *Loop[T]) hasQueue() bool { return l.Queue != nil }

func (l *Loop[T]) bound() int { return l.rec.bound() }

func (l *Loop[T]) hasActions() bool {
	_, ok := l.Queue.(actor[T])
	return ok
}

// choose returns the items of the rows that are chosen.
func (l *Loop[T]) choose(interval time.Duration, chosen func(*row) bool) []handle {
	s, items := l.look(interval)
	var found []handle
	for i := range s.rows {
		if chosen(&s.rows[i]) {
			found = append(found, &known[T]{l, items[i], s.rows[i].name})
		}
	}
	return found
}

// known is an item that the queue or the book knows.
type known[T comparable] struct {
	loop *Loop[T]
	item T
	text string
}

func (k *known[T]) name() string { return k.text }

func (k *known[T]) describe() string { return fmt.Sprintf("%#v", k.item) }

func (k *known[T]) id() string {
	h := fnv.New64a()
	h.Write([]byte(k.describe()))
	return fmt.Sprintf("%016x", h.Sum64())
}

// look asks for the item alone, which takes no snapshot.
func (k *known[T]) look() (row, []run, time.Time) {
	rec := k.loop.rec
	var state reconcile.State
	if k.loop.Queue != nil {
		state = k.loop.Queue.State(k.item)
	}
	var runs []run
	s := &rec.shards[rec.shardNumber(k.item)]
	s.read(func() { runs = s.book.history(k.item) })
	var last *run
	if len(runs) > 0 {
		last = &runs[0]
	}
	return newRow(k.text, rec.base, state, last), runs, rec.base
}

// do acts on the item, and reports whether it made a difference.
func (k *known[T]) do(a action) bool {
	q, ok := k.loop.Queue.(actor[T])
	if !ok {
		return false
	}
	if a == cancelNext {
		return q.Remove(k.item)
	}
	q.EnqueueNow(k.item)
	return true
}

// maxNameInURL is how much of a name stands in a URL. Browsers and servers limit
// the length of a URL.
const maxNameInURL = 512

func nameInURL(name string) string { return name[:min(len(name), maxNameInURL)] }

// itemURL returns the URL of an item's page, relative to that of the Page. The
// id may be empty, if the name alone will do.
func itemURL(path, queue, name, id string) string {
	v := url.Values{"queue": {queue}, "item": {nameInURL(name)}}
	if id != "" {
		v.Set("id", id)
	}
	return path + "?" + v.Encode()
}
