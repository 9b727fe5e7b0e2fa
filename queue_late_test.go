// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Timers fire late on a busy machine. What is due counts as ready all the same:
// here the timer does not fire at all.
func TestLateTimerDoesNotShow(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		late func(t *testing.T, q *Queue[string])
		want []string // what can be taken then
	}{
		"Dequeue": {func(*testing.T, *Queue[string]) {}, []string{"due", "also due"}},
		"Len": {func(t *testing.T, q *Queue[string]) {
			if n := q.Len(); n != 2 {
				t.Errorf("Len() = %d, want 2", n)
			}
		}, []string{"due", "also due"}},
		"State": {func(t *testing.T, q *Queue[string]) {
			want := State{Phase: Ready, Since: time.Now().Add(-time.Second)}
			if s := q.State("also due"); s.Phase != want.Phase || !s.Since.Equal(want.Since) {
				t.Errorf("State() = %+v, want %+v", s, want)
			}
		}, []string{"due", "also due"}},
		"Stats": {func(t *testing.T, q *Queue[string]) {
			if s := q.Stats(); s.Ready != 2 || s.Waiting != 0 {
				t.Errorf("Stats() = %+v, want 2 ready and none waiting", s)
			}
		}, []string{"due", "also due"}},
		"All": {func(t *testing.T, q *Queue[string]) {
			for item, s := range q.All() {
				if want := item != "in flight"; (s.Phase == Ready) != want {
					t.Errorf("%s is %v", item, s.Phase)
				}
			}
		}, []string{"due", "also due"}},
		"Enqueue of another": {
			func(_ *testing.T, q *Queue[string]) { q.Enqueue("new") },
			[]string{"due", "also due", "new"},
		},
		"Enqueue of the second": {
			func(_ *testing.T, q *Queue[string]) { q.Enqueue("also due") },
			[]string{"due", "also due"},
		},
		"EnqueueNow of the second": {
			func(_ *testing.T, q *Queue[string]) { q.EnqueueNow("also due") },
			[]string{"due", "also due"},
		},
		"EnqueueAfter of the second": {
			func(_ *testing.T, q *Queue[string]) { q.EnqueueAfter("also due", time.Hour) },
			[]string{"due", "also due"},
		},
		"Done, with a next run": {
			func(_ *testing.T, q *Queue[string]) { q.Enqueue("in flight"); q.Done("in flight") },
			[]string{"due", "also due", "in flight"},
		},
		"Requeue": {
			func(_ *testing.T, q *Queue[string]) { q.Requeue("in flight", Wait{}) },
			[]string{"due", "also due", "in flight"},
		},
		"Close": {
			func(_ *testing.T, q *Queue[string]) { q.Close() },
			[]string{"due", "also due"},
		},
		"a consumer that gives back one item and takes the next": {
			func(t *testing.T, q *Queue[string]) {
				g := grant[string]{item: "in flight"}
				if err := q.exchange(ctx, &g, verdictRequeue, &Wait{}, q.now()); err != nil || g.item != "due" {
					t.Errorf("exchange() = %q, %v, want due", g.item, err)
				}
			},
			[]string{"also due", "in flight"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue[string]()
				q.Enqueue("in flight")
				if _, err := q.Dequeue(ctx); err != nil {
					t.Fatal(err)
				}
				q.EnqueueAfter("due", time.Second)
				q.EnqueueWithin("also due", time.Second+1)
				q.mu.Lock()
				q.timer.Stop()
				q.mu.Unlock()
				time.Sleep(2*time.Second + 1)
				c.late(t, q)
				var got []string
				for range c.want {
					item, err := q.Dequeue(ctx)
					if err != nil {
						t.Fatalf("took %q, then Dequeue() = %v, want all of %q", got, err, c.want)
					}
					got = append(got, item)
				}
				if !slices.Equal(got, c.want) {
					t.Errorf("took %q, want %q", got, c.want)
				}
				q.Done("in flight")
				q.Close()
			})
		})
	}
}

// An item that is put back, because its consumer was canceled before it could
// see it, is as if never taken: it has been ready since it was, and what was
// asked for meanwhile has no trace.
func TestItemPutBackIsAsIfNeverTaken(t *testing.T) {
	for name, meanwhile := range map[string]nextRun{
		"nothing":       runNone,
		"Enqueue":       runReady,
		"EnqueueNow":    runNow,
		"EnqueueWithin": runWithin,
		"EnqueueAfter":  runHeld,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue[string]()
				due := time.Now().Add(time.Second)
				q.EnqueueAfter("due", time.Second)
				q.mu.Lock()
				q.timer.Stop()
				q.mu.Unlock()
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					_, err := q.Dequeue(ctx)
					ended <- err
				}()
				time.Sleep(2 * time.Second)
				synctest.Wait() // until the consumer waits
				q.mu.Lock()
				cancel()
				q.promote(q.now()) // and hands it over, a second late
				handed := q.handed
				i := q.records.find(q.hash("due"), "due")
				q.meet(i, q.records.at(i), meanwhile, time.Hour)
				q.unlock()
				if handed != 1 {
					t.Errorf("handed = %d, want 1", handed)
				}
				if err := <-ended; err != context.Canceled {
					t.Errorf("Dequeue() = %v, want %v", err, context.Canceled)
				}
				if err := Check(q); err != nil {
					t.Error(err)
				}
				if s := q.State("due"); s.Phase != Ready || !s.Since.Equal(due) {
					t.Errorf("State() = %+v, want ready since %v", s, due)
				}
				if s := q.Stats(); s.Ready != 1 || s.Waiting != 0 || s.InFlight != 0 || s.Taken != 0 {
					t.Errorf("Stats() = %+v, want 1 ready and nothing else", s)
				}
			})
		})
	}
}

// The timer does not run for nothing: it stops with the last item that waits.
func TestTimerStopsWithTheLastDelay(t *testing.T) {
	for name, end := range map[string]func(*Queue[string]){
		"Remove":     func(q *Queue[string]) { q.Remove("a") },
		"EnqueueNow": func(q *Queue[string]) { q.EnqueueNow("a") },
		"Close":      func(q *Queue[string]) { q.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewQueue[string]()
				q.EnqueueAfter("a", time.Hour)
				end(q)
				if q.timer.Stop() {
					t.Error("the timer still runs")
				}
			})
		})
	}
}
