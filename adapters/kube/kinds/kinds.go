// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package kinds feeds queues from kinds of Kubernetes objects that come and go
// while a program runs, as those do that a user defines.
//
//	watches := &kinds.Kinds{Informer: kinds.Dynamic(client, "", 0)}
//	group.Add("kinds", watches)
//
//	stop, err := kinds.Serve(watches, gvr, queue, &kube.Source[Item]{Keys: keys})
package kinds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube"
	"github.com/reconkernel/reconcile/supervise"
)

// Kinds watches kinds while somebody is served with them: each with one watch,
// however many are served. It begins with the first and ends with the last.
//
// Informer is required; the zero value of every other field is a good default.
// They are not to be changed while Run goes on. What it does for one kind never
// waits for another, nor for the API server. Its methods, and [Serve], may be
// called from any goroutine.
type Kinds struct {
	// Informer makes a new informer of a kind, as the function that [Dynamic] returns.
	Informer func(gvr schema.GroupVersionResource) cache.SharedIndexInformer

	SyncTimeout time.Duration // how long Synced waits; 0 means until its ctx is done

	Logger *slog.Logger // nil means that of the Group around it, or else slog.Default()

	// One member for each watch and for each who is served. It has a lock of
	// its own, which is taken with mu held, never the other way round.
	group supervise.Group
	ran   atomic.Bool // Run was called

	mu    sync.Mutex // guards the fields below, and those of each kind
	ended bool
	kinds map[schema.GroupVersionResource]*kind
}

// A kind is one that is being watched.
type kind struct {
	informer cache.SharedIndexInformer
	served   map[syncer]struct{} // never empty
	stop     func()              // ends the watch
}

type syncer interface {
	Synced(ctx context.Context) error
}

// Dynamic returns a function for Kinds.Informer that makes informers of whole
// objects, of a namespace or, if that is "", of all. Each resync period, if that
// is not 0, every object is offered again.
func Dynamic(client dynamic.Interface, namespace string, resync time.Duration) func(schema.GroupVersionResource) cache.SharedIndexInformer {
	return func(gvr schema.GroupVersionResource) cache.SharedIndexInformer {
		return dynamicinformer.NewFilteredDynamicInformer(client, gvr, namespace, resync, indexers(), nil).Informer()
	}
}

func indexers() cache.Indexers {
	return cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
}

// Run watches what is served until ctx is done, and returns when all of it has
// ended. Kinds run once: another Run, at the same time or later, is a
// [reconcile.Terminal] error, and does nothing to the first.
func (k *Kinds) Run(ctx context.Context) error {
	if k.Informer == nil {
		return reconcile.Terminal(errors.New("kinds: Kinds.Informer is required, and nil"))
	}
	if k.ran.Swap(true) {
		return reconcile.Terminal(errors.New("kinds: Kinds.Run was called before"))
	}
	k.group.Logger = k.Logger
	// So that the group does not end when nobody is served.
	k.group.Add("kinds", reconcile.RunFunc(func(ctx context.Context) error {
		<-ctx.Done()
		return nil
	}))
	defer context.AfterFunc(ctx, k.end)()
	defer k.end()
	return k.group.Run(ctx)
}

func (k *Kinds) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended = true
}

// Serve feeds q with the objects of a kind, beginning with all there are. It may
// be called before Run or while it goes on, and returns at once:
// [Kinds.Synced] or s.Synced waits for the first list. It fills in s.Informer,
// whose store has the objects, and s.Name, if that is empty; a Source is served
// once.
// A wrong argument is a [reconcile.Terminal] error.
//
// Stop ends that alone, waits for it, and ends the watch if nobody else is
// served with it. Nothing comes to q after it. It may be called again, and from
// any goroutine but those of s.
//
// To replace who is served, serve the new one and then stop the old one: the
// watch goes on, and the new one begins with all objects. A kind that does not
// exist is not an error here: it is asked for again and again, and served when
// it is there. Once it cannot be read for two minutes, as when its version is switched off,
// s.List returns an error, and s.Ready is a [kube.Probe] that fails. A panic in a function of s is logged, and Feed of s runs again, with
// back-off.
func Serve[T comparable](k *Kinds, gvr schema.GroupVersionResource, q reconcile.Enqueuer[T], s *kube.Source[T]) (stop func(), err error) {
	switch {
	case k == nil || k.Informer == nil:
		err = errors.New("kinds: Serve needs Kinds with an Informer")
	case gvr.Version == "" || gvr.Resource == "":
		err = fmt.Errorf("kinds: Serve needs a version and a resource, got %q and %q", gvr.Version, gvr.Resource)
	case q == nil:
		err = fmt.Errorf("kinds: serving %s: it needs a queue, got nil", text(gvr))
	case s == nil || s.Keys == nil:
		err = fmt.Errorf("kinds: serving %s: it needs a Source with Keys", text(gvr))
	case s.Informer != nil:
		err = fmt.Errorf("kinds: serving %s: the Source has an informer already; it needs a new one", text(gvr))
	}
	if err != nil {
		return nil, reconcile.Terminal(err)
	}
	kd, err := k.acquire(gvr, s, func(informer cache.SharedIndexInformer) { s.Informer = informer })
	if err != nil {
		return nil, err
	}
	s.Name = cmp.Or(s.Name, text(gvr))
	unfeed := k.add(gvr, supervise.Restart(nil, reconcile.Feed(q, s.Feed)))
	return sync.OnceFunc(func() {
		unfeed()
		k.release(gvr, kd, s)
	}), nil
}

// add adds a member whose failure ends no other one.
func (k *Kinds) add(gvr schema.GroupVersionResource, r reconcile.Runner) (stop func()) {
	return k.group.Add(text(gvr), reconcile.RunFunc(func(ctx context.Context) error {
		if err := r.Run(ctx); err != nil {
			reconcile.Logger(ctx).Error("kind is no longer served", "kind", text(gvr), "err", err)
		}
		return nil
	}))
}

// acquire counts s among those who are served with a kind, and begins to watch
// the kind if it is the first.
func (k *Kinds) acquire(gvr schema.GroupVersionResource, s syncer, use func(cache.SharedIndexInformer)) (*kind, error) {
	var fresh *kind
	for {
		k.mu.Lock()
		if k.ended {
			k.mu.Unlock()
			return nil, fmt.Errorf("kinds: serving %s: Kinds.Run has ended", text(gvr))
		}
		kd := k.kinds[gvr]
		if kd == nil && fresh != nil {
			kd = fresh
			if k.kinds == nil {
				k.kinds = make(map[schema.GroupVersionResource]*kind)
			}
			k.kinds[gvr] = kd
			kd.stop = k.add(gvr, kube.Run(kd.informer))
		}
		if kd != nil {
			kd.served[s] = struct{}{}
			use(kd.informer)
			k.mu.Unlock()
			return kd, nil
		}
		k.mu.Unlock()

		informer := k.Informer(gvr) // not with the lock held
		if informer == nil {
			return nil, reconcile.Terminal(fmt.Errorf("kinds: serving %s: Kinds.Informer returned nil", text(gvr)))
		}
		fresh = &kind{informer: informer, served: make(map[syncer]struct{})}
	}
}

func (k *Kinds) release(gvr schema.GroupVersionResource, kd *kind, s syncer) {
	k.mu.Lock()
	delete(kd.served, s)
	last := len(kd.served) == 0
	if last {
		delete(k.kinds, gvr)
	}
	k.mu.Unlock()
	if last {
		kd.stop()
	}
}

// Synced waits until all that was there of a kind has been passed on to those
// who are served with it. It returns an error that says why if that is not so
// within SyncTimeout, if ctx is done first, or if nobody is served. What is
// served goes on whatever Synced returns.
func (k *Kinds) Synced(ctx context.Context, gvr schema.GroupVersionResource) error {
	if k.SyncTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, k.SyncTimeout, fmt.Errorf("not synced within %v", k.SyncTimeout))
		defer cancel()
	}
	k.mu.Lock()
	kd := k.kinds[gvr]
	if kd == nil {
		k.mu.Unlock()
		return fmt.Errorf("kinds: %s is not served", text(gvr))
	}
	served := maps.Clone(kd.served)
	k.mu.Unlock()
	for s := range served {
		if err := s.Synced(ctx); err != nil {
			return fmt.Errorf("kinds: %s: %w", text(gvr), err)
		}
	}
	return nil
}

// Served returns how many are served with each kind that is being watched.
func (k *Kinds) Served() map[schema.GroupVersionResource]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	served := make(map[schema.GroupVersionResource]int, len(k.kinds))
	for gvr, kd := range k.kinds {
		served[gvr] = len(kd.served)
	}
	return served
}

// text returns a kind as kubectl writes it: deployments.v1.apps.
func text(gvr schema.GroupVersionResource) string {
	s := gvr.Resource + "." + gvr.Version
	if gvr.Group != "" {
		s += "." + gvr.Group
	}
	return s
}
