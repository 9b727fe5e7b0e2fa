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
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/guard"
)

// known is what the listings have shown. A pair of listings makes a new one, and its maps
// are not changed afterwards, except for runs.
type known[K comparable, D, A any] struct {
	desired map[K]D // of the last complete listing; nil if there was none
	before  map[K]D // the same, also if an earlier Run listed it: what differs now is an event
	actual  map[K]A // the same as desired

	listed   bool // the last pair has listed Actual
	complete bool // and Desired, and Run or Apply goes on
	ready    bool // there was a complete pair, or Actual has failed for too long

	listing context.Context // of the listing in progress; nil if there is none

	todo    map[K]bool       // desired and missing, or not in sync: whether that is new, or a value has changed
	surplus map[K]surplus[D] // existing, and not desired or Absent
	runs    map[K]run        // of the keys of todo and surplus; Reconcile changes it
	stats   Stats            // of the last pair

	// Of the last complete pair: nil or a *Rejection[K], when the first of those in a row
	// ended, and when the last pair that was accepted ended, or Run began.
	rejection              error
	rejectedAt, acceptedAt time.Time

	start              time.Time     // when the first pair began
	swept              time.Duration // the time from then to the start of the last pair, for Resync
	rejections, panics int           // pairs in a row, for the log

	left map[K]struct{} // since the listing before, Desired lacks them

	ensures, deletes func(key K) bool // whether ApplyPlan does that; nil means that there is no plan
}

// surplus is an existing thing that is to be deleted, in time.
type surplus[D any] struct {
	absent    bool // Desired lists it, as Absent, and no operator has to accept that
	allowed   bool // an accepted pair says so, or an operator
	confirmed bool // a pair that began long enough after the first says so too
	keeps     bool // its last desired state is to be kept until it is allowed
	last      D

	// When the first complete pair ended that says so, as each one after it, and the same
	// of the accepted pairs; zero if none does.
	since, agreed time.Time
}

// A wait is why an item waits. If it waits for a listing, a complete pair that began then or
// later ends that.
type wait struct {
	reason error
	since  time.Time
}

// A run is the last run of a key that is out of sync or surplus.
type run struct {
	state    runState
	listings int // 0 if no run has succeeded or failed since the values changed, else 1, and 1 more for each listing of Actual since
}

type runState uint8

const (
	pending runState = iota // there was none since the values changed, or it did nothing yet
	running
	again // running, and the last run succeeded
	succeeded
	failed
)

func (r run) goesOn() bool { return r.state == running || r.state == again }

// offered reports whether a listing offers the key. A key that stays out of sync or surplus
// although it had a run is offered by one listing of four; the first one may be stale.
func (r run) offered() bool {
	return r.state < succeeded || r.listings%4 == 0 || r.state == succeeded && r.listings < 3
}

var (
	errNothing    = errors.New("keep: nothing to delete")
	errNotListed  = errors.New("keep: the desired and the actual things have not been listed yet")
	errIncomplete = errors.New("keep: the last pair of listings was not complete")
	errLate       = errors.New("keep: a listing has not returned, though its context ended")
	errTooSoon    = errors.New("keep: it is not desired, and further complete listings must confirm that")
	errUnlisted   = errors.New("keep: Lookup says that it is not desired, and the next listings must say so too")
	errUnknown    = errors.New("keep: neither Desired nor Actual has listed it yet")
	errNotPlanned = errors.New("keep: the plan has no change for it")
	errDisagree   = errors.New("keep: Lookup says that it is Absent, and Desired does not list it")
)

// blocked returns nil if a thing may be deleted now, and otherwise the reason. The numbers
// are those of the conditions in the doc of Set. Reconcile asks Lookup (5).
func (k *known[K, D, A]) blocked(key K) error {
	thing, ok := k.surplus[key]
	switch {
	case !k.ready: // 2
		return errNotListed
	case !ok: // 1
		return errNothing
	case k.deletes != nil && !k.deletes(key):
		return errNotPlanned
	case !thing.allowed && !thing.absent: // 3
		return cmp.Or(k.rejection, errIncomplete)
	case !thing.confirmed: // 4
		return errTooSoon
	case k.listing != nil && k.listing.Err() == context.DeadlineExceeded: // 6
		return errLate
	case !k.complete || k.listing != nil && k.listing.Err() != nil: // 2, until the next pair is compared
		return errIncomplete
	}
	return nil
}

// begun is when the last pair began.
func (k *known[K, D, A]) begun() time.Time { return k.start.Add(k.swept) }

// lastDesired returns the desired state of a key, and whether the thing is desired.
func (k *known[K, D, A]) lastDesired(key K) (desired D, ok bool) {
	if desired, ok = k.desired[key]; ok {
		return desired, true
	}
	thing := k.surplus[key]
	return thing.last, thing.keeps && !thing.allowed
}

// A pair of listings makes what is known next of what was known.
type pair[K comparable, D, A any] struct {
	*Set[K, D, A]
	how          how[K]
	old, next    known[K, D, A]
	begun, ended time.Time

	ensure, leaves bool // the key that is compared

	stays  bool  // an existing thing is desired
	newly  []K   // surplus
	panics int   // keys with a panic of Absent or InSync
	panic  error // the first of these
}

// how Run, Plan and Apply list.
type how[K comparable] struct {
	accepted map[K]struct{}            // may be deleted, says an operator
	gap      time.Duration             // the least time between two pairs that say that a thing is Absent
	begin    func(ctx context.Context) // called with the context of each listing
	logger   *slog.Logger
}

// list lists both sides and returns what is known then. The error is that of a listing.
func (s *Set[K, D, A]) list(ctx context.Context, old known[K, D, A], how how[K]) (known[K, D, A], error) {
	p := pair[K, D, A]{Set: s, how: how, old: old, next: old, begun: time.Now()}
	var errActual, errDesired error
	p.next.actual, errActual = listOne(ctx, s, how, "Actual", s.Actual, old.actual) // 1: before Desired
	if errActual != nil {
		how.begin = func(context.Context) {} // 2: the context of Actual has ended, and stands for the pair
	}
	p.next.desired, errDesired = listOne(ctx, s, how, "Desired", s.Desired, old.desired)
	p.ended = time.Now()
	p.next.left = map[K]struct{}{}
	if errDesired == nil {
		for key := range old.before {
			if _, ok := p.next.desired[key]; !ok {
				p.next.left[key] = struct{}{}
			}
		}
		p.next.before = p.next.desired
	}
	p.next.listed, p.next.start = errActual == nil, cmp.Or(old.start, p.begun)
	p.next.complete = errActual == nil && errDesired == nil // 2
	p.next.swept = p.begun.Sub(p.next.start)
	p.next.ready = old.ready || p.next.complete || p.next.desired != nil && p.ended.Sub(p.next.start) >= 5*s.Period
	p.compare()
	if p.next.complete {
		p.confirm(p.acceptOrReject())
	}
	p.count()
	p.logFaults()
	return p.next, errors.Join(errActual, errDesired)
}

// listOne returns a copy of a complete listing, or the old one and an error.
func listOne[K comparable, D, A, V any](ctx context.Context, s *Set[K, D, A], how how[K], name string, list func(context.Context) (map[K]V, error), old map[K]V) (map[K]V, error) {
	if limit := 10 * s.Period; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, fmt.Errorf("it took ten Periods, %v", limit))
		defer cancel()
	}
	how.begin(ctx)
	late := func(age time.Duration) {
		s.log(how.logger, slog.LevelWarn, "listing has not returned, though its context ended", "listing", name, "for", age)
	}
	all := map[K]V{}
	err := guard.Watched(ctx, late, func() error {
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

// compare compares the two sides, key by key. A panic, or a Goexit, of Absent or InSync
// concerns its key alone.
func (p *pair[K, D, A]) compare() {
	p.next.todo, p.next.surplus, p.next.runs = map[K]bool{}, map[K]surplus[D]{}, map[K]run{}
	keys := slices.Collect(maps.Keys(p.next.desired))
	for key := range p.next.actual {
		if _, ok := p.next.desired[key]; !ok && p.next.desired != nil { // else nothing is known to be surplus
			keys = append(keys, key)
		}
	}
	for len(keys) > 0 {
		err := guard.Call(func() error {
			for ; len(keys) > 0; keys = keys[1:] {
				p.compareOne(keys[0])
				p.note(keys[0])
			}
			return nil
		})
		if err != nil {
			p.panics++
			p.panic = cmp.Or(p.panic, fmt.Errorf("keep: Set.Absent or Set.InSync of %v: %w", keys[0], err))
			p.note(keys[0])
			keys = keys[1:]
		}
	}
	sortKeys(p.newly)
}

// compareOne finds out whether a thing is ensured, and whether it leaves.
func (p *pair[K, D, A]) compareOne(key K) {
	p.ensure, p.leaves = false, false // if Absent panics
	desired, listed := p.next.desired[key]
	actual, exists := p.next.actual[key]
	absent := listed && p.absent(desired)
	if p.leaves = exists && (absent || !listed); p.leaves {
		thing := p.leaving(key, absent)
		p.next.surplus[key] = thing
		if !thing.absent && !thing.allowed {
			p.newly = append(p.newly, key)
		}
		desired, listed = thing.last, thing.keeps && !thing.allowed
	} else if exists {
		p.stays = true
	}
	p.ensure = listed && !absent
	p.ensure = p.ensure && !(exists && p.inSync(key, desired, actual)) // still true if it panics
}

// note notes what compareOne has found out.
func (p *pair[K, D, A]) note(key K) {
	if !p.ensure && !p.leaves {
		return
	}
	last, same := p.old.runs[key], p.next.same(&p.old, key)
	switch {
	case !same:
		last = run{}
	case p.next.listed && last.listings > 0:
		last.listings++
	}
	p.next.runs[key] = last
	if p.ensure {
		_, was := p.old.todo[key]
		p.next.todo[key] = !same || !was
	}
}

func (s *Set[K, D, A]) absent(desired D) bool { return s.Absent != nil && s.Absent(desired) }

func (p *pair[K, D, A]) inSync(key K, desired D, actual A) bool {
	if p.InSync != nil {
		return p.InSync(desired, actual)
	}
	return p.next.ensured(&p.old, key)
}

// ensured reports whether, by the runs of ran, a thing was ensured with the values that k has.
func (k *known[K, D, A]) ensured(ran *known[K, D, A], key K) bool {
	last, ok := ran.runs[key]
	_, todo := ran.todo[key]
	return k.same(ran, key) && (!ok || last.state == running && !todo || last.state == again || last.state == succeeded)
}

// same reports whether the old pair has shown the same values of a key.
func (k *known[K, D, A]) same(old *known[K, D, A], key K) bool {
	desired, is := k.lastDesired(key)
	oldDesired, was := old.lastDesired(key)
	actual, exists := k.actual[key]
	oldActual, existed := old.actual[key]
	return is == was && exists == existed && reflect.DeepEqual(oldDesired, desired) && reflect.DeepEqual(oldActual, actual)
}

// leaving returns what is known of an existing thing that is Absent, or not desired.
func (p *pair[K, D, A]) leaving(key K, absent bool) surplus[D] {
	thing, was := p.old.surplus[key]
	if !was {
		thing.last, thing.keeps = p.old.desired[key]
		thing.keeps = thing.keeps && !p.absent(thing.last)
	}
	if absent {
		thing.last, thing.keeps = p.next.desired[key], false
	}
	absent = absent && p.MaxDeleted >= 0                               // else an operator accepts each deletion (3)
	if was && (thing.absent != absent || absent && !p.next.complete) { // from the beginning
		thing = surplus[D]{last: thing.last}
	}
	_, accepted := p.how.accepted[key]
	thing.absent, thing.allowed = absent, thing.allowed || accepted
	return thing
}

// confirm notes for how long the complete pairs have lacked each surplus thing.
func (p *pair[K, D, A]) confirm(accepted bool) {
	for key, thing := range p.next.surplus {
		from, after, counts := thing.agreed, p.deleteAfter(), accepted // 4: rejected pairs do not count
		if _, ok := p.how.accepted[key]; ok {
			from, counts = thing.since, true // an operator says that they were right
		}
		if thing.absent {
			from, after, counts = thing.since, p.how.gap, true
		}
		if counts && (after < 0 || !from.IsZero() && p.begun.Sub(from) >= after) {
			thing.confirmed = true
		}
		thing.since = cmp.Or(thing.since, p.ended)
		if accepted {
			thing.agreed = cmp.Or(thing.agreed, p.ended)
			thing.allowed = true // is not read of what is Absent, and reset when that changes
			delete(p.next.todo, key)
		}
		p.next.surplus[key] = thing
	}
}

func (s *Set[K, D, A]) deleteAfter() time.Duration {
	return cmp.Or(s.DeleteAfter, 5*s.Period, 5*time.Minute)
}

// acceptOrReject accepts a complete pair, or rejects it because too many things are newly
// surplus, and reports whether it accepts it.
func (p *pair[K, D, A]) acceptOrReject() bool {
	part := cmp.Or(p.MaxDeleted, 0.1)
	limit := max(1, int(math.Ceil(part*float64(len(p.next.actual))-1e-6))) // 0.28 of 25 is 7, and a little more in binary
	if !p.stays && part < 1 || part < 0 {
		limit = 0
	}
	if len(p.newly) <= limit { // 3
		p.next.rejection, p.next.rejectedAt, p.next.rejections = nil, time.Time{}, 0
		p.next.acceptedAt = p.ended
		return true
	}
	p.next.rejectedAt = cmp.Or(p.old.rejectedAt, p.ended)
	p.next.rejections++
	if old, ok := p.old.rejection.(*Rejection[K]); !ok || !slices.Equal(old.Keys, p.newly) { // the same one is no news for its items
		p.next.rejection = &Rejection[K]{Keys: p.newly, all: part < 0}
	}
	return false
}

// count counts what the pair has shown. Commit counts Missing and OutOfSync.
func (p *pair[K, D, A]) count() {
	k := &p.next
	k.stats = Stats{Desired: len(k.desired), Actual: len(k.actual), Surplus: len(k.surplus), Completed: p.old.stats.Completed}
	if k.complete {
		k.stats.Completed = p.ended
	}
	if k.rejection != nil {
		k.stats.Rejected = len(p.newly)
	}
}

// logFaults logs a rejection, and panics, when their number in a row has doubled.
func (p *pair[K, D, A]) logFaults() {
	if p.next.panics++; p.panics == 0 {
		p.next.panics = 0
	}
	level := slog.LevelError
	if p.MaxDeleted < 0 {
		level = slog.LevelWarn // as it was set
	}
	if n := p.next.rejections; n > p.old.rejections && (n&(n-1) == 0 || p.next.rejection != p.old.rejection) {
		p.log(p.how.logger, level, "listings rejected, nothing that is newly surplus is deleted", "err", p.next.rejection, "rejections", n)
	}
	if n := p.next.panics; n > 0 && n&(n-1) == 0 {
		p.log(p.how.logger, slog.LevelError, "panic while comparing the listings", "err", p.panic, "keys", p.panics, "listings", n)
	}
}

func (s *Set[K, D, A]) log(logger *slog.Logger, level slog.Level, msg string, args ...any) {
	if s.Name != "" {
		args = append([]any{"set", s.Name}, args...)
	}
	guard.Log(logger, level, msg, args...)
}

func (s *Set[K, D, A]) snapshot() (known[K, D, A], map[K]struct{}) {
	defer s.lock()()
	k := s.known
	k.runs = maps.Clone(k.runs)
	return k, maps.Clone(s.accepted)
}

// commit makes next known, which was made of old, and returns it with the runs since.
func (s *Set[K, D, A]) commit(old, next known[K, D, A]) known[K, D, A] {
	defer s.lock()()
	for key := range next.todo {
		_, exists := next.actual[key]
		last, ok := s.known.runs[key]
		ended := last.state == succeeded || !ok && old.runs[key].state > pending // since the listing began
		if exists && s.InSync == nil && ended && next.same(&old, key) {
			delete(next.todo, key)
			delete(next.runs, key)
		} else if exists {
			next.stats.OutOfSync++
		}
	}
	next.stats.Missing = len(next.todo) - next.stats.OutOfSync
	for key, last := range s.known.runs {
		changed := last.goesOn() || last != old.runs[key] // since the listing began
		if changed && !next.todo[key] && !(last.state == succeeded && next.inSync(key)) {
			next.runs[key] = run{last.state, max(last.listings, next.runs[key].listings)}
		}
	}
	s.known = next
	maps.DeleteFunc(s.accepted, func(key K, _ struct{}) bool {
		thing, ok := next.surplus[key]
		return !ok || thing.absent
	})
	maps.DeleteFunc(s.deleted, func(_ K, at time.Time) bool { return time.Since(at) > s.twice() })
	next.runs = maps.Clone(next.runs)
	return next
}

// enqueue enqueues what has changed, and returns what is to be offered.
func (s *Set[K, D, A]) enqueue(queue reconcile.Enqueuer[K], old, next known[K, D, A]) (observed []K, err error) {
	events := s.woken(next)
	maps.Copy(events, next.left)
	if old.before != nil && next.desired != nil {
		for key, desired := range next.desired {
			before, was := old.before[key]
			if !next.inSync(key) && (!was || !reflect.DeepEqual(before, desired)) {
				events[key] = struct{}{}
			}
		}
	}
	unlock := s.lock()
	for key := range events { // of which the run must not ask for another pair
		_, left := next.left[key]
		switch w := s.waiting[key]; {
		case left:
			s.waiting[key] = wait{reason: errUnknown} // Desired of this pair lacks it
		case w.reason == errUnlisted:
			s.waiting[key] = wait{w.reason, next.begun()}
		}
	}
	unlock()
	for _, key := range sortKeys(slices.Collect(maps.Keys(events))) {
		if errQueue := guard.Call(func() error { queue.Enqueue(key); return nil }); errQueue != nil {
			delete(events, key)
			err = cmp.Or(err, fmt.Errorf("keep: Set.Queue: enqueuing %v: %w", key, errQueue)) // the first, because there may be one for each key
		}
	}
	offer := func(key K, now bool) {
		if _, event := events[key]; now && next.ready && !event { // the run of an event may have ended by now
			observed = append(observed, key)
		}
	}
	for key, last := range next.runs {
		offer(key, last.offered() && (next.listed || !old.ready)) // else Actual shows what it has shown before
	}
	for key := range next.desired {
		offer(key, s.turn(key, old.swept, next.swept) && (next.inSync(key) || !next.listed))
	}
	return sortKeys(observed), err
}

// inSync reports whether a thing exists and is as it is desired.
func (k *known[K, D, A]) inSync(key K) bool {
	_, exists := k.actual[key]
	_, ensure := k.todo[key]
	_, leaves := k.surplus[key]
	return exists && !ensure && !leaves
}

// woken returns the keys whose items wait, and have to know more: the reason has ended or
// is another one, or the thing is not in sync any more. What waits for a listing is woken by
// a complete pair that began after the item had asked for it.
func (s *Set[K, D, A]) woken(next known[K, D, A]) map[K]struct{} {
	defer s.lock()()
	keys := map[K]struct{}{}
	for key, waits := range s.waiting {
		reason, blocked := waits.reason, next.blocked(key)
		stays := blocked == reason || errors.Is(blocked, ErrTooMany) && errors.Is(reason, ErrTooMany)
		ended := !stays || next.listed && next.todo[key] // or it has drifted
		switch reason {
		case errUnlisted, errUnknown:
			ended = next.complete && !next.begun().Before(waits.since)
		case errDisagree:
			ended = blocked != nil
		}
		if ended {
			keys[key] = struct{}{}
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
	slices.SortFunc(keys, func(a, b K) int {
		return cmp.Or(strings.Compare(texts[a], texts[b]), strings.Compare(fmt.Sprintf("%T %#v", a, a), fmt.Sprintf("%T %#v", b, b)))
	})
	return keys
}
