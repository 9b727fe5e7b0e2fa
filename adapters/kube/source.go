// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
)

// A Source feeds a queue with what an informer sees.
//
// Informer and Keys are required; the zero value of every other field is a good
// default. They are not to be changed while Feed goes on. Its methods may be
// called from any goroutine.
type Source[T comparable] struct {
	// Informer is run by the caller, see [Run]. Many sources may share one.
	Informer cache.SharedInformer

	// Keys returns the items that an object is about: [Name] for the object
	// itself, [OwnedBy.Keys] for its owner, many, or none. It is called by one
	// goroutine at a time and holds up the events behind it. An item that both
	// the old and the new object of an update have is passed on once.
	Keys func(obj metav1.Object) iter.Seq[T]

	// Only says which objects matter; nil means all. An update passes if the
	// old or the new object does, so an object that no longer matters is enqueued once more.
	Only func(obj metav1.Object) bool

	// Changed says which updates of an object that matters are events; nil
	// means all. It is not asked about an object that came, went, is being
	// deleted, began or ceased to matter, or was replaced by another of
	// the same name, nor about a resync: these always pass.
	Changed func(old, new metav1.Object) bool

	// Now has deletions and new generations use EnqueueNow, so that they cut
	// short holds ([reconcile.RequeueAfter], Reconciler.HoldRetries). An object
	// that ceases to matter counts as deleted. The queue must have that method,
	// as [reconcile.Queue] has.
	Now bool

	// SyncTimeout is how long Synced waits; 0 means until its ctx is done, or ten
	// seconds if Feed is not called by then.
	SyncTimeout time.Duration

	Name string // for errors

	mu      sync.Mutex    // guards the fields below
	feeding bool          // Feed goes on
	fed     bool          // it did once
	synced  chan struct{} // closed when Feed has passed on the initial list; see syncedLocked
}

// Feed passes on what the informer sees, from all that it knows on, until ctx is
// done; it is a [reconcile.Feeder]. When it returns, its handler is no longer
// part of the informer, and nothing comes any more. It does not wait for the
// informer to start.
//
// If q is a [reconcile.Queue] that has a Background, the objects that the informer
// lists first and those of resyncs go there, so events pass them. Before a Filter
// or a Map of that queue, what is listed first is an event; Only and Keys are the
// way around.
//
// It returns a [reconcile.Terminal] error if a field is missing or wrong, which it names, if
// it is running already, and a second after the informer has stopped. A panic in Keys,
// Only or Changed is returned as a [*reconcile.PanicError]. When Feed runs again, the Source
// begins with all that the informer knows, so nothing is lost in between.
func (s *Source[T]) Feed(ctx context.Context, q reconcile.Enqueuer[T]) error {
	h, err := s.handler(q)
	if err != nil {
		return reconcile.Terminal(err)
	}
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	if ctx.Err() != nil {
		return nil
	}

	reg, err := s.Informer.AddEventHandler(h)
	if err != nil {
		return reconcile.Terminal(fmt.Errorf("%s: %w", s.what(), err))
	}
	defer s.remove(reg, h)

	var stopped <-chan struct{}
	if r, ok := reg.(interface{ ShutdownChan() <-chan struct{} }); ok {
		stopped = r.ShutdownChan()
	}
	synced := reg.HasSyncedChecker().Done()
	var quit <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-h.failed:
			return err
		case <-synced:
			s.markSynced()
			synced = nil
		case <-stopped:
			// One that ends at the same time as this feeder may end first.
			stopped, quit = nil, time.After(time.Second)
		case <-quit:
			return reconcile.Terminal(fmt.Errorf("%s: the informer has stopped", s.what()))
		}
	}
}

// handler checks the fields.
func (s *Source[T]) handler(q reconcile.Enqueuer[T]) (*handler[T], error) {
	switch {
	case q == nil:
		return nil, fmt.Errorf("%s: Feed needs a queue, got nil", s.what())
	case s.Informer == nil:
		return nil, fmt.Errorf("%s: Source.Informer is required, and nil", s.what())
	case s.Keys == nil:
		return nil, fmt.Errorf("%s: Source.Keys is required, and nil", s.what())
	case s.SyncTimeout < 0:
		return nil, fmt.Errorf("%s: Source.SyncTimeout is %v, want 0 or more", s.what(), s.SyncTimeout)
	}
	h := &handler[T]{source: s, q: q, now: q.Enqueue, failed: make(chan error, 1)}
	if s.Now {
		n, ok := q.(interface{ EnqueueNow(T) })
		if !ok {
			return nil, fmt.Errorf("%s: Source.Now needs a queue with EnqueueNow, got %T", s.what(), q)
		}
		h.now = n.EnqueueNow
	}
	return h, nil
}

func (s *Source[T]) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feeding {
		return reconcile.Terminal(fmt.Errorf("%s: Source.Feed is running already; another queue needs another Source", s.what()))
	}
	s.feeding, s.fed = true, true
	return nil
}

func (s *Source[T]) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feeding = false
	select {
	case <-s.syncedLocked():
		s.synced = nil
	default: // somebody may be waiting on it for the next Feed
	}
}

// remove takes the handler out of the informer, and waits for its last call.
func (s *Source[T]) remove(reg cache.ResourceEventHandlerRegistration, h *handler[T]) {
	h.stopped.Store(true)
	// An error says that the registration is not one of this informer's: it
	// wraps another one, and has nobody to wait for.
	_ = cache.ShutDownEventHandler(s.Informer, reg)
}

// Synced waits until Feed has passed on all that the informer listed first. It
// is for [supervise.After]: a reconciler that starts then finds whole caches. If
// that is not so within SyncTimeout, or ctx is done first, it returns an error
// that says why, with the cause of ctx and the failure of the list in it; of an
// informer that is not run by [Run], the failure is not known. Every ten seconds it
// logs what it waits for, to the [reconcile.Logger] of ctx. If Feed has not been called
// by the first of these lines, and there is no SyncTimeout, it returns a
// [reconcile.Terminal] error: it was forgotten. So a Feed that waits for something else
// first needs a SyncTimeout.
func (s *Source[T]) Synced(ctx context.Context) error {
	s.mu.Lock()
	synced := s.syncedLocked()
	s.mu.Unlock()
	if s.SyncTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.SyncTimeout, fmt.Errorf("not synced within %v", s.SyncTimeout))
		defer cancel()
	}
	select {
	case <-synced:
		return nil
	default:
	}
	begin := time.Now()
	remind := time.NewTicker(10 * time.Second)
	defer remind.Stop()
	for {
		select {
		case <-synced:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", s.what(), context.Cause(ctx), s.trouble())
		case <-remind.C:
		}
		why := s.trouble()
		s.mu.Lock()
		fed := s.fed
		s.mu.Unlock()
		if !fed && s.SyncTimeout == 0 {
			return reconcile.Terminal(fmt.Errorf("%s: %w", s.what(), why))
		}
		reconcile.Logger(ctx).Warn("source has not synced", "source", s.Name, "for", time.Since(begin), "err", why)
	}
}

// trouble says what a Source that does not sync waits for.
func (s *Source[T]) trouble() error {
	s.mu.Lock()
	feeding := s.feeding
	s.mu.Unlock()
	switch {
	case !feeding:
		return errors.New("Feed is not running; add Feed(queue, source.Feed) to the group")
	case !s.Informer.HasSynced():
		return fmt.Errorf("the informer has no list: %w", failure(s.Informer))
	default:
		return errors.New("the initial list is being passed on")
	}
}

// AllSynced returns a function that waits for each of the sources, for
// [supervise.After]; without any, it returns nil at once.
func AllSynced(sources ...interface {
	Synced(ctx context.Context) error
},
) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		for _, s := range sources {
			if err := s.Synced(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

func (s *Source[T]) syncedLocked() chan struct{} {
	if s.synced == nil {
		s.synced = make(chan struct{})
	}
	return s.synced
}

func (s *Source[T]) markSynced() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.syncedLocked())
}

// List returns the items of all objects that the informer knows and that
// matter, each once. It is for [reconcile.Poller].GetItems: a resync that asks
// the API server nothing. It returns an error before the informer has synced, after it has
// stopped, and once it has failed to list and to watch for two minutes, as [Source.Ready].
func (s *Source[T]) List(context.Context) ([]T, error) {
	if s.Informer == nil || s.Keys == nil {
		return nil, reconcile.Terminal(fmt.Errorf("%s: List needs Source.Informer and Source.Keys", s.what()))
	}
	if err := whole(s.Informer); err != nil {
		return nil, fmt.Errorf("%s: %w", s.what(), err)
	}
	var items []T
	seen := make(map[T]struct{})
	for _, v := range s.Informer.GetStore().List() {
		obj, err := objectOf(v)
		if err != nil {
			return items, fmt.Errorf("%s: %w", s.what(), err)
		}
		if s.Only != nil && !s.Only(obj) {
			continue
		}
		for item := range s.keys(obj) {
			if _, ok := seen[item]; !ok {
				seen[item] = struct{}{}
				items = append(items, item)
			}
		}
	}
	return items, nil
}

// keys is Keys, but never nil.
func (s *Source[T]) keys(obj metav1.Object) iter.Seq[T] {
	if keys := s.Keys(obj); keys != nil {
		return keys
	}
	return func(func(T) bool) {}
}

// Orphans returns a function for [reconcile.Poller].GetItems that lists the
// items that children are about and that no owner is: those whose owner is gone.
// It is an error until the informers of both have synced, because then
// everything would look like an orphan.
//
// The informer of the owners may be behind that of the children, and an owner may come
// back after the list. So the reconcile function must ask the API server for the owner,
// and not a cache, before it removes anything.
func Orphans[T comparable](children, owners *Source[T]) func(ctx context.Context) ([]T, error) {
	return func(ctx context.Context) ([]T, error) {
		// The children first: an owner is made before its children are.
		items, err := children.List(ctx)
		if err != nil {
			return nil, err
		}
		owned, err := owners.List(ctx)
		if err != nil {
			return nil, err
		}
		known := make(map[T]struct{}, len(owned))
		for _, item := range owned {
			known[item] = struct{}{}
		}
		orphans := items[:0]
		for _, item := range items {
			if _, ok := known[item]; !ok {
				orphans = append(orphans, item)
			}
		}
		return orphans, nil
	}
}

func (s *Source[T]) what() string {
	return "kube: source " + cmp.Or(s.Name, "without a name")
}
