// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
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

// shared launches a loop for each name, which share a gate. Its journal has the
// name of each run.
func shared(t *testing.T, g *reconcile.Gate, workers int, takes func() time.Duration, names ...string) (*journal, map[string]*reconcile.Queue[int], func()) {
	t.Helper()
	d := newJournal()
	queues := make(map[string]*reconcile.Queue[int])
	var runs []*running
	for _, name := range names {
		q := reconcile.NewQueue[int]()
		queues[name] = q
		runs = append(runs, launch(t, &reconcile.Reconciler[int]{
			Queue: q, Gate: g, Workers: workers, Logger: unlogged(),
			Reconcile: func(context.Context, int) error {
				d.note("%s", name)
				time.Sleep(takes())
				return nil
			},
		}))
	}
	return d, queues, func() {
		t.Helper()
		for _, run := range runs {
			run.end()
		}
		mustBeIdle(t, g)
	}
}

// mustBeFair checks that no loop started a third run before each of the others
// had started one.
func (d *journal) mustBeFair(t *testing.T, from int, names ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, other := range names {
		since := make(map[string]int) // runs since the last of the other
		for i, line := range d.list[from:] {
			_, name, _ := strings.Cut(line, " ")
			if since[name]++; name == other {
				clear(since)
			} else if since[name] > 2 {
				t.Fatalf("turn %d is the third of %s, without one of %s:\n%s", i, name, other, strings.Join(d.list[from:], "\n"))
			}
		}
	}
}

func feedInts(q *reconcile.Queue[int], n int) {
	for i := range n {
		q.Enqueue(i)
	}
}

func TestGateSharedBudgetIsTakenByTurns(t *testing.T) {
	for _, workers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			g := &reconcile.Gate{Every: time.Second}
			quick := func() time.Duration { return time.Millisecond }
			d, queues, end := shared(t, g, workers, quick, "crowd", "one", "two")
			feedInts(queues["crowd"], 1000)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			before := d.len()
			if before != 11 {
				t.Fatalf("%d runs in 10s, want one each second: alone, a loop has all of the budget", before)
			}
			feedInts(queues["one"], 20)
			feedInts(queues["two"], 20)
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := d.len() - before; n != 60 {
				t.Errorf("%d runs in a minute, want 60", n)
			}
			d.mustBeFair(t, before+1, "crowd", "one", "two") // but for one item that was in hand
			end()
		})
	}
}

func TestGateSharedLimitIsTakenByTurns(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			g := &reconcile.Gate{Max: 3}
			r, mu := rand.New(rand.NewPCG(seed, 1)), sync.Mutex{}
			takes := func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(1 + r.IntN(1e9))
			}
			names := []string{"a", "b", "c", "d"}
			d, queues, end := shared(t, g, 5, takes, names...)
			for _, name := range names {
				feedInts(queues[name], 100)
			}
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if d.len() < 100 {
				t.Errorf("%d runs, want more", d.len())
			}
			d.mustBeFair(t, g.Max, names...) // but for what began before all were fed
			for _, q := range queues {
				q.Close()
			}
			time.Sleep(time.Hour)
			if d.len() != 400 {
				t.Errorf("%d runs in the end, want 400", d.len())
			}
			end()
		})
	}
}

// Those with an item in hand are let in in the order in which they came; one that
// goes away leaves its turn to the next.
func TestGateTurnsAreFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(reconcile.Gate)
		var loops []*gated
		first := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "first@10s")
		for range 4 {
			loops = append(loops, launchGated(t, reconcile.Reconciler[string]{Gate: g}))
		}
		synctest.Wait()
		g.SetLimit(1)
		for i, l := range loops {
			l.q.Enqueue(fmt.Sprintf("%d@10s", i))
			synctest.Wait()
		}
		if s := g.Stats(); s.Waiting != 4 || s.InFlight != 1 {
			t.Errorf("Stats = %+v, want 4 waiting", s)
		}
		loops[1].end()
		time.Sleep(time.Minute)
		first.mustBe(t, "0s first@10s")
		loops[0].mustBe(t, "10s 0@10s")
		loops[1].mustBe(t)
		loops[2].mustBe(t, "20s 2@10s")
		loops[3].mustBe(t, "30s 3@10s")
		for _, l := range []*gated{first, loops[0], loops[2], loops[3]} {
			l.end()
		}
		mustBeIdle(t, g)
	})
}

// While somebody waits with an item in hand, nobody else takes one: it stays in its
// queue, where events are folded into it.
func TestGateDoorWaitsForThoseInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(reconcile.Gate)
		first := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "a@10s")
		inHand := launchGated(t, reconcile.Reconciler[string]{Gate: g})
		synctest.Wait()
		g.SetLimit(1)
		inHand.q.Enqueue("b@10s")
		synctest.Wait()
		behind := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "c")
		for _, until := range []time.Duration{5 * time.Second, 15 * time.Second} { // a runs, and then b
			time.Sleep(time.Until(first.begun.Add(until)))
			if s := behind.q.State("c"); s.Phase != reconcile.Ready {
				t.Errorf("State(c) = %+v after %v, want it ready", s, until)
			}
		}
		time.Sleep(time.Minute)
		first.mustBe(t, "0s a@10s")
		inHand.mustBe(t, "10s b@10s")
		behind.mustBe(t, "20s c")
		for _, l := range []*gated{first, inHand, behind} {
			l.end()
		}
		mustBeIdle(t, g)
	})
}

// One Reconciler, run several times at once: each Run has a door of its own.
func TestGateOfSeveralRunsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Every: time.Second, Burst: 2, Max: 3}
		q := reconcile.NewQueue[int]()
		feedInts(q, 10)
		d := newJournal()
		r := &reconcile.Reconciler[int]{
			Queue: q, Gate: g, Workers: 2, Logger: unlogged(),
			Reconcile: func(context.Context, int) error { d.note("run"); time.Sleep(5 * time.Second); return nil },
		}
		var runs []*running
		for range 4 {
			runs = append(runs, launch(t, r))
		}
		q.Close()
		for _, run := range runs {
			if err := run.wait(); err != nil {
				t.Error(err)
			}
		}
		d.mustBe(t, "0s run", "0s run", "1s run", "5s run", "5s run", "6s run", "10s run", "10s run", "11s run", "15s run")
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

// A lender is a Queue whose items are leased.
type lender struct {
	plainQueue[string]
	*journal
	mu    sync.Mutex
	lose  context.CancelCauseFunc // the last lease
	lease func(ctx context.Context, n int) context.Context
	count int
}

func (q *lender) Lease(ctx context.Context, item string) context.Context {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count++
	q.note("lease %s", item)
	if q.lease != nil {
		return q.lease(ctx, q.count)
	}
	ctx, q.lose = context.WithCancelCause(context.WithValue(ctx, leaseKey{}, q.count))
	return ctx
}

func (q *lender) Requeue(item string, w reconcile.Wait) {
	q.note("requeue %s", item)
	q.plainQueue.Requeue(item, w)
}

// inHand launches a loop that has an item in hand until a minute has passed.
func inHand(t *testing.T, lease func(ctx context.Context, n int) context.Context) (q *lender, g *reconcile.Gate, results *resultBook[string], end func()) {
	g = &reconcile.Gate{Max: 2}
	other := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "other@1m")
	q = &lender{plainQueue: plainly(reconcile.NewQueue[string]()), journal: newJournal(), lease: lease}
	results = new(resultBook[string])
	run := launch(t, &reconcile.Reconciler[string]{
		Queue: q, Gate: g, Retry: reconcile.NoRetry, OnResult: results.add, Logger: unlogged(),
		Reconcile: func(ctx context.Context, item string) error {
			q.note("run %s under %v", item, ctx.Value(leaseKey{}))
			return ctx.Err()
		},
	})
	synctest.Wait()
	g.SetLimit(1)
	q.q.Enqueue("a")
	synctest.Wait()
	return q, g, results, func() {
		t.Helper()
		run.end()
		other.end()
		mustBeIdle(t, g)
	}
}

// The lease of an item in hand is that of its run.
func TestGateLeaseBeginsInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _, results, end := inHand(t, nil)
		time.Sleep(time.Hour)
		q.q.Enqueue("b") // which is not kept waiting
		synctest.Wait()
		end()
		q.mustBe(t, "0s lease a", "1m0s run a under 1", "1h0m0s lease b", "1h0m0s run b under 2")
		if all := results.all(); len(all) != 2 || all[0].Waited != time.Minute {
			t.Errorf("results %+v, want that a waited a minute", all)
		}
	})
}

// An item whose lease is lost in hand does not run under it.
func TestGateLeaseIsLostInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, g, results, end := inHand(t, nil)
		time.Sleep(10 * time.Second)
		q.lose(reconcile.ErrLeaseLost)
		synctest.Wait()
		if s := q.q.State("a"); s.Phase != reconcile.Ready || len(results.all()) != 0 {
			t.Errorf("State(a) = %+v, results %v, want it ready and no result", s, results.all())
		}
		if s := g.Stats(); s.InFlight != 1 || s.Waiting != 1 {
			t.Errorf("Stats = %+v, want the worker to wait before it takes an item", s)
		}
		time.Sleep(time.Hour)
		end()
		q.mustBe(t, "0s lease a", "10s requeue a", "1m0s lease a", "1m0s run a under 2")
	})
}

// The lease is lost in the instant of the item's turn.
func TestGateLeaseIsLostAtItsTurn(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			q, _, results, end := inHand(t, nil)
			time.AfterFunc(time.Minute, func() { q.lose(reconcile.ErrLeaseLost) })
			time.Sleep(time.Hour)
			end()
			for _, r := range results.all() {
				if r.Err != nil && r.Outcome != reconcile.Aborted {
					t.Errorf("result %+v, want none but an aborted one", r)
				}
			}
			if r := results.last(t); r.Outcome != reconcile.Succeeded || q.q.Has("a") {
				t.Errorf("the last result is %+v, want success", r)
			}
		})
	}
}

// Lease ends badly for an item in hand: that is a failure of its run.
func TestGateLeaseEndsBadlyInHand(t *testing.T) {
	ends := map[string]func(context.Context, int) context.Context{
		"nil returned": func(context.Context, int) context.Context { return nil },
	}
	for name, end := range failuresOfUserCode {
		ends[name] = func(context.Context, int) context.Context { panicsHere(end); return nil }
		ends[name+" of its context"] = func(ctx context.Context, _ int) context.Context { return rudeContext{ctx, end} }
	}
	for name, lease := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, _, results, end := inHand(t, lease)
				time.Sleep(time.Hour)
				if r := results.only(t); r.Outcome != reconcile.GaveUp || q.q.Has("a") {
					t.Errorf("result = %+v, want it to give up", r)
				}
				q.lease = nil
				q.q.Enqueue("b")
				synctest.Wait()
				if r := results.last(t); r.Item != "b" || r.Outcome != reconcile.Succeeded {
					t.Errorf("the last result is %+v, want that b succeeds", r)
				}
				end()
			})
		})
	}
}

// The context of an item in hand ends a moment before that which workers wait
// under. It is not taken again.
func TestGateItemInHandIsNotTakenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := &reconcile.Gate{Max: 2}
		other := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "other@1h")
		q := &lender{plainQueue: plainly(reconcile.NewQueue[string]()), journal: newJournal()}
		run := launchUnder(lateContext{ctx}, t, reconcile.RunFunc(func(context.Context) error {
			return (&reconcile.Reconciler[string]{
				Queue: q, Gate: g, Logger: unlogged(),
				Reconcile: func(context.Context, string) error { t.Error("the item runs"); return nil },
			}).Run(lateContext{ctx})
		}))
		synctest.Wait()
		g.SetLimit(1)
		q.q.Enqueue("a")
		time.Sleep(time.Minute)
		time.AfterFunc(time.Second/2, func() { g.SetLimit(2) }) // while that context goes on
		cancel()
		if err := run.wait(); err != nil {
			t.Error(err)
		}
		q.mustBe(t, "0s lease a", "1m0s requeue a")
		time.Sleep(time.Minute)
		other.end()
		mustBeIdle(t, g)
	})
}

// A slowLog takes a minute for the line of a run that went well.
type slowLog struct{ slog.Handler }

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (slowLog) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "run succeeded" {
		time.Sleep(time.Minute)
	}
	return nil
}

// A run gives back its place before its outcome is logged.
func TestGateDoesNotWaitForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Max: 1}
		log := slog.New(slowLog{slog.DiscardHandler})
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 2, Logger: log}, "a", "b")
		time.Sleep(time.Hour)
		l.mustBe(t, "0s a", "0s b")
		l.end()
		mustBeIdle(t, g)
	})
}

func TestGateSlowPanics(t *testing.T) {
	for name, end := range failuresOfUserCode {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &reconcile.Gate{Every: time.Minute, Max: 1, Slow: func(error, time.Duration) bool { panicsHere(end); return true }}
				book := newLogBook()
				l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 2, Logger: book.logger()},
					"a", "b=busy", "c=plan", "d=panic")
				time.Sleep(time.Hour)
				l.mustBe(t, "0s a", "1m0s b=busy", "2m0s c=plan", "3m0s d=panic")
				var outcomes []string
				for _, r := range l.results.all() {
					outcomes = append(outcomes, string(r.Outcome))
				}
				if got := strings.Join(outcomes, ", "); got != "succeeded, gave up, requeued, gave up" {
					t.Errorf("outcomes %s", got)
				}
				said := 0
				for _, line := range book.from(slog.LevelError) {
					if strings.Contains(line.Message, "Gate.Slow panicked") && strings.Contains(line.String(), "panicsHere") {
						said++
					}
				}
				if said != 4 {
					t.Errorf("%d lines tell of the panic, want 4", said)
				}
				if s := g.Stats(); s.Limit != 1 || s.Halved != 0 {
					t.Errorf("Stats = %+v, want a result that counts neither way", s)
				}
				l.end()
				mustBeIdle(t, g)
			})
		})
	}
}

// What Slow takes is no part of the run that follows.
func TestGateSlowTakesTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Slow: func(error, time.Duration) bool { time.Sleep(time.Minute); return false }}
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "a@1s=plan", "b@1s")
		begin := time.Now()
		time.Sleep(time.Hour)
		if due := l.q.State("a@1s=plan").Due.Sub(begin); due != time.Hour+61*time.Second {
			t.Errorf("a was given back to run again %v after the beginning, want 1h1m1s", due)
		}
		for _, r := range l.results.all() {
			if r.Duration != time.Second {
				t.Errorf("%s took %v, want 1s", r.Item, r.Duration)
			}
		}
		if r := l.results.last(t); r.Waited != 61*time.Second {
			t.Errorf("b waited %v, want 1m1s", r.Waited)
		}
		l.end()
	})
}

// The event that came while an item was in flight makes it ready when it is given
// back, which is after Slow.
func TestGateSlowTakesTimeBeforeTheItemIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		q.Enqueue("b")
		begin := time.Now()
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Logger: unlogged(), // and no OnResult, which takes time too
			Gate:      &reconcile.Gate{Slow: func(error, time.Duration) bool { time.Sleep(time.Minute); return false }},
			Reconcile: func(context.Context, string) error { time.Sleep(time.Second); return nil },
		})
		synctest.Wait()
		q.Enqueue("a")
		time.Sleep(90 * time.Second)
		if s := q.State("a"); s.Phase != reconcile.Ready || s.Since.Sub(begin) != 61*time.Second {
			t.Errorf("State(a) = %+v, want it ready since %v", s, begin.Add(61*time.Second))
		}
		time.Sleep(time.Hour)
		run.end()
	})
}

// Loops that share a gate come and go; the limit moves, by hand and by itself;
// queues are closed, runs are aborted, and user code ends badly.
func TestGateUnderStress(t *testing.T) {
	for _, every := range []time.Duration{0, time.Millisecond} {
		for seed := range uint64(5) {
			synctest.Test(t, func(t *testing.T) { stressGate(t, every, seed) })
		}
	}
}

func stressGate(t *testing.T, every time.Duration, seed uint64) {
	const loops, items, highest = 5, 200, 6
	g := &reconcile.Gate{
		Every: every, Burst: 5, Max: highest,
		Slow: func(err error, _ time.Duration) bool {
			if errors.Is(err, errBoom) {
				panic("Slow")
			}
			return errors.Is(err, errBusy)
		},
	}
	var inFlight, starts atomic.Int32
	begin := time.Now()
	var all sync.WaitGroup
	for n := range loops {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			q := reconcile.NewQueue[int]()
			var done sync.Map
			rec := &reconcile.Reconciler[int]{
				Queue: q, Gate: g, Workers: 1 + r.IntN(8), Logger: unlogged(),
				Retry: func(error, int) (time.Duration, bool) { return time.Millisecond, true },
				Reconcile: func(ctx context.Context, i int) error {
					defer inFlight.Add(-1)
					if now := inFlight.Add(1); now > highest {
						t.Errorf("%d runs at once, the limit was never more than %d", now, highest)
					}
					started := int64(starts.Add(1))
					if most := int64(time.Since(begin)/max(1, every)) + 5; every > 0 && started > most {
						t.Errorf("%d runs have started after %v, want %d at most", started, time.Since(begin), most)
					}
					if n := rand.IntN(3); n > 0 { // timers without a delay: see stress
						select {
						case <-time.After(time.Duration(n) * time.Millisecond): // of the bubble
						case <-ctx.Done():
							return ctx.Err()
						}
					}
					switch rand.IntN(10) {
					case 0:
						return errBusy
					case 1:
						return errBoom
					case 2:
						panic("Reconcile")
					}
					done.Store(i, true)
					return nil
				},
			}
			if n%2 == 1 {
				rec.Queue = plainly(q)
			}
			for i := range items {
				q.Enqueue(i)
			}
			for q.Len() > items/4 { // runs are cut short
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(50))*time.Millisecond)
				if err := rec.Run(ctx); err != nil {
					t.Error(err)
				}
				cancel()
			}
			again := launch(t, rec)
			time.Sleep(10 * time.Second)
			q.Close()
			if err := again.wait(); err != nil {
				t.Error(err)
			}
			for i := range items {
				if _, ok := done.Load(i); !ok {
					t.Errorf("loop %d: item %d was lost: %+v", n, i, q.State(i))
				}
			}
		})
	}
	ended := make(chan struct{})
	all.Go(func() {
		r := rand.New(rand.NewPCG(seed, loops))
		for {
			select {
			case <-ended:
				return
			case <-time.After(3 * time.Millisecond):
			}
			g.SetLimit(r.IntN(highest + 2))
			g.Stats()
			if err := reconcile.CheckGate(g); err != nil {
				t.Error(err)
			}
		}
	})
	time.Sleep(5 * time.Second)
	close(ended)
	all.Wait()
	mustBeIdle(t, g)
}
