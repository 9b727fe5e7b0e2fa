// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package kubeadapter

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
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/reconkernel/reconcile"
)

// running has the run of each informer that runs. It is what a Source and the
// Run of its informer have in common: an informer has no room for it.
var running sync.Map // of cache.SharedInformer to *run

// A run is one of an informer.
type run struct {
	ended  chan struct{} // closed when it has ended
	logger *slog.Logger

	mu    sync.Mutex // guards what follows
	err   error      // the last failure to list or watch
	at    time.Time  // when that was
	count int        // of those that read like it, in a row
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
			return reconcile.Terminal(errors.New("kubeadapter: Run needs an informer, got nil"))
		}
		r := &run{ended: make(chan struct{}), logger: reconcile.Logger(ctx)}
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
			return reconcile.Terminal(fmt.Errorf("kubeadapter: something else runs the informer, or it has run before, and it runs only once: %w", err))
		}
		informer.RunWithContext(klog.NewContext(ctx, logr.FromSlogHandler(r.logger.Handler())))
		return nil
	})
}

// failed is what an informer calls when it cannot list or watch.
func (r *run) failed(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // it ends, or the way a watch ends, or it was long away: it lists again
	}
	switch {
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("the API server has no such kind; is its CRD installed? %w", err)
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("this client may not list and watch it: %w", err)
	}
	r.mu.Lock()
	// One that fails tries again after up to a minute: longer ago, it was well since.
	if r.err == nil || r.err.Error() != err.Error() || time.Since(r.at) > 5*time.Minute {
		r.count = 0
	}
	r.count++
	r.err, r.at = err, time.Now()
	count := r.count
	r.mu.Unlock()
	if count&(count-1) == 0 {
		r.logger.Warn("informer cannot list or watch, to be tried again", "failures", count, "err", err)
	}
}

// failure returns why an informer has no list.
func failure(informer cache.SharedInformer) error {
	r, ok := running.Load(informer)
	if !ok {
		return errors.New("is it running?")
	}
	r.(*run).mu.Lock()
	defer r.(*run).mu.Unlock()
	if err := r.(*run).err; err != nil {
		return err
	}
	return errors.New("the API server has not answered")
}
