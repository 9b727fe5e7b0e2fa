// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/record"
)

type callerKey struct{}

func TestFeedRunsItsFeederWithItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		for _, want := range []error{nil, errBoom} {
			r := reconcile.Feed[string](q, func(ctx context.Context, q reconcile.Enqueuer[string]) error {
				if ctx.Value(callerKey{}) != "of the caller" {
					t.Error("the feeder does not run under the context of Run")
				}
				q.Enqueue("a")
				return want
			})
			if err := r.Run(context.WithValue(t.Context(), callerKey{}, "of the caller")); err != want {
				t.Errorf("Run = %v, want what the feeder returned, %v", err, want)
			}
		}
		q.Want(t, "0s enqueue a", "0s enqueue a")
	})
}

func TestFeedErrorNamesTheNilField(t *testing.T) {
	idle := func(context.Context, reconcile.Enqueuer[string]) error { t.Error("it runs"); return nil }
	q := reconcile.NewQueue[string]()
	for what, r := range map[string]reconcile.Runner{
		"the queue of Feed":        reconcile.Feed[string](nil, idle),
		"Feed needs a Feeder":      reconcile.Feed(q, nil),
		"FromChan needs a channel": reconcile.Feed(q, reconcile.FromChan[string](nil)),
	} {
		if err := r.Run(t.Context()); !errors.Is(err, reconcile.ErrTerminal) || !strings.HasPrefix(err.Error(), "reconcile: "+what) {
			t.Errorf("Run = %v, want a terminal error that says %q", err, what)
		}
	}
}

func TestFromChanEnqueuesBufferedValuesAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		ch := make(chan string, 3)
		ch <- "a"
		ch <- "b"
		ch <- ""
		run := record.Launch(t, reconcile.Feed(q, reconcile.FromChan(ch)))
		time.Sleep(time.Second)
		q.Want(t, "0s enqueue a", "0s enqueue b", "0s enqueue ")
		ch <- "c"
		ch <- "d" // and closed before it is read
		close(ch)
		if err := run.Wait(); err != nil {
			t.Errorf("Run = %v after the channel was closed, want nil", err)
		}
		q.Want(t, "0s enqueue a", "0s enqueue b", "0s enqueue ", "1s enqueue c", "1s enqueue d")
	})
}

func TestFromChanReceivesNothingAfterCtxIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		ch := make(chan string, 100)
		run := record.Launch(t, reconcile.Feed(q, reconcile.FromChan(ch)))
		synctest.Wait()
		run.End()
		for range cap(ch) {
			ch <- "later"
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := reconcile.FromChan(ch)(ctx, q); err != nil {
			t.Errorf("feeder = %v with a done ctx, want nil", err)
		}
		if len(ch)+len(q.Lines()) != cap(ch) {
			t.Errorf("%d items left, %d enqueued, want %d in all: none is lost", len(ch), len(q.Lines()), cap(ch))
		}
		if len(q.Lines()) > 0 {
			t.Errorf("%d items were taken after ctx was done", len(q.Lines()))
		}
	})
}

// tellAll calls all methods of an Enqueuer.
func tellAll[T comparable](q reconcile.Enqueuer[T], items ...T) {
	for _, item := range items {
		q.Enqueue(item)
		q.EnqueueAfter(item, time.Minute)
		q.Offer(item)
	}
}

func TestFilterForwardsAllVerbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[int]()
		var asked []int
		even := reconcile.Filter[int](q, func(i int) bool {
			asked = append(asked, i)
			return i%2 == 0
		})
		tellAll(even, 1, 2, 3, 4)
		q.Want(t,
			"0s enqueue 2", "0s enqueue 2 after 1m0s", "0s offer 2",
			"0s enqueue 4", "0s enqueue 4 after 1m0s", "0s offer 4",
		)
		if want := []int{1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4}; !slices.Equal(asked, want) {
			t.Errorf("filter was asked about %v, want each item once a call", asked)
		}
	})
}

func TestMapForwardsAllVerbs(t *testing.T) {
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
		q.Want(t,
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

// A wrapper around a queue is made where the program starts: what is missing is
// found there.
func TestEnqueuersOfANilQueuePanic(t *testing.T) {
	q := reconcile.NewQueue[string]()
	for name, f := range map[string]func(){
		"the queue of Filter":     func() { reconcile.Filter(nil, func(string) bool { return true }) },
		"the queue of Map":        func() { reconcile.Map(nil, func(int) iter.Seq[string] { return nil }) },
		"Filter needs a function": func() { reconcile.Filter[string](q, nil) },
		"Map needs a function":    func() { reconcile.Map[int, string](q, nil) },
	} {
		if got := panics(f); !strings.HasPrefix(got, "reconcile: "+name) {
			t.Errorf("panic %q, want one that says %q", got, name)
		}
	}
}
