// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

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
	"sync"
	"time"
)

// A Tracker makes a watch of a listing: it lists items together with a version
// of each, remembers them, and enqueues what is new, changed or gone. It is the
// source for what has no watch, but an ETag, a hash or a time of modification. A
// version is found the same by ==, so it is no pointer.
//
// List and Period are required; the zero value of every other field is a good
// default. They are not to be changed while Feed goes on. A Tracker takes memory
// for each item and its version, from the first listing on.
type Tracker[T, V comparable] struct {
	// List yields the items that there are, in any order, page by page if it
	// likes: each is told to the queue before the next one is asked for. Its
	// ctx ends one Period after the listing began. An error that it yields
	// makes the listing incomplete; the item beside it is ignored, and what
	// follows is not.
	//
	// An item that a complete listing lacks is gone. If it only moved to a page
	// that was read before, the run that follows finds it there.
	List func(ctx context.Context) iter.Seq2[Seen[T, V], error]

	// Period is the time from the start of one listing to the start of the next,
	// and Jitter makes it longer or shorter, as with [Poller].
	Period time.Duration
	Jitter float64

	// Resync makes each Resync-th complete listing also offer what has not
	// changed: 1 means all, 0 none.
	Resync int

	// Known yields the items that were handled before this process began, each
	// with its version: with it, the first listing tells what changed and what
	// is gone since then. An item with the zero version was begun and not
	// finished: it is told as altered, whatever its version is. Known is read
	// once, when Feed is first called. Nil means none.
	Known iter.Seq2[T, V]

	// OnChange is told of each change before its item is enqueued. It may be
	// nil.
	OnChange func(Change[T, V])

	Name   string       // for logs
	Logger *slog.Logger // nil means slog.Default()

	mu     sync.Mutex // guards poller
	poller *Poller[T] // nil while Feed does not go on

	// These belong to Feed.
	entries map[T]tracked[V] // nil before the first Feed
	peak    int              // of the length of entries, since they were made
	listing uint32           // the number of this listing
	quiet   int              // complete listings since all was offered
}

// Seen is an item of a listing, with the version that it has.
type Seen[T, V comparable] struct {
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

// tracked is what a Tracker knows of an item.
type tracked[V comparable] struct {
	version V
	listing uint32 // the last that had it
	begun   bool   // of Known, and not finished: no version is the same
}

// Feed lists at once and then every Period, until ctx is done; it then waits for
// the listing in progress and returns nil. It is a [Feeder]. It returns an error
// at once if a field is missing or out of its range, or if it is running already.
// What it knows stays when it returns, so it may be called again.
//
// A listing that fails or panics is logged and tried again with back-off, no later
// than a Period after it began. What it told before is not told again.
func (t *Tracker[T, V]) Feed(ctx context.Context, q Enqueuer[T]) error {
	if err := t.check(q); err != nil {
		return err
	}
	p, err := t.start(q)
	if err != nil {
		return err
	}
	defer t.stop()
	if t.entries == nil {
		t.recall()
	}
	return p.Run(ctx)
}

// Trigger makes the tracker list soon: at once, or as soon as the listing in
// progress has ended. All calls before the next listing begins count as one.
// Trigger never blocks, and may be called from any goroutine.
func (t *Tracker[T, V]) Trigger() {
	t.mu.Lock()
	p := t.poller
	t.mu.Unlock()
	if p != nil {
		p.Trigger()
	}
}

// recall takes over what was handled before.
func (t *Tracker[T, V]) recall() {
	var none V
	entries := make(map[T]tracked[V])
	if t.Known != nil {
		for item, version := range t.Known {
			if item == item { // false for a NaN, which no listing would find
				entries[item] = tracked[V]{version: version, begun: version == none}
			}
		}
	}
	t.entries, t.peak = entries, len(entries)
}

// list goes through one listing. The queue is fed on the way, so the Poller has
// nothing to offer.
func (t *Tracker[T, V]) list(ctx context.Context, q Enqueuer[T]) error {
	t.listing++
	resync := t.Resync > 0 && t.quiet+1 >= t.Resync
	seq := t.List(ctx)
	if seq == nil {
		return errors.New("reconcile: Tracker.List returned nil, want a sequence")
	}
	var failed error // why it is not complete
	for seen, err := range seq {
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			if p := caught(func() { err = t.see(q, seen, resync) }); p != nil {
				err = p
			}
		}
		if failed == nil {
			failed = err
		}
	}
	if failed == nil && ctx.Err() != nil { // List may have ended because of it
		failed = context.Cause(ctx)
	}
	t.peak = max(t.peak, len(t.entries))
	if failed != nil {
		return failed
	}
	t.quiet++
	if resync {
		t.quiet = 0
	}
	return t.sweep(q)
}

// see takes in one item of a listing.
func (t *Tracker[T, V]) see(q Enqueuer[T], seen Seen[T, V], resync bool) error {
	if seen.Item != seen.Item { // true for a NaN
		return fmt.Errorf("reconcile: listed item %v is not equal to itself", seen.Item)
	}
	var err error
	old, known := t.entries[seen.Item]
	switch {
	case !known:
		err = t.tell(q, Change[T, V]{Kind: Appeared, Item: seen.Item, New: seen.Version})
	case old.begun || old.version != seen.Version:
		err = t.tell(q, Change[T, V]{Kind: Altered, Item: seen.Item, Old: old.version, New: seen.Version})
	case resync:
		q.Offer(seen.Item)
	}
	if err == nil { // or it is told again
		t.entries[seen.Item] = tracked[V]{version: seen.Version, listing: t.listing}
	}
	return err
}

// sweep tells of the items that a complete listing lacks.
func (t *Tracker[T, V]) sweep(q Enqueuer[T]) error {
	var failed error
	for item, e := range t.entries {
		if e.listing == t.listing {
			continue
		}
		if err := t.tell(q, Change[T, V]{Kind: Vanished, Item: item, Old: e.version}); err != nil {
			failed = cmp.Or(failed, err)
			continue
		}
		delete(t.entries, item)
	}
	if n := len(t.entries); t.peak > 1024 && n < t.peak/4 { // maps never shrink
		entries := make(map[T]tracked[V], n)
		maps.Copy(entries, t.entries)
		t.entries, t.peak = entries, n
	}
	return failed
}

// tell reports a change and enqueues its item.
func (t *Tracker[T, V]) tell(q Enqueuer[T], c Change[T, V]) error {
	if t.OnChange != nil {
		if p := caught(func() { t.OnChange(c) }); p != nil {
			logGuarded(cmp.Or(t.Logger, slog.Default()), slog.LevelError, "OnChange panicked",
				"item", c.Item, "err", p, "stack", string(p.Stack), "tracker", t.Name)
		}
	}
	if p := caught(func() { q.Enqueue(c.Item) }); p != nil {
		return p
	}
	return nil
}

// caught returns the panic of f, or nil, so that one item does not hide those after
// it. It is guard for what is called for each item: without a goroutine, and so
// a call of runtime.Goexit ends the listing.
func caught(f func()) (p *PanicError) {
	defer func() {
		if v := recover(); v != nil {
			p = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	f()
	return nil
}

func (t *Tracker[T, V]) check(q Enqueuer[T]) error {
	switch {
	case checkQueue[T]("the queue of Tracker.Feed", q) != nil:
		return checkQueue[T]("the queue of Tracker.Feed", q)
	case t.List == nil:
		return errors.New("reconcile: Tracker.List is required, and nil")
	case t.Period <= 0:
		return fmt.Errorf("reconcile: Tracker.Period is %v, want more than 0", t.Period)
	case !(t.Jitter >= 0 && t.Jitter <= 1): // true for a NaN as well
		return fmt.Errorf("reconcile: Tracker.Jitter is %v, want 0 to 1", t.Jitter)
	case t.Resync < 0:
		return fmt.Errorf("reconcile: Tracker.Resync is %d, want 0 or more", t.Resync)
	}
	switch v := reflect.TypeFor[V](); v.Kind() {
	case reflect.Pointer, reflect.UnsafePointer, reflect.Chan:
		return fmt.Errorf("reconcile: Tracker has versions of type %v, and equal ones would not be found equal; want the version itself, such as a string", v)
	}
	return nil
}

// start makes the Poller that does the timing.
func (t *Tracker[T, V]) start(q Enqueuer[T]) (*Poller[T], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.poller != nil {
		return nil, errors.New("reconcile: Tracker.Feed is running already")
	}
	t.poller = &Poller[T]{
		Queue:    q,
		GetItems: func(ctx context.Context) ([]T, error) { return nil, t.list(ctx, q) },
		Period:   t.Period,
		Jitter:   t.Jitter,
		Name:     t.Name,
		Logger:   t.Logger,
	}
	return t.poller, nil
}

func (t *Tracker[T, V]) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.poller = nil
}
