// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"fmt"
	"iter"
	"reflect"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Loop is a queue, and what its reconciler makes of the items, as a [Page]
// shows them.
//
// The fields are set before OnResult and [New] are called, and not changed
// after. Name is required. A Loop is of one page at most, and must not be
// copied. OnResult and the functions that it returns may be called from any
// goroutine.
type Loop[T comparable] struct {
	// Name says which queue or reconciler it is. It stands in URLs, and no other
	// loop of the page has it.
	Name string

	// Queue is what the items are in: a *reconcile.Queue[T] or what looks like
	// one. If it is nil, the page shows what it learns from OnResult, which is
	// all that there is to be had of a queue on another machine.
	Queue Source[T]

	// Format returns how an item is shown, searched for and named in URLs; nil
	// means fmt.Sprint. It is called from any goroutine, for each item once a
	// [Page.Refresh], and only while somebody looks.
	Format func(item T) string

	// FormatError returns how an error of a run is shown and remembered: it is the place
	// to leave out what must not be seen, such as a token in a URL. Nil means the Error
	// method. It is called from any goroutine, by workers.
	FormatError func(err error) string

	// Wanted reports whether an item is still to be there; nil means that all are. One
	// that it says no of is shown for as long as something is left to do or has failed:
	// then it is gone, and neither shown nor counted. It is called from any goroutine,
	// for items that the queue has no more, as Format is.
	Wanted func(item T) bool

	// ReadOnly takes the actions away from the items of this loop, whatever
	// [Page.AllowActions] says.
	ReadOnly bool

	// Runs bounds the memory: how many runs are remembered, of all items
	// together, and never more than the last 20 of one. Zero means 20,000, and
	// anything below 80 means 80. A run takes some 100 bytes, or 200 if it is
	// the only one of its item, and the text of its error, cut to a kilobyte, unless
	// the run before it had the same.
	// The items that were not active for longest are forgotten first; but half of
	// the room is kept for those whose last run failed, and half for the others.
	Runs int

	once sync.Once
	rec  *recorder[T]
	view view
}

// A Source is a queue that can be looked at: [reconcile.Queue], or one that
// machines share. The methods may be called from any goroutine.
type Source[T comparable] interface {
	// All returns a snapshot of all items. It is called once a [Page.Refresh]
	// while somebody looks, and not at all while nobody does.
	All() iter.Seq2[T, reconcile.State]

	// State returns what the queue knows of one item.
	State(item T) reconcile.State

	// Stats returns the counts. A worker calls it once a second, so it is not to
	// block.
	Stats() reconcile.Stats
}

// An actor is a Source that can be acted on, see [Page.AllowActions].
type actor[T comparable] interface {
	EnqueueNow(item T)
	Remove(item T) bool
}

// OnResult returns what [reconcile.Reconciler.OnResult] is to be, so that the
// page knows of the runs. It also calls next, if that is not nil.
//
// The function never blocks, and takes a few hundred nanoseconds, apart from what
// the Error method of the run's error takes, and next.
func (l *Loop[T]) OnResult(next func(reconcile.Result[T])) func(reconcile.Result[T]) {
	l.init()
	if next == nil {
		return l.rec.record
	}
	return func(r reconcile.Result[T]) {
		l.rec.record(r)
		next(r)
	}
}

func (l *Loop[T]) init() {
	l.once.Do(func() { l.rec = newRecorder(cmp.Or(l.Runs, 20_000), l.FormatError, l.Queue) })
}

// addTo makes a Loop a Part.
func (l *Loop[T]) addTo(p *Page) {
	if l.Name == "" {
		panic(fmt.Sprintf("statuspage: %T.Name is required, and empty", l))
	}
	if q := reflect.ValueOf(l.Queue); q.Kind() == reflect.Pointer && q.IsNil() {
		panic(fmt.Sprintf("statuspage: Queue of loop %q is a nil %T", l.Name, l.Queue))
	}
	for _, other := range p.loops {
		if other.name() == l.Name {
			panic(fmt.Sprintf("statuspage: there are two loops named %q", l.Name))
		}
	}
	l.init()
	p.loops = append(p.loops, l)
}

// newRow returns the row of an item, without its last run.
func (l *Loop[T]) newRow(item T, s reconcile.State) (r row) {
	r.item, r.State = item, s
	if l.Format == nil {
		r.text = fmt.Sprint(r.item)
		return r
	}
	defer func() {
		if p := recover(); p != nil {
			r.text = fmt.Sprintf("(Format panicked for this item: %v)", p)
		}
	}()
	r.text = l.Format(item)
	return r
}

// gone reports whether nothing is left of an item whose last run was this one.
func (l *Loop[T]) gone(item T, last run) (gone bool) {
	if l.Wanted == nil || last.Outcome != reconcile.Succeeded {
		return false
	}
	defer func() {
		if recover() != nil {
			gone = false // it is shown, as nobody knows better
		}
	}()
	return !l.Wanted(item)
}

// A loop is a Loop whatever its items are.
type loop interface {
	name() string
	bound() int // runs
	hasQueue() bool
	hasActions() bool
	snapshot(interval time.Duration) *snapshot
	look(known *row) (now *row, runs []run)
	act(item any, a action) bool
	errorText(err error, limit int) string
}

func (l *Loop[T]) name() string { return l.Name }

func (l *Loop[T]) errorText(err error, limit int) string {
	return errorFormat(l.FormatError).text(err, limit)
}

func (l *Loop[T]) bound() int { return l.rec.bound() }

func (l *Loop[T]) hasQueue() bool { return l.Queue != nil }

func (l *Loop[T]) hasActions() bool {
	if l.ReadOnly {
		return false
	}
	_, ok := l.Queue.(actor[T])
	return ok
}

// look looks at an item alone, which takes no snapshot.
func (l *Loop[T]) look(known *row) (now *row, runs []run) {
	item, _ := known.item.(T) // nil, if T is an interface and the item is
	now = &row{item: item, text: known.text}
	if l.Queue != nil {
		now.State = l.Queue.State(item)
	}
	runs = l.rec.history(item)
	last := run{}
	if len(runs) > 0 {
		last = runs[0]
	}
	now.remember(last, l.FormatError)
	return now, runs
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
