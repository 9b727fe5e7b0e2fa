// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestFeedRunsItsFeederWithItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		for _, want := range []error{nil, errBoom} {
			r := reconcile.Feed[string](q, func(ctx context.Context, q reconcile.Enqueuer[string]) error {
				if ctx.Value(leaseKey{}) != "of the caller" {
					t.Error("the feeder does not run under the context of Run")
				}
				q.Enqueue("a")
				return want
			})
			if err := r.Run(context.WithValue(t.Context(), leaseKey{}, "of the caller")); err != want {
				t.Errorf("Run = %v, want what the feeder returned, %v", err, want)
			}
		}
		q.mustBe(t, "0s enqueue a", "0s enqueue a")
	})
}

func TestFeedNamesWhatIsMissing(t *testing.T) {
	idle := func(context.Context, reconcile.Enqueuer[string]) error { t.Error("it runs"); return nil }
	for what, r := range map[string]reconcile.Runner{
		"queue":  reconcile.Feed[string](nil, idle),
		"Feeder": reconcile.Feed(reconcile.NewQueue[string](), nil),
	} {
		if err := r.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "reconcile: ") || !strings.Contains(err.Error(), what) {
			t.Errorf("Run of a Feed without its %s = %v, want an error that names it", what, err)
		}
	}
}

func TestFromChanDeliversWhatWasPendingAndEndsWhenClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		ch := make(chan string, 3)
		ch <- "a"
		ch <- "b"
		ch <- ""
		run := launch(t, reconcile.Feed(q, reconcile.FromChan(ch)))
		time.Sleep(time.Second)
		q.mustBe(t, "0s enqueue a", "0s enqueue b", "0s enqueue ")
		ch <- "c"
		ch <- "d" // and closed before it is read
		close(ch)
		if err := run.wait(); err != nil {
			t.Errorf("Run = %v after the channel was closed, want nil", err)
		}
		q.mustBe(t, "0s enqueue a", "0s enqueue b", "0s enqueue ", "1s enqueue c", "1s enqueue d")
	})
}

func TestFromChanEndsWhenCtxIsDoneAndTakesNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		ch := make(chan string, 100)
		run := launch(t, reconcile.Feed(q, reconcile.FromChan(ch)))
		synctest.Wait()
		run.end()
		for range cap(ch) {
			ch <- "later"
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := reconcile.FromChan(ch)(ctx, q); err != nil {
			t.Errorf("feeder = %v with a done ctx, want nil", err)
		}
		if len(ch)+len(q.list) != cap(ch) {
			t.Errorf("%d items left, %d enqueued, want %d in all: none is lost", len(ch), len(q.list), cap(ch))
		}
		if len(q.list) > 0 {
			t.Errorf("%d items were taken after ctx was done", len(q.list))
		}
	})
}

func TestFromChanOfANilChannelIsAnError(t *testing.T) {
	err := reconcile.FromChan[string](nil)(t.Context(), newTray[string]())
	if err == nil || !strings.HasPrefix(err.Error(), "reconcile: ") || !strings.Contains(err.Error(), "channel") {
		t.Errorf("FromChan(nil) = %v, want an error that tells of the channel", err)
	}
}

// tellAll says all that an Enqueuer can be told.
func tellAll[T comparable](q reconcile.Enqueuer[T], items ...T) {
	for _, item := range items {
		q.Enqueue(item)
		q.EnqueueAfter(item, time.Minute)
		q.Offer(item)
	}
}

func TestFilterPassesOnAllVerbsOfWhatItKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[int]()
		var asked []int
		even := reconcile.Filter[int](q, func(i int) bool {
			asked = append(asked, i)
			return i%2 == 0
		})
		tellAll(even, 1, 2, 3, 4)
		q.mustBe(t,
			"0s enqueue 2", "0s enqueue 2 after 1m0s", "0s offer 2",
			"0s enqueue 4", "0s enqueue 4 after 1m0s", "0s offer 4",
		)
		if want := []int{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}; !slices.Equal(asked, want) {
			t.Errorf("filter was asked about %v, want each item once a call", asked)
		}
	})
}

func TestMapPassesOnAllVerbsToWhatItYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		letters := reconcile.Map[int](q, func(n int) iter.Seq[string] {
			switch n {
			case 0:
				return nil // no owner
			case 1:
				return func(func(string) bool) {} // no dependants
			}
			return slices.Values([]string{"a", "b", "c"}[:n-1])
		})
		tellAll(letters, 0, 1, 2, 3)
		q.mustBe(t,
			"0s enqueue a", "0s enqueue a after 1m0s", "0s offer a",
			"0s enqueue a", "0s enqueue b", "0s enqueue a after 1m0s", "0s enqueue b after 1m0s", "0s offer a", "0s offer b",
		)
	})
}

func TestMapOfDuplicatesRunsAnItemOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		owners := reconcile.Map[int](q, func(int) iter.Seq[string] { return slices.Values([]string{"a", "b", "a", "a"}) })
		owners.Enqueue(1)
		owners.Enqueue(2)
		owners.Offer(3)
		if q.Len() != 2 {
			t.Errorf("%d items ready, want a and b", q.Len())
		}
	})
}

func TestFilterAndMapCompose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		mine := reconcile.Filter[string](q, func(s string) bool { return s != "b" })
		words := reconcile.Map(mine, func(s string) iter.Seq[string] { return slices.Values(strings.Fields(s)) })
		long := reconcile.Filter(words, func(s string) bool { return len(s) > 1 })
		tellAll(long, "a b c", "d")
		q.mustBe(t, "0s enqueue a", "0s enqueue c", "0s enqueue a after 1m0s", "0s enqueue c after 1m0s", "0s offer a", "0s offer c")
	})
}

func TestFilterAndMapOfNilPanicAtOnce(t *testing.T) {
	q := reconcile.NewQueue[string]()
	for name, f := range map[string]func(){
		"Filter(q, nil)":    func() { reconcile.Filter[string](q, nil) },
		"Map(q, nil)":       func() { reconcile.Map[int, string](q, nil) },
		"Filter(nil, keep)": func() { reconcile.Filter(nil, func(string) bool { return true }) },
		"Map(nil, fn)":      func() { reconcile.Map(nil, func(int) iter.Seq[string] { return nil }) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "reconcile: ") {
					t.Errorf("%s panics with %q, want a text that begins with the package", name, text)
				}
			}()
			f()
		}()
	}
}
