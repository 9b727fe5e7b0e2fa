// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// settledStates are ways in which "x" can stand, and whether it has settled then.
var settledStates = []struct {
	name    string
	do      func(t *testing.T, q *reconcile.Queue[string])
	settled bool
	says    string // what WaitIdle and WaitItem say, if not
}{
	{"unknown", func(*testing.T, *reconcile.Queue[string]) {}, true, ""},
	{"ready", func(_ *testing.T, q *reconcile.Queue[string]) { q.Enqueue("x") }, false, "1 ready, 0 in flight, 0 to be retried|x is ready, after 0 failures"},
	{"offered", func(_ *testing.T, q *reconcile.Queue[string]) { q.Offer("x") }, false, "1 ready, 0 in flight, 0 to be retried|x is ready, after 0 failures"},
	{"held", func(_ *testing.T, q *reconcile.Queue[string]) { q.EnqueueAfter("x", time.Hour) }, true, ""},
	{"within", func(_ *testing.T, q *reconcile.Queue[string]) { q.EnqueueWithin("x", time.Hour) }, true, ""},
	{"in flight", func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("x")
		mustTake(t, q)
	}, false, "0 ready, 1 in flight, 0 to be retried|x is in flight, after 0 failures"},
	{"in flight, held next", func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("x")
		mustTake(t, q)
		q.EnqueueAfter("x", time.Hour)
	}, false, "0 ready, 1 in flight, 0 to be retried|x is in flight, after 0 failures"},
	{"planned", func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("x")
		mustTake(t, q)
		q.RequeueAfter("x", time.Hour)
	}, true, ""},
	{"done, held next", func(t *testing.T, q *reconcile.Queue[string]) {
		fail(t, q, time.Minute)
		time.Sleep(time.Minute)
		mustTake(t, q)
		q.EnqueueAfter("x", time.Hour)
		q.Done("x")
	}, true, ""},
	{"to be retried", func(t *testing.T, q *reconcile.Queue[string]) {
		fail(t, q, time.Hour)
	}, false, "0 ready, 0 in flight, 1 to be retried|x is waiting, after 1 failures"},
	{"to be retried, and held", func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("x")
		mustTake(t, q)
		q.Requeue("x", reconcile.Wait{Delay: time.Hour, Hold: true, Err: errBoom})
	}, false, "0 ready, 0 in flight, 1 to be retried|x is waiting, after 1 failures"},
	{"failed, and brought forward", func(t *testing.T, q *reconcile.Queue[string]) {
		fail(t, q, time.Hour)
		q.Enqueue("x")
	}, false, "1 ready, 0 in flight, 0 to be retried|x is ready, after 1 failures"},
	{"failed, and promised sooner", func(t *testing.T, q *reconcile.Queue[string]) {
		fail(t, q, time.Hour)
		q.EnqueueWithin("x", time.Minute)
	}, false, "0 ready, 0 in flight, 1 to be retried|x is waiting, after 1 failures"},
	{"failed, and held sooner", func(t *testing.T, q *reconcile.Queue[string]) {
		fail(t, q, time.Hour)
		q.EnqueueAfter("x", time.Minute)
	}, false, "0 ready, 0 in flight, 1 to be retried|x is waiting, after 1 failures"},
	{"failed, and due", func(t *testing.T, q *reconcile.Queue[string]) {
		fail(t, q, time.Hour)
		time.Sleep(time.Hour)
	}, false, "1 ready, 0 in flight, 0 to be retried|x is ready, after 1 failures"},
	{"failed, and removed", func(t *testing.T, q *reconcile.Queue[string]) {
		fail(t, q, time.Hour)
		q.Remove("x")
	}, true, ""},
	{"failed, and dropped", func(t *testing.T, q *reconcile.Queue[string]) {
		fail(t, q, time.Hour)
		q.Close()
	}, true, ""},
	{"failed after Close", func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("x")
		mustTake(t, q)
		q.Close()
		q.Requeue("x", reconcile.Wait{Delay: time.Hour, Err: errBoom})
	}, true, ""},
	{"ready and closed", func(_ *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("x")
		q.Close()
	}, false, "1 ready, 0 in flight, 0 to be retried|x is ready, after 0 failures"},
	{"in flight twice failed", func(t *testing.T, q *reconcile.Queue[string]) {
		fail(t, q, 0)
		fail(t, q, 0)
		mustTake(t, q)
	}, false, "0 ready, 1 in flight, 0 to be retried|x is in flight, after 2 failures"},
	{"held and due", func(_ *testing.T, q *reconcile.Queue[string]) {
		q.EnqueueAfter("x", time.Hour)
		time.Sleep(time.Hour) // and the timer fires at this instant, perhaps later
	}, false, "1 ready, 0 in flight, 0 to be retried|x is ready, after 0 failures"},
	{"put back", func(_ *testing.T, q *reconcile.Queue[string]) {
		ctx, cancel := context.WithCancel(context.Background())
		startDequeue(ctx, q)
		q.Enqueue("x")
		cancel()
		synctest.Wait()
		if q.Len() == 0 {
			q.Requeue("x", reconcile.Wait{}) // the consumer had it before
		}
	}, false, "1 ready, 0 in flight, 0 to be retried|x is ready, after 0 failures"},
}

// With a context that is done, both look once.
func TestWaitLooksFirst(t *testing.T) {
	for _, s := range settledStates {
		t.Run(s.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
				s.do(t, q)
				idle, item, _ := strings.Cut(s.says, "|")
				for _, c := range []struct {
					name, says string
					err        error
				}{
					{"WaitItem", item, q.WaitItem(done(), "x")},
					{"WaitIdle", idle, q.WaitIdle(done())},
					{"WaitItem of another", "", q.WaitItem(done(), "y")},
				} {
					switch {
					case s.settled || c.says == "":
						if c.err != nil {
							t.Errorf("%s: %v, want nil", c.name, c.err)
						}
					case !errors.Is(c.err, errEnd) || !strings.HasPrefix(c.err.Error(), "reconcile: ") || !strings.Contains(c.err.Error(), c.says):
						t.Errorf("%s: %v, want the cause of its context and %q", c.name, c.err, c.says)
					}
				}
				if n := reconcile.Watchers(q); n != 0 {
					t.Errorf("%d watchers are left", n)
				}
			})
		})
	}
}

// Each way to come to rest is told at once, whichever state it comes from.
func TestWaitReturnsAsItSettles(t *testing.T) {
	ends := map[string]func(q *reconcile.Queue[string]){
		"Done":         func(q *reconcile.Queue[string]) { q.Done("x") },
		"RequeueAfter": func(q *reconcile.Queue[string]) { q.RequeueAfter("x", time.Hour) },
		"Requeue":      func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.Wait{Delay: time.Hour}) },
		"a failure":    func(q *reconcile.Queue[string]) { q.Requeue("x", reconcile.Wait{Delay: time.Hour, Err: errBoom}) },
		"Remove":       func(q *reconcile.Queue[string]) { q.Remove("x") },
		"Close":        func(q *reconcile.Queue[string]) { q.Close() },
		"Enqueue":      func(q *reconcile.Queue[string]) { q.Enqueue("x") },
		"of another":   func(q *reconcile.Queue[string]) { q.EnqueueAfter("y", time.Hour); q.Remove("y") },
	}
	for _, s := range settledStates {
		for name, end := range ends {
			if s.settled {
				continue
			}
			t.Run(s.name+"/"+name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
					s.do(t, q)
					ctx, cancel := context.WithCancelCause(t.Context())
					var waits []<-chan waitResult
					for range 3 { // several at once
						waits = append(waits,
							startWait(func() error { return q.WaitIdle(ctx) }),
							startWait(func() error { return q.WaitItem(ctx, "x") }))
					}
					for _, w := range waits {
						mustWaitOn(t, w)
					}
					if n := reconcile.Watchers(q); n != 6 {
						t.Errorf("%d watchers, want 6", n)
					}
					mustAgree(t, q)
					end(q)
					mustAgree(t, q)
					settled := q.WaitItem(done(), "x") == nil
					if idle := q.WaitIdle(done()) == nil; idle != settled {
						t.Errorf("the queue is idle: %t, its only item has settled: %t", idle, settled)
					}
					for _, w := range waits {
						if !settled {
							mustWaitOn(t, w)
						} else if r := mustHaveReturned(t, w); r.err != nil {
							t.Errorf("returned %v", r.err)
						}
					}
					cancel(errEnd)
					for _, w := range waits {
						if settled {
							continue
						}
						if r := mustHaveReturned(t, w); !errors.Is(r.err, errEnd) {
							t.Errorf("returned %v, want the cause of its context", r.err)
						}
					}
					if n := reconcile.Watchers(q); n != 0 {
						t.Errorf("%d watchers are left", n)
					}
				})
			})
		}
	}
}

// A wait that ends in the very instant in which all is done returns one or the
// other, and leaves nothing behind.
func TestWaitThatEndsAsItSettles(t *testing.T) {
	for range 200 {
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			q.Enqueue("x")
			mustTake(t, q)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errEnd)
			defer cancel()
			idle := startWait(func() error { return q.WaitIdle(ctx) })
			item := startWait(func() error { return q.WaitItem(ctx, "x") })
			time.AfterFunc(time.Minute, func() { q.Done("x") })
			time.Sleep(time.Minute)
			for _, w := range []<-chan waitResult{idle, item} {
				if r := mustHaveReturned(t, w); r.err != nil && (!errors.Is(r.err, errEnd) || !strings.Contains(r.err.Error(), "in flight")) {
					t.Errorf("returned %v", r.err)
				}
			}
			if n := reconcile.Watchers(q); n != 0 {
				t.Errorf("%d watchers are left", n)
			}
		})
	}
}

// Once told, a wait stands by it, though its context has ended before it could
// see that.
func TestWaitThatWasToldReturnsNil(t *testing.T) {
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("x")
		mustTake(t, q)
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			idle := startWait(func() error { return q.WaitIdle(ctx) })
			item := startWait(func() error { return q.WaitItem(ctx, "x") })
			q.Done("x")
			cancel()
			for _, w := range []<-chan waitResult{idle, item} {
				if r := mustHaveReturned(t, w); r.err != nil {
					t.Fatalf("returned %v", r.err)
				}
			}
			q.Enqueue("x")
			mustTake(t, q)
		}
	})
}

// The timer may be late: what is due is not settled, though no timer has fired.
func TestWaitIdleCountsWhatIsDue(t *testing.T) {
	for range 50 { // in some of them
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			q.EnqueueAfter("x", time.Hour)
			time.Sleep(time.Hour)
			if err := q.WaitItem(done(), "x"); err == nil {
				t.Error("WaitItem of an item that is due: nil")
			}
		})
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			q.EnqueueAfter("x", time.Hour)
			time.Sleep(time.Hour)
			if err := q.WaitIdle(done()); err == nil {
				t.Error("WaitIdle with an item that is due: nil")
			}
		})
	}
	inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
		q.Enqueue("x")
		mustTake(t, q)
		q.EnqueueAfter("y", time.Hour)
		ctx, cancel := context.WithCancelCause(t.Context())
		idle := startWait(func() error { return q.WaitIdle(ctx) })
		time.Sleep(time.Hour) // the timer of the queue fires at this instant, perhaps later
		q.Done("x")
		mustWaitOn(t, idle)
		cancel(errEnd)
		if r := mustHaveReturned(t, idle); !strings.Contains(r.err.Error(), "1 ready, 0 in flight, 0 to be retried") {
			t.Errorf("returned %v", r.err)
		}
	})
}

// What is left to do is told as it is, also of an item that falls due in the
// instant in which the wait is given up.
func TestWaitTellsWhatIsDue(t *testing.T) {
	for range 50 { // in some of them the timer of the queue is the later one
		inBubble(t, func(t *testing.T, q *reconcile.Queue[string]) {
			fail(t, q, time.Minute)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			idle := startWait(func() error { return q.WaitIdle(ctx) })
			item := startWait(func() error { return q.WaitItem(ctx, "x") })
			time.Sleep(time.Minute)
			for want, w := range map[string]<-chan waitResult{"1 ready, 0 in flight, 0 to be retried": idle, "x is ready": item} {
				if r := mustHaveReturned(t, w); !strings.Contains(r.err.Error(), want) {
					t.Errorf("returned %v, want an error that says %q", r.err, want)
				}
			}
		})
	}
}

func TestWaitRefusesWhatCannotBeFound(t *testing.T) {
	floats := reconcile.NewQueue[float64]()
	if msg := panics(func() { floats.WaitItem(t.Context(), math.NaN()) }); !strings.HasPrefix(msg, "reconcile: ") {
		t.Errorf("WaitItem(NaN): panic %q, want one that starts with reconcile:", msg)
	}
	anys := reconcile.NewQueue[any]()
	if msg := panics(func() { anys.WaitItem(t.Context(), []int{1}) }); msg == "" {
		t.Error("WaitItem of an item that cannot be compared does not panic")
	}
	if err := anys.WaitIdle(t.Context()); err != nil {
		t.Errorf("WaitIdle after that: %v", err)
	}
	var zero reconcile.Queue[string]
	for name, f := range map[string]func(){
		"WaitIdle": func() { zero.WaitIdle(t.Context()) },
		"WaitItem": func() { zero.WaitItem(t.Context(), "x") },
	} {
		if msg := panics(f); !strings.HasPrefix(msg, "reconcile: ") || !strings.Contains(msg, "NewQueue") {
			t.Errorf("%s of a zero Queue: panic %q, want one that names NewQueue", name, msg)
		}
	}
}
