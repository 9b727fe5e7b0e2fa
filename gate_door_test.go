// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// Run returns when its queue is closed and empty, however long it would be to the
// next turn. Of a queue that is not a *Queue it hears when it asks for an item.
func TestGateRunEndsWithItsQueue(t *testing.T) {
	for _, c := range []struct {
		name, items string
		foreign     bool
		end         time.Duration
		want        string
	}{
		{"empty", "", false, 10 * time.Second, ""},
		{"nothing more", "a", false, 10 * time.Second, "0s a"},
		{"one in flight", "a@1m", false, time.Minute, "0s a@1m"},
		{"one that fails", "a@1m=fail", false, time.Hour, "0s a@1m=fail, 1h0m0s a@1m=fail"},
		{"one more", "a b", false, time.Hour, "0s a, 1h0m0s b"},
		{"foreign, empty", "", true, 10 * time.Second, ""},
		{"foreign", "a", true, time.Hour, "0s a"},
		{"foreign, one more", "a b", true, 2 * time.Hour, "0s a, 1h0m0s b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &reconcile.Gate{Every: time.Hour}
				q := reconcile.NewQueue[string]()
				r := reconcile.Reconciler[string]{
					Queue: q, Gate: g, Workers: 3,
					Retry: func(_ error, failures int) (time.Duration, bool) { return 0, failures < 2 },
				}
				if c.foreign {
					r.Queue = plainly(q)
				}
				for item := range strings.FieldsSeq(c.items) {
					q.Enqueue(item)
				}
				begin := time.Now()
				l := launchGated(t, r)
				time.Sleep(10 * time.Second)
				q.Close()
				if err := l.wait(); err != nil {
					t.Errorf("Run = %v, want nil", err)
				}
				if c.name == "one that fails" {
					c.end += time.Minute
				}
				if took := time.Since(begin); took != c.end {
					t.Errorf("Run returned after %v, want %v", took, c.end)
				}
				l.mustBe(t, split(c.want)...)
				mustBeIdle(t, g)
			})
		})
	}
}

// split is strings.Split at commas, and nothing for nothing.
func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ", ")
}

// An item is given back after the queue was closed and empty, while workers of
// two loops wait at their doors: none of them misses the end.
func TestGateRunEndsThoughTheQueueEndedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Max: 1}
		q := reconcile.NewQueue[string]()
		retry := func(_ error, failures int) (time.Duration, bool) { return 0, failures < 3 }
		q.Enqueue("a@10s=fail")
		one := launchGated(t, reconcile.Reconciler[string]{Queue: q, Gate: g, Workers: 2, Retry: retry})
		time.Sleep(time.Second)
		two := launchGated(t, reconcile.Reconciler[string]{Queue: q, Gate: g, Workers: 2, Retry: retry})
		q.Close()
		if !two.returned() || one.returned() {
			t.Error("want the Run to return that has nothing to do, and the other not")
		}
		if err := one.wait(); err != nil {
			t.Error(err)
		}
		one.mustBe(t, "0s a@10s=fail", "10s a@10s=fail", "20s a@10s=fail")
		mustBeIdle(t, g)
	})
}

// The context ends: while a worker waits at the gate, and others behind it; while
// it waits for an item; with an item in hand; in the very instant of its turn.
func TestGateRunEndsWithItsContext(t *testing.T) {
	for _, d := range dequeuers {
		for _, c := range []struct {
			name  string
			gate  *reconcile.Gate
			fall  int // the limit, once the workers wait
			first string
			then  string
			ends  time.Duration
			want  string
			left  string // ready in the queue
		}{
			{"at the gate", &reconcile.Gate{Every: time.Hour}, 0, "a b c", "", time.Minute, "0s a", "b c"},
			{"without a place", &reconcile.Gate{Max: 1}, 0, "a@1h b", "", time.Minute, "0s a@1h", "a@1h b"},
			{"in the queue", &reconcile.Gate{Every: time.Hour, Burst: 2}, 0, "a", "", time.Minute, "0s a", ""},
			{"in hand", &reconcile.Gate{Max: 3}, 1, "a@1h", "b c", time.Minute, "0s a@1h", "a@1h b c"},
			{"at its turn", &reconcile.Gate{Every: time.Minute}, 0, "a b c", "", time.Minute, "", ""},
			{"at its turn, in hand", &reconcile.Gate{Max: 3}, 1, "a@1m", "b c", time.Minute, "", ""},
		} {
			t.Run(d.name+"/"+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q := reconcile.NewQueue[string]()
					r := reconcile.Reconciler[string]{Queue: d.of(q), Gate: c.gate, Workers: 3}
					l := launchGated(t, r)
					fed := 0
					feed := func(items string) {
						for item := range strings.FieldsSeq(items) {
							q.Enqueue(item)
							fed++
						}
						synctest.Wait()
					}
					feed(c.first)
					if c.fall > 0 {
						c.gate.SetLimit(c.fall)
					}
					feed(c.then)
					time.Sleep(c.ends)
					ended := time.Now()
					l.end()
					if took := time.Since(ended); took != 0 {
						t.Errorf("Run took %v to return, want no time", took)
					}
					mustBeIdle(t, c.gate)
					if s := q.Stats(); s.InFlight != 0 || s.Waiting != 0 {
						t.Errorf("Stats = %+v, want no item in flight", s)
					}
					if c.want == "" { // either way
						done := 0
						for _, r := range l.results.all() {
							if r.Outcome == reconcile.Succeeded {
								done++
							}
						}
						if done+q.Len() != fed {
							t.Errorf("%d results and %d ready of %d", done, q.Len(), fed)
						}
						return
					}
					l.mustBe(t, strings.Split(c.want, ", ")...)
					left := 0
					for item := range strings.FieldsSeq(c.left) {
						if left++; q.State(item).Phase != reconcile.Ready {
							t.Errorf("State(%s) = %+v, want it ready", item, q.State(item))
						}
					}
					if q.Len() != left {
						t.Errorf("%d items are ready, want %d", q.Len(), left)
					}
				})
			})
		}
	}
}

// An item in hand is given back as if its run was aborted; and it does not run
// although the grace of another run gives it a place.
func TestGateItemInHandKeepsItsFailures(t *testing.T) {
	for _, d := range dequeuers {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &reconcile.Gate{Max: 2}
				q := reconcile.NewQueue[string]()
				q.Enqueue("b")
				b, _ := q.Dequeue(t.Context())
				q.Requeue(b, reconcile.Wait{Delay: 5 * time.Second, Err: errBoom})
				q.Enqueue("a@10s")
				l := launchGated(t, reconcile.Reconciler[string]{Queue: d.of(q), Gate: g, Workers: 2, Grace: time.Minute})
				synctest.Wait()
				g.SetLimit(1)
				time.Sleep(6 * time.Second)
				synctest.Wait()
				if s := q.State("b"); s.Phase != reconcile.InFlight {
					t.Fatalf("State(b) = %+v, want it in hand", s)
				}
				l.end()
				l.mustBe(t, "0s a@10s")
				failures := 1
				if d.name == "Foreign" {
					failures = 0 // see Dequeuer
				}
				if s := q.State("b"); s.Phase != reconcile.Ready || s.Failures != failures {
					t.Errorf("State(b) = %+v, want it ready, with %d failures", s, failures)
				}
				if r := l.results.only(t); r.Outcome != reconcile.Succeeded || r.Duration != 10*time.Second {
					t.Errorf("result of a = %+v, want it to end well in the grace", r)
				}
				mustBeIdle(t, g)
			})
		})
	}
}

// An item in hand is in flight: an event has a run of its own, and so ends the first
// one early if that asks for it.
func TestGateEventForAnItemInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, g, q := newJournal(), &reconcile.Gate{Max: 2}, reconcile.NewQueue[string]()
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Gate: g, Workers: 2, Logger: unlogged(),
			Reconcile: func(ctx context.Context, item string) error {
				c, stop := reconcile.UntilChanged(ctx)
				defer stop()
				d.note("%s: %v", item, context.Cause(c))
				time.Sleep(time.Minute)
				return nil
			},
		})
		q.Enqueue("a")
		synctest.Wait()
		g.SetLimit(1)
		q.Enqueue("b")
		time.Sleep(time.Second)
		q.Enqueue("b")
		if s := q.State("b"); s.Phase != reconcile.InFlight || !s.Again {
			t.Errorf("State(b) = %+v, want it in hand, and to run again", s)
		}
		time.Sleep(time.Hour)
		run.end()
		d.mustBe(t, "0s a: <nil>", "1m0s b: "+reconcile.ErrChanged.Error(), "2m0s b: <nil>")
		mustBeIdle(t, g)
	})
}

func TestGateOfAQueueThatFails(t *testing.T) {
	for name, end := range endsOfAQueue() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := new(reconcile.Gate)
				q := &ledger{newJournal(), strings.Fields("good bad"), end}
				err := launch(t, &reconcile.Reconciler[string]{
					Queue: q, Gate: g, Reconcile: mixed, Retry: reconcile.NoRetry, Logger: unlogged(),
				}).wait()
				mustTellTheEnd(t, name, err)
				q.mustBe(t, "0s take good", "0s done good", "0s take bad", "0s done bad", "0s no more")
				mustBeIdle(t, g)

				// Now others wait behind the door.
				q = &ledger{newJournal(), []string{"good"}, end}
				err = launch(t, &reconcile.Reconciler[string]{
					Queue: q, Gate: g, Workers: 5, Reconcile: mixed, Logger: unlogged(),
				}).wait()
				mustTellTheEnd(t, name, err)
				mustBeIdle(t, g)
			})
		})
	}
}
