// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/rare"
)

// A writes remembers what this process wrote for each item, until an informer has
// seen it. A run that reads a cache which lags behind its last write does that
// write again: it makes another child if the name of the first is made up by the
// server. Such a run asks Seen first, and calls Add with what it wrote.
//
// Informer is required: that of the kind written, in whose resource versions alone
// they can be compared. A writes is for one informer. Its methods never block,
// and may be called from any goroutine.
//
// It cannot know of a write whose answer was lost, nor of one of another process,
// nor of a deletion, whose answer has no version. What an informer has seen is
// forgotten, also if nobody asks. After the API server was restored from an older
// backup, the versions that it remembers may never come: restart the process.
type writes[T comparable] struct {
	Informer cache.SharedInformer

	mu    sync.Mutex    // guards what follows
	last  map[T]written // the last write not known to be seen
	prune int           // how large last may get before those that are seen go

	unwatched rare.Failures // writes that the informer does not watch
}

// A written is an object as the API server returned it after a write.
type written struct {
	version, name string
	generated     bool // the server has made up the name
	at            time.Time
}

// An informer sees a write within milliseconds. If it lists and watches without a
// failure, and has not seen one after unwatchedAfter, it does not watch that object.
const unwatchedAfter = 5 * time.Second

// lag is when a run looks again. The event of the write is what brings it sooner,
// if it is an event of the item.
const lag = 100 * time.Millisecond

// Add takes note that obj, as the API server returned it, was written for item. An
// object without a resource version, as those of a fake clientset, is ignored.
func (w *writes[T]) Add(item T, obj metav1.Object) {
	version := obj.GetResourceVersion()
	if version == "" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if order, err := resourceversion.CompareResourceVersion(w.last[item].version, version); err == nil && order >= 0 {
		return
	}
	if w.last == nil {
		w.last = make(map[T]written)
	}
	w.last[item] = written{version, nameOf(obj), obj.GetGenerateName() != "", time.Now()}
	if len(w.last) <= w.prune {
		return
	}
	for item, write := range w.last {
		if ok, err := w.seen(write.version); ok && err == nil {
			delete(w.last, item)
		}
	}
	w.prune = max(1000, 2*len(w.last))
}

// Seen returns nil if the informer's store has all that was added for item, or
// something later. Otherwise it returns an error for the reconcile function to
// return: a [reconcile.RequeueWithin] of a tenth of a second, or, of a server
// whose resource versions are no numbers, a failure.
//
// An object that the informer does not watch, as its selector or namespace leaves it out,
// is never seen: the next bookmark of the server ends the wait, which takes about a
// minute. After five seconds the error says so. An object whose name the writer has
// chosen is no longer waited for then, if [Run] runs the informer and knows of no failure:
// the write would only be refused the second time.
func (w *writes[T]) Seen(item T) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	write, ok := w.last[item]
	if !ok {
		return nil
	}
	seen, err := w.seen(write.version)
	since := time.Since(write.at)
	switch {
	case err != nil:
		return fmt.Errorf("kube: writes: %w", err)
	case seen:
		delete(w.last, item)
		return nil
	case since < unwatchedAfter:
		return fmt.Errorf("the cache has not seen the last write, of version %s: %w", write.version, reconcile.RequeueWithin(lag))
	}
	why := fmt.Errorf("the cache has not seen %s, which was written %v ago; does the selector or the namespace of its informer leave it out?",
		write.name, since.Round(time.Second))
	r, ok := running.Load(w.Informer)
	if !ok || write.generated || r.(*run).failedSince(write.at) {
		return fmt.Errorf("%w %w", why, reconcile.RequeueWithin(time.Second))
	}
	if count, log := w.unwatched.Add(why); log {
		r.(*run).logger.Warn("a written object is not in the cache, and is no longer waited for", "failures", count, "err", why)
	}
	delete(w.last, item)
	return nil
}

// seen reports whether the informer has seen a version.
func (w *writes[T]) seen(version string) (bool, error) {
	// The store's own is there unless client-go's AtomicFIFO is switched off. The
	// other one may be a moment ahead of the store.
	now := cmp.Or(w.Informer.GetStore().LastStoreSyncResourceVersion(), w.Informer.LastSyncResourceVersion())
	if now == "" {
		return false, nil
	}
	order, err := resourceversion.CompareResourceVersion(now, version)
	return order >= 0, err
}
