// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package keep is a desired-state set: it lists the desired and the actual things, corrects
// those that differ, and deletes those that are not desired. It guards against deletions
// by mistake. Each Period it lists Actual, and then Desired. This pair of listings decides:
//
//	desired, and missing or not in sync --> Lookup --> Ensure
//	existing, and not desired (1) --------> Lookup --> Delete, except that
//	    one of the two listings is not complete (2) --> it waits for complete ones
//	    there is no Lookup (3) -----------------------> it waits DeleteAfter
//	    too many are newly surplus (4) ---------------> it waits until fewer are, or for Accept
//	existing, and Absent -----------------> Lookup --> Delete, after two complete pairs
//
// The numbers are those of the conditions of a deletion, see [Set]. Number 5 is not checked:
// only one process may run the Set. Without a Lookup, the step Lookup is left out. If Lookup
// says that a surplus thing is desired, the thing is ensured.
//
// Similar parts elsewhere: Operations and Prune of cilium/statedb's reconciler, the
// ExternalClient of Crossplane, terraform plan, state: absent of Ansible, and the
// DesiredSet of rancher/wrangler.
package keep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Set keeps a set of things, each with a key, in its desired state. Run lists both
// sides repeatedly, and enqueues the keys of the things to correct. The method Reconcile
// is the function of a [reconcile.Reconciler] of the same Queue.
//
// A thing is deleted only if all of this holds:
//
//  1. Actual lists it, and Desired, called after Actual, does not.
//  2. Both listings were complete: they returned no error, and their context had not
//     ended by then. After a listing that failed, nothing is deleted until both are
//     complete again.
//  3. Lookup, called just before the deletion, says too that it is not desired. Without a
//     Lookup, two complete pairs of listings that are at least DeleteAfter apart, and
//     every complete listing between them, lack it.
//  4. It is not too many at once. A thing is newly surplus if it was not surplus in an
//     earlier pair that was accepted, and no operator has accepted its deletion. If more
//     things than MaxDeleted allows are newly surplus, or if no existing thing would stay
//     desired, the pair is rejected: nothing that is newly surplus is deleted. The rest
//     goes on, also deletions that an earlier pair has allowed: a rejected pair counts
//     for 3. See [Set.Accept].
//  5. One process at a time runs the Set, such as a leader. A second one, which knows an
//     older desired state, deletes the things that the first one creates.
//
// A source that knows which things must be deleted marks them by Absent: the thing stays in
// Desired, and Absent returns true for it in two complete pairs in a row, of which the
// second begins at least half a Period after the first. Then 3 and 4 do not apply, except
// that a Lookup must not say that the thing is desired and not Absent.
//
// An existing thing that a rejected or an incomplete pair lacks keeps its last desired
// state, until a pair that lacks it is accepted.
//
// Four things are not guarded. MaxDeleted bounds each pair, and not a rate: if Desired
// loses a tenth with each listing, most things are deleted in the end. Creations are not
// bounded. Without a Lookup an event ensures the value that was listed last. And while a
// listing takes long or hangs, the pair of listings before it stays in force.
//
// Desired, Actual, Ensure and Delete are required, and for Run also Queue and Period; the
// zero value of every other field is a good default. Fields must not be changed after the
// first call. All methods may be called from any goroutine, and so may the functions be.
type Set[K comparable, D, A any] struct {
	// Queue gets the keys. It may be nil for Plan and Apply.
	Queue reconcile.Enqueuer[K]

	// Desired lists the desired things. It is called after Actual, and may use the result
	// of Actual. Set copies the map. A value that differs from the one listed before, by
	// [reflect.DeepEqual], is an event. Values that always change, such as the time of
	// the last contact or a status that Ensure writes, therefore do not belong in D. If D
	// has pointers, slices or maps, return new ones: one that is changed in place equals
	// itself.
	Desired func(ctx context.Context) (map[K]D, error)

	// Actual lists the existing things of this service, and no others, because all things
	// that it lists may be deleted. If two things have the same key, return an error, or
	// give the second thing a key of its own. Set copies the map.
	Actual func(ctx context.Context) (map[K]A, error)

	// InSync reports whether a thing is in its desired state, as far as the listings show.
	// Nil means that a thing is ensured when one of its two values is new or has changed,
	// and again until Ensure has succeeded.
	InSync func(desired D, actual A) bool

	// Ensure creates a thing, or corrects it. It checks first and is idempotent. Its errors
	// are those of a reconcile function. If a creation is listed late, it returns
	// [reconcile.RequeueWithin] until the provider lists the thing. It must ask the
	// provider, because Listed does not change during Apply.
	Ensure func(ctx context.Context, key K, desired D) error

	// Delete deletes a thing, and returns nil if it does not exist. Its errors are those
	// of a reconcile function. Actual is the thing as it was listed, so that Delete can
	// name it by its ID, and does not delete another thing that has the same key by now.
	Delete func(ctx context.Context, key K, actual A) error

	// Absent reports whether the desired state of a thing is that it does not exist. Nil
	// means that no thing is. It must be false for the zero D, a pointer to a zero value, and
	// an empty map or slice, because otherwise one fault in decoding would delete everything.
	Absent func(desired D) bool

	// Lookup returns the desired state of one thing now, and whether it is desired. It is
	// called before Ensure, which gets the returned value, and before Delete, in place of
	// DeleteAfter: one listing that lacks the thing is enough then. If it fails, neither is
	// called. Last is the last listed desired state. It is the zero D
	// if it is unknown, for example after a restart; a Lookup that needs it then returns
	// an error. Lookup must ask for the one thing, by its ID: a Lookup that reads the
	// listing again protects nothing. If the provider also answers 404 to a client without
	// permission, a 404 alone must not confirm a deletion. Nil means that the listings
	// decide.
	Lookup func(ctx context.Context, key K, last D) (desired D, ok bool, err error)

	// Period is the time from the start of one pair of listings to that of the next, at
	// least a millisecond. The context of a listing ends after ten Periods.
	Period time.Duration

	// Jitter makes each Period longer or shorter at random, see [reconcile.Poller].
	Jitter float64

	// Resync is how often things in sync are ensured too: a share of them each Period, the
	// same keys in the same order in each process. 0 means an hour, less than 0 never. The
	// interval begins with Run: a process that restarts more often than that never ensures
	// some of the things in sync.
	Resync time.Duration

	// DeleteAfter is how long all complete pairs of listings must have lacked a thing
	// before it is deleted without a Lookup. It counts from the end of the first of these
	// pairs to the start of the last. 0 means five Periods, or five minutes without a
	// Period. Less than 0 means that one pair is enough.
	DeleteAfter time.Duration

	// MaxDeleted is the fraction, 0 to 1, of the things that Actual lists that may newly be
	// surplus, rounded up. 0 means a tenth. 1 means no limit, also if nothing would be left.
	MaxDeleted float64

	Name   string       // for logs
	Logger *slog.Logger // nil means reconcile.Logger(ctx): that of the Group, and outside of one slog.Default()

	running sync.Mutex                          // held by Run and Apply: one of them replaces known
	poller  atomic.Pointer[reconcile.Poller[K]] // nil while Run does not go on

	mu       sync.RWMutex // guards the fields below
	known    known[K, D, A]
	accepted map[K]struct{} // by an operator, still surplus, and not deleted
	waiting  map[K]error    // why the item of a key waits, as Reconcile returned it last
}

// Run lists at once and then every Period, until ctx is done. It then waits for the
// listing in flight and returns nil. It returns a [reconcile.Terminal] error at once if a
// field is missing or out of its range, and an error while Run or Apply goes on.
//
// Run begins as a new process does, without the listings of an earlier Run, except that a
// changed desired value is an event. Until Desired has been listed once, items wait for it.
// After Run has returned, no deletion begins. A call of Delete in flight goes on. A
// listing that fails is retried as [reconcile.Poller] says. A rejection is no failure: the
// first, second, fourth … in a row is logged, and the next pair is listed a Period later.
func (s *Set[K, D, A]) Run(ctx context.Context) error {
	if err := s.check(true); err != nil {
		return reconcile.Terminal(err)
	}
	if !s.running.TryLock() {
		return errRunning
	}
	defer s.running.Unlock()
	s.begin()
	defer s.end()
	p := &reconcile.Poller[K]{
		Queue: s.Queue, Period: s.Period, Jitter: s.Jitter, Name: s.Name, Logger: cmp.Or(s.Logger, reconcile.Logger(ctx)),
		GetItems: func(context.Context) ([]K, error) { // its context ends too soon
			old, accepted := s.snapshot()
			next, err := s.list(ctx, old, accepted, s.Period/2)
			s.commit(next)
			observed, errQueue := s.enqueue(old, next)
			return observed, errors.Join(err, errQueue)
		},
	}
	s.poller.Store(p)
	defer s.poller.Store(nil)
	if err := p.Run(ctx); err != nil { // of all that a Poller refuses, check leaves this
		return fmt.Errorf("keep: Set.Queue: %w", err)
	}
	return nil
}

var errRunning = errors.New("keep: Run or Apply of this Set goes on already")

// begin forgets what an earlier Run knew, except for the desired values: a change since is
// an event for items that wait.
func (s *Set[K, D, A]) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known, s.accepted = known[K, D, A]{acceptedAt: time.Now(), before: s.known.before}, nil
}

// end sees to it that nothing is deleted any more: the listings get old from now on.
func (s *Set[K, D, A]) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.complete = false
}

// Reconcile ensures or deletes one thing, as the listings and Lookup say. If a thing has
// to wait for a listing, the error says why.
func (s *Set[K, D, A]) Reconcile(ctx context.Context, key K) error {
	s.mu.Lock()
	delete(s.known.unseen, key)
	desired, ok := s.known.wanted(key)
	if s.known.desired == nil {
		s.waitLocked(key, errNotListed)
		s.mu.Unlock()
		return waitBecause(errNotListed)
	}
	s.mu.Unlock()
	unseen := true // Its queue drops an item that fails, and one that Lookup does not know yet.
	defer func() {
		if unseen {
			s.setUnseen(key)
		}
	}()
	if s.Lookup != nil {
		var err error
		if desired, ok, err = s.Lookup(ctx, key, desired); err != nil {
			return fmt.Errorf("look up the desired state: %w", err)
		}
	}
	if ctx.Err() != nil { // 3: a Lookup over pages may have stopped because of that, without an error
		return context.Cause(ctx)
	}
	absent := ok && s.absent(desired)
	ensure := ok && !absent
	var errEnsure error
	if ensure {
		errEnsure = s.Ensure(ctx, key, desired)
		unseen = !succeeded(errEnsure)
	}
	actual, err := s.deletable(key, absent) // as listed now, because Lookup may have taken long
	unseen = unseen && (ensure || err == errNothing)
	switch {
	case errEnsure != nil: // the end of the other reason wakes the item all the same
		return errEnsure
	case err == errNothing || err == nil && ensure:
		return nil
	case err != nil:
		return waitBecause(err)
	}
	err = s.Delete(ctx, key, actual)
	if succeeded(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.accepted, key) // another thing may have the key when Apply is called again
	}
	return err
}

// succeeded reports whether a run that returned err is over.
func succeeded(err error) bool {
	outcome, _ := reconcile.Classify(err, 1, reconcile.NoRetry)
	return outcome == reconcile.OutcomeSucceeded
}

// setUnseen has the next listing offer a key that is not in sync, also without an InSync.
func (s *Set[K, D, A]) setUnseen(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known.wanted(key); ok { // else a listing that has it shows a change
		s.known.unseen[key] = 1
	}
}

// waitBecause makes an item wait for the listing that ends the reason.
func waitBecause(reason error) error {
	return fmt.Errorf("%w: %w", reason, reconcile.RequeueWithin(time.Hour))
}

// deletable returns the thing as it is listed, and nil if it may be deleted now, or why
// its item has to wait. Absent says that Lookup, or Desired, has the thing, as Absent.
func (s *Set[K, D, A]) deletable(key K, absent bool) (A, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, key)
	err := s.known.blocked(key, s.Lookup != nil)
	switch {
	case err == nil && absent && !s.known.surplus[key].absent: // Desired does not list it, and Lookup has it
		err = errNothing
	case err != nil && err != errNothing:
		s.waitLocked(key, err)
	}
	return s.known.actual[key], err
}

// waitLocked notes why the item of a key waits: the end of the reason wakes it.
func (s *Set[K, D, A]) waitLocked(key K, reason error) {
	if s.waiting == nil {
		s.waiting = map[K]error{} // Reconcile may be called before Run
	}
	s.waiting[key] = reason
}

// Trigger makes Run list soon, as [reconcile.Poller.Trigger] does. It never blocks, and
// does nothing while Run does not go on.
func (s *Set[K, D, A]) Trigger() {
	if p := s.poller.Load(); p != nil {
		p.Trigger()
	}
}

// Listed returns the desired and the actual state of a key in the last complete listings.
// If a rejected or an incomplete pair lacks an existing thing, its desired state is the
// last one. If wanted is false, desired is the last desired state, or the zero D. Listed
// does not change during the runs of Apply.
func (s *Set[K, D, A]) Listed(key K) (desired D, wanted bool, actual A, exists bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	desired, wanted = s.known.wanted(key)
	actual, exists = s.known.actual[key]
	return desired, wanted, actual, exists
}

// Age returns the time since the last pair of listings that was complete and not rejected,
// or since Run began. Before that it is 0.
func (s *Set[K, D, A]) Age() time.Duration {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.known.acceptedAt.IsZero() {
		return 0
	}
	return time.Since(s.known.acceptedAt)
}

// Rejected returns the [*Rejection] of the last complete pair of listings, and since when
// pairs are rejected; a nil error if that pair was accepted.
func (s *Set[K, D, A]) Rejected() (since time.Time, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known.rejectedAt, s.known.rejection
}

// Stats are the counts of the last listings, for pages and metrics.
type Stats struct {
	Desired, Actual int // things that are listed
	Missing         int // desired things that do not exist
	OutOfSync       int // existing things that are desired, and not in sync; with a nil InSync, not ensured yet by this process
	Surplus         int // existing things that are not desired, or Absent
	Rejected        int // of Surplus, the things that are not deleted because they are too many

	Completed time.Time // when the last complete pair ended, also if it was rejected; zero before
}

// Stats returns the zero Stats before the first pair of listings. It does not block.
func (s *Set[K, D, A]) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.known.stats
}

// Accept allows the deletion of those keys of a [*Rejection] that are still rejected. Its
// argument is the error of Rejected or Apply. The error of Plan is accepted only while Run
// goes on, or after an Apply that was rejected. Accept takes effect with the next pair of
// listings: Run lists soon, and without Run the next Apply lists. The other keys of that
// pair are judged without the accepted ones, so up to MaxDeleted of them may be deleted
// too. Accept returns an error if none of the keys is rejected. It does not block.
func (s *Set[K, D, A]) Accept(rejected error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepted == nil {
		s.accepted = map[K]struct{}{}
	}
	found := false
	if shown := (*Rejection[K])(nil); s.known.rejection != nil && errors.As(rejected, &shown) && shown != nil {
		for _, key := range shown.Keys {
			if thing, ok := s.known.surplus[key]; ok && !thing.absent && !thing.allowed {
				s.accepted[key], found = struct{}{}, true
			}
		}
	}
	if !found {
		return errors.New("keep: nothing to accept: none of this is rejected now")
	}
	s.Trigger()
	return nil
}

// check returns an error that names a field that is missing or out of its range.
func (s *Set[K, D, A]) check(run bool) error {
	for _, f := range []struct {
		name    string
		missing bool
	}{{"Queue", run && s.Queue == nil}, {"Desired", s.Desired == nil}, {"Actual", s.Actual == nil}, {"Ensure", s.Ensure == nil}, {"Delete", s.Delete == nil}} {
		if f.missing {
			return fmt.Errorf("keep: Set.%s is required, and nil", f.name)
		}
	}
	switch {
	case s.Period < 0, run && s.Period == 0, s.Period > math.MaxInt64/10:
		return fmt.Errorf("keep: Set.Period is %v, want more than 0, and 29 years at most", s.Period)
	case !(s.Jitter >= 0 && s.Jitter <= 1): // true for a NaN as well
		return fmt.Errorf("keep: Set.Jitter is %v, want 0 to 1", s.Jitter)
	case !(s.MaxDeleted >= 0 && s.MaxDeleted <= 1):
		return fmt.Errorf("keep: Set.MaxDeleted is %v, want 0 (which means a tenth) to 1 (no limit)", s.MaxDeleted)
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Period", s.Period}, {"Resync", s.Resync}, {"DeleteAfter", s.DeleteAfter}} {
		if f.value > 0 && f.value < time.Millisecond {
			return fmt.Errorf("keep: Set.%s is %v, want at least 1ms: was a unit forgotten?", f.name, f.value)
		}
	}
	return s.checkAbsent()
}

// checkAbsent returns an error if Absent is true for what a fault in decoding leaves: the
// zero D, a pointer to a zero value, and an empty map or slice.
func (s *Set[K, D, A]) checkAbsent() error {
	if s.Absent == nil {
		return nil
	}
	var zero D
	zeros := []D{zero}
	t := reflect.TypeFor[D]()
	if t.Kind() == reflect.Pointer {
		zeros = append(zeros, reflect.New(t.Elem()).Convert(t).Interface().(D)) // D may be a named pointer type
	}
	if t.Kind() == reflect.Map {
		zeros = append(zeros, reflect.MakeMap(t).Interface().(D))
	}
	if t.Kind() == reflect.Slice {
		zeros = append(zeros, reflect.MakeSlice(t, 0, 0).Interface().(D))
	}
	for _, zero := range zeros {
		absent := false
		err := try(func() error { absent = s.Absent(zero); return nil })
		switch {
		case err != nil:
			return fmt.Errorf("keep: Set.Absent fails for the zero value %#v: %w", zero, err)
		case absent:
			return fmt.Errorf("keep: Set.Absent is true for the zero value %#v, want false: otherwise one fault in decoding deletes everything", zero)
		}
	}
	return nil
}
