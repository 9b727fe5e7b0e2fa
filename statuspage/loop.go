// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Loop shows a queue, and the results of its reconciler, on a [Page].
//
// Name is required. The fields must not change after the first call of OnResult or [New].
// A Loop may be part of only one page, and must not be copied. OnResult and the functions
// that it returns may be called from any goroutine.
type Loop[T comparable] struct {
	// Name identifies the queue or reconciler, also in URLs. It is required, and unique
	// among the loops of the page.
	Name string

	// Queue has the items: a *reconcile.Queue[T], or another implementation of Source. If
	// it is nil, the page shows only results that OnResult received. Use nil for a queue
	// on another machine that cannot be read from here.
	Queue Source[T]

	// Format returns the name of an item, for display, search and URLs. Nil means fmt.Sprint.
	// Of a longer name, the page has the first 4 KiB. It is called from any goroutine, for
	// each item once per [Page.Refresh], and only while the page has readers.
	Format func(item T) string

	// Desired reports whether an item is still desired. Nil means that all items are. If
	// it returns false for an item that is not in the queue and whose last run succeeded,
	// the page neither shows nor counts the item. It is called as often as Format, from
	// any goroutine.
	Desired func(item T) bool

	// ReadOnly disables the actions for the items of this loop, even with
	// [Page.AllowActions].
	ReadOnly bool

	// Runs bounds the memory. It is the number of remembered runs of all items together;
	// of each item, at most the last 20 are remembered. 0 means 20,000, and a value below
	// 80 means 80.
	//
	// A run takes about 100 bytes, or 200 if it is the only run of its item. The text of
	// its error is added, at most a kilobyte, unless the run before it had the same text.
	//
	// The page first forgets the runs of the item whose last run is longest ago. Half of
	// the room is reserved for items whose last run failed, and half for the others.
	Runs int

	once sync.Once
	page atomic.Pointer[Page] // nil before New
	rec  *recorder[T]
	view view
}

// A Source is a queue whose items a page can read: a [reconcile.Queue], or a queue that
// several machines share. Its methods may be called from any goroutine.
type Source[T comparable] interface {
	// All returns a snapshot of all items. It is called once per [Page.Refresh] while the
	// page has readers, and otherwise not at all.
	All() iter.Seq2[T, reconcile.State]

	// State returns the state of one item.
	State(item T) reconcile.State

	// Stats returns the counts. It must not block, because a worker calls it, once a
	// second.
	Stats() reconcile.Stats
}

// An actor is a Source that can be acted on, see [Page.AllowActions]. It is a remover or
// a remoteRemover too.
type actor[T comparable] interface{ EnqueueNow(item T) }

type remover[T comparable] interface{ Remove(item T) bool }

// A remoteRemover has its items on another machine, which may not answer.
type remoteRemover[T comparable] interface {
	Remove(ctx context.Context, item T) (bool, error)
}

// OnResult returns a function for [reconcile.Reconciler.OnResult] that records each run
// for the page. The function also calls next, unless next is nil.
//
// The function never blocks. It takes a few hundred nanoseconds, plus the time of next
// and of the error's Error method.
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
	l.once.Do(func() { l.rec = newRecorder(cmp.Or(l.Runs, 20_000), l.format, l.Queue) })
}

// addTo makes a Loop a Part.
func (l *Loop[T]) addTo(p *Page) {
	if l.Name == "" {
		panic(fmt.Sprintf("statuspage: %T.Name is required, and empty", l))
	}
	if isNilPointer(l.Queue) {
		panic(fmt.Sprintf("statuspage: Queue of loop %q is a nil %T", l.Name, l.Queue))
	}
	for _, other := range p.loops {
		if sameName(other.name(), l.Name) {
			panic(fmt.Sprintf("statuspage: there are two loops named %q", l.Name))
		}
	}
	l.init()
	l.page.Store(p)
	p.loops = append(p.loops, l)
}

func isNilPointer(x any) bool {
	v := reflect.ValueOf(x)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// newRow returns the row of an item, without its last run.
func (l *Loop[T]) newRow(item T, s reconcile.State) (r row) {
	r.item, r.State = item, s
	defer func() {
		if p := recover(); p != nil {
			defer func() { _ = recover() }() // fmt panics if printing p does, and printing what that panics with
			r.text = "(Format panicked for this item)"
			r.text = fmt.Sprintf("(Format panicked for this item: %v)", p)
		}
		r.text = cut(r.text, maxName)
	}()
	if l.Format == nil {
		r.text = fmt.Sprint(r.item)
		return r
	}
	r.text = l.Format(item)
	return r
}

// gone reports whether nothing is left of an item whose last run was this one.
func (l *Loop[T]) gone(item T, last run) (gone bool) {
	if l.Desired == nil || last.Outcome != reconcile.OutcomeSucceeded {
		return false
	}
	defer func() {
		if recover() != nil {
			gone = false // it is shown, as nobody knows better
		}
	}()
	return !l.Desired(item)
}

// A loop is a Loop whatever its items are.
type loop interface {
	name() string
	bound() int // runs
	hasQueue() bool
	hasActions() bool
	snapshot(interval time.Duration) *snapshot
	current(known *row) (now *row, runs []run)
	act(ctx context.Context, item any, a action) (changed bool, err error)
	errorText(err error, limit int) string
}

func (l *Loop[T]) name() string { return l.Name }

// format returns the errorFormat of the page.
func (l *Loop[T]) format() errorFormat {
	if p := l.page.Load(); p != nil {
		return p.FormatError
	}
	return nil
}

func (l *Loop[T]) errorText(err error, limit int) string {
	return l.format().text(err, limit)
}

func (l *Loop[T]) bound() int { return l.rec.bound() }

func (l *Loop[T]) hasQueue() bool { return l.Queue != nil }

func (l *Loop[T]) hasActions() bool {
	_, here := l.Queue.(remover[T])
	_, remote := l.Queue.(remoteRemover[T])
	_, ok := l.Queue.(actor[T])
	return ok && (here || remote) && !l.ReadOnly
}

// current returns the state and the runs of one item, without a snapshot.
func (l *Loop[T]) current(known *row) (now *row, runs []run) {
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
	now.remember(last, l.format())
	return now, runs
}

// act acts on an item, and reports whether it made a difference.
func (l *Loop[T]) act(ctx context.Context, item any, a action) (changed bool, err error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	x, _ := item.(T)
	if a == reconcileNow {
		l.Queue.(actor[T]).EnqueueNow(x)
		return true, nil
	}
	if q, ok := l.Queue.(remoteRemover[T]); ok {
		return q.Remove(ctx, x)
	}
	return l.Queue.(remover[T]).Remove(x), nil
}
