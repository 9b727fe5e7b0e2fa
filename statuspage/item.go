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
	one(h handle) (r row, runs []run, base time.Time)
	act(item any, a action) bool
}

// A handle is an item of a loop, whatever its type.
type handle struct {
	loop
	item any
	text string // as it is shown
}

// describe returns what tells it from others that are shown alike, and id a hash
// of that.
func (h handle) describe() string { return fmt.Sprintf("%#v", h.item) }

func (h handle) id() string {
	hash := fnv.New64a()
	hash.Write([]byte(h.describe()))
	return fmt.Sprintf("%016x", hash.Sum64())
}

// url returns the URL of the item's page, or of its twin.
func (h handle) url(path string) string { return itemURL(path, h.name(), h.text, h.id()) }

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
			found = append(found, handle{l, items[i], s.rows[i].name})
		}
	}
	return found
}

// one asks for an item alone, which takes no snapshot.
func (l *Loop[T]) one(h handle) (r row, runs []run, base time.Time) {
	item, _ := h.item.(T) // nil, if T is an interface and the item is
	var state reconcile.State
	if l.Queue != nil {
		state = l.Queue.State(item)
	}
	s := l.rec.shard(item)
	s.read(func() { runs = s.book.history(item) })
	last := run{}
	if len(runs) > 0 {
		last = runs[0]
	}
	return newRow(h.text, l.rec.base, state, last), runs, l.rec.base
}

// act acts on an item, and reports whether it made a difference.
func (l *Loop[T]) act(item any, a action) bool {
	q := l.Queue.(actor[T])
	x, _ := item.(T)
	if a == cancelNext {
		return q.Remove(x)
	}
	q.EnqueueNow(x)
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
