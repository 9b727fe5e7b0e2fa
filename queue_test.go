// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
	"weak"

	"github.com/reconkernel/reconcile"
)

// The state table and programs of random operations are in model_test.go. Here
// is what they do not reach: the guarantees one by one, order, goroutines, misuse,
// memory.

// Items become ready by all verbs, and are taken in that order.
func TestQueueIsFIFO(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("taken, done")
		q.Enqueue("taken, requeued")
		mustTakeAll(t, q, "taken, done", "taken, requeued")
		q.Enqueue("taken, done") // joins when it is given back
		q.Enqueue("a")
		q.Offer("b")
		q.Done("taken, done")
		q.EnqueueNow("c")
		q.Requeue("taken, requeued", reconcile.RequeueOptions{})
		q.EnqueueAfter("d", 0)
		q.EnqueueWithin("e", -1)
		q.Enqueue("a") // keeps its place
		q.EnqueueNow("b")
		q.Remove("c")
		q.Enqueue("c") // lost its place
		mustTakeAll(t, q, "a", "b", "taken, done", "taken, requeued", "d", "e", "c")
	})
}

// What is due joins at the tail at its time, in order of due time; ties are in
// the order in which they were scheduled.
func TestDueOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("taken, asked again")
		q.Enqueue("taken, given back")
		q.Enqueue("taken, same time")
		mustTakeAll(t, q, "taken, asked again", "taken, given back", "taken, same time")

		q.EnqueueAfter("3h", 3*time.Hour)
		q.EnqueueWithin("kind changed", 2*time.Hour)
		q.EnqueueAfter("taken, asked again", 2*time.Hour)
		q.EnqueueWithin("taken, same time", 2*time.Hour)
		q.EnqueueWithin("due changed", 3*time.Hour)
		q.EnqueueWithin("1h", time.Hour)
		q.EnqueueAfter("plain", 2*time.Hour)
		q.EnqueueAfter("kind changed", 2*time.Hour)      // keeps its place
		q.EnqueueWithin("due changed", 2*time.Hour)      // scheduled now
		q.RequeueAfter("taken, given back", 2*time.Hour) // scheduled now
		q.RequeueAfter("taken, same time", 2*time.Hour)  // keeps its place
		q.Enqueue("before")
		time.Sleep(time.Hour)
		q.Done("taken, asked again") // keeps its place
		q.EnqueueAfter("later", time.Hour)
		time.Sleep(2 * time.Hour)
		q.Enqueue("after")
		mustTakeAll(t, q, "before", "1h", "kind changed", "taken, asked again", "taken, same time", "plain",
			"due changed", "taken, given back", "later", "3h", "after")
	})
}

func TestEventWhileInFlightIsKept(t *testing.T) {
	for name, event := range map[string]func(q *reconcile.Queue[string]){
		"Enqueue":       func(q *reconcile.Queue[string]) { q.Enqueue("x") },
		"EnqueueNow":    func(q *reconcile.Queue[string]) { q.EnqueueNow("x") },
		"EnqueueAfter":  func(q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Hour) },
		"EnqueueWithin": func(q *reconcile.Queue[string]) { q.EnqueueWithin("x", time.Hour) },
	} {
		for verdict, giveBack := range map[string]func(q *reconcile.Queue[string]){
			"Done":    func(q *reconcile.Queue[string]) { q.Done("x") },
			"Requeue": func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.RequeueOptions{Delay: 2 * time.Hour}) },
			"settled": func(q *reconcile.Queue[string]) {
				q.Requeue("x", reconcile.RequeueOptions{Delay: 2 * time.Hour, Recheck: true})
			},
			"held": func(q *reconcile.Queue[string]) { q.RequeueAfter("x", time.Hour) },
			"failed": func(q *reconcile.Queue[string]) {
				q.Requeue("x", reconcile.RequeueOptions{Delay: time.Hour, Err: errBoom})
			},
			"aborted": func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.RequeueOptions{Aborted: true}) },
		} {
			runQueue(t, name+", "+verdict, func(t *testing.T, q *reconcile.Queue[string]) {
				q.Enqueue("x")
				mustTakeAll(t, q, "x")
				event(q)
				giveBack(q)
				time.Sleep(time.Hour)
				mustTakeAll(t, q, "x")
				q.Done("x")
				time.Sleep(24 * time.Hour)
				mustTakeAll(t, q) // and once only
			})
		}
	}
}

// "An event asks for now, a hold answers not yet, a ceiling answers by then."
// Each item runs once, just then.
func TestNextRunKeepsNotBeforeAndDue(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		start := time.Now()
		for _, item := range []string{"held", "broken", "ceiling", "cut short"} {
			q.Enqueue(item)
			mustTakeAll(t, q, item)
		}
		q.RequeueAfter("held", time.Hour)
		q.RequeueAfter("broken", time.Hour)
		q.Requeue("ceiling", reconcile.RequeueOptions{Delay: 30 * time.Minute})
		q.Requeue("cut short", reconcile.RequeueOptions{Delay: time.Hour})
		q.EnqueueAfter("new, held", time.Hour)
		q.EnqueueWithin("new, ceiling", 20*time.Minute)

		var got []string
		var consumer sync.WaitGroup
		consumer.Go(func() {
			for {
				item, err := q.Dequeue(t.Context())
				if err != nil {
					return
				}
				got = append(got, fmt.Sprint(item, " ", time.Since(start)))
				q.Done(item)
			}
		})
		time.Sleep(time.Minute)
		for range 3 {
			for _, item := range []string{"held", "new, held"} {
				q.Enqueue(item)
				q.EnqueueAfter(item, time.Minute)
				q.EnqueueWithin(item, time.Minute)
				q.Offer(item)
			}
			q.Offer("ceiling")
			q.EnqueueWithin("ceiling", 20*time.Hour)
		}
		q.Enqueue("cut short")
		synctest.Wait()
		q.EnqueueNow("broken")
		time.Sleep(24 * time.Hour)
		q.Close()
		consumer.Wait()
		want := []string{
			"cut short 1m0s", "broken 1m0s", "new, ceiling 20m0s", "ceiling 30m0s", "held 1h0m0s", "new, held 1h0m0s",
		}
		if !slices.Equal(got, want) {
			t.Errorf("runs:\n got %q\nwant %q", got, want)
		}
	})
}

// The queue of a package is made before the bubble of a test begins, whose clock
// is of another time.
func TestQueueCreatedOutsideABubbleWorksInside(t *testing.T) {
	q := reconcile.NewQueue[string]()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		waiting := startDequeue(t.Context(), q)
		mustWait(t, waiting)
		q.Enqueue("taken")
		mustReturn(t, waiting)
		q.EnqueueAfter("held", time.Hour)
		q.EnqueueWithin("within", math.MaxInt64)
		q.Enqueue("within")
		q.EnqueueWithin("taken", 2*time.Hour)
		q.Requeue("taken", reconcile.RequeueOptions{})
		q.EnqueueWithin("ceiling", time.Hour)
		wantState(t, q, "held", reconcile.State{Phase: reconcile.PhaseWaiting, Since: start, Due: start.Add(time.Hour), NotBefore: start.Add(time.Hour), Pending: start})
		mustTakeAll(t, q, "within", "taken")
		waiting = startDequeue(t.Context(), q)
		time.Sleep(time.Hour)
		if d := mustReturn(t, waiting); d.item != "held" || d.at != start.Add(time.Hour) {
			t.Errorf("Dequeue: %q, %v after %v, want the held item after 1h", d.item, d.err, d.at.Sub(start))
		}
		mustTakeAll(t, q, "ceiling")
		mustAgree(t, q)
	})
}

// Events go first, and one of each Background items taken is an observation. In
// each of the two, what became ready first is taken first.
func TestBackgroundGetsOneInN(t *testing.T) {
	for background, want := range map[int]string{
		-1: "e0 o1 o2 o3 o4 e1 e2 e3 e4 e5 e6 e7",
		0:  "e0 o1 o2 o3 o4 e1 e2 e3 e4 e5 e6 e7",
		1:  "o1 o2 o3 o4 e0 e1 e2 e3 e4 e5 e6 e7",
		2:  "e0 o1 e1 o2 e2 o3 e3 o4 e4 e5 e6 e7",
		3:  "e0 e1 o1 e2 e3 o2 e4 e5 o3 e6 e7 o4",
		9:  "e0 e1 e2 e3 e4 e5 e6 e7 o1 o2 o3 o4",
	} {
		t.Run(fmt.Sprint(background), func(t *testing.T) {
			inBackground(t, background, func(t *testing.T, q *reconcile.Queue[string]) {
				q.Enqueue("e0")
				for i := range 4 {
					q.Offer(fmt.Sprintf("o%d", i+1))
				}
				for i := range 7 {
					q.Enqueue(fmt.Sprintf("e%d", i+1))
				}
				var all []string
				for item := range q.All() {
					all = append(all, item)
				}
				if got := strings.Join(all, " "); got != want {
					t.Errorf("by All:\n got %s\nwant %s", got, want)
				}
				if n := q.Len(); n != 12 {
					t.Errorf("Len: %d, want 12", n)
				}
				q.Close() // which does not change it
				q.Enqueue("o4")
				mustTakeAll(t, q, strings.Fields(want)...)
			})
		})
	}
}

func TestBackgroundIsTakenWhenNoEventIsReady(t *testing.T) {
	inBackground(t, math.MaxInt, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Offer("a")
		mustTakeAll(t, q, "a")
	})
}

// Neither starves: an event never waits for more than one observation, and
// events without end let each observation through in its time.
func TestBackgroundStarvesNoItem(t *testing.T) {
	const offered, background = 1000, 8
	inBackground(t, background, func(t *testing.T, q *reconcile.Queue[string]) {
		for i := range offered {
			q.Offer(fmt.Sprintf("o%d", i))
		}
		next := 0
		for take := range offered * background {
			q.Enqueue("e")
			want := "e"
			if take%background == background-1 {
				want = fmt.Sprintf("o%d", next)
				next++
			}
			item := mustTake(t, q)
			if item != want {
				t.Fatalf("take %d: %s, want %s", take, item, want)
			}
			q.Done(item)
		}
		mustTakeAll(t, q, "e")
	})
}

// An intruder is a context that calls back whenever the queue asks it anything:
// in the windows between the queue's check and its wait, among others.
type intruder struct {
	context.Context
	during string // the method that calls back
	do     func()
}

func (c intruder) in(method string) {
	if c.during == method {
		c.do()
	}
}

func (c intruder) Done() <-chan struct{} {
	c.in("Done")
	return c.Context.Done()
}

func (c intruder) Err() error {
	c.in("Err")
	return c.Context.Err()
}

func (c intruder) Value(key any) any {
	c.in("Value")
	return c.Context.Value(key)
}

// A consumer hears of all that it waits for, also in the window before it
// sleeps.
func TestNoConsumerSleepsWhileAnItemIsQueued(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(q *reconcile.Queue[string], cancel func())
		want string
	}{
		"Enqueue":       {func(q *reconcile.Queue[string], _ func()) { q.Enqueue("x") }, "x <nil>"},
		"Offer":         {func(q *reconcile.Queue[string], _ func()) { q.Offer("x") }, "x <nil>"},
		"EnqueueNow":    {func(q *reconcile.Queue[string], _ func()) { q.EnqueueNow("held") }, "held <nil>"},
		"Done":          {func(q *reconcile.Queue[string], _ func()) { q.Done("again") }, "again <nil>"},
		"Requeue":       {func(q *reconcile.Queue[string], _ func()) { q.Requeue("taken", reconcile.RequeueOptions{}) }, "taken <nil>"},
		"Close":         {func(q *reconcile.Queue[string], _ func()) { q.Remove("again"); q.Close() }, " reconcile: queue closed"},
		"EnqueueAfter":  {func(q *reconcile.Queue[string], _ func()) { q.EnqueueAfter("x", 1) }, "x <nil>"},
		"EnqueueWithin": {func(q *reconcile.Queue[string], _ func()) { q.EnqueueWithin("x", 1) }, "x <nil>"},
		"cancel":        {func(_ *reconcile.Queue[string], cancel func()) { cancel() }, " context canceled"},
	} {
		for _, method := range []string{"Done", "Err", "Value"} {
			runQueue(t, name+" in "+method, func(t *testing.T, q *reconcile.Queue[string]) {
				q.Enqueue("again")
				q.Enqueue("taken")
				mustTakeAll(t, q, "again", "taken")
				q.Enqueue("again")
				q.EnqueueAfter("held", time.Hour)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var once sync.Once
				do := func() { once.Do(func() { test.do(q, cancel) }) }
				waiting := startDequeue[string](intruder{ctx, method, do}, q)
				do() // if the queue does not use this method there is no window
				time.Sleep(time.Nanosecond)
				d := mustReturn(t, waiting)
				if got := fmt.Sprint(d.item, " ", d.err); got != test.want {
					t.Errorf("Dequeue: %s, want %s", got, test.want)
				}
			})
		}
	}
}

// There is one token for all consumers that wait: whoever takes it passes it on
// as long as there is more to do. All are served in the same instant.
func TestConsumersWakeEachOther(t *testing.T) {
	for name, enqueue := range map[string]func(q *reconcile.Queue[string], item string){
		"delayed":  func(q *reconcile.Queue[string], item string) { q.EnqueueAfter(item, time.Hour) },
		"enqueued": func(q *reconcile.Queue[string], item string) { time.AfterFunc(time.Hour, func() { q.Enqueue(item) }) },
	} {
		for _, end := range []string{"canceled", "closed"} {
			runQueue(t, name+", "+end, func(t *testing.T, q *reconcile.Queue[string]) {
				start := time.Now()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				var waiting []<-chan reply[string]
				for range 6 {
					waiting = append(waiting, startDequeue(ctx, q))
				}
				for _, item := range []string{"a", "b", "c"} {
					enqueue(q, item)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				want := map[string]int{"a": 1, "b": 1, "c": 1}
				if end == "closed" {
					q.Close()
					want[reconcile.ErrClosed.Error()] = 3
				} else {
					cancel(errEnd)
					want[errEnd.Error()] = 3
				}
				got := map[string]int{}
				for _, w := range waiting {
					d := mustReturn(t, w)
					if d.at != start.Add(time.Hour) {
						t.Errorf("Dequeue: %q, %v after %v, want it after 1h", d.item, d.err, d.at.Sub(start))
					}
					if d.err != nil {
						d.item += d.err.Error()
					}
					got[d.item]++
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("six consumers got %v, want %v", got, want)
				}
			})
		}
	}
}

// A context that ends as an item comes: the consumer takes the item or leaves it
// as it was, whoever else waits or drains the queue. Nothing that was counted is
// ever uncounted, and each item is counted once.
func TestCancelledDequeueKeepsTheItem(t *testing.T) {
	for order, events := range map[string][]string{
		"canceled, then enqueued": {"cancel", "x", "x", "y"},
		"enqueued, then canceled": {"x", "x", "y", "cancel"},
	} {
		for _, other := range []string{"nobody", "one that waits", "one that comes"} {
			for _, closed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, with %s, closed %t", order, other, closed), func(t *testing.T) {
					left := 0
					for range 50 {
						inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
							var was reconcile.Stats
							count := func() {
								t.Helper()
								s := q.Stats()
								if s.Enqueued < was.Enqueued || s.Coalesced < was.Coalesced || s.Taken < was.Taken {
									t.Errorf("Stats: %+v, after %+v", s, was)
								}
								if s.Enqueued != s.Taken+uint64(s.Ready+s.Again) {
									t.Errorf("Stats: %+v, want each Enqueued taken, ready or ready next", s)
								}
								was = s
							}
							start := time.Now()
							ctx, cancel := context.WithCancel(t.Context())
							defer cancel()
							canceled := startDequeue(ctx, q)
							var second <-chan reply[string]
							if other == "one that waits" {
								second = startDequeue(t.Context(), q)
							}
							time.Sleep(time.Minute)
							for _, e := range events {
								if e == "cancel" {
									cancel()
								} else {
									q.Enqueue(e)
								}
								count()
							}
							if closed {
								q.Close()
							}
							if other == "one that comes" {
								second = startDequeue(t.Context(), q)
							}
							var taken []string
							switch d := mustReturn(t, canceled); {
							case d.err == nil:
								taken = append(taken, d.item)
								if events[0] == "cancel" {
									t.Errorf("Dequeue took %q with a context that ended before", d.item)
								}
							default:
								left++
								if d.item != "" || d.err != context.Canceled {
									t.Errorf("Dequeue: %q, %v, want %v", d.item, d.err, context.Canceled)
								}
								if second == nil {
									wantState(t, q, "x", reconcile.State{Phase: reconcile.PhaseReady, Since: start.Add(time.Minute), Pending: start.Add(time.Minute)})
								}
							}
							count()
							if second != nil {
								d := mustReturn(t, second)
								if d.err != nil {
									t.Errorf("Dequeue of the other: %v, want an item", d.err)
								}
								taken = append(taken, d.item)
							}
							for q.Len() > 0 {
								taken = append(taken, mustTake(t, q))
							}
							count()
							slices.Sort(taken)
							if s := q.Stats(); !slices.Equal(taken, []string{"x", "y"}) || s.InFlight != 2 {
								t.Errorf("taken: %q, Stats %+v, want x and y", taken, s)
							}
							q.Close()
							q.Done("y")
							for q.Done("x"); q.Has("x"); q.Done("x") { // it may have been enqueued when taken
								mustTakeAll(t, q, "x")
							}
							mustEnd(t, q)
						})
					}
					if left == 0 {
						t.Error("the context never ended before the consumer had its item")
					}
				})
			}
		}
	}
}

// A consumer that was woken, and whose context ends before it looks, wakes another.
func TestCancelledDequeueWakesAnotherConsumer(t *testing.T) {
	left := 0
	for range 200 {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			ctx, cancel := context.WithCancel(t.Context())
			canceled, patient := startDequeue(ctx, q), startDequeue(t.Context(), q)
			q.Enqueue("x")
			cancel()
			if d := mustReturn(t, canceled); d.err == nil {
				q.Enqueue("y")
			} else {
				left++
			}
			mustReturn(t, patient)
		})
	}
	if left == 0 {
		t.Error("the context never ended before the consumer had its item")
	}
}

// In that race an item that was offered, and then enqueued, does not overtake an
// earlier event, and what stays in the background stays where it was.
func TestCancelledDequeueKeepsTheBackgroundTurn(t *testing.T) {
	left := 0
	for range 200 {
		inBackground(t, 8, func(t *testing.T, q *reconcile.Queue[string]) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			waiting := startDequeue(ctx, q)
			for _, o := range []string{"o1", "o2", "o3"} {
				q.Offer(o)
			}
			q.Enqueue("e")
			q.Enqueue("o2")
			q.Enqueue("o1")
			cancel()
			if d := mustReturn(t, waiting); d.err == nil {
				return
			}
			left++
			mustTakeAll(t, q, "e", "o2", "o1", "o3")
		})
	}
	if left == 0 {
		t.Error("the context never ended before the consumer had its item")
	}
}

// A Dequeue returns the cause of its context when that ends, and takes nothing.
func TestDequeueReturnsWhenContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		start := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		waiting := startDequeue(ctx, q)
		time.Sleep(time.Hour)
		mustWait(t, waiting)
		cancel(errEnd)
		if d := mustReturn(t, waiting); d.err != errEnd || d.at != start.Add(time.Hour) {
			t.Errorf("Dequeue: %v after %v, want %v after 1h", d.err, d.at.Sub(start), errEnd)
		}
		if n := reconcile.Blocked(q); n != 0 {
			t.Errorf("%d consumers are blocked after the only one returned", n)
		}
		timed, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if _, err := q.Dequeue(timed); err != context.DeadlineExceeded || time.Since(start) != 61*time.Minute {
			t.Errorf("Dequeue: %v after %v, want %v after 61m", err, time.Since(start), context.DeadlineExceeded)
		}
		for _, prepare := range []func(){func() {}, func() { q.Enqueue("x") }, q.Close} { // ctx has ended
			prepare()
			want := q.Stats()
			if item, err := q.Dequeue(ctx); item != "" || err != errEnd {
				t.Errorf("Dequeue: %q, %v, want %v", item, err, errEnd)
			}
			wantStats(t, q, want)
		}
		mustTakeAll(t, q, "x")
	})
}

func TestContextThatPanicsInDoneTakesNothing(t *testing.T) {
	for name, leave := range map[string]func(){"panic": func() { panic("no") }, "Goexit": runtime.Goexit} {
		runQueue(t, name, func(t *testing.T, q *reconcile.Queue[string]) {
			q.Enqueue("a")
			go func() {
				defer func() { _ = recover() }()
				_, _ = q.Dequeue(intruder{t.Context(), "Done", leave})
			}()
			synctest.Wait()
			mustTakeAll(t, q, "a")
		})
	}
}

func TestZeroQueuePanicNamesNewQueue(t *testing.T) {
	var q reconcile.Queue[string]
	for name, call := range map[string]func(){
		"Enqueue":        func() { q.Enqueue("a") },
		"Offer":          func() { q.Offer("a") },
		"Remove":         func() { q.Remove("a") },
		"Done":           func() { q.Done("a") },
		"Requeue":        func() { q.Requeue("a", reconcile.RequeueOptions{}) },
		"Has":            func() { q.Has("a") },
		"State":          func() { q.State("a") },
		"Dequeue":        func() { _, _ = q.Dequeue(t.Context()) },
		"Close":          func() { q.Close() },
		"Len":            func() { q.Len() },
		"Stats":          func() { q.Stats() },
		"All":            func() { q.All()(func(string, reconcile.State) bool { return true }) },
		"EnqueueAndWait": func() { _ = q.EnqueueAndWait(t.Context()) },
		"WaitIdle":       func() { _ = q.WaitIdle(t.Context()) },
	} { // one after the other: none leaves the queue locked
		if got := panics(call); !strings.HasPrefix(got, "reconcile: ") || !strings.Contains(got, "NewQueue") {
			t.Errorf("%s of a zero Queue panics with %q, want one that names NewQueue", name, got)
		}
	}
}

type pointerItem *int

func TestNewQueuePanicsForTypesWithoutIdentity(t *testing.T) {
	for name, f := range map[string]func(){
		"*int":                       func() { reconcile.NewQueue[*int]() },
		"unsafe.Pointer":             func() { reconcile.NewQueue[unsafe.Pointer]() },
		"<-chan string":              func() { reconcile.NewQueue[<-chan string]() },
		"reconcile_test.pointerItem": func() { reconcile.NewQueue[pointerItem]() },
	} {
		msg := panics(f)
		if !strings.HasPrefix(msg, "reconcile: ") || !strings.Contains(msg, name) || !strings.Contains(msg, "use ") {
			t.Errorf("NewQueue[%s]: panic %q, want one that starts with reconcile:, names the type and says what to use", name, msg)
		}
	}
}

// An item that could never be found again, because it is not equal to itself or
// has no hash, is refused by a panic. The lock does not stay held, and nothing is
// left behind.
func TestQueueRefusesNaN(t *testing.T) {
	type point struct {
		name string
		at   struct{ x, y [1]any }
	}
	nan, nan32 := math.NaN(), float32(math.NaN())
	refuses(t, 1.5, nan)
	refuses(t, float32(1.5), nan32)
	refuses(t, 1i, complex(nan, 0))
	refuses(t, complex64(1i), complex(0, nan32))
	refuses(t, [2]float64{1, 2}, [2]float64{1, nan})
	refuses(t, struct{ x, y float64 }{1, 2}, struct{ x, y float64 }{1, nan})
	refuses(t, point{name: "a"}, point{at: struct{ x, y [1]any }{y: [1]any{nan}}})
	refuses[any](t, "a", nan)
	refuses[any](t, "a", []int{1})
	refuses[any](t, struct{ in any }{1}, struct{ in any }{func() {}})
}

func refuses[T comparable](t *testing.T, good, bad T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	q := reconcile.NewQueue[T]()
	q.Enqueue(good)
	mustTakeAll(t, q, good)
	for name, f := range map[string]func(){
		"Enqueue":        func() { q.Enqueue(bad) },
		"EnqueueAfter":   func() { q.EnqueueAfter(bad, time.Hour) },
		"EnqueueWithin":  func() { q.EnqueueWithin(bad, time.Hour) },
		"EnqueueNow":     func() { q.EnqueueNow(bad) },
		"Offer":          func() { q.Offer(bad) },
		"Remove":         func() { q.Remove(bad) },
		"Done":           func() { q.Done(bad) },
		"Requeue":        func() { q.Requeue(bad, reconcile.RequeueOptions{}) },
		"Has":            func() { q.Has(bad) },
		"State":          func() { q.State(bad) },
		"EnqueueAndWait": func() { _ = q.EnqueueAndWait(ended, good, bad) },
	} {
		if msg := panics(f); msg == "" {
			t.Errorf("%s(%v) of a %T does not panic", name, bad, bad)
		}
		wantStats(t, q, reconcile.Stats{InFlight: 1, Enqueued: 1, Taken: 1}) // hangs if the lock is still held
	}
	q.Done(good)
	if q.Has(good) {
		t.Errorf("Done(%v) does nothing any more", good)
	}
	mustAgree(t, q)
}

// goroutinesOf counts those of this bubble that are in a call, or were started by it: a timer
// of a test before may fire now.
func goroutinesOf(call string) (n int) {
	buf := make([]byte, 1<<20)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	bubble := regexp.MustCompile(`synctest bubble \d+`).FindString(stacks[0]) // of the caller
	for _, stack := range stacks {
		head, calls, _ := strings.Cut(stack, "\n")
		if strings.Contains(head, bubble+"]") && strings.Contains(calls, call) {
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
			if got := goroutinesOf(".(*Queue["); got != n {
				t.Errorf("%d goroutines %s, want %d", got, when, n)
			}
		}
		want(0, "at first")
		for i := range 10_000 {
			q.EnqueueAfter(i, time.Duration(i+1)*time.Second)
		}
		want(0, "with 10000 delays")
		time.Sleep(5000 * time.Second)
		if got := q.Len(); got != 5000 {
			t.Errorf("Len after 5000 s: %d, want 5000", got)
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

// A user is one item of a stress test, with what shows a broken guarantee.
type user struct {
	events  atomic.Int64 // accepted by the queue: counted before the call
	running atomic.Int32
	seen    atomic.Int64 // events that had been counted when the last run started
	until   atomic.Int64 // the end of the hold; of items that nobody asks for by EnqueueNow
}

// Goroutines run side by side in a bubble as they do elsewhere; only time
// stands still until all of them wait. So the delays cost nothing, and the
// bubble ends only if no goroutine is left.
//
// No timer here is without a delay: in a bubble that one fires on the goroutine
// that sets it, and two at once break the race detector (go.dev/issue/78156).
func TestQueueUnderStress(t *testing.T) {
	for _, c := range []stress{
		{items: 1, producers: 4, workers: 4, events: 300},
		{items: 10, producers: 8, workers: 8, events: 300, background: 2},
		{items: 500, producers: 16, workers: 32, events: 200},
		{items: 20, producers: 8, workers: 8, events: 300, background: 8, closed: true},
		{items: 100, producers: 8, workers: 16, events: 200, impatient: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) { synctest.Test(t, c.run) })
	}
}

type stress struct {
	items, producers, workers, events, background int

	closed    bool // while events come
	impatient bool // the consumers: most give up as an item comes
}

const closesAfter = 2 * time.Second // Then a MinDelay is ignored.

func (c stress) run(t *testing.T) {
	q := reconcile.NewQueue[int]()
	q.Background = c.background
	users := make([]user, c.items)
	start := time.Now()
	var producing, working sync.WaitGroup
	for p := range c.producers {
		producing.Go(func() { c.produce(t, q, users, rand.New(rand.NewPCG(uint64(p), 1))) })
	}
	for w := range c.workers {
		working.Go(func() { c.work(t, q, users, start, rand.New(rand.NewPCG(uint64(w), 2))) })
	}
	if c.closed {
		time.Sleep(closesAfter)
		q.Close()
	}
	producing.Wait()
	if err := q.WaitIdle(t.Context()); err != nil {
		t.Error(err)
	}
	s := q.Stats()
	if left := s.Ready + s.InFlight + s.Waiting - s.Rechecks; left != 0 {
		t.Errorf("Stats: %+v after WaitIdle, want nothing left", s)
	}
	for i := range users {
		if seen, want := users[i].seen.Load(), users[i].events.Load(); seen != want && !c.closed {
			t.Errorf("item %d: its last run started after %d of %d events", i, seen, want)
		}
	}
	if !c.closed {
		c.offerAll(t, q, users)
	}
	if all := uint64(c.producers * c.events); s.Enqueued+s.Coalesced < all && !c.closed {
		t.Errorf("Stats: %+v, want all of %d events counted", s, all)
	}
	mustAgree(t, q)
	if n := reconcile.Watchers(q); n != 0 {
		t.Errorf("%d watchers are left", n)
	}
	q.Close()
	working.Wait()
}

// offerAll reports as a poll does that something has drifted everywhere. All items
// are settled or not known, so that each of them has a run.
func (c stress) offerAll(t *testing.T, q *reconcile.Queue[int], users []user) {
	for i := range users {
		users[i].events.Add(1)
		q.Offer(i)
	}
	if err := q.WaitIdle(t.Context()); err != nil {
		t.Error(err)
	}
	for i := range users {
		if seen, want := users[i].seen.Load(), users[i].events.Load(); seen != want {
			t.Errorf("item %d was offered: its last run started after %d of %d events", i, seen, want)
		}
	}
}

func (c stress) produce(t *testing.T, q *reconcile.Queue[int], users []user, r *rand.Rand) {
	for range c.events {
		i, d := r.IntN(c.items), time.Duration(r.IntN(4))*time.Second
		users[i].events.Add(1)
		switch r.IntN(8) {
		case 0:
			q.EnqueueAfter(i, d)
		case 1:
			q.EnqueueWithin(i, d)
		case 2:
			if i%2 == 0 {
				q.EnqueueNow(i)
			} else {
				q.Enqueue(i)
			}
		case 3:
			if r.IntN(20) > 0 {
				q.Enqueue(i)
				break
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(10))*time.Second)
			if err := q.EnqueueAndWait(ctx, i, (i+1)%c.items); err != nil && ctx.Err() == nil && !errors.Is(err, reconcile.ErrClosed) && !errors.Is(err, errBoom) {
				t.Errorf("EnqueueAndWait: %v", err)
			}
			cancel()
		default:
			q.Enqueue(i)
		}
		switch r.IntN(20) {
		case 0:
			time.Sleep(time.Duration(r.IntN(3)) * time.Second)
		case 1, 2, 3:
			runtime.Gosched()
		case 4: // observers
			q.State(i)
			q.Stats()
			q.Len()
		case 5:
			for range q.All() {
				break
			}
		case 6:
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = q.WaitIdle(ctx)
			cancel()
		case 7, 8, 9: // of what may be settled
			q.Offer(r.IntN(c.items))
		}
	}
}

func (c stress) work(t *testing.T, q *reconcile.Queue[int], users []user, start time.Time, r *rand.Rand) {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		switch n := r.IntN(6); {
		case n == 1 || c.impatient: // in the same instant as events
			time.AfterFunc(time.Duration(1+r.IntN(2))*time.Second, cancel)
		case n == 0:
			go func() {
				runtime.Gosched()
				cancel()
			}()
		}
		i, err := q.Dequeue(ctx)
		cancel()
		switch err {
		case nil:
		case reconcile.ErrClosed:
			return
		case context.Canceled:
			continue
		default:
			t.Errorf("Dequeue: %v", err)
		}
		u := &users[i]
		if u.running.Add(1) != 1 {
			t.Errorf("item %d is in two hands", i)
		}
		if now, until := int64(time.Since(start)), u.until.Load(); now < until && i%2 == 1 && !(c.closed && now >= int64(closesAfter)) {
			t.Errorf("item %d runs at %v, and is held until %v", i, time.Duration(now), time.Duration(until))
		}
		u.seen.Store(u.events.Load())
		if r.IntN(3) == 0 {
			runtime.Gosched()
		}
		d := time.Duration(1+r.IntN(3)) * time.Second
		wait := []reconcile.RequeueOptions{
			{Delay: d},
			{Delay: d, MinDelay: d},
			{Delay: d, MinDelay: d, Err: errBoom},
			{Aborted: true},
			{},
			{Delay: d, Reason: errBoom},
			{Done: true, Err: errBoom},
			{Delay: 1000 * time.Hour, Recheck: true},
			{Delay: 1000 * time.Hour, Recheck: true},
			{Delay: 1000 * time.Hour, Recheck: true},
		}
		n := r.IntN(14)
		if n < len(wait) && wait[n].MinDelay > 0 {
			u.until.Store(int64(time.Since(start) + d))
		}
		u.running.Add(-1)
		if n < len(wait) {
			q.Requeue(i, wait[n])
		} else {
			q.Done(i)
		}
	}
}

// Nothing on a hot path allocates once the queue has been in use.
func TestQueueAllocatesNothing(t *testing.T) {
	type queue = reconcile.Queue[string]
	ctx := context.Background()
	nothing := func(*queue) {}
	take := func(q *queue) { _, _ = q.Dequeue(ctx) }
	taken := func(q *queue) { q.Enqueue("x"); take(q) }
	other := func(q *queue) { q.EnqueueAfter("other", time.Hour) }
	for name, path := range map[string]struct{ setup, cycle func(q *queue) }{
		"Enqueue, Dequeue, Done":    {nothing, func(q *queue) { q.Enqueue("x"); take(q); q.Done("x") }},
		"EnqueueNow, Dequeue, Done": {nothing, func(q *queue) { q.EnqueueNow("x"); take(q); q.Done("x") }},
		"after a burst": {
			func(q *queue) {
				for i := range 1000 {
					q.Enqueue(fmt.Sprint(i))
				}
				for range 1000 {
					item, _ := q.Dequeue(ctx)
					q.Done(item)
				}
			},
			func(q *queue) { q.Enqueue("x"); take(q); q.Done("x") },
		},
		"Offer, Remove":                    {nothing, func(q *queue) { q.Offer("x"); q.Remove("x") }},
		"Enqueue of a queued item":         {func(q *queue) { q.Enqueue("x") }, func(q *queue) { q.Enqueue("x") }},
		"Enqueue of a held item":           {func(q *queue) { q.EnqueueAfter("x", time.Hour) }, func(q *queue) { q.Enqueue("x") }},
		"Enqueue in flight, Done, Dequeue": {taken, func(q *queue) { q.Enqueue("x"); q.Done("x"); take(q) }},
		"EnqueueAfter, due":                {other, func(q *queue) { q.EnqueueAfter("x", time.Nanosecond); take(q); q.Done("x") }},
		"EnqueueAfter, Remove":             {other, func(q *queue) { q.EnqueueAfter("x", time.Minute); q.Remove("x") }},
		"EnqueueWithin, Enqueue":           {other, func(q *queue) { q.EnqueueWithin("x", time.Minute); q.Enqueue("x"); take(q); q.Done("x") }},
		"Requeue at once":                  {taken, func(q *queue) { q.Requeue("x", reconcile.RequeueOptions{}); take(q) }},
		"Requeue, due":                     {taken, func(q *queue) { q.RequeueAfter("x", time.Nanosecond); take(q) }},
		"Requeue, brought forward":         {taken, func(q *queue) { q.Requeue("x", reconcile.RequeueOptions{Delay: time.Hour}); q.Enqueue("x"); take(q) }},
		"failed again": {
			func(q *queue) { taken(q); q.Requeue("x", reconcile.RequeueOptions{Err: errBoom}); take(q) },
			func(q *queue) { q.Requeue("x", reconcile.RequeueOptions{Err: errBoom}); take(q) },
		},
		"State, Has, Len, Stats": {taken, func(q *queue) { q.State("x"); q.Has("x"); q.Len(); q.Stats() }},
		"in the background and out of it": {
			func(q *queue) { q.Background = 2; q.Offer("seen"); q.Offer("wanted") },
			func(q *queue) {
				q.Enqueue("wanted")
				for range 2 {
					item, _ := q.Dequeue(ctx)
					q.Done(item)
					q.Offer(item)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := reconcile.NewQueue[string]()
			path.setup(q)
			wantNoAllocs(t, func() { path.cycle(q) })
		})
	}
}

// A consumer that waits is woken, and waits again, without allocation.
func TestWakeUpAllocatesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[int]()
		ran := make(chan int)
		var consumer sync.WaitGroup
		consumer.Go(func() {
			for {
				item, err := q.Dequeue(context.Background())
				if err != nil {
					return
				}
				q.Done(item)
				ran <- item
			}
		})
		wantNoAllocs(t, func() {
			q.Enqueue(1)
			<-ran
			q.EnqueueAfter(2, time.Nanosecond)
			<-ran
		})
		q.Close()
		consumer.Wait()
	})
}

// boxed is an item that reaches memory of its own.
type boxed struct {
	id  int
	box *[64]byte
}

// Once items are gone nothing of the queue reaches them, although others keep
// the queue in use. The queue holds all of them at the same time first.
func TestRemovedItemsAreGarbageCollected(t *testing.T) {
	type queue = reconcile.Queue[boxed]
	for name, path := range map[string]struct {
		hold, release func(t *testing.T, q *queue, b boxed)
	}{
		"taken, done": {
			func(t *testing.T, q *queue, b boxed) { q.Enqueue(b); mustTake(t, q) },
			func(_ *testing.T, q *queue, b boxed) { q.Done(b) },
		},
		"offered, removed": {
			func(_ *testing.T, q *queue, b boxed) { q.Offer(b) },
			func(_ *testing.T, q *queue, b boxed) { q.Remove(b) },
		},
		"waiting, removed": {
			func(_ *testing.T, q *queue, b boxed) { q.EnqueueAfter(b, time.Hour) },
			func(_ *testing.T, q *queue, b boxed) { q.Remove(b) },
		},
		"due": {
			func(_ *testing.T, q *queue, b boxed) { q.EnqueueAfter(b, time.Second) },
			func(t *testing.T, q *queue, _ boxed) { time.Sleep(time.Second); q.Done(mustTake(t, q)) },
		},
		"again in flight": {
			func(t *testing.T, q *queue, b boxed) { q.Enqueue(b); mustTake(t, q); q.Enqueue(b) },
			func(t *testing.T, q *queue, b boxed) { q.Done(b); q.Done(mustTake(t, q)) },
		},
		"dropped by Close": {
			func(_ *testing.T, q *queue, b boxed) { q.EnqueueAfter(b, time.Hour) },
			func(_ *testing.T, q *queue, _ boxed) { q.Close(); q.Done(boxed{id: -1}) },
		},
	} {
		runBubble(t, name, func(t *testing.T) {
			q := reconcile.NewQueue[boxed]()
			q.Enqueue(boxed{id: -1})
			mustTake(t, q)
			q.EnqueueAfter(boxed{id: -2}, 1000*time.Hour)
			boxes := make([]boxed, 50)
			weaks := make([]weak.Pointer[[64]byte], len(boxes))
			for i := range boxes {
				boxes[i] = boxed{i, new([64]byte)}
				weaks[i] = weak.Make(boxes[i].box)
				path.hold(t, q, boxes[i])
			}
			for range q.All() { // makes a copy of them
				break
			}
			for i := range boxes {
				path.release(t, q, boxes[i])
			}
			clear(boxes)
			runtime.GC()
			runtime.GC()
			reachable := 0
			for _, w := range weaks {
				if w.Value() != nil {
					reachable++
				}
			}
			if reachable > 1 { // the last one may be in a register or on the stack
				t.Errorf("%d of %d items are still reachable", reachable, len(weaks))
			}
			runtime.KeepAlive(q)
		})
	}
}

// More settled items are due than one call promotes: a verb that comes for one that
// is left finds it ready, and pending, since it was due, and in its turn.
func TestVerbFindsAnItemThatIsDueReadySinceThen(t *testing.T) {
	const n = 3*reconcile.PromoteMax + 10
	for verb, do := range map[string]func(q *reconcile.Queue[int]){
		"Offer":         func(q *reconcile.Queue[int]) { q.Offer(n - 1) },
		"Enqueue":       func(q *reconcile.Queue[int]) { q.Enqueue(n - 1) },
		"EnqueueNow":    func(q *reconcile.Queue[int]) { q.EnqueueNow(n - 1) },
		"EnqueueAfter":  func(q *reconcile.Queue[int]) { q.EnqueueAfter(n-1, time.Hour) },
		"EnqueueWithin": func(q *reconcile.Queue[int]) { q.EnqueueWithin(n-1, time.Hour) },
	} {
		runBubble(t, verb, func(t *testing.T) {
			q := reconcile.NewQueue[int]()
			q.Background = 2
			for i := range n {
				q.Enqueue(i)
			}
			for range n {
				q.Requeue(mustTake(t, q), reconcile.RequeueOptions{Delay: time.Hour, Recheck: true})
			}
			reconcile.DelayTimer(q, time.Hour)
			due := time.Now().Add(time.Hour)
			time.Sleep(time.Hour + time.Minute)
			do(q)
			mustAgree(t, q)
			if s := q.State(n - 1); s.Recheck {
				t.Errorf("%+v, want it to be no recheck", s)
			}
			if s := q.Stats(); s.Enqueued != n || s.Coalesced != 1 {
				t.Errorf("%+v, want it to count as coalesced", s)
			}
			for q.Len() < n { // each call promotes some
				q.Stats()
			}
			if s := q.State(n - 1); s.Phase != reconcile.PhaseReady || !s.Since.Equal(due) || !s.Pending.Equal(due) {
				t.Errorf("%+v, want it ready and pending since %v", s, due)
			}
			if verb != "Offer" { // It joins the first line, and the others are in the background.
				if got := mustTake(t, q); got != n-1 {
					t.Fatalf("%d is taken first", got)
				}
			}
			for i := range q.Len() {
				if got := mustTake(t, q); got != i {
					t.Fatalf("%d is taken at place %d", got, i)
				}
			}
		})
	}
}
