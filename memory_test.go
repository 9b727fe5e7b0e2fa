// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package reconcile_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestEmptyQueueIsSmall(t *testing.T) {
	queues := make([]*reconcile.Queue[string], 1000)
	before := heap()
	for i := range queues {
		queues[i] = reconcile.NewQueue[string]()
	}
	if each := (heap() - before) / int64(len(queues)); each > 4096 {
		t.Errorf("an empty queue has %d bytes, want at most 4096", each)
	}
	runtime.KeepAlive(queues)
}

// A queue that held a million items and was drained holds no more than a
// megabyte over an empty one. Nor does it after smaller bursts of other kinds,
// which would keep several.
func TestMemoryIsReturnedAfterABurst(t *testing.T) {
	type queue = reconcile.Queue[int]
	const allowed, n = 1 << 19, 60_000
	run := func(t *testing.T, q *queue) {
		for q.Len() > 0 {
			q.Done(mustTake(t, q))
		}
	}
	delayed := func(q *queue, few int) { // and among them few that stay
		for i := range n {
			q.EnqueueAfter(i, time.Hour+time.Duration(i*7919%n))
			if few > 0 && i%(n/few) == 0 {
				q.EnqueueAfter(-1-i, time.Hour)
			}
		}
	}
	ready := func(q *queue, items, few int) {
		for i := range items {
			q.Enqueue(i)
			if few > 0 && i%(items/few) == 0 {
				q.Enqueue(-1 - i)
			}
		}
	}
	remove := func(q *queue) {
		for i := range n {
			q.Remove(i)
		}
	}
	for name, burst := range map[string]func(t *testing.T, q *queue){
		"a million ready":     func(t *testing.T, q *queue) { ready(q, 1_000_000, 0); run(t, q) },
		"delayed, closed":     func(_ *testing.T, q *queue) { delayed(q, 0); q.Close() },
		"delayed, removed":    func(_ *testing.T, q *queue) { delayed(q, 0); remove(q) },
		"delayed, a few stay": func(_ *testing.T, q *queue) { delayed(q, 5); remove(q) },
		"delayed, brought forward": func(t *testing.T, q *queue) {
			delayed(q, 0)
			for i := range n {
				q.EnqueueNow(i)
			}
			run(t, q)
		},
		"ready, a few stay in flight": func(t *testing.T, q *queue) {
			ready(q, n, 5)
			for q.Len() > 0 {
				if item := mustTake(t, q); item >= 0 {
					q.Done(item)
				}
			}
		},
		"waited for": func(t *testing.T, q *queue) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			items := make([]int, n)
			for i := range items {
				items[i] = i
			}
			_ = q.EnqueueAndWait(ctx, items...)
			run(t, q)
		},
		"twenty bursts of new items": func(t *testing.T, q *queue) {
			for burst := range 20 {
				for i := range 20_000 {
					q.EnqueueAfter(burst*20_000+i, time.Nanosecond)
				}
				run(t, q)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := reconcile.NewQueue[int]()
			before := heap()
			burst(t, q)
			if kept := heap() - before; kept > allowed {
				t.Errorf("%d bytes are kept after the burst, want at most %d", kept, allowed)
			}
			mustAgree(t, q)
			runtime.KeepAlive(q)
		})
	}
}

// heap is what is live after everything that can be collected was.
func heap() int64 {
	for range 3 { // pools and finalizers need more than one cycle
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
