// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package tracker turns a listing into events. Many remote APIs have no watch, but they
// can be listed, and the list has a version of each item: an ETag, a hash, a status. A
// [Tracker] compares each listing with the one before, and enqueues the items that
// appeared, changed or disappeared.
//
// It guards no deletions. To list both sides and delete what is not desired, use
// [github.com/reconkernel/reconcile/keep.Set].
package tracker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/guard"
)

// A Tracker lists items together with a version of each, records them, and enqueues the
// items that are new, changed or gone. It is a [reconcile.Runner].
//
// Versions are compared by ==, so they must not be pointers. The Tracker uses memory for
// each item and its version, from the first listing on.
//
// Queue, List and Period are required; the zero value of every other field is a good
// default. The fields must not be changed while Run goes on.
type Tracker[T, V comparable] struct {
	// Queue gets an Enqueue of each item that is new, changed or gone. Items that are new
	// in the first complete listing, or in a listing before it, are offered instead, so
	// that items with events run first. If Queue is a *[reconcile.Queue], an item in flight
	// is enqueued all the same.
	Queue reconcile.Enqueuer[T]

	// List yields the existing items, in any order. It may read them page by page: each
	// item is enqueued before the next one is requested. See [FromMap].
	//
	// Its ctx ends ten Periods after the listing began; see [reconcile.Poller]. An error that
	// it yields makes the listing incomplete. The item beside the error is ignored; later
	// items count. If an item is listed twice, its first version counts, and a warning names
	// it.
	//
	// An item that a complete listing lacks is gone. If it only moved to a page that was
	// read before, the run that follows finds it.
	List func(ctx context.Context) iter.Seq2[Listed[T, V], error]

	// Period is the time from the start of one listing to the start of the next,
	// and Jitter makes it longer or shorter, as with [reconcile.Poller].
	Period time.Duration
	Jitter float64

	// Resync is the interval in which each unchanged item is offered too. So items that
	// are not retried, or that changed without a new version, are checked again. The
	// items are spread over the interval: each listing offers a share of them, the same
	// items in the same order in each process. 0 means an hour, and less than 0 never. The
	// interval begins with the first Run: a process that restarts more often than that
	// never offers some of the unchanged items.
	Resync time.Duration

	// OnChange is called with each change before its item is enqueued. It may be
	// nil.
	OnChange func(Change[T, V])

	Name   string       // for logs
	Logger *slog.Logger // nil means reconcile.Logger(ctx) of Run: that of the Group, or slog.Default() without a Group

	poller atomic.Pointer[reconcile.Poller[T]] // does the timing; nil while Run does not go on
	logger *slog.Logger                        // of this Run

	mu       sync.RWMutex   // guards the fields below; entries change in Run alone
	entries  map[T]entry[V] // nil before the first Run
	accepted time.Time      // when the last complete listing ended, or Run began

	// The fields below belong to Run.
	peak     int           // of the length of entries, since they were made
	listing  uint32        // the number of this listing
	complete bool          // a listing was
	resync   time.Time     // when the first listing began; Resync counts from there
	offered  time.Duration // since then, when the last complete listing began
	panics   int           // of OnChange
	twice    int           // in how many listings in a row an item came twice
}

// A Listed is an item of a listing, and its version.
type Listed[T, V comparable] struct {
	Item    T
	Version V
}

// A Change is a difference between two listings of a Tracker.
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
	version V
	listing uint32 // the last that had it
}

// FromMap makes a [Tracker.List] of a function that returns all items at once, with their
// versions. If it also returns an error, the items count, and the listing is incomplete.
// The order is the same each time, that of the items as text. FromMap panics if list is
// nil.
func FromMap[T, V comparable](list func(ctx context.Context) (map[T]V, error)) func(ctx context.Context) iter.Seq2[Listed[T, V], error] {
	if list == nil {
		panic("tracker: FromMap needs a function, got nil")
	}
	return func(ctx context.Context) iter.Seq2[Listed[T, V], error] {
		return func(yield func(Listed[T, V], error) bool) {
			items, err := list(ctx)
			for _, item := range inOrder(maps.Keys(items), len(items)) {
				if !yield(Listed[T, V]{item, items[item]}, nil) {
					return
				}
			}
			if err != nil {
				yield(Listed[T, V]{}, err)
			}
		}
	}
}

// Run lists at once and then every Period, until ctx is done. It then waits for the
// listing in progress and returns nil. It returns a [reconcile.Terminal] error at once if a
// field is missing or out of its range, and an error if it is running already. The Tracker
// keeps its records when Run returns, and Run may be called again.
//
// A listing that fails or panics is retried with back-off, no later than one Period after
// it began, or after its end if it took a Period or longer. Items that it has already
// enqueued are not enqueued again. The 1st, 2nd, 4th, 8th … failure in a row is logged, and
// the first success after it. The number of gone items is logged, as a warning if it is at
// least ten and more than a tenth of all.
func (t *Tracker[T, V]) Run(ctx context.Context) error {
	if err := t.check(); err != nil {
		return reconcile.Terminal(err)
	}
	logger := slog.New(handler{cmp.Or(t.Logger, reconcile.Logger(ctx)).Handler(), t.Name})
	p := &reconcile.Poller[T]{
		Queue:    t.Queue,
		GetItems: func(ctx context.Context) ([]T, error) { return nil, t.list(ctx) },
		Period:   t.Period,
		Jitter:   t.Jitter,
		Logger:   logger,
	}
	if !t.poller.CompareAndSwap(nil, p) {
		return errors.New("tracker: Tracker.Run is running already")
	}
	defer t.poller.Store(nil)
	t.logger = logger
	t.mu.Lock()
	if t.entries == nil {
		t.entries = map[T]entry[V]{}
	}
	t.accepted = time.Now()
	t.mu.Unlock()
	if err := p.Run(ctx); err != nil { // of all that a Poller refuses, check leaves this
		return fmt.Errorf("tracker: Tracker.Queue: %w", err)
	}
	return nil
}

// Trigger makes the tracker list soon: when the listing in progress has ended, and at
// least one second after that listing began. After a listing that failed, the back-off
// stays. All calls before the next listing begins count as one. Trigger never blocks, and
// may be called from any goroutine.
func (t *Tracker[T, V]) Trigger() {
	if p := t.poller.Load(); p != nil { // else Run begins with a listing
		p.Trigger()
	}
}

// Age returns the time since the last complete listing, or since Run began; 0 before
// that. It does not block, and may be called from any goroutine.
func (t *Tracker[T, V]) Age() time.Duration {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.accepted.IsZero() {
		return 0
	}
	return time.Since(t.accepted)
}

// Version returns the version of an item in the last listing, and whether the listing has
// the item. An item that only an incomplete listing lacks still counts. It may be called
// from any goroutine.
func (t *Tracker[T, V]) Version(item T) (version V, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e, ok := t.entries[item]
	return e.version, ok
}

// list goes through one listing. It enqueues the items itself, so that the Poller
// has none to offer.
func (t *Tracker[T, V]) list(ctx context.Context) error {
	t.listing++
	begun, known := time.Now(), len(t.entries)
	if t.resync.IsZero() {
		t.resync = begun
	}
	repeated := repeated[T]{}
	share := share{every: cmp.Or(t.Resync, time.Hour), after: t.offered, upTo: begun.Sub(t.resync)}
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
			err = guard.Try(func() error { return t.compare(listed, share, &repeated) }) // an interface may hold what is no map key
		}
		failed = cmp.Or(failed, err)
	}
	if failed == nil && ctx.Err() != nil { // List may have ended because of it
		failed = context.Cause(ctx)
	}
	if repeated.times == 0 {
		t.twice = 0
	} else if t.twice++; t.twice&(t.twice-1) == 0 {
		t.log(slog.LevelWarn, "listing has items twice", "item", repeated.first, "times", repeated.times, "listings", t.twice)
	}
	t.peak = max(t.peak, len(t.entries))
	if failed != nil {
		return failed
	}
	t.complete, t.offered = true, share.upTo
	t.mu.Lock()
	t.accepted = time.Now()
	t.mu.Unlock()
	return t.reportVanished(t.gone(), known)
}

// A repeated counts the items that a listing has already had.
type repeated[T any] struct {
	times int
	first T
}

// A share is the part of an interval that has passed between two listings.
type share struct{ every, after, upTo time.Duration }

// has reports whether the time of an item is in the share. Each item has one in the
// interval, by the hash of its text.
func (s share) has(item any) bool {
	switch {
	case s.every <= 0:
		return false
	case s.upTo-s.after >= s.every:
		return true
	}
	hash := fnv.New64a()
	if text, ok := item.(string); ok {
		_, _ = io.WriteString(hash, text)
	} else {
		fmt.Fprint(hash, item)
	}
	high, _ := bits.Mul64(scramble(hash.Sum64()), uint64(s.every))
	at := time.Duration(high)
	return (s.upTo-at+s.every)/s.every > (s.after-at+s.every)/s.every
}

// scramble spreads the bits of a hash, since that of FNV of a short text leaves the high
// ones much alike.
func scramble(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	return h ^ h>>33
}

// compare compares one item of a listing with what is known of it.
func (t *Tracker[T, V]) compare(listed Listed[T, V], share share, repeated *repeated[T]) error {
	if listed.Item != listed.Item { // true for a NaN
		return fmt.Errorf("tracker: listed item %v is not equal to itself", listed.Item)
	}
	e := entry[V]{version: listed.Version, listing: t.listing}
	old, known := t.entries[listed.Item]
	switch {
	case known && old.listing == t.listing:
		if repeated.times++; repeated.times == 1 {
			repeated.first = listed.Item
		}
		return nil
	case !known:
		add := t.Queue.Enqueue
		if !t.complete && !t.inFlight(listed.Item) {
			add = t.Queue.Offer
		}
		return t.report(Change[T, V]{Kind: Appeared, Item: listed.Item, New: listed.Version}, add, &e)
	case old.version != listed.Version:
		return t.report(Change[T, V]{Kind: Altered, Item: listed.Item, Old: old.version, New: listed.Version}, t.Queue.Enqueue, &e)
	case share.has(listed.Item):
		if err := guard.Call(func() error { t.Queue.Offer(listed.Item); return nil }); err != nil {
			return err
		}
	}
	t.set(listed.Item, &e)
	return nil
}

// inFlight reports whether the queue shows that an item is in flight. The queue then
// ignores an Offer, although the run may have begun before the item changed. No other queue
// is asked: the State of a queue on a server may be a request, and a listing has many items.
func (t *Tracker[T, V]) inFlight(item T) bool {
	q, ok := t.Queue.(*reconcile.Queue[T])
	return ok && q.State(item).Phase == reconcile.PhaseInFlight
}

// gone returns the items that this listing lacks, in the order of FromMap.
func (t *Tracker[T, V]) gone() []T {
	n := 0
	for _, e := range t.entries {
		if e.listing != t.listing {
			n++
		}
	}
	return inOrder(func(yield func(T) bool) {
		for item, e := range t.entries {
			if e.listing != t.listing && !yield(item) {
				return
			}
		}
	}, n)
}

// reportVanished reports the items that a complete listing lacks, of so many.
func (t *Tracker[T, V]) reportVanished(gone []T, known int) error {
	var failed error
	for _, item := range gone {
		old := t.entries[item]
		failed = cmp.Or(failed, t.report(Change[T, V]{Kind: Vanished, Item: item, Old: old.version}, t.Queue.Enqueue, nil))
	}
	if len(gone) > 0 {
		level := slog.LevelInfo
		if len(gone) >= 10 && 10*len(gone) > known { // a small listing loses most of its items by normal work
			level = slog.LevelWarn
		}
		t.log(level, "listing lost items", "lost", len(gone), "of", known)
	}
	if n := len(t.entries); t.peak > 1024 && n < t.peak/4 { // maps never shrink
		entries := make(map[T]entry[V], n)
		maps.Copy(entries, t.entries)
		t.mu.Lock()
		t.entries, t.peak = entries, n
		t.mu.Unlock()
	}
	return failed
}

// set keeps what is known of an item, or forgets it if that is nil.
func (t *Tracker[T, V]) set(item T, e *entry[V]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e != nil {
		t.entries[item] = *e
	} else {
		delete(t.entries, item)
	}
}

// inOrder returns the items, n of them, in the order of their texts.
func inOrder[T comparable](items iter.Seq[T], n int) []T {
	all := slices.AppendSeq(make([]T, 0, n), items)
	if names, ok := any(all).([]string); ok {
		slices.Sort(names)
		return all
	}
	texts := make(map[T]string, n)
	for _, item := range all {
		texts[item] = fmt.Sprint(item)
	}
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(texts[a], texts[b]) })
	return all
}

// report calls OnChange, keeps what is known of the item from now on, and enqueues
// it by add. If add panics, what was known before is so again, and the change is
// reported again. A panic of OnChange keeps no item from the queue; it is logged, and
// those that follow when their number has doubled.
func (t *Tracker[T, V]) report(c Change[T, V], add func(T), e *entry[V]) error {
	if t.OnChange != nil {
		err := guard.Call(func() error { t.OnChange(c); return nil })
		if p, ok := err.(*reconcile.PanicError); ok {
			if t.panics++; t.panics&(t.panics-1) == 0 {
				t.log(slog.LevelError, "OnChange panicked", "item", c.Item, "err", p, "panics", t.panics, "stack", string(p.Stack))
			}
		}
	}
	var was *entry[V]
	if old, known := t.entries[c.Item]; known {
		was = &old
	}
	t.set(c.Item, e) // first, for the run that asks for it by Version
	err := guard.Call(func() error { add(c.Item); return nil })
	if err != nil {
		t.set(c.Item, was)
	}
	return err
}

// log writes a line. A handler that panics costs no more than that.
func (t *Tracker[T, V]) log(level slog.Level, msg string, args ...any) {
	guard.Log(t.logger, level, msg, args...)
}

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
	case t.Period < time.Millisecond:
		return fmt.Errorf("tracker: Tracker.Period is %v, want at least 1ms: was a unit forgotten?", t.Period)
	case t.Resync > 0 && t.Resync < time.Millisecond:
		return fmt.Errorf("tracker: Tracker.Resync is %v, want at least 1ms: was a unit forgotten?", t.Resync)
	case !(t.Jitter >= 0 && t.Jitter <= 1): // true for a NaN as well
		return fmt.Errorf("tracker: Tracker.Jitter is %v, want 0 to 1", t.Jitter)
	}
	switch v := reflect.TypeFor[V](); v.Kind() {
	case reflect.Pointer, reflect.UnsafePointer, reflect.Chan:
		return fmt.Errorf("tracker: Tracker has versions of type %v, and equal ones would not be found equal; want the version itself, such as a string", v)
	}
	return nil
}
