// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"iter"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestTrackerNamesWhatIsWrong(t *testing.T) {
	list := func(context.Context) sequence { return listed("") }
	for want, tr := range map[string]*tracker{
		"Tracker.List is required": {Period: 1},
		"Tracker.Period is 0s":     {List: list},
		"Tracker.Jitter is 2":      {List: list, Period: 1, Jitter: 2},
		"Tracker.Jitter is NaN":    {List: list, Period: 1, Jitter: math.NaN()},
		"Tracker.Resync is -1":     {List: list, Period: 1, Resync: -1},
	} {
		if err := tr.Feed(t.Context(), newTray[string]()); err == nil || !strings.HasPrefix(err.Error(), "reconcile: "+want) {
			t.Errorf("Feed = %v, want an error that says %q", err, want)
		}
	}
	tr := &tracker{List: list, Period: 1}
	if err := tr.Feed(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "the queue of Tracker.Feed") {
		t.Errorf("Feed without a queue = %v, want an error that names it", err)
	}
	synctest.Test(t, func(t *testing.T) {
		tr := &tracker{Period: time.Second, Logger: unlogged()}
		tr.List = func(context.Context) sequence { return nil }
		run := launch(t, reconcile.Feed(newTray[string](), tr.Feed))
		synctest.Wait()
		if err := tr.Feed(t.Context(), newTray[string]()); err == nil || !strings.Contains(err.Error(), "running already") {
			t.Errorf("second Feed = %v, want an error", err)
		}
		run.end()
	})
}

// An AWS SDK, for one, answers an ETag as a *string: each listing would be told as
// altered.
func TestTrackerRefusesVersionsThatAreNeverEqual(t *testing.T) {
	list := func(context.Context) iter.Seq2[reconcile.Seen[string, *string], error] { return nil }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := (&reconcile.Tracker[string, *string]{List: list, Period: time.Second}).Feed(ctx, newTray[string]())
	if err == nil || !strings.Contains(err.Error(), "*string") || !strings.Contains(err.Error(), "the version itself") {
		t.Errorf("Feed with versions that are pointers = %v, want an error that names them", err)
	}
}

// One item that can be no key does not hide those after it.
func TestTrackerGoesOnAfterAnItemThatIsNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[any]()
		tr := &reconcile.Tracker[any, int]{Period: time.Minute, Logger: unlogged()}
		tr.List = func(context.Context) iter.Seq2[reconcile.Seen[any, int], error] {
			return func(yield func(reconcile.Seen[any, int], error) bool) {
				_ = yield(reconcile.Seen[any, int]{Item: "a"}, nil) &&
					yield(reconcile.Seen[any, int]{Item: []string{"b"}}, nil) &&
					yield(reconcile.Seen[any, int]{Item: "c"}, nil)
			}
		}
		run := launch(t, reconcile.Feed(q, tr.Feed))
		synctest.Wait()
		run.end()
		q.mustBe(t, "0s enqueue a", "0s enqueue c")
	})
}

func TestTrackerSaysThatAListIsNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		book := newLogBook()
		tr := &tracker{Period: time.Minute, Logger: book.logger()}
		tr.List = func(context.Context) sequence { return nil }
		run := launch(t, reconcile.Feed(newTray[string](), tr.Feed))
		synctest.Wait()
		book.onlyLine(t, 0).mustSay(t, 8, nil, "Tracker.List returned nil")
		run.end()
	})
}

// What vanished takes no memory.
func TestTrackerGivesBackItsMemory(t *testing.T) {
	const n = 200_000
	synctest.Test(t, func(t *testing.T) {
		count := n
		tr := &reconcile.Tracker[int, int]{Period: time.Hour, Logger: unlogged()}
		tr.List = func(context.Context) iter.Seq2[reconcile.Seen[int, int], error] {
			return func(yield func(reconcile.Seen[int, int], error) bool) {
				for i := range count {
					if !yield(reconcile.Seen[int, int]{Item: i}, nil) {
						return
					}
				}
			}
		}
		told := 0
		tr.OnChange = func(reconcile.Change[int, int]) { told++ }
		drop := reconcile.Filter(reconcile.NewQueue[int](), func(int) bool { return false })
		before := heap()
		run := launch(t, reconcile.Feed(drop, tr.Feed))
		synctest.Wait()
		full := heap() - before
		count = 10
		tr.Trigger()
		synctest.Wait()
		if kept := heap() - before; kept > full/10 {
			t.Errorf("%d bytes are kept of %d after all but 10 of %d items vanished", kept, full, n)
		}
		tr.Trigger() // what is left is still known
		synctest.Wait()
		if want := n + n - 10; told != want {
			t.Errorf("told of %d changes, want %d", told, want)
		}
		run.end()
	})
}
