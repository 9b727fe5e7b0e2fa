// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package keep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// known is what the listings have shown. A pair of listings makes a new one, and its maps
// are not changed afterwards, except for unseen.
type known[K comparable, D, A any] struct {
	desired    map[K]D          // of the last complete listing; nil if there was none
	before     map[K]D          // the same, also if an earlier Run listed it: what differs now is an event
	actual     map[K]A          // the same
	listed     bool             // the last pair has listed Actual
	complete   bool             // and Desired, and Run or Apply goes on
	todo       map[K]int        // desired and missing, or not in sync: in how many listings of Actual, with the same values
	unseen     map[K]int        // those of todo that no run has ensured since, nor is ensuring; changed by Reconcile
	surplus    map[K]surplus[D] // existing, and not desired or Absent
	rejection  error            // of the last complete pair: nil or a *Rejection[K]
	rejectedAt time.Time        // when the first of those in a row ended
	acceptedAt time.Time        // when the last pair that was complete and not rejected ended, or Run began
	start      time.Time        // when the first pair began
	swept      time.Duration    // the time from then to the start of the last pair, for Resync
	stats      Stats            // of the last pair
	rejections int              // in a row, for the log
	panics     int              // pairs with a panic, for the log
}

// surplus is an existing thing that is to be deleted, in time.
type surplus[D any] struct {
	absent    bool      // Desired lists it, as Absent
	since     time.Time // when the first complete pair ended that says so, as each one after it; zero if none does
	confirmed bool      // a pair that began long enough after that says so too
	allowed   bool      // an accepted pair says so, or an operator
	last      D         // its last desired state
	keeps     bool      // which is to be kept until it is allowed
}

var (
	errNothing    = errors.New("keep: nothing to delete")
	errNotListed  = errors.New("keep: the desired things have not been listed yet")
	errIncomplete = errors.New("keep: the last pair of listings was not complete")
	errTooSoon    = errors.New("keep: it is not desired, and further complete listings must confirm that")
)

// blocked returns nil if a thing may be deleted now, and otherwise the reason. The numbers
// are those of the conditions in the doc of Set. Lookup, if there is one, is asked by
// Reconcile.
func (k *known[K, D, A]) blocked(key K, hasLookup bool) error {
	thing, ok := k.surplus[key]
	switch {
	case k.desired == nil:
		return errNotListed
	case !ok: // 1
		return errNothing
	case !thing.allowed && !thing.absent: // 4
		return cmp.Or(k.rejection, errIncomplete)
	case !thing.confirmed && (thing.absent || !hasLookup): // 3
		return errTooSoon
	case !k.complete: // 2
		return errIncomplete
	}
	return nil
}

// wanted returns the desired state of a key, and whether the thing is desired.
func (k *known[K, D, A]) wanted(key K) (desired D, ok bool) {
	if desired, ok = k.desired[key]; ok {
		return desired, true
	}
	thing := k.surplus[key]
	return thing.last, thing.keeps && !thing.allowed
}

// A pair of listings makes what is known next of what was known.
type pair[K comparable, D, A any] struct {
	*Set[K, D, A]
	old, next    known[K, D, A]
	accept       map[K]struct{} // may be deleted, says an operator
	gap          time.Duration  // the least time between two pairs that say that a thing is Absent
	begun, ended time.Time

	stay   int   // existing things that are desired
	newly  []K   // surplus
	panics int   // keys with a panic of Absent or InSync
	panic  error // the first of these
}

// list lists both sides and returns what is known then. The error is that of a listing.
func (s *Set[K, D, A]) list(ctx context.Context, old known[K, D, A], accept map[K]struct{}, gap time.Duration) (known[K, D, A], error) {
	p := pair[K, D, A]{Set: s, old: old, next: old, accept: accept, gap: gap, begun: time.Now()}
	var errActual, errDesired error
	p.next.actual, errActual = listOne(ctx, 10*s.Period, "Actual", s.Actual, old.actual) // 1: before Desired
	p.next.desired, errDesired = listOne(ctx, 10*s.Period, "Desired", s.Desired, old.desired)
	p.ended = time.Now()
	if errDesired == nil {
		p.next.before = p.next.desired
	}
	p.next.listed = errActual == nil
	p.next.complete = errActual == nil && errDesired == nil // 2
	p.next.start = cmp.Or(old.start, p.begun)
	p.next.swept = p.begun.Sub(p.next.start)
	if err := alone(func() error { p.compare(); return nil }); err != nil { // 2: a Goexit of Absent or InSync
		old.listed, old.complete = false, false
		return old, fmt.Errorf("keep: Set.Absent or Set.InSync: %w", err)
	}
	if p.next.complete {
		p.acceptOrReject()
	}
	p.count()
	_ = alone(func() error { p.log(cmp.Or(s.Logger, reconcile.Logger(ctx))); return nil })
	return p.next, errors.Join(errActual, errDesired)
}

// listOne returns a copy of a complete listing, or the old one and an error.
func listOne[K comparable, V any](ctx context.Context, limit time.Duration, name string, list func(context.Context) (map[K]V, error), old map[K]V) (map[K]V, error) {
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took ten Periods, %v", limit))
		defer cancel()
	}
	all := map[K]V{}
	err := alone(func() error {
		m, err := list(ctx)
		for key, value := range m {
			if key != key { // true for a NaN
				return fmt.Errorf("the key %v is not equal to itself", key)
			}
			all[key] = value
		}
		return cmp.Or(err, context.Cause(ctx)) // 2: a loop over pages may have ended because of ctx
	})
	if err != nil {
		return old, fmt.Errorf("keep: Set.%s: %w", name, err)
	}
	return all, nil
}

// alone calls f in a goroutine, and makes an error of a panic or a runtime.Goexit in it.
func alone(f func() error) error {
	err := errors.New("runtime.Goexit called")
	var call sync.WaitGroup
	call.Go(func() { err = try(f) })
	call.Wait()
	return err
}

// try calls f, and makes an error of a panic in it.
func try(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &reconcile.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// compare compares the two sides, key by key.
func (p *pair[K, D, A]) compare() {
	p.next.todo, p.next.surplus = map[K]int{}, map[K]surplus[D]{}
	for key := range p.next.desired {
		p.compareOne(key)
	}
	for key := range p.next.actual {
		if _, ok := p.next.desired[key]; !ok && p.next.desired != nil { // else nothing is known to be surplus
			p.compareOne(key)
		}
	}
	sortKeys(p.newly)
}

// compareOne compares one key. A panic of Absent or InSync concerns this key alone.
func (p *pair[K, D, A]) compareOne(key K) {
	ensure := false
	err := try(func() error {
		desired, listed := p.next.desired[key]
		actual, exists := p.next.actual[key]
		absent := listed && p.absent(desired)
		if exists && (absent || !listed) {
			thing := p.leaving(key, absent)
			p.next.surplus[key] = thing
			if !absent && !thing.allowed {
				p.newly = append(p.newly, key)
			}
			desired, listed = thing.last, thing.keeps && !thing.allowed
		} else if exists {
			p.stay++
		}
		ensure = listed && !absent
		ensure = ensure && !(exists && p.inSync(key, desired, actual)) // still true if it panics
		return nil
	})
	if err != nil {
		p.panics++
		p.panic = cmp.Or(p.panic, fmt.Errorf("keep: Set.Absent or Set.InSync of %v: %w", key, err))
	}
	if ensure {
		p.next.todo[key] = max(1, p.old.todo[key])
		if p.next.listed {
			p.next.todo[key] = 1
			if p.same(key) {
				p.next.todo[key] = p.old.todo[key] + 1
			}
		}
	}
}

func (s *Set[K, D, A]) absent(desired D) bool { return s.Absent != nil && s.Absent(desired) }

func (p *pair[K, D, A]) inSync(key K, desired D, actual A) bool {
	if p.InSync != nil {
		return p.InSync(desired, actual)
	}
	_, unseen := p.old.unseen[key] // its item was in flight, for example, and the queue has ignored the Offer
	return p.same(key) && !unseen
}

// same reports whether the last pair has shown the same values of a key.
func (p *pair[K, D, A]) same(key K) bool {
	desired, _ := p.next.wanted(key)
	oldDesired, _ := p.old.wanted(key)
	actual, exists := p.next.actual[key]
	oldActual, existed := p.old.actual[key]
	return exists == existed && reflect.DeepEqual(oldDesired, desired) && reflect.DeepEqual(oldActual, actual)
}

// leaving returns what is known of an existing thing that is Absent, or not desired.
func (p *pair[K, D, A]) leaving(key K, absent bool) surplus[D] {
	thing, was := p.old.surplus[key]
	switch {
	case !was:
		thing.last, thing.keeps = p.old.desired[key]
		thing.keeps = thing.keeps && !p.absent(thing.last)
	case thing.absent != absent, absent && !p.next.complete: // from the beginning
		thing = surplus[D]{last: thing.last}
	}
	after := p.deleteAfter()
	if absent {
		thing.last, after = p.next.desired[key], p.gap
	}
	if p.next.complete {
		thing.confirmed = thing.confirmed || after < 0 || !thing.since.IsZero() && p.begun.Sub(thing.since) >= after
		thing.since = cmp.Or(thing.since, p.ended)
	}
	_, accepted := p.accept[key]
	thing.absent, thing.allowed = absent, thing.allowed || accepted
	return thing
}

func (s *Set[K, D, A]) deleteAfter() time.Duration {
	return cmp.Or(s.DeleteAfter, 5*s.Period, 5*time.Minute)
}

// acceptOrReject accepts a complete pair, or rejects it because too many things are newly surplus.
func (p *pair[K, D, A]) acceptOrReject() {
	part := cmp.Or(p.MaxDeleted, 0.1)
	limit := max(1, int(math.Ceil(part*float64(len(p.next.actual))-1e-6))) // 0.28 of 25 is 7, and a little more in binary
	if p.stay == 0 && part < 1 {
		limit = 0
	}
	if len(p.newly) <= limit { // 4
		for _, key := range p.newly {
			thing := p.next.surplus[key]
			thing.allowed = true
			p.next.surplus[key] = thing
		}
		p.next.rejection, p.next.rejectedAt, p.next.rejections = nil, time.Time{}, 0
		p.next.acceptedAt = p.ended
		return
	}
	p.next.rejectedAt = cmp.Or(p.old.rejectedAt, p.ended)
	p.next.rejections++
	if old, ok := p.old.rejection.(*Rejection[K]); !ok || !slices.Equal(old.Keys, p.newly) { // the same one is no news for its items
		p.next.rejection = &Rejection[K]{Keys: p.newly}
	}
}

// count counts what the pair has shown.
func (p *pair[K, D, A]) count() {
	k := &p.next
	k.stats = Stats{Desired: len(k.desired), Actual: len(k.actual), Surplus: len(k.surplus), Completed: p.old.stats.Completed}
	if k.complete {
		k.stats.Completed = p.ended
	}
	for key := range k.todo {
		if _, exists := k.actual[key]; exists {
			k.stats.OutOfSync++
		} else {
			k.stats.Missing++
		}
	}
	if k.rejection != nil {
		k.stats.Rejected = len(p.newly)
	}
}

// log logs a rejection, and panics, when their number in a row has doubled.
func (p *pair[K, D, A]) log(logger *slog.Logger) {
	if p.next.panics++; p.panics == 0 {
		p.next.panics = 0
	}
	if n := p.next.rejections; n > p.old.rejections && n&(n-1) == 0 {
		logger.Error("listings rejected, nothing that is newly surplus is deleted", "set", p.Name, "err", p.next.rejection, "rejections", n)
	}
	if n := p.next.panics; n > 0 && n&(n-1) == 0 {
		logger.Error("panic while comparing the listings", "set", p.Name, "err", p.panic, "keys", p.panics, "listings", n)
	}
}

func (s *Set[K, D, A]) snapshot() (known[K, D, A], map[K]struct{}) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k := s.known
	k.unseen = maps.Clone(k.unseen)
	return k, maps.Clone(s.accepted)
}

// commit makes next known.
func (s *Set[K, D, A]) commit(next known[K, D, A]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unseen := maps.Clone(next.todo)
	for key := range s.known.unseen {
		if _, was := next.unseen[key]; !was { // its run has failed since the listing began
			unseen[key] = 1
		}
	}
	s.known = next
	s.known.unseen = unseen
	maps.DeleteFunc(s.accepted, func(key K, _ struct{}) bool {
		thing, ok := next.surplus[key]
		return !ok || thing.absent
	})
}

// enqueue enqueues what has changed, and returns what is to be offered.
func (s *Set[K, D, A]) enqueue(old, next known[K, D, A]) (observed []K, err error) {
	events := s.woken(next)
	if old.before != nil && next.desired != nil {
		for key, desired := range next.desired {
			if before, was := old.before[key]; !was || !reflect.DeepEqual(before, desired) {
				events = append(events, key)
			}
		}
		for key := range old.before {
			if _, ok := next.desired[key]; !ok {
				events = append(events, key)
			}
		}
	}
	isEvent := make(map[K]struct{}, len(events))
	for _, key := range sortKeys(events) {
		errQueue := try(func() error { s.Queue.Enqueue(key); return nil })
		if errQueue == nil {
			isEvent[key] = struct{}{}
		} else {
			err = cmp.Or(err, fmt.Errorf("keep: Set.Queue: enqueuing %v: %w", key, errQueue)) // the first, because there may be one for each key
		}
	}
	if next.desired != nil && (next.listed || old.desired == nil) { // else Actual shows what it has shown before
		for key, n := range next.todo {
			if n <= 2 || n%4 == 0 { // What stays out of sync after it was ensured may be a stale listing.
				observed = append(observed, key)
			}
		}
		observed = slices.AppendSeq(observed, maps.Keys(next.surplus))
	}
	for key := range next.desired {
		if s.turn(key, old.swept, next.swept) {
			observed = append(observed, key)
		}
	}
	observed = slices.DeleteFunc(observed, func(key K) bool { // its run may have ended by now
		_, ok := isEvent[key]
		return ok
	})
	return sortKeys(observed), err
}

// woken returns the keys whose items wait, and have to know more: the reason has ended or
// is another one, or the thing is not in sync any more.
func (s *Set[K, D, A]) woken(next known[K, D, A]) (keys []K) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for key, reason := range s.waiting {
		drifted := next.listed && next.todo[key] == 1
		if drifted || next.blocked(key, s.Lookup != nil) != reason {
			keys = append(keys, key)
		}
	}
	return keys
}

// turn reports whether the turn of a key in Resync came between two pairs of listings.
func (s *Set[K, D, A]) turn(key K, after, upTo time.Duration) bool {
	resync := cmp.Or(s.Resync, time.Hour)
	if resync < 0 || upTo == 0 {
		return false
	}
	hash := fnv.New64a() // the same in each process
	fmt.Fprint(hash, key)
	offset := resync - time.Duration(hash.Sum64()%uint64(resync))
	return (after+offset)/resync != (upTo+offset)/resync
}

// sortKeys sorts keys by their text, in place, so that two runs with the same listings do
// the same.
func sortKeys[K comparable](keys []K) []K {
	texts := make(map[K]string, len(keys))
	for _, key := range keys {
		texts[key] = fmt.Sprint(key)
	}
	slices.SortFunc(keys, func(a, b K) int { return strings.Compare(texts[a], texts[b]) })
	return keys
}
