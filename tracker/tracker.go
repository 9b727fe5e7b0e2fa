// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package tracker makes a watch of a listing. Much of what a controller keeps in
// order cannot be watched, but it can be listed, and the list has a version of each
// item: an ETag, a hash, a time of modification. A [Tracker] compares each listing
// with the one before, and enqueues what is new, changed or gone.
package tracker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"reflect"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Tracker lists items together with a version of each, remembers them, and
// enqueues what is new, changed or gone. It is a [reconcile.Runner].
//
// Versions are compared by ==, so they must not be pointers. The Tracker takes
// memory for each item and its version, from the first listing on.
//
// Queue, List and Period are required; the zero value of every other field is a
// good default. The fields must not be changed while Run goes on.
type Tracker[T, V comparable] struct {
	// Queue gets an Enqueue of each item that is new, changed or gone.
	Queue reconcile.Enqueuer[T]

	// List yields the items that there are, in any order. It may read them page by
	// page: each item is enqueued before the next one is asked for. See [FromMap].
	//
	// Its ctx ends one Period after the listing began. An error that it yields
	// makes the listing incomplete; the item beside it is ignored, what follows is
	// not.
	//
	// An item that a complete listing lacks is gone. If it only moved to a page
	// that was read before, the run that follows finds it there.
	List func(ctx context.Context) iter.Seq2[Listed[T, V], error]

	// Period is the time from the start of one listing to the start of the next,
	// and Jitter makes it longer or shorter, as with [reconcile.Poller].
	Period time.Duration
	Jitter float64

	// Resync makes each Resync-th complete listing also Offer what has not
	// changed: 1 means all, 0 none.
	Resync int

	// Known yields the items that were handled before this process began, each
	// with its version: with it, the first listing shows what changed and what is
	// gone since then. A zero version means that the handling did not finish: the
	// item is reported as Altered, whatever its version is. Known is read once,
	// when Run is first called. Nil means none.
	Known iter.Seq2[T, V]

	// OnChange is called with each change before its item is enqueued. It may be
	// nil.
	OnChange func(Change[T, V])

	Name   string       // for logs
	Logger *slog.Logger // nil means slog.Default()

	poller atomic.Pointer[reconcile.Poller[T]] // does the timing; nil while Run does not go on

	// The fields below belong to Run.
	entries  map[T]entry[V] // nil before the first Run
	peak     int            // of the length of entries, since they were made
	listing  uint32         // the number of this listing
	complete int            // listings that were complete, since all was offered
	panics   int            // of OnChange
}

// Listed is an item of a listing, with the version that it has.
type Listed[T, V comparable] struct {
	Item    T
	Version V
}

// A Change is what a [Tracker] found out about an item.
type Change[T, V comparable] struct {
	Kind ChangeKind
	Item T
	Old  V // zero if it appeared
	New  V // zero if it vanished
}

// A ChangeKind says how an item changed.
type ChangeKind string

// The kinds of change.
const (
	Appeared ChangeKind = "appeared" // it was not known
	Altered  ChangeKind = "altered"  // it has another version
	Vanished ChangeKind = "vanished" // a complete listing lacks it
)

// entry is what a Tracker knows of an item.
type entry[V comparable] struct {
	version    V
	listing    uint32 // the last that had it
	unfinished bool   // from Known, with the zero version
}

// FromMap makes a [Tracker.List] of a function that returns all items at once, with
// their versions. If it returns an error as well, the items count, and the listing
// is incomplete. FromMap panics if list is nil.
func FromMap[T, V comparable](list func(ctx context.Context) (map[T]V, error)) func(ctx context.Context) iter.Seq2[Listed[T, V], error] {
	if list == nil {
		panic("tracker: FromMap needs a function, got nil")
	}
	return func(ctx context.Context) iter.Seq2[Listed[T, V], error] {
		return func(yield func(Listed[T, V], error) bool) {
			items, err := list(ctx)
			for item, version := range items {
				if !yield(Listed[T, V]{item, version}, nil) {
					return
				}
			}
			if err != nil {
				yield(Listed[T, V]{}, err)
			}
		}
	}
}

// Run lists at once and then every Period, until ctx is done; it then waits for
// the listing in progress and returns nil. It returns an error at once if a field
// is missing or out of its range, or if it is running already. What the Tracker
// knows stays when Run returns, so Run may be called again.
//
// A listing that fails or panics is tried again with back-off, no later than a
// Period after it began. What it reported is not reported again. The failure is
// logged; one that reads like those before it is logged each time their number
// has doubled, and so is the end of them.
func (t *Tracker[T, V]) Run(ctx context.Context) error {
	if err := t.check(); err != nil {
		return err
	}
	p := &reconcile.Poller[T]{
		Queue:    t.Queue,
		GetItems: func(ctx context.Context) ([]T, error) { return nil, t.list(ctx) },
		Period:   t.Period,
		Jitter:   t.Jitter,
		Logger:   slog.New(handler{t.logger().Handler(), t.Name}),
	}
	if !t.poller.CompareAndSwap(nil, p) {
		return errors.New("tracker: Tracker.Run is running already")
	}
	defer t.poller.Store(nil)
	if t.entries == nil {
		t.readKnown()
	}
	return p.Run(ctx)
}

// Trigger makes the tracker list soon: at once, or as soon as the listing in
// progress has ended. All calls before the next listing begins count as one.
// Trigger never blocks, and may be called from any goroutine.
func (t *Tracker[T, V]) Trigger() {
	if p := t.poller.Load(); p != nil { // else Run begins with a listing
		p.Trigger()
	}
}

func (t *Tracker[T, V]) readKnown() {
	var zero V
	entries := make(map[T]entry[V])
	if t.Known != nil {
		for item, version := range t.Known {
			if item == item { // false for a NaN, which no listing would find
				entries[item] = entry[V]{version: version, unfinished: version == zero}
			}
		}
	}
	t.entries, t.peak = entries, len(entries)
}

// list goes through one listing. It enqueues the items itself, so that the Poller
// has none to offer.
func (t *Tracker[T, V]) list(ctx context.Context) error {
	t.listing++
	resync := t.Resync > 0 && t.complete+1 >= t.Resync
	seq := t.List(ctx)
	if seq == nil {
		return errors.New("tracker: Tracker.List returned nil, want a sequence")
	}
	var failed error // why it is not complete
	for listed, err := range seq {
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			err = guard(func() error { return t.compare(listed, resync) })
		}
		failed = cmp.Or(failed, err)
	}
	if failed == nil && ctx.Err() != nil { // List may have ended because of it
		failed = context.Cause(ctx)
	}
	t.peak = max(t.peak, len(t.entries))
	if failed != nil {
		return failed
	}
	t.complete++
	if resync {
		t.complete = 0
	}
	return t.reportVanished()
}

// compare compares one item of a listing with what is known of it.
func (t *Tracker[T, V]) compare(listed Listed[T, V], resync bool) error {
	if listed.Item != listed.Item { // true for a NaN
		return fmt.Errorf("tracker: listed item %v is not equal to itself", listed.Item)
	}
	var err error
	old, known := t.entries[listed.Item]
	switch {
	case !known:
		err = t.report(Change[T, V]{Kind: Appeared, Item: listed.Item, New: listed.Version})
	case old.unfinished || old.version != listed.Version:
		err = t.report(Change[T, V]{Kind: Altered, Item: listed.Item, Old: old.version, New: listed.Version})
	case resync:
		t.Queue.Offer(listed.Item)
	}
	if err == nil { // else it is reported again
		t.entries[listed.Item] = entry[V]{version: listed.Version, listing: t.listing}
	}
	return err
}

// reportVanished reports the items that a complete listing lacks.
func (t *Tracker[T, V]) reportVanished() error {
	var failed error
	for item, e := range t.entries {
		if e.listing == t.listing {
			continue
		}
		err := t.report(Change[T, V]{Kind: Vanished, Item: item, Old: e.version})
		if err == nil {
			delete(t.entries, item)
		}
		failed = cmp.Or(failed, err)
	}
	if n := len(t.entries); t.peak > 1024 && n < t.peak/4 { // maps never shrink
		entries := make(map[T]entry[V], n)
		maps.Copy(entries, t.entries)
		t.entries, t.peak = entries, n
	}
	return failed
}

// report calls OnChange and enqueues the item. A panic of OnChange keeps no item
// from the queue; it is logged, and those that follow when their number has doubled.
func (t *Tracker[T, V]) report(c Change[T, V]) error {
	if t.OnChange != nil {
		err := guard(func() error { t.OnChange(c); return nil })
		if p, ok := err.(*reconcile.PanicError); ok {
			if t.panics++; t.panics&(t.panics-1) == 0 {
				logger := slog.New(handler{t.logger().Handler(), t.Name})
				_ = guard(func() error {
					logger.Error("OnChange panicked", "item", c.Item, "err", p, "panics", t.panics, "stack", string(p.Stack))
					return nil
				})
			}
		}
	}
	return guard(func() error { t.Queue.Enqueue(c.Item); return nil })
}

// guard calls f, and makes an error of a panic in it, so that one item does not
// hide those after it. A call of runtime.Goexit ends the listing: to outlive that
// takes a goroutine for each item.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &reconcile.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

func (t *Tracker[T, V]) logger() *slog.Logger { return cmp.Or(t.Logger, slog.Default()) }

// A handler makes lines of a Poller lines of a Tracker.
type handler struct {
	slog.Handler
	name string
}

func (h handler) Handle(ctx context.Context, r slog.Record) error {
	r.Message = strings.Replace(r.Message, "poll ", "listing ", 1)
	if h.name != "" {
		r.AddAttrs(slog.String("tracker", h.name))
	}
	return h.Handler.Handle(ctx, r)
}

func (t *Tracker[T, V]) check() error {
	switch {
	case t.Queue == nil:
		return errors.New("tracker: Tracker.Queue is required, and nil")
	case t.List == nil:
		return errors.New("tracker: Tracker.List is required, and nil")
	case t.Period <= 0:
		return fmt.Errorf("tracker: Tracker.Period is %v, want more than 0", t.Period)
	case !(t.Jitter >= 0 && t.Jitter <= 1): // true for a NaN as well
		return fmt.Errorf("tracker: Tracker.Jitter is %v, want 0 to 1", t.Jitter)
	case t.Resync < 0:
		return fmt.Errorf("tracker: Tracker.Resync is %d, want 0 or more", t.Resync)
	}
	switch v := reflect.TypeFor[V](); v.Kind() {
	case reflect.Pointer, reflect.UnsafePointer, reflect.Chan:
		return fmt.Errorf("tracker: Tracker has versions of type %v, and equal ones would not be found equal; want the version itself, such as a string", v)
	}
	return nil
}
