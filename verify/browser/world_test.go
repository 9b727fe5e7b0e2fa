// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package browser

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
)

// A world is a queue with a reconciler, and their page.
type world struct {
	queue *reconcile.Queue[string]
	page  *statuspage.Page
	runs  chan string // the items that ran, in order; room for many

	mu    sync.Mutex // guards the field below
	fails map[string]error
}

// newWorld runs a reconciler until the test ends. After each run the item is in
// sync, and rechecked in an hour, unless it is to fail.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		queue: reconcile.NewQueue[string](),
		runs:  make(chan string, 1000),
		fails: make(map[string]error),
	}
	loop := &statuspage.Loop[string]{Name: "assets", Queue: w.queue}
	w.page = statuspage.New(loop)
	w.page.AllowActions = true
	w.page.Refresh = 50 * time.Millisecond
	w.page.Logger = slog.New(slog.DiscardHandler)
	r := &reconcile.Reconciler[string]{
		Queue:  w.queue,
		Logger: w.page.Logger,
		Retry:  func(error, int) (time.Duration, bool) { return time.Hour, true },
		Reconcile: func(_ context.Context, item string) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if err := w.fails[item]; err != nil {
				return err
			}
			return fmt.Errorf("in sync: %w", reconcile.RecheckWithin(time.Hour))
		},
		OnResult: loop.OnResult(func(r reconcile.Result[string]) { w.runs <- r.Item }),
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// fail makes the runs of an item fail from now on, or succeed if err is nil.
func (w *world) fail(item string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fails[item] = err
}

// run enqueues items and waits until all of them ran. Readers of the page share
// a snapshot for a while, and may see them later than that.
func (w *world) run(t *testing.T, items ...string) {
	t.Helper()
	for _, item := range items {
		w.queue.EnqueueNow(item)
	}
	for range items {
		w.ran(t)
	}
}

// ran waits for the next run, and returns its item.
func (w *world) ran(t *testing.T) string {
	t.Helper()
	select {
	case item := <-w.runs:
		return item
	case <-time.After(patience):
		t.Fatal("no run comes")
		return ""
	}
}
