// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// mustEnd wants Dequeue to say that the queue is closed and empty.
func mustEnd(t *testing.T, q *reconcile.Queue[string]) {
	t.Helper()
	if d := mustReturn(t, startDequeue(t.Context(), q)); d.err != reconcile.ErrClosed {
		t.Errorf("Dequeue: %q, %v, want %v", d.item, d.err, reconcile.ErrClosed)
	}
}

func TestCloseLetsReadyItemsBeTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("a")
		q.EnqueueAfter("due", time.Hour)
		time.Sleep(time.Hour)
		q.Enqueue("b")
		q.EnqueueAfter("waiting", time.Hour)
		q.EnqueueWithin("waiting too", time.Hour)
		q.Close()
		if got := q.Len(); got != 3 {
			t.Errorf("Len after Close: %d, want 3", got)
		}
		for _, item := range []string{"waiting", "waiting too"} {
			wantState(t, q, item, reconcile.State{})
		}
		mustTakeAll(t, q, "a", "due", "b")
		time.Sleep(2 * time.Hour)
		mustEnd(t, q)
		mustEnd(t, q)
	})
}

func TestCloseLetsNothingIn(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("flying")
		mustTakeAll(t, q, "flying")
		q.Close()
		for _, item := range []string{"new", "flying"} {
			q.Offer(item)
			q.Enqueue(item)
			q.EnqueueAfter(item, time.Hour)
			q.EnqueueAfter(item, 0)
			q.EnqueueWithin(item, time.Hour)
			q.EnqueueWithin(item, 0)
			q.EnqueueNow(item)
		}
		want := reconcile.Stats{InFlight: 1, Enqueued: 1, Taken: 1}
		if got := q.Stats(); got != want {
			t.Errorf("Stats: %+v, want %+v", got, want)
		}
		q.Done("flying")
		mustEnd(t, q)
	})
}

func TestCloseDropsTheLaterNextRunOfAnItemInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("held")
		q.Enqueue("within")
		q.Enqueue("ready")
		q.Enqueue("due")
		mustTakeAll(t, q, "held", "within", "ready", "due")
		q.EnqueueAfter("due", time.Minute)
		time.Sleep(time.Minute)
		q.EnqueueAfter("held", time.Hour)
		q.EnqueueWithin("within", time.Hour)
		q.Enqueue("ready")
		q.Close()
		for item, again := range map[string]bool{"held": false, "within": false, "ready": true, "due": true} {
			if s := q.State(item); s.Phase != reconcile.InFlight || s.Again != again {
				t.Errorf("State(%q) after Close: %+v, want in flight, Again %t", item, s, again)
			}
			q.Done(item)
			if got := q.Has(item); got != again {
				t.Errorf("Has(%q) after Done: %t, want %t", item, got, again)
			}
		}
		if got := q.Len(); got != 2 {
			t.Errorf("Len: %d, want the two that were ready next", got)
		}
	})
}

// An item in flight whose run was requeued for later leaves nothing behind.
func TestRequeueAfterCloseDropsWhatIsLater(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		no := errors.New("no")
		for _, item := range []string{"held", "within", "at once"} {
			q.Enqueue(item)
		}
		mustTakeAll(t, q, "held", "within", "at once")
		q.Close()
		q.Requeue("held", reconcile.Wait{Delay: time.Hour, Hold: true, Err: no})
		q.Requeue("within", reconcile.Wait{Delay: time.Hour, Err: no})
		wantState(t, q, "held", reconcile.State{})
		wantState(t, q, "within", reconcile.State{})
		q.Requeue("at once", reconcile.Wait{Err: no})
		if s := q.State("at once"); s.Phase != reconcile.Ready || s.Failures != 1 || s.Err != no {
			t.Errorf("State: %+v, want it ready with one failure", s)
		}
		mustTakeAll(t, q, "at once")
		q.Done("at once")
		mustEnd(t, q)
	})
}

func TestCloseTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		waiting := startDequeue(t.Context(), q)
		q.Close()
		q.Close()
		if d := mustReturn(t, waiting); d.err != reconcile.ErrClosed {
			t.Errorf("Dequeue: %v, want %v", d.err, reconcile.ErrClosed)
		}
		q.Close()
		mustEnd(t, q)
	})
}

func TestRemoveAfterClose(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("flying")
		mustTakeAll(t, q, "flying")
		q.Enqueue("flying")
		q.Enqueue("ready")
		q.Close()
		if !q.Remove("ready") || !q.Remove("flying") || q.Remove("flying") {
			t.Error("Remove after Close: want true, true, false")
		}
		q.Done("flying")
		mustEnd(t, q)
	})
}

// A drain is: close, then take until ErrClosed. It must not end while an item
// in flight has still a run to come, and it must end as soon as none has.
func TestDrainWaitsForTheNextRunOfAnItemInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("x")
		mustTakeAll(t, q, "x")
		q.Enqueue("x")
		q.Close()
		drainer := startDequeue(t.Context(), q)
		mustWait(t, drainer)
		q.Done("x")
		if d := mustReturn(t, drainer); d.item != "x" || d.err != nil {
			t.Errorf("Dequeue: %q, %v, want x", d.item, d.err)
		}
		mustEnd(t, q) // x is in flight, with no next run
		q.Requeue("x", reconcile.Wait{})
		mustTakeAll(t, q, "x")
	})
}

func TestTwoDrainersBothEnd(t *testing.T) {
	for name, last := range map[string]struct {
		event func(q *reconcile.Queue[string])
		taken int
	}{
		"Close itself":     {func(q *reconcile.Queue[string]) { q.Remove("x"); q.Close() }, 0},
		"Done":             {func(q *reconcile.Queue[string]) { q.Close(); q.Done("x") }, 1},
		"Requeue":          {func(q *reconcile.Queue[string]) { q.Close(); q.Requeue("x", reconcile.Wait{}) }, 1},
		"Requeue later":    {func(q *reconcile.Queue[string]) { q.Close(); q.Requeue("x", reconcile.Wait{Delay: time.Hour}) }, 1},
		"Requeue, held":    {func(q *reconcile.Queue[string]) { q.Close(); q.RequeueAfter("x", time.Hour) }, 0},
		"Remove":           {func(q *reconcile.Queue[string]) { q.Close(); q.Remove("x") }, 0},
		"Close drops more": {func(q *reconcile.Queue[string]) { q.Remove("x"); q.EnqueueAfter("x", time.Hour); q.Close() }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				q.Enqueue("x")
				mustTakeAll(t, q, "x")
				q.Enqueue("x")
				first, second := startDequeue(t.Context(), q), startDequeue(t.Context(), q)
				mustWait(t, first)
				mustWait(t, second)
				last.event(q)
				taken := 0
				for _, c := range []<-chan dequeued[string]{first, second} {
					switch d := mustReturn(t, c); {
					case d.err == nil && d.item == "x":
						taken++
					case d.err != reconcile.ErrClosed:
						t.Errorf("Dequeue: %q, %v, want x or %v", d.item, d.err, reconcile.ErrClosed)
					}
				}
				if taken != last.taken {
					t.Errorf("%d drainers took x, want %d", taken, last.taken)
				}
			})
		})
	}
}

// One goroutine drains as another one works; nothing is left when both ended.
func TestDrainReturnsWithNothingLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		for i := range 100 {
			q.Enqueue(string(rune('A' + i)))
		}
		taken := make(chan string, 203)
		for range 3 {
			go func() {
				for {
					item, err := q.Dequeue(context.Background())
					if err != nil {
						taken <- ""
						return
					}
					taken <- item
					if q.State(item).Failures == 0 { // each item fails once
						q.Requeue(item, reconcile.Wait{Err: errors.New("no")})
					} else {
						q.Done(item)
					}
				}
			}()
		}
		q.Close()
		synctest.Wait()
		close(taken)
		n, ended := 0, 0
		for item := range taken {
			if item == "" {
				ended++
			} else {
				n++
			}
		}
		if n != 200 || ended != 3 {
			t.Errorf("%d runs and %d workers ended, want 200 and 3", n, ended)
		}
		if got := q.Stats(); got.Ready+got.Waiting+got.InFlight != 0 {
			t.Errorf("Stats after the drain: %+v", got)
		}
	})
}

// A delay that was dropped makes nothing ready and keeps no goroutine: the
// bubble would not end.
func TestDelaysEndWithClose(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("flying")
		mustTakeAll(t, q, "flying")
		q.EnqueueAfter("flying", 2*time.Hour)
		q.EnqueueAfter("x", time.Hour)
		q.EnqueueWithin("y", time.Hour)
		q.Close()
		if got, want := q.Stats(), (reconcile.Stats{InFlight: 1, Enqueued: 4, Taken: 1}); got != want {
			t.Errorf("Stats after Close: %+v, want %+v", got, want)
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		q.Done("flying")
		mustEnd(t, q)
	})
}
