// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package keep has a desired-state set: a [Set] lists the desired and the actual things, corrects
// those that differ, and deletes those that are not desired. It guards against deletions
// by mistake. Each Period, it calls Actual, and then Desired. This pair of listings decides:
//
//	desired, and missing or not in sync --> Lookup (5) --> Ensure
//	surplus (1) --------------------------> Lookup (5) --> Delete, except that
//	    one of the two listings is not complete (2) --> it waits for complete ones
//	    too many are newly surplus (3) ---------------> it waits until fewer are, or for Accept
//	    it was not surplus for DeleteAfter (4) -------> it waits
//	    a listing hangs (6) --------------------------> it waits for complete ones
//	existing, and Absent -----------------> Lookup (5) --> Delete, after two complete pairs
//
// The numbers refer to the conditions in the doc of [Set]. Without a Lookup, the step Lookup
// is left out. If Lookup says that a surplus thing is desired, the thing is ensured.
//
// Similar: Operations and Prune of cilium/statedb's reconciler, Crossplane's ExternalClient,
// terraform plan, Ansible's state "absent", and the DesiredSet of rancher/wrangler.
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
	"github.com/reconkernel/reconcile/internal/guard"
	"github.com/reconkernel/reconcile/internal/held"
	"github.com/reconkernel/reconcile/supervise"
)

// A Set keeps things, each with a key, in their desired state. Each Period, Run lists
// Actual and then Desired: a pair of listings. It calls Ensure for the things that differ, and
// Delete for those that are not desired. A pair is complete if it meets condition 2. A thing
// that is marked for deletion, see Absent, needs fewer conditions. Any other thing is deleted
// only if all of this holds:
//
//  1. The thing is surplus: Actual lists it, and Desired, called after Actual, does not.
//  2. Both listings of the last pair are complete: they returned no error, and their context had
//     not ended when they returned.
//  3. The thing is not newly surplus: an accepted pair has shown it as surplus before, or an
//     operator has allowed its deletion with [Set.Accept]. A complete pair is either accepted
//     or rejected. It is rejected if more things than MaxDeleted allows are newly surplus. If
//     no existing thing would stay desired, one newly surplus thing is enough. If a thing becomes
//     desired again, and then surplus once more, it is newly surplus again. While pairs are
//     rejected, nothing that is newly surplus is deleted. Creations and corrections go on, and
//     so do deletions of things that met condition 4 before.
//  4. The thing was surplus for DeleteAfter: in two accepted pairs that are at least
//     DeleteAfter apart, and in each accepted pair between them. For a deletion that an operator
//     has allowed, rejected pairs count too, also those before Accept.
//  5. Lookup agrees: just before the deletion, it says that the thing is not desired, or is Absent.
//  6. No listing hangs. If a listing has not returned when its context ends, ten Periods
//     after it began, nothing is deleted until the next complete pair.
//
// Not checked: only one process at a time may run the Set. If there are several processes, let a
// leader run it. A second process with an older desired state may delete the things that the first
// one creates.
//
// Not guarded:
//
//   - Losses in small steps. MaxDeleted bounds each pair: if Desired loses a tenth with each
//     listing, most things are deleted in the end.
//   - Creations. If Actual is empty or lacks things by mistake, the Set ensures each thing that
//     Actual lacks, so Ensure must check first.
//   - Two spellings of a key. The thing is deleted and created again and again. Run warns
//     if a deleted key becomes surplus anew, and is deleted again within an hour or within twice
//     DeleteAfter, whichever is longer.
//   - A replaced thing. If another client has replaced a surplus thing since the last pair,
//     Delete is called all the same, so let it compare the IDs. If another thing gets the key
//     of a deleted one before the next pair, it is deleted too, with no new DeleteAfter or Accept.
//   - A slow listing. While Actual and Desired are listed, up to ten Periods each, deletions rely
//     on the pair before.
//
// Desired, Actual, Ensure and Delete are required, and for Run also Period; the zero value of
// every other field works. Set at least a Timeout of the Reconciler. Fields must not be changed
// after the first call of a method. All methods may be called from any goroutine. The Set
// calls your functions from several goroutines.
type Set[K comparable, D, A any] struct {
	// Queue gets the keys of the things to ensure or delete, as its items. To run them, give a
	// [reconcile.Reconciler] the same Queue, and [Set.Reconcile] as its function. Nil means that Run
	// runs the items itself, with the queue of Reconciler or one that the Set makes. Package
	// lanes, and Sets that share a queue, need a Queue.
	Queue reconcile.Enqueuer[K]

	// Desired lists the desired things, under the same keys as Actual. It is called after Actual,
	// and may use its result. Guard that, because Plan may call both while Run does. If a value
	// differs from the one listed before, by [reflect.DeepEqual], the Set enqueues the key, unless
	// InSync says that the thing is in sync. Return new maps and values. If you change a value in
	// place, the Set compares it with itself, and sees no change. Without an InSync, values that
	// always change, such as a time of the last contact, do not belong in D.
	Desired func(ctx context.Context) (map[K]D, error)

	// Actual lists the existing things of this service, and no others, because all things
	// that it lists may be deleted. Leave out what is dead, such as terminated machines that
	// the provider still lists. If two live things have the same key, return an error.
	Actual func(ctx context.Context) (map[K]A, error)

	// InSync reports whether a thing is in its desired state, as far as the listings show.
	// Nil means that a thing is ensured when its desired or its actual value is new or has
	// changed, and again if Ensure failed.
	InSync func(desired D, actual A) bool

	// Ensure creates a thing, or corrects it. It is also called for things in sync, so it must check
	// first, and be idempotent. It returns what a reconcile function returns. If the provider lists
	// new things late, let Ensure read its list, and return [reconcile.RequeueWithin] until the list
	// has the thing. Do not ask [Set.Listed] for that: it does not change during Apply.
	Ensure func(ctx context.Context, key K, desired D) error

	// Delete deletes a thing. It returns nil if the thing does not exist, and otherwise what
	// a reconcile function returns. The argument actual is the thing as it was listed, so that
	// Delete can name it by its ID, and does not delete another thing that has this key now.
	Delete func(ctx context.Context, key K, actual A) error

	// Absent reports whether the desired state of a thing is that it does not exist. A source that
	// knows which things must be deleted keeps them in Desired, with a mark that Absent reports. A
	// marked thing is deleted when two complete pairs in a row show the mark. In Run, the second
	// pair must begin at least half a Period after the end of the first. Of the conditions, only 2,
	// 5 and 6 apply. With a MaxDeleted below 0, the thing counts as one that Desired lacks, and all
	// conditions apply. Nil means that no thing is marked. Absent must be false for the zero D, a
	// pointer to a zero value, and an empty map or slice, or one fault in decoding deletes all.
	Absent func(desired D) bool

	// Lookup returns the desired state of one thing now, and whether it is desired. It is called
	// before Ensure, which gets the returned value, and before Delete (5). If Lookup fails, neither
	// is called. The run is then retried, if a listing has the thing. Lookup must ask for the one
	// thing, by its ID: a Lookup that reads the listing again protects nothing. If a missing record
	// may be a mistake, return an error for it. Do so always if the source answers 404 to a client
	// without permission. Last is the last listed desired state. It is the zero D if that is
	// unknown, such as after a restart; a Lookup that needs it must then return an error. A nil
	// Lookup means that the listings decide, and that after an event Ensure gets the value that was
	// listed last.
	Lookup func(ctx context.Context, key K, last D) (desired D, ok bool, err error)

	// Reconciler says how Run runs the items if Queue is nil: Workers, Timeout, Grace, Admit,
	// OnResult and so on. Its Reconcile must be nil. Its Queue may be nil, or a
	// *reconcile.Queue, which a status page can show. A nil Retry means
	// reconcile.Backoff(time.Second, Period). A nil Reconciler means one worker and that Retry.
	// Set a Timeout: it ends the context of a run. A call that ignores its context keeps its worker.
	Reconciler *reconcile.Reconciler[K]

	// Period is the time from the start of one pair of listings to that of the next, at
	// least a millisecond. After a pair that took longer, the next one begins a Period after its
	// end. The context of a listing ends after ten Periods.
	Period time.Duration

	// Jitter makes each Period longer or shorter at random; see [reconcile.Poller].
	Jitter float64

	// Resync is how often Ensure is also called for a thing in sync. The things are spread over the
	// Periods, in an order that depends on the keys alone. 0 means an hour, less than 0 never. The
	// interval begins with Run: a process that restarts more often than that never ensures some of
	// the things in sync.
	Resync time.Duration

	// DeleteAfter is how long all accepted pairs of listings must have shown a thing as surplus
	// before it is deleted: from the end of the first of these pairs to the start of the last.
	// 0 means five Periods, or five minutes if Period is 0. Less than 0 means that one pair is
	// enough.
	DeleteAfter time.Duration

	// MaxDeleted is how many things may be newly surplus: a fraction, 0 to 1, of the things that
	// Actual lists, rounded up. 0 means a tenth. 1 means no limit, even if nothing would be left.
	// Less than 0 means that Accept must allow each deletion, even of things that are Absent.
	MaxDeleted float64

	Name   string       // for logs
	Logger *slog.Logger // nil means reconcile.Logger(ctx): that of the Group, or slog.Default() without a Group

	running sync.Mutex                          // held by Run and Apply: one of them replaces known
	poller  atomic.Pointer[reconcile.Poller[K]] // nil while Run does not go on

	mu       sync.Mutex // guards the fields below
	known    known[K, D, A]
	own      *reconcile.Queue[K] // nil until it is needed
	accepted map[K]struct{}      // by an operator, still surplus, and not deleted
	waiting  map[K]wait          // why the item of a key waits, as Reconcile returned it last
	deleted  map[K]time.Time     // by Reconcile, not longer ago than twice
}

// Run lists at once and then every Period, until ctx is done. It then waits for the
// listing in flight and returns nil. It returns a [reconcile.Terminal] error at once if a
// field is missing or out of its range, and an error if another Run or Apply goes on.
//
// If Queue is nil, Run also runs the items, as Reconciler says. Once ctx is done, it ends as
// a [supervise.Group] would: no run starts once the listing has returned, or a second has
// passed. Runs in flight have their Grace, but if an adapter's Elect runs the Set, they end with
// its lease.
//
// Run begins as a new process does, without the listings of an earlier Run. Only the desired
// values are kept: if one has changed since then, its key is enqueued. Until both sides have been
// listed completely, items wait. If Actual fails for five Periods from the start, the desired
// things are ensured without it. After Run has returned, no deletion begins. With a Queue, a call
// of Delete in flight goes on. A listing that fails is retried as [reconcile.Poller] says. A
// rejection is no failure: the next pair is listed a Period later. The first, second, fourth …
// rejection in a row is logged, and each one with other keys than the one before.
func (s *Set[K, D, A]) Run(ctx context.Context) error {
	if err := s.check(true); err != nil {
		return reconcile.Terminal(err)
	}
	if !s.running.TryLock() {
		return errRunning
	}
	defer s.running.Unlock()
	s.begin()
	if s.Queue != nil {
		return s.runListings(ctx)
	}
	r, err := s.reconciler(ctx, s.Reconciler)
	if err != nil {
		return reconcile.Terminal(fmt.Errorf("keep: Set.Reconciler: %w", err))
	}
	r.Queue, r.Name = held.Within[K](ctx, s.queue().(*reconcile.Queue[K])), cmp.Or(r.Name, s.Name)
	if r.Retry == nil {
		r.Retry = reconcile.Backoff(time.Second, s.Period)
	}
	group := supervise.Group{Logger: s.Logger}
	group.Add("", reconcile.RunFunc(s.runListings))
	group.Add("", &r)
	return group.Run(ctx)
}

// Unwrap is for a [supervise.Group]: if the Set runs its items itself, the Group ends it after
// the feeders, as it ends a Reconciler.
func (s *Set[K, D, A]) Unwrap() reconcile.Runner {
	if s.Queue != nil {
		return nil
	}
	return new(reconcile.Reconciler[K])
}

// queue returns Queue or, if that is nil, the queue of Run.
func (s *Set[K, D, A]) queue() reconcile.Enqueuer[K] {
	if s.Queue != nil {
		return s.Queue
	}
	defer s.lock()()
	if r := s.Reconciler; s.own == nil && r != nil {
		s.own, _ = r.Queue.(*reconcile.Queue[K])
	}
	if s.own == nil {
		s.own = reconcile.NewQueue[K]()
	}
	return s.own
}

// reconciler returns a copy of r that calls the method Reconcile, unless r has another
// function, or an error that names a field of r.
func (s *Set[K, D, A]) reconciler(ctx context.Context, r *reconcile.Reconciler[K]) (once reconcile.Reconciler[K], err error) {
	if r != nil {
		once = *r
	}
	if once.Reconcile == nil {
		once.Reconcile = s.Reconcile
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	return once, once.Apply(ended) // checks the fields, and runs nothing
}

// runListings lists until ctx is done.
func (s *Set[K, D, A]) runListings(ctx context.Context) error {
	defer s.end()
	queue, logger := s.queue(), cmp.Or(s.Logger, reconcile.Logger(ctx))
	p := &reconcile.Poller[K]{
		Queue: queue, Period: s.Period, Jitter: s.Jitter, Name: s.Name, Logger: logger,
		GetItems: func(context.Context) ([]K, error) { // its context ends too soon
			old, accepted := s.snapshot()
			next, err := s.list(ctx, old, how[K]{accepted, s.Period / 2, s.lists, logger})
			observed, errQueue := s.enqueue(queue, old, s.commit(old, next))
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
	defer s.lock()()
	clear(s.accepted)
	s.known = known[K, D, A]{acceptedAt: time.Now(), before: s.known.before}
}

// end sees to it that nothing is deleted until a pair is complete. A plan ends too.
func (s *Set[K, D, A]) end() {
	s.change(func(k *known[K, D, A]) { k.complete, k.ensures, k.deletes = false, nil, nil })
}

// lists notes the context of the listing in progress.
func (s *Set[K, D, A]) lists(ctx context.Context) {
	s.change(func(k *known[K, D, A]) { k.listing = ctx })
}

func (s *Set[K, D, A]) change(f func(*known[K, D, A])) {
	defer s.lock()()
	f(&s.known)
}

// lock locks s, and returns what unlocks it.
func (s *Set[K, D, A]) lock() (unlock func()) {
	s.mu.Lock()
	if s.accepted == nil {
		s.accepted, s.waiting, s.deleted = map[K]struct{}{}, map[K]wait{}, map[K]time.Time{}
	}
	return s.mu.Unlock
}

// Reconcile ensures or deletes one thing, as the listings and Lookup say. It is the function
// of a [reconcile.Reconciler] of the same Queue; without a Queue, Run calls it.
//
// Each pair whose Actual is complete offers the items of the things that are missing, out of sync
// or surplus: each of these runs, unless it runs already or waits for more than a recheck. There
// is one exception. If the last run of a thing failed and is not retried, or if Ensure or Delete
// returned nil and the next two pairs still show the same, one pair of four offers the thing.
//
// If a thing has to wait for a listing, the error says why. If Lookup says that a thing is
// not desired, and the listings do not say so yet, Run lists soon. If Lookup fails for a thing
// that neither listing has, the run is repeated once, after the next complete pair.
func (s *Set[K, D, A]) Reconcile(ctx context.Context, key K) (err error) {
	k, waited, err := s.startRun(key)
	if err != nil {
		return waitBecause(err)
	}
	state := failed // if it panics
	defer func() { s.endRun(key, state) }()
	desired, ok := k.lastDesired(key)
	if s.Lookup != nil {
		var errWait error
		desired, ok, err = s.Lookup(ctx, key, desired)
		if k, errWait = s.afterLookup(key); errWait != nil { // which may have taken long
			return waitBecause(errWait)
		}
	}
	listed, isListed := k.desired[key]
	if _, exists := k.actual[key]; !isListed && !exists && (s.Lookup == nil || err != nil) {
		return s.unknown(k, key, waited, err)
	}
	if err != nil { // 5
		return fmt.Errorf("look up the desired state: %w", err)
	}
	if ctx.Err() != nil { // 5: a Lookup over pages may have stopped because of that, without an error
		return context.Cause(ctx)
	}
	absent := ok && s.absent(desired)
	ensure := ok && !absent
	if !ensure && isListed && !s.absent(listed) {
		if state = pending; s.waitForListing(key, errUnlisted, waited) {
			return waitBecause(errUnlisted)
		}
		return reconcile.Terminal(errUnlisted)
	}
	if ensure && k.ensures != nil && !k.ensures(key) {
		return reconcile.Terminal(errors.New("keep: it is desired, and the plan does not ensure it"))
	}
	if ensure {
		err = s.Ensure(ctx, key, desired)
		state = stateAfter(err)
	}
	actual, blocked := s.deletable(key, absent)
	switch {
	case err != nil: // the end of the other reason wakes the item all the same
		return err
	case blocked == errNothing || blocked == nil && ensure:
		return nil
	case blocked == errDisagree && s.poller.Load() == nil: // nor will a listing come
		return reconcile.Terminal(blocked)
	case blocked != nil:
		if !ensure {
			state = running
		}
		return waitBecause(blocked)
	}
	err = s.Delete(ctx, key, actual)
	if state = stateAfter(err); state == succeeded {
		s.noteDeleted(ctx, key, k.surplus[key].since)
	}
	return err
}

// stateAfter returns the state of a run whose Ensure or Delete returned err.
func stateAfter(err error) runState {
	switch outcome, _ := reconcile.Classify(err, 1, reconcile.NoRetry); {
	case outcome == reconcile.OutcomeSucceeded:
		return succeeded
	case outcome.Failed():
		return failed
	}
	return pending
}

// unknown has a key that neither listing has wait for the next pair, unless its item has
// waited, and a complete pair has begun since. Then there is nothing to do.
func (s *Set[K, D, A]) unknown(k known[K, D, A], key K, waited wait, err error) error {
	answered := k.complete && !k.begun().Before(waited.since)
	if waited.reason != nil && answered || !s.waitForListing(key, errUnknown, wait{}) {
		return nil
	}
	if err != nil {
		return waitBecause(fmt.Errorf("%w; look up the desired state: %v", errUnknown, err))
	}
	return waitBecause(errUnknown)
}

// startRun notes that a run of a key starts, and returns what the listings say, and why the
// item waited, nil if it did not. Err says why it has to wait once more.
func (s *Set[K, D, A]) startRun(key K) (k known[K, D, A], waited wait, err error) {
	defer s.lock()()
	waited = s.waiting[key]
	delete(s.waiting, key)
	if err = s.mayRunLocked(key); err == nil {
		_, desired := s.known.lastDesired(key)
		if _, leaves := s.known.surplus[key]; desired || leaves { // others are not kept
			state, last := running, s.known.runs[key]
			if last.state == succeeded {
				state = again
			}
			s.known.runs[key] = run{state, last.listings}
		}
	}
	return s.known, waited, err
}

// afterLookup returns what the listings say by now. The error says why the item has to wait.
func (s *Set[K, D, A]) afterLookup(key K) (known[K, D, A], error) {
	defer s.lock()()
	err := s.mayRunLocked(key)
	return s.known, err
}

// mayRunLocked returns nil, or notes and returns why the item of a key has to wait.
func (s *Set[K, D, A]) mayRunLocked(key K) (err error) {
	switch k := &s.known; {
	case k.deletes != nil && !k.deletes(key) && !k.ensures(key):
		err = errNotPlanned
	case !k.ready:
		err = errNotListed
	default:
		return nil
	}
	s.waiting[key] = wait{err, time.Now()}
	return err
}

// endRun notes how a run has ended, unless the values of its key have changed since it started.
func (s *Set[K, D, A]) endRun(key K, state runState) {
	defer s.lock()()
	if last := s.known.runs[key]; last.goesOn() {
		if state >= succeeded {
			last.listings = max(1, last.listings)
		}
		s.known.runs[key] = run{state, last.listings}
	}
}

// waitBecause makes an item wait for the listing that ends the reason, or for the end of ApplyPlan.
func waitBecause(reason error) error {
	limit := time.Hour
	if reason == errNotPlanned {
		limit = time.Minute
	}
	return fmt.Errorf("%w: %w", reason, reconcile.RequeueWithin(limit))
}

// waitForListing makes an item wait for the next complete pair, and reports whether there
// will be one. It asks for one, unless the item has done so, and the last one began after that.
func (s *Set[K, D, A]) waitForListing(key K, reason error, waited wait) bool {
	defer s.lock()()
	if s.poller.Load() == nil {
		return false
	}
	if reason != waited.reason || s.known.begun().Before(waited.since) {
		waited.since = time.Now()
		s.Trigger()
	}
	s.waiting[key] = wait{reason, waited.since}
	return true
}

// deletable returns the thing as it is listed, and nil if it may be deleted now, or why
// its item has to wait. Absent says that Lookup, or Desired, has the thing, as Absent.
func (s *Set[K, D, A]) deletable(key K, absent bool) (A, error) {
	defer s.lock()()
	err := s.known.blocked(key)
	if _, listed := s.known.desired[key]; err == nil && absent && !listed {
		err = errDisagree
	}
	if err != nil && err != errNothing {
		s.waiting[key] = wait{reason: err} // its end wakes the item
	}
	return s.known.actual[key], err
}

// noteDeleted warns if a thing that became surplus at this time was deleted before it, and not
// longer ago than twice.
func (s *Set[K, D, A]) noteDeleted(ctx context.Context, key K, since time.Time) {
	unlock := s.lock()
	last, now := s.deleted[key], time.Now()
	again := since.After(last) && now.Sub(last) <= s.twice()
	s.deleted[key] = now
	delete(s.accepted, key) // another thing may have the key when Apply is called again
	unlock()
	if again {
		s.log(cmp.Or(s.Logger, reconcile.Logger(ctx)), slog.LevelWarn, "deleted again: do Desired and Actual spell this key alike?", "key", key, "after", now.Sub(last))
	}
}

// twice is how soon a key is deleted again if the listings spell it differently.
func (s *Set[K, D, A]) twice() time.Duration { return max(time.Hour, 2*s.deleteAfter()) }

// Enqueue reports an event: Reconcile is called for this key soon. If neither listing has it, and
// there is no Lookup, Run lists soon. The key goes to Queue, or, if that is nil, to the queue
// of Run, also before Run. Enqueue does not block.
func (s *Set[K, D, A]) Enqueue(key K) { s.queue().Enqueue(key) }

// Trigger makes Run list soon, as [reconcile.Poller.Trigger] does. It never blocks, and
// does nothing unless Run goes on.
func (s *Set[K, D, A]) Trigger() {
	if p := s.poller.Load(); p != nil {
		p.Trigger()
	}
}

// Listed returns the desired and the actual state of a key in the last complete listings.
// If Desired of a rejected or an incomplete pair lacks an existing thing, Listed returns its
// last desired state. If isDesired is false, desired is the last desired state, or the zero D.
// Listed does not change during the runs of Apply.
func (s *Set[K, D, A]) Listed(key K) (desired D, isDesired bool, actual A, exists bool) {
	k := s.now()
	desired, isDesired = k.lastDesired(key)
	actual, exists = k.actual[key]
	return desired, isDesired, actual, exists
}

// now returns what is known. Its runs must not be read.
func (s *Set[K, D, A]) now() known[K, D, A] {
	defer s.lock()()
	return s.known
}

// Age returns the time since the last pair of listings that was complete and not rejected,
// or since Run began. Before that it is 0.
func (s *Set[K, D, A]) Age() time.Duration {
	if k := s.now(); !k.acceptedAt.IsZero() {
		return time.Since(k.acceptedAt)
	}
	return 0
}

// Rejected returns since when pairs have been rejected, and the [*Rejection] of the last
// complete pair of listings. The error is nil if that pair was accepted.
func (s *Set[K, D, A]) Rejected() (since time.Time, err error) {
	k := s.now()
	return k.rejectedAt, k.rejection
}

// Stats are the counts of the last listings, for pages and metrics.
type Stats struct {
	Desired, Actual int // things that are listed
	Missing         int // desired things that do not exist
	OutOfSync       int // existing things not in their desired state, or, if their deletion is rejected, not in their last one; with a nil InSync, things not ensured since a value was new or changed
	Surplus         int // existing things that are not desired, or Absent
	Rejected        int // of Surplus, the things whose deletion is rejected

	Completed time.Time // when the last complete pair ended, also if it was rejected; zero before
}

// Stats returns the zero Stats before the first pair of listings. It does not block.
func (s *Set[K, D, A]) Stats() Stats { return s.now().stats }

// Accept allows the deletion of those keys of a [*Rejection] that are still rejected. Its
// argument is the error of Rejected or Apply. It may also be Plan.Rejected, while Run goes on,
// or after an Apply that returned a Rejection. Accept takes effect with the next pair of
// listings: Run lists soon, and without Run the next Apply lists. DeleteAfter holds for the
// accepted keys too, and rejected pairs count for it. These keys do not count towards
// MaxDeleted, which then applies to the other newly surplus things. Accept returns an error
// if none of the keys is rejected. It does not block.
func (s *Set[K, D, A]) Accept(rejected error) error {
	defer s.lock()()
	found := false
	for _, key := range rejectedKeys[K](rejected) {
		if thing, ok := s.known.surplus[key]; ok && s.known.rejection != nil && !thing.absent && !thing.allowed {
			s.accepted[key], found = struct{}{}, true
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
	short := func(d time.Duration) bool { return d > 0 && d < time.Millisecond }
	var r reconcile.Reconciler[K]
	if run && s.Reconciler != nil {
		r = *s.Reconciler
	}
	_, own := r.Queue.(*reconcile.Queue[K])
	for _, f := range []struct {
		wrong bool
		name  string
		value any
		want  string
	}{
		{s.Desired == nil, "Desired", "nil", "a function"},
		{s.Actual == nil, "Actual", "nil", "a function"},
		{s.Ensure == nil, "Ensure", "nil", "a function"},
		{s.Delete == nil, "Delete", "nil", "a function"},
		{run && s.Queue != nil && s.Reconciler != nil, "Reconciler", "set", "nil beside a Queue"},
		{r.Reconcile != nil, "Reconciler.Reconcile", "set", "nil"},
		{r.Queue != nil && !own, "Reconciler.Queue", fmt.Sprintf("a %T", r.Queue), "a *reconcile.Queue, or nil"},
		{s.Period < 0 || run && s.Period == 0 || s.Period > math.MaxInt64/10, "Period", s.Period, "more than 0, and 29 years at most"},
		{!(s.Jitter >= 0 && s.Jitter <= 1), "Jitter", s.Jitter, "0 to 1"}, // true for a NaN as well
		{!(s.MaxDeleted <= 1), "MaxDeleted", s.MaxDeleted, "0 (which means a tenth) to 1 (no limit), or less than 0 (nothing without Accept)"},
		{short(s.Period), "Period", s.Period, "at least 1ms: was a unit forgotten?"},
		{short(s.Resync), "Resync", s.Resync, "at least 1ms: was a unit forgotten?"},
		{short(s.DeleteAfter), "DeleteAfter", s.DeleteAfter, "at least 1ms: was a unit forgotten?"},
	} {
		if f.wrong {
			return fmt.Errorf("keep: Set.%s is %v, want %s", f.name, f.value, f.want)
		}
	}
	return s.checkAbsent()
}

// checkAbsent returns an error if Absent is true for what a fault in decoding leaves: the
// zero D, a pointer to a zero value, and an empty map or slice.
func (s *Set[K, D, A]) checkAbsent() error {
	var zero, empty D
	switch v := reflect.ValueOf(&empty).Elem(); v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()).Convert(v.Type())) // D may be a named pointer type
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	}
	for _, zero := range []D{zero, empty} {
		absent := false
		err := guard.Call(func() error { absent = s.absent(zero); return nil })
		if absent || err != nil {
			return fmt.Errorf("keep: Set.Absent is not false for the zero value %#v: one fault in decoding would delete everything (%w)", zero, cmp.Or(err, errors.New("it is true")))
		}
	}
	return nil
}
