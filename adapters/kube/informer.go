// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/internal/rare"
)

// running has the run of each informer that runs. It is what a Source and the
// Run of its informer have in common: an informer has no room for it.
var running sync.Map // of cache.SharedInformer to *run

// A run is one of an informer.
type run struct {
	informer cache.SharedInformer
	ended    chan struct{} // closed when it has ended
	logger   *slog.Logger

	failures rare.Failures // to list or watch

	mu      sync.Mutex // guards what follows
	since   time.Time  // of the first failure of those in a row
	last    time.Time  // of the last one
	err     error      // that one
	version string     // the newest that the informer had at the first one
}

// An informer is blind if it fails to list and to watch for blindAfter. client-go tries
// again within a minute: after retriedWithin without a failure, a watch goes on.
const (
	blindAfter    = 2 * time.Minute
	retriedWithin = 90 * time.Second
)

// note takes note of a failure.
func (r *run) note(err error) {
	now, version := time.Now(), r.informer.LastSyncResourceVersion()
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.last) > retriedWithin || version != r.version {
		r.since, r.version = now, version
	}
	r.last, r.err = now, err
}

// blind returns an error if what the informer knows is stale: it has failed to list and
// to watch for long.
func (r *run) blind() error {
	version := r.informer.LastSyncResourceVersion()
	r.mu.Lock()
	defer r.mu.Unlock()
	since := time.Since(r.since)
	if r.err == nil || time.Since(r.last) > retriedWithin || version != r.version || since < blindAfter {
		return nil
	}
	return fmt.Errorf("a cache has had neither list nor watch for %v: %w", since.Round(time.Second), r.err)
}

// Run returns a Runner that runs an informer. Run of one that runs already waits
// for its end, so that each of many sources of an informer may have it run. An
// informer runs once: a Run after its end, or of one that something else runs, is
// a [reconcile.Terminal] error.
//
// What client-go logs about the informer goes to the [reconcile.Logger] of ctx,
// which is that of the Group, and V(4) of klog is Debug. Run sets the informer's
// watch error handler: a failure to list or to watch is logged as a warning, and
// one that reads like those before it only each time their number has doubled.
func Run(informer cache.SharedInformer) reconcile.Runner {
	return reconcile.RunFunc(func(ctx context.Context) error {
		if informer == nil {
			return reconcile.Terminal(errors.New("kube: Run needs an informer, got nil"))
		}
		r := &run{informer: informer, ended: make(chan struct{}), logger: reconcile.Logger(ctx)}
		if other, ok := running.LoadOrStore(informer, r); ok {
			select {
			case <-ctx.Done():
			case <-other.(*run).ended:
			}
			return nil
		}
		defer close(r.ended)
		defer running.Delete(informer)
		if err := informer.SetWatchErrorHandlerWithContext(r.failed); err != nil {
			if ctx.Err() != nil { // This Run began as the one that it was to wait for ended.
				return nil
			}
			return reconcile.Terminal(fmt.Errorf("kube: something else runs the informer, or it has run before, and it runs only once: %w", err))
		}
		informer.RunWithContext(klog.NewContext(ctx, logr.FromSlogHandler(listener{r.logger.Handler(), r})))
		return nil
	})
}

// failedSince reports whether there was a failure since a time.
func (r *run) failedSince(t time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last.After(t)
}

// A listener is the handler of an informer's log. It hears of the failures that
// client-go tries again without a word to the watch error handler: while the API server
// refuses connections or answers 429, and while a proxy hangs up. In the last case the
// client repeats the request ten times, and then takes it for a watch without events.
type listener struct {
	slog.Handler
	run *run
}

// retried is the level at which they are logged at least: V(4) of klog.
const retried = slog.Level(-4)

// sentAgain is what client-go logs before it sends a request again, lastAttempt times at
// most.
const (
	sentAgain   = "Got a Retry-After response"
	lastAttempt = 10
)

var errSentAgain = fmt.Errorf("a request failed %d times, or was to be sent later", lastAttempt)

func (l listener) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= retried || l.Handler.Enabled(ctx, level)
}

func (l listener) Handle(ctx context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		switch err, _ := a.Value.Any().(error); {
		case utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err):
			l.run.failed(ctx, nil, err)
		case record.Message == sentAgain && a.Key == "attempt" && a.Value.Int64() == lastAttempt:
			l.run.failed(ctx, nil, errSentAgain)
		}
		return true
	})
	if !l.Handler.Enabled(ctx, record.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, record)
}

func (l listener) WithAttrs(attrs []slog.Attr) slog.Handler {
	return listener{l.Handler.WithAttrs(attrs), l.run}
}

func (l listener) WithGroup(name string) slog.Handler {
	return listener{l.Handler.WithGroup(name), l.run}
}

// failed is what an informer calls when it cannot list or watch.
func (r *run) failed(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() != nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // it ends, or it was long away: it lists again
	}
	r.note(err)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return // the way a watch ends
	}
	switch {
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("the API server has no such kind; is its CRD installed? %w", err)
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("this client may not list and watch it: %w", err)
	}
	if count, log := r.failures.Add(err); log {
		r.logger.Warn("informer cannot list or watch, retrying", "failures", count, "err", err)
	}
}

// whole returns an error if the cache of an informer is not what the API server has: it has
// no list yet, has stopped, or is blind.
func whole(informer cache.SharedInformer) error {
	if informer == nil || !informer.HasSynced() {
		return fmt.Errorf("a cache is not whole: %w", failure(informer))
	}
	if informer.IsStopped() {
		return errors.New("the informer of a cache has stopped")
	}
	if r, ok := running.Load(informer); ok {
		return r.(*run).blind()
	}
	return nil
}

// failure returns why an informer has no list.
func failure(informer cache.SharedInformer) error {
	r, ok := running.Load(informer)
	if !ok {
		return errors.New("Run does not run it; if nothing else does, add Run(informer) to the group")
	}
	if err := r.(*run).failures.Last(); err != nil {
		return err
	}
	return errors.New("no complete list has come from the API server")
}
