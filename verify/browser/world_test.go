// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build smoke || nightly

package browser

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/statuspage"
)

// A world is a queue with a reconciler, and their page.
type world struct {
	queue *reconcile.Queue[string]
	page  *statuspage.Page
	runs  chan string // the items that ran and were given back, in order; room for many

	mu    sync.Mutex // guards the field below
	fails map[string]error
}

// newWorld runs a reconciler until the test ends. After each run the item is in
// order, and looked at again in an hour, unless it is to fail.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		queue: reconcile.NewQueue[string](),
		runs:  make(chan string, 10_000),
		fails: make(map[string]error),
	}
	loop := &statuspage.Loop[string]{Name: "assets", Queue: w.queue}
	w.page = statuspage.New(loop)
	w.page.AllowActions = true
	w.page.Refresh = 50 * time.Millisecond
	w.page.Logger = slog.New(slog.DiscardHandler)
	r := &reconcile.Reconciler[string]{
		Queue:  teller{w.queue, w.runs},
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
		OnResult: loop.OnResult(nil),
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

// A teller is a queue that tells of each item that was given back.
type teller struct {
	*reconcile.Queue[string]
	runs chan<- string
}

func (q teller) Done(item string) {
	q.Queue.Done(item)
	q.runs <- item
}

func (q teller) Requeue(item string, w reconcile.RequeueOptions) {
	q.Queue.Requeue(item, w)
	q.runs <- item
}

// fail makes the runs of an item fail from now on.
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

// A counter counts the streams that are open.
type counter struct {
	http.Handler
	open    atomic.Int64
	changed chan struct{} // told of each change; room for many
}

func newCounter(h http.Handler) *counter {
	return &counter{Handler: h, changed: make(chan struct{}, 1000)}
}

func (c *counter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/events" {
		c.open.Add(1)
		c.changed <- struct{}{}
		defer func() {
			c.open.Add(-1)
			c.changed <- struct{}{}
		}()
	}
	c.Handler.ServeHTTP(w, r)
}

// wait waits until so many streams are open.
func (c *counter) wait(t *testing.T, want int64) {
	t.Helper()
	deadline := time.After(patience)
	for c.open.Load() != want {
		select {
		case <-c.changed:
		case <-deadline:
			t.Fatalf("%d streams are open, want %d", c.open.Load(), want)
		}
	}
}
