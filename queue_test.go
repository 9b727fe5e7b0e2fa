// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestQueueStateOfUnknownItem(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		wantState(t, q, "x", reconcile.State{})
		if q.Has("x") {
			t.Error("Has of an unknown item: true")
		}
		if got := q.Stats(); got != (reconcile.Stats{}) {
			t.Errorf("Stats of an empty queue: %+v", got)
		}
	})
}

func TestPhaseString(t *testing.T) {
	for p, want := range map[reconcile.Phase]string{
		reconcile.Idle: "idle", reconcile.Ready: "ready", reconcile.Waiting: "waiting", reconcile.InFlight: "in flight",
	} {
		if got := p.String(); got != want {
			t.Errorf("%d.String(): %q, want %q", p, got, want)
		}
	}
	if got := fmt.Sprint(reconcile.Phase(200)); got == "" {
		t.Error("String of an unknown phase is empty")
	}
}

func TestQueueErrors(t *testing.T) {
	for err, want := range map[error]string{
		reconcile.ErrClosed:    "reconcile: queue closed",
		reconcile.ErrLeaseLost: "reconcile: lease lost",
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
}

func TestQueueIsEnqueuerAndDequeuer(t *testing.T) {
	var q any = reconcile.NewQueue[string]()
	if _, ok := q.(reconcile.Enqueuer[string]); !ok {
		t.Error("a Queue is no Enqueuer")
	}
	if _, ok := q.(reconcile.Dequeuer[string]); !ok {
		t.Error("a Queue is no Dequeuer")
	}
}

type (
	pointerItem *int
	channelItem chan int
	structItem  struct{ Namespace, Name string }
)

// panics returns what f panics with, as text.
func panics(f func()) (msg string) {
	defer func() {
		if v := recover(); v != nil {
			msg = fmt.Sprint(v)
		}
	}()
	f()
	return ""
}

func TestNewQueueRefusesItemsThatAreNotIdentities(t *testing.T) {
	for name, f := range map[string]func(){
		"*int":                       func() { reconcile.NewQueue[*int]() },
		"chan int":                   func() { reconcile.NewQueue[chan int]() },
		"<-chan string":              func() { reconcile.NewQueue[<-chan string]() },
		"reconcile_test.pointerItem": func() { reconcile.NewQueue[pointerItem]() },
		"reconcile_test.channelItem": func() { reconcile.NewQueue[channelItem]() },
	} {
		msg := panics(f)
		if !strings.HasPrefix(msg, "reconcile: ") || !strings.Contains(msg, name) || !strings.Contains(msg, "use ") {
			t.Errorf("NewQueue[%s]: panic %q, want one that starts with reconcile:, names the type and says what to use", name, msg)
		}
	}
	for name, f := range map[string]func(){
		"int":    func() { reconcile.NewQueue[int]() },
		"array":  func() { reconcile.NewQueue[[2]string]() },
		"struct": func() { reconcile.NewQueue[structItem]() },
		"any":    func() { reconcile.NewQueue[any]() },
		"error":  func() { reconcile.NewQueue[error]() },
		"float":  func() { reconcile.NewQueue[float64]() },
	} {
		if msg := panics(f); msg != "" {
			t.Errorf("NewQueue of %s: panic %q", name, msg)
		}
	}
}

// An item that is not equal to itself can never be found again.
func TestQueueRefusesNaN(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[float64]()
		nan := math.NaN()
		for name, f := range map[string]func(){
			"Enqueue":       func() { q.Enqueue(nan) },
			"EnqueueAfter":  func() { q.EnqueueAfter(nan, time.Hour) },
			"EnqueueWithin": func() { q.EnqueueWithin(nan, time.Hour) },
			"EnqueueNow":    func() { q.EnqueueNow(nan) },
			"Offer":         func() { q.Offer(nan) },
		} {
			if msg := panics(f); !strings.HasPrefix(msg, "reconcile: ") {
				t.Errorf("%s(NaN): panic %q, want one that starts with reconcile:", name, msg)
			}
			if got := q.Stats(); got != (reconcile.Stats{}) {
				t.Errorf("Stats after %s(NaN): %+v, want none", name, got)
			}
		}
		q.Enqueue(1)
		mustTakeAll(t, q, 1)
		mustAgree(t, q)
	})
}

// The lock must not stay held, nor may half an entry stay behind.
func TestQueueSurvivesUncomparableItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[any]()
		bad := []int{1}
		q.Enqueue("before")
		for name, f := range map[string]func(){
			"Enqueue":       func() { q.Enqueue(bad) },
			"EnqueueAfter":  func() { q.EnqueueAfter(bad, time.Hour) },
			"EnqueueWithin": func() { q.EnqueueWithin(bad, time.Hour) },
			"EnqueueNow":    func() { q.EnqueueNow(bad) },
			"Offer":         func() { q.Offer(bad) },
			"Remove":        func() { q.Remove(bad) },
			"Done":          func() { q.Done(bad) },
			"Requeue":       func() { q.Requeue(bad, reconcile.Wait{}) },
			"Has":           func() { q.Has(bad) },
			"State":         func() { q.State(bad) },
		} {
			if panics(f) == "" {
				t.Errorf("%s of a slice in an interface: no panic", name)
			}
			if got := q.Len(); got != 1 { // hangs if the lock is still held
				t.Errorf("Len after %s: %d, want 1", name, got)
			}
		}
		q.Enqueue("after")
		mustTakeAll[any](t, q, "before", "after")
		mustAgree(t, q)
	})
}

func TestQueueItemTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		structs := reconcile.NewQueue[structItem]()
		structs.Enqueue(structItem{"ns", "a"})
		structs.Enqueue(structItem{"ns", "b"})
		structs.Enqueue(structItem{"ns", "a"})
		mustTakeAll(t, structs, structItem{"ns", "a"}, structItem{"ns", "b"})

		anys := reconcile.NewQueue[any]()
		anys.Enqueue(1)
		anys.Enqueue("1")
		anys.Enqueue(1)
		anys.Enqueue(nil)
		mustTakeAll[any](t, anys, 1, "1", nil)

		floats := reconcile.NewQueue[float64]()
		floats.Enqueue(0)
		floats.Enqueue(math.Copysign(0, -1)) // equal to 0
		mustTakeAll(t, floats, 0)

		empties := reconcile.NewQueue[struct{}]()
		empties.Enqueue(struct{}{})
		empties.Enqueue(struct{}{})
		mustTakeAll(t, empties, struct{}{})
	})
}

func TestDequeueWithEndedContextTakesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		cause := errors.New("the operator pulled the plug")
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		for _, prepare := range []func(){
			func() {},
			func() { q.Enqueue("x") },
			q.Close,
		} {
			prepare()
			before := q.Stats()
			if item, err := q.Dequeue(ended); err != cause {
				t.Errorf("Dequeue: %q, %v, want the cause of the context", item, err)
			}
			if got := q.Stats(); got != before {
				t.Errorf("Stats after a Dequeue that took nothing: %+v, want %+v", got, before)
			}
		}
		mustTakeAll(t, q, "x")
	})
}

func TestDequeueReturnsWhenContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		start := time.Now()
		cause := errors.New("cause")
		ctx, cancel := context.WithCancelCause(t.Context())
		waiting := startDequeue(ctx, q)
		time.Sleep(time.Hour)
		mustWait(t, waiting)
		cancel(cause)
		if d := mustReturn(t, waiting); d.err != cause || d.at != start.Add(time.Hour) {
			t.Errorf("Dequeue: %v after %v, want %v after 1h", d.err, d.at.Sub(start), cause)
		}

		timed, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := q.Dequeue(timed); err != context.DeadlineExceeded {
			t.Errorf("Dequeue: %v, want %v", err, context.DeadlineExceeded)
		}
		if got := time.Since(start); got != time.Hour+time.Minute {
			t.Errorf("Dequeue returned after %v, want 1h1m", got)
		}
	})
}

func TestDequeueWaitsForWhateverMakesReady(t *testing.T) {
	for name, test := range map[string]struct {
		make func(q *reconcile.Queue[string])
		at   time.Duration
	}{
		"Offer":            {func(q *reconcile.Queue[string]) { q.Offer("x") }, 0},
		"Enqueue":          {func(q *reconcile.Queue[string]) { q.Enqueue("x") }, 0},
		"EnqueueNow":       {func(q *reconcile.Queue[string]) { q.EnqueueNow("x") }, 0},
		"EnqueueAfter 0":   {func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", 0) }, 0},
		"EnqueueAfter 3s":  {func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", 3*time.Second) }, 3 * time.Second},
		"EnqueueWithin 3s": {func(q *reconcile.Queue[string]) { q.EnqueueWithin("x", 3*time.Second) }, 3 * time.Second},
		"Done":             {func(q *reconcile.Queue[string]) { q.Enqueue("taken"); q.Done("taken") }, 0},
		"Requeue 0":        {func(q *reconcile.Queue[string]) { q.Requeue("taken", reconcile.Wait{}) }, 0},
		"Requeue 3s":       {func(q *reconcile.Queue[string]) { q.Requeue("taken", reconcile.Wait{Delay: 3 * time.Second}) }, 3 * time.Second},
		"RequeueAfter 3s":  {func(q *reconcile.Queue[string]) { q.RequeueAfter("taken", 3*time.Second) }, 3 * time.Second},
		"brought forward": {func(q *reconcile.Queue[string]) {
			q.EnqueueAfter("x", time.Hour)
			q.EnqueueNow("x")
		}, 0},
		"an earlier head": {func(q *reconcile.Queue[string]) {
			q.EnqueueAfter("x", time.Hour)
			q.EnqueueAfter("y", 2*time.Second)
		}, 2 * time.Second},
		"after the head was removed": {func(q *reconcile.Queue[string]) {
			q.EnqueueAfter("x", time.Second)
			q.EnqueueAfter("y", 2*time.Second)
			q.Remove("x")
		}, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				start := time.Now()
				q.Enqueue("taken")
				mustTakeAll(t, q, "taken")
				waiting := startDequeue(t.Context(), q)
				mustWait(t, waiting)
				test.make(q)
				if test.at > 0 {
					time.Sleep(test.at - 1)
					mustWait(t, waiting)
					time.Sleep(time.Nanosecond)
				}
				if d := mustReturn(t, waiting); d.err != nil || d.at != start.Add(test.at) {
					t.Errorf("Dequeue: %q, %v after %v, want an item after %v", d.item, d.err, d.at.Sub(start), test.at)
				}
			})
		})
	}
}

// goroutinesOfQueues counts those of this bubble that run, or were started by, a
// queue: a timer of a test before may fire now.
func goroutinesOfQueues() (n int) {
	buf := make([]byte, 1<<20)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	bubble := regexp.MustCompile(`synctest bubble \d+`).FindString(stacks[0]) // of the caller
	for _, stack := range stacks {
		head, calls, _ := strings.Cut(stack, "\n")
		if strings.Contains(head, bubble+"]") && strings.Contains(calls, "reconcile.(*Queue[") {
			n++
		}
	}
	return n
}

// Neither the idle queue nor its waiting entries have goroutines of their own.
func TestQueueHasNoGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[int]()
		want := func(n int, when string) {
			t.Helper()
			synctest.Wait()
			if got := goroutinesOfQueues(); got != n {
				t.Errorf("%d goroutines %s, want %d", got, when, n)
			}
		}
		want(0, "at first")
		for i := range 10_000 {
			q.EnqueueAfter(i, time.Duration(i)*time.Second)
		}
		want(0, "with 10000 delays")
		time.Sleep(5000 * time.Second)
		if got := q.Len(); got != 5001 {
			t.Errorf("Len after 5000 s: %d, want 5001", got)
		}
		want(0, "after half of the delays")
		q.Close()
		for q.Len() > 0 {
			q.Done(mustTake(t, q))
		}
		want(0, "after Close")
		waiting := startDequeue(t.Context(), reconcile.NewQueue[int]())
		mustWait(t, waiting)
		want(1, "as a consumer waits, which is its own") // so the count counts
	})
}
