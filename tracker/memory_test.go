// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package tracker_test

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/tracker"
)

// Items that are missing from a listing use no memory.
func TestTrackerFreesTheMemoryOfMissingItems(t *testing.T) {
	const n = 200_000
	count, changes := n, 0
	list := func(context.Context) iter.Seq2[tracker.Listed[int, int], error] {
		return func(yield func(tracker.Listed[int, int], error) bool) {
			for i := range count {
				if !yield(tracker.Listed[int, int]{Item: i}, nil) {
					return
				}
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		tr := &tracker.Tracker[int, int]{Queue: drop[int]{}, List: list, Period: time.Hour, Logger: quiet}
		tr.OnChange = func(tracker.Change[int, int]) { changes++ }
		before := heap()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- tr.Run(ctx) }()
		synctest.Wait()
		full := heap() - before
		count = 10
		tr.Trigger()
		time.Sleep(2 * time.Second) // listings begin a second apart
		synctest.Wait()
		if kept := heap() - before; kept > full/10 {
			t.Errorf("%d bytes are kept of %d after all but 10 of %d items vanished", kept, full, n)
		}
		tr.Trigger() // what is left is still known
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if want := n + n - 10; changes != want {
			t.Errorf("%d changes, want %d", changes, want)
		}
		cancel()
		<-ended
	})
}
