// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestDebounceVerbs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTray[string]()
		e := reconcile.Debounce[string](q, 10*time.Second)
		tellAll(e, "a")
		e.EnqueueAfter("b", time.Second)
		q.mustBe(t, "0s enqueue a after 10s", "0s enqueue a after 1m0s", "0s offer a", "0s enqueue b after 10s")
	})
}

// Events come each second for a minute, then no more. Each run takes as long as the
// name of the test says.
func TestDebounceMakesOneRunOfABurst(t *testing.T) {
	for takes, want := range map[time.Duration][]string{
		0:                {"9.5s run", "19.5s run", "29.5s run", "39.5s run", "49.5s run", "59.5s run"},
		4 * time.Second:  {"9.5s run", "19.5s run", "29.5s run", "39.5s run", "49.5s run", "59.5s run"},
		15 * time.Second: {"9.5s run", "24.5s run", "39.5s run", "54.5s run", "1m9.5s run"},
	} {
		t.Run(fmt.Sprint(takes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := reconcile.NewQueue[string]()
				e := reconcile.Debounce(q, 9500*time.Millisecond)
				d := newJournal()
				run := launch(t, &reconcile.Reconciler[string]{
					Queue: q,
					Reconcile: func(context.Context, string) error {
						d.note("run")
						time.Sleep(takes)
						return nil
					},
					Logger: unlogged(),
				})
				for range 60 {
					e.Enqueue("a")
					time.Sleep(time.Second)
					synctest.Wait()
				}
				time.Sleep(time.Hour)
				run.end()
				d.mustBe(t, want...)
			})
		})
	}
}

// A burst in one instant is one item that waits, and that is held.
func TestDebounceHoldsABurst(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		start, d := time.Now(), 50*time.Millisecond
		events := reconcile.Debounce(q, d)
		for range 100 {
			events.Enqueue("photos")
		}
		if q.Len() != 0 {
			t.Errorf("%d items are ready after the burst, want 0", q.Len())
		}
		wantState(t, q, "photos", reconcile.State{Phase: reconcile.Waiting, Since: start, Due: start.Add(d), Hold: true})
		if bucket, err := q.Dequeue(t.Context()); bucket != "photos" || err != nil || time.Since(start) != d {
			t.Errorf("Dequeue = %q, %v after %v, want photos after %v", bucket, err, time.Since(start), d)
		}
		if got, want := q.Stats(), (reconcile.Stats{InFlight: 1, Enqueued: 1, Coalesced: 99, Taken: 1}); got != want {
			t.Errorf("Stats = %+v, want %+v", got, want)
		}
	})
}

// What Debounce holds is planned: who waits for the end of the work does not wait for it.
func TestWaitDoesNotWaitForDebounce(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		start := time.Now()
		reconcile.Debounce(q, time.Minute).Enqueue("a")
		for name, err := range map[string]error{"WaitIdle": q.WaitIdle(t.Context()), "WaitItem": q.WaitItem(t.Context(), "a")} {
			if err != nil || time.Since(start) != 0 {
				t.Errorf("%s = %v after %v, want nil at once", name, err, time.Since(start))
			}
		}
		wantPhase(t, q, "a", reconcile.Waiting)
	})
}

// An item that was offered stays where it is, and one that Debounce held is an event.
func TestDebounceAndTheBackground(t *testing.T) {
	inBackground(t, 8, func(t *testing.T, q *reconcile.Queue[string]) {
		e := reconcile.Debounce(q, time.Minute)
		for _, o := range []string{"o1", "o2", "o3"} {
			e.Offer(o)
		}
		e.Enqueue("o2")
		e.Enqueue("e")
		time.Sleep(time.Minute)
		mustTakeAll(t, q, "e", "o1", "o2", "o3")
	})
}

// A retry that is further off is brought forward, but not if it is held.
func TestDebounceOfARetry(t *testing.T) {
	for hold, want := range map[bool]time.Duration{false: 10 * time.Second, true: time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			q := reconcile.NewQueue[string]()
			q.Enqueue("a")
			item, _ := q.Dequeue(t.Context())
			q.Requeue(item, reconcile.Wait{Delay: time.Hour, Hold: hold, Err: errBoom})
			reconcile.Debounce(q, 10*time.Second).Enqueue("a")
			if got := time.Until(q.State("a").Due); got != want {
				t.Errorf("a retry with Hold %t comes in %v after an event, want %v", hold, got, want)
			}
		})
	}
}

func TestDebounceByNothingIsNone(t *testing.T) {
	for _, d := range []time.Duration{0, -time.Second} {
		q := reconcile.NewQueue[string]()
		reconcile.Debounce(q, d).Enqueue("a")
		if q.Len() != 1 {
			t.Errorf("Debounce by %v: %d items ready after Enqueue, want 1", d, q.Len())
		}
	}
}

func TestDebounceOfNilPanicsAtOnce(t *testing.T) {
	defer func() {
		if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "reconcile: the queue of Debounce") {
			t.Errorf("Debounce(nil) panics with %q", text)
		}
	}()
	reconcile.Debounce[string](nil, time.Second)
}

// Of a burst of events, one run is made, a moment after the first of them.
func ExampleDebounce() {
	queue := reconcile.NewQueue[string]()
	events := reconcile.Debounce(queue, 50*time.Millisecond)
	for range 100 {
		events.Enqueue("photos")
	}
	bucket, _ := queue.Dequeue(context.Background()) // 50ms after the first of them
	stats := queue.Stats()
	fmt.Println(bucket, stats.Enqueued, stats.Coalesced)
	// Output:
	// photos 1 99
}
