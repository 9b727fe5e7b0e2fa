// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// lockAll takes all locks of a loop, and returns what gives them up again.
func (l *Loop[T]) lockAll() (unlock func()) {
	l.view.mu.Lock()
	for i := range l.rec.shards {
		l.rec.shards[i].mu.Lock()
	}
	return func() {
		for i := range l.rec.shards {
			l.rec.shards[i].mu.Unlock()
		}
		l.view.mu.Unlock()
	}
}

// TestOnResultNeverBlocks records results while all locks are held, more results than
// there is room for. In a bubble a worker that waits would be a deadlock.
func TestOnResultNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Loop[int]{Name: "q", Queue: reconcile.NewQueue[int]()}
		record := l.OnResult(nil)
		const n = 10 * shardCount * pending
		unlock := l.lockAll()
		for i := range n {
			record(reconcile.Result[int]{Item: i % 100, Outcome: reconcile.OutcomeSucceeded})
		}
		unlock()

		m := l.snapshot(time.Second).measures
		if m.totals[0] != n || m.dropped != n-shardCount*pending {
			t.Errorf("%d results are counted, %d of them dropped; want %d and %d",
				m.totals[0], m.dropped, n, n-shardCount*pending)
		}
		if got := len(l.view.last.rows); got != 100 {
			t.Errorf("%d items are remembered, want 100", got)
		}
	})
}

// TestOnResultCallsNext checks that next is called, after the page has recorded the run.
func TestOnResultCallsNext(t *testing.T) {
	l := &Loop[string]{Name: "q"}
	var got []string
	record := l.OnResult(func(r reconcile.Result[string]) {
		got = append(got, fmt.Sprint(r.Item, " ", l.snapshot(time.Second).counts.Items))
	})
	record(reconcile.Result[string]{Item: "a", Outcome: reconcile.OutcomeSucceeded})
	if len(got) != 1 || got[0] != "a 1" {
		t.Errorf("next was called with %q, want once, with a, of which the page knows", got)
	}
}

// TestOnResultAllocates checks that a run that succeeds, is requeued, or fails as before
// allocates nothing, also if the page forgets another item for it.
func TestOnResultAllocates(t *testing.T) {
	l := &Loop[string]{Name: "q", Queue: reconcile.NewQueue[string]()}
	record := l.OnResult(nil)
	err := errors.New("quota exceeded")
	for name, r := range map[string]reconcile.Result[string]{
		"succeeded": {Item: "a", Outcome: reconcile.OutcomeSucceeded, Duration: time.Millisecond},
		"planned":   {Item: "b", Outcome: reconcile.OutcomeRequeued, Err: reconcile.RequeueAfter(time.Hour), Next: time.Hour},
		"failed":    {Item: "c", Outcome: reconcile.OutcomeRetrying, Err: err, Failures: 3, Next: time.Second},
	} {
		for range 2 * perItem { // until its history is full
			record(r)
		}
		if n := testing.AllocsPerRun(1000, func() { record(r) }); n != 0 {
			t.Errorf("%s: %v allocations a run, want 0", name, n)
		}
	}
	record = (&Loop[string]{Name: "q", Runs: 80}).OnResult(nil)
	items, i := benchItems(1000), 0
	another := func() {
		record(reconcile.Result[string]{Item: items[i%len(items)], Outcome: reconcile.OutcomeSucceeded})
		i++
	}
	for range items {
		another()
	}
	if n := testing.AllocsPerRun(1000, another); n != 0 {
		t.Errorf("%v allocations a run of an item that is not remembered any more, want 0", n)
	}
}

func TestRunsBound(t *testing.T) {
	for runs, want := range map[int]int{0: 20_000, -1: 80, 1: 80, 80: 80, 1000: 1000} {
		l := &Loop[int]{Name: "q", Runs: runs}
		record := l.OnResult(nil)
		for i := range 3 * want {
			record(reconcile.Result[int]{Item: i, Outcome: reconcile.OutcomeSucceeded})
		}
		if got := l.snapshot(time.Second).counts.Items; got != want {
			t.Errorf("Runs %d: %d runs are remembered, want %d", runs, got, want)
		}
	}
}

// TestSnapshotExpires checks that a snapshot that took longer is used for longer.
func TestSnapshotExpires(t *testing.T) {
	begin := time.Now()
	for _, test := range []struct{ cost, interval, want time.Duration }{
		{0, time.Second, time.Second},
		{50 * time.Millisecond, time.Second, time.Second},
		{51 * time.Millisecond, time.Second, 1020 * time.Millisecond},
		{time.Second, time.Second, 20 * time.Second},
		{time.Second, time.Minute, time.Minute},
	} {
		s := &snapshot{taken: begin, cost: test.cost}
		if got := s.expires(test.interval).Sub(begin); got != test.want {
			t.Errorf("one that took %v is kept for %v of %v, want %v", test.cost, got, test.interval, test.want)
		}
	}
}

// TestSnapshotIsFreed checks that the snapshot is freed when the page has no reader.
func TestSnapshotIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		l := &Loop[string]{Name: "q", Queue: q}
		New(l)
		l.snapshot(time.Second)
		time.Sleep(10 * time.Second)
		l.snapshot(time.Second)
		time.Sleep(releaseAfter + time.Second)
		synctest.Wait()
		if l.view.last != nil {
			t.Error("the snapshot is still there")
		}
		if n := l.snapshot(time.Second).counts.Items; n != 1 {
			t.Errorf("the next one has %d items, want 1", n)
		}
	})
}

// TestDepthIsSampled checks that the depth of a queue is recorded while the page has no
// reader.
func TestDepthIsSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[int]()
		l := &Loop[int]{Name: "q", Queue: q}
		record := l.OnResult(nil)
		for i := range 100 { // one more item and one run in 3 s
			q.Enqueue(i)
			record(reconcile.Result[int]{Item: i, Outcome: reconcile.OutcomeSucceeded})
			time.Sleep(3 * time.Second)
		}
		q.Enqueue(1000) // nothing runs any more, but somebody looks
		q.Enqueue(1001)
		time.Sleep(10 * time.Second)
		buckets := l.snapshot(time.Second).buckets
		if b := buckets[bucketCount-1]; b.ready != 102 {
			t.Errorf("%d are ready, want 102", b.ready)
		}
		for i, b := range buckets[bucketCount-32 : bucketCount-2] {
			if want := (i*10 + 9) / 3; !b.sampled || b.ready != want+1 {
				t.Errorf("bucket %d has %d ready, want %d", i, b.ready, want+1)
			}
		}
	})
}
