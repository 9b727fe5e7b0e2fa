// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
)

// Of many consumers that waited at once, few are kept to be used again.
func TestFewConsumersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewQueue[int]()
		ctx, cancel := context.WithCancel(context.Background())
		var waiting sync.WaitGroup
		for range 3 * maxIdles {
			waiting.Go(func() {
				if _, err := q.Dequeue(ctx); err != context.Canceled {
					t.Errorf("Dequeue() = %v, want %v", err, context.Canceled)
				}
			})
		}
		synctest.Wait()
		cancel()
		waiting.Wait()
		kept := 0
		for c := q.consumers.idle; c != nil; c = c.next {
			kept++
		}
		if kept != maxIdles || q.consumers.idles != kept {
			t.Errorf("%d consumers are kept, %d by their count, want %d", kept, q.consumers.idles, maxIdles)
		}
	})
}
