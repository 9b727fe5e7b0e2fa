// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package keep_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/keep"
)

type set = keep.Set[string, string, string]

// gone is a desired value that is Absent.
const gone = "gone"

var errDown = errors.New("503")

// A world has both sides of a Set. The functions replace what a side answers.
type world struct {
	t   *testing.T
	set *set

	mu        sync.Mutex // guards the fields below
	desired   map[string]string
	actual    map[string]string
	listed    func(ctx context.Context, desired map[string]string) (map[string]string, error) // what Desired makes of it
	existing  func(ctx context.Context, actual map[string]string) (map[string]string, error)  // the same of Actual
	deletes   func(key string) error
	ensures   func() error
	ensured   int
	history   []string // each change, with its time
	begun     time.Time
	lookupErr error

	retry reconcile.RetryPolicy
	queue *reconcile.Queue[string]
	stop  func()
}

// newWorld returns a world of n things that are in sync.
func newWorld(t *testing.T, n int) *world {
	w := &world{t: t, desired: things(n), actual: things(n), begun: time.Now(), stop: func() {}, retry: reconcile.DefaultRetry}
	w.set = &set{
		Period: time.Minute,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		InSync: func(desired, actual string) bool { return desired == actual },
		Absent: func(desired string) bool { return desired == gone },
		Desired: func(ctx context.Context) (map[string]string, error) {
			w.mu.Lock()
			all, listed := maps.Clone(w.desired), w.listed
			w.mu.Unlock()
			if listed != nil {
				return listed(ctx, all)
			}
			return all, nil
		},
		Actual: func(ctx context.Context) (map[string]string, error) {
			w.mu.Lock()
			all, existing := maps.Clone(w.actual), w.existing
			w.mu.Unlock()
			if existing != nil {
				return existing(ctx, all)
			}
			return all, nil
		},
		Ensure: func(_ context.Context, key, desired string) error {
			w.mu.Lock()
			ensures := w.ensures
			w.mu.Unlock()
			if ensures != nil {
				return ensures()
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ensured++
			if w.actual[key] != desired {
				w.actual[key] = desired
				w.changed("+", key)
			}
			return nil
		},
		Delete: func(_ context.Context, key, _ string) error {
			w.mu.Lock()
			deletes := w.deletes
			w.mu.Unlock()
			if deletes != nil {
				if err := deletes(key); err != nil {
					return err
				}
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if _, ok := w.actual[key]; ok {
				delete(w.actual, key)
				w.changed("-", key)
			}
			return nil
		},
	}
	return w
}

// things returns n things, t00 and so on.
func things(n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("t%02d", i)] = "1"
	}
	return all
}

func (w *world) changed(sign, key string) {
	w.history = append(w.history, fmt.Sprintf("%v %s%s", time.Since(w.begun), sign, key))
}

// withLookup gives the Set a Lookup that answers truthfully.
func (w *world) withLookup() {
	w.set.Lookup = func(_ context.Context, key, _ string) (string, bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		desired, ok := w.desired[key]
		return desired, ok, w.lookupErr
	}
}

// start starts a process: its Run with a queue of its own.
func (w *world) start() {
	w.queue = reconcile.NewQueue[string]()
	w.runAgain()
}

// runAgain starts Run with the queue of before.
func (w *world) runAgain() {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.set.Reconciler = &reconcile.Reconciler[string]{Queue: w.queue, Workers: 4, Retry: w.retry}
	ended := make(chan error)
	go func() { ended <- w.set.Run(ctx) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		w.stop = func() {}
	}
}

// restart replaces the process by another one, which knows nothing.
func (w *world) restart() {
	w.stop()
	w.start()
}

// wait lets d pass, and what is due by then happen.
func (w *world) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// do changes the world.
func (w *world) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// answer makes Desired return what f makes of the truth; nil means the truth.
func (w *world) answer(f func(map[string]string) (map[string]string, error)) {
	w.do(func() {
		w.listed = func(_ context.Context, all map[string]string) (map[string]string, error) { return f(all) }
		if f == nil {
			w.listed = nil
		}
	})
}

func (w *world) answerActual(f func(map[string]string) (map[string]string, error)) {
	w.do(func() {
		w.existing = func(_ context.Context, all map[string]string) (map[string]string, error) { return f(all) }
		if f == nil {
			w.existing = nil
		}
	})
}

// took checks the history since the last call, and forgets it.
func (w *world) took(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.history) // what happens at the same time is in no order
	if !slices.Equal(w.history, want) {
		w.t.Errorf("the changes are\n%v, want\n%v", strings.Join(w.history, "\n"), strings.Join(want, "\n"))
	}
	w.history = nil
}

// deleted returns the number of deletions since the last call of took.
func (w *world) deleted() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, change := range w.history {
		if strings.Contains(change, " -") {
			n++
		}
	}
	return n
}

// failsToDelete starts the Set. After ten minutes t00 is surplus, and its Delete has failed and is
// tried again each second.
func (w *world) failsToDelete() {
	w.do(func() { w.deletes = func(string) error { return errDown } })
	w.retry = reconcile.Backoff(time.Second, time.Second)
	w.start()
	w.wait(time.Second)
	w.do(func() { delete(w.desired, "t00") })
	w.wait(10 * time.Minute)
}

func down(map[string]string) (map[string]string, error) { return nil, errDown }

func empty(map[string]string) (map[string]string, error) { return nil, nil }

// lacks answers without the last n things.
func lacks(n int) func(map[string]string) (map[string]string, error) {
	return func(all map[string]string) (map[string]string, error) {
		keys := slices.Sorted(maps.Keys(all))
		for _, key := range keys[max(0, len(keys)-n):] {
			delete(all, key)
		}
		return all, nil
	}
}

// changes returns the text of a plan without its last line, which has the counts.
func changes(p keep.Plan[string]) string {
	text := p.String()
	return text[:strings.LastIndex(text, "\n")+1]
}

// bubble runs f in a bubble with a world of n things, before it is started.
func bubble(t *testing.T, n int, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, n)
		f(w)
		w.stop()
	})
}
