// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/reconkernel/reconcile"
)

var errBusy = errors.New("429 Too Many Requests")

// busy is a Gate.Slow.
func busy(err error, _ time.Duration) bool { return errors.Is(err, errBusy) }

// A gated is a loop behind a gate, and what it did.
type gated struct {
	*journal
	*running
	q       *reconcile.Queue[string]
	results resultBook[string]
}

// launchGated runs r, with the fields that it lacks. A run takes as long as its
// item says behind an @, such as a@3s; then it ends as the item says behind an =,
// such as b=busy.
func launchGated(t *testing.T, r reconcile.Reconciler[string], items ...string) *gated {
	t.Helper()
	l := &gated{journal: newJournal(), q: reconcile.NewQueue[string]()}
	for _, item := range items {
		l.q.Enqueue(item)
	}
	if r.Queue == nil {
		r.Queue = l.q
	}
	r.Reconcile = func(ctx context.Context, item string) error {
		l.note("%s", item)
		item, how, _ := strings.Cut(item, "=")
		if _, d, ok := strings.Cut(item, "@"); ok {
			takes, err := time.ParseDuration(d)
			if err != nil {
				t.Error(err)
			}
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		switch how {
		case "busy":
			return errBusy
		case "fail":
			return errBoom
		case "plan":
			return reconcile.RequeueAfter(time.Hour)
		case "refuse":
			return reconcile.Terminal(errBoom)
		case "panic":
			panic("no disk")
		}
		return nil
	}
	r.OnResult = l.results.add
	if r.Retry == nil {
		r.Retry = reconcile.NoRetry
	}
	if r.Logger == nil {
		r.Logger = unlogged()
	}
	l.running = launch(t, &r)
	return l
}

// mustBeIdle checks that no run has a place in the gate, and nobody waits.
func mustBeIdle(t *testing.T, g *reconcile.Gate) {
	t.Helper()
	synctest.Wait()
	if err := reconcile.CheckGate(g); err != nil {
		t.Error(err)
	}
	if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 {
		t.Errorf("after all, Stats = %+v, want none in flight and none waiting", s)
	}
}

func TestGateFieldsAreChecked(t *testing.T) {
	for _, c := range []struct {
		gate *reconcile.Gate
		says string
	}{
		{&reconcile.Gate{Every: -time.Second}, "Gate.Every is -1s, want 0"},
		{&reconcile.Gate{Burst: -1}, "Gate.Burst is -1, want 0"},
		{&reconcile.Gate{Min: -2}, "Gate.Min is -2, want 0"},
		{&reconcile.Gate{Max: -3}, "Gate.Max is -3, want 0"},
		{&reconcile.Gate{Min: 5, Max: 4}, "Gate.Min is 5, want no more than Max, which is 4"},
		{&reconcile.Gate{Min: 5, Max: 5}, ""},
		{&reconcile.Gate{Min: 5}, ""},
		{&reconcile.Gate{Every: 1, Burst: 1, Min: 1, Max: 1}, ""},
		{&reconcile.Gate{}, ""},
	} {
		q := reconcile.NewQueue[string]()
		q.Close()
		r := reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, Gate: c.gate}
		switch err := r.Run(t.Context()); {
		case c.says == "" && err != nil:
			t.Errorf("Run = %v, want nil", err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), "reconcile: Reconciler."+c.says)):
			t.Errorf("Run = %v, want an error that says %q", err, c.says)
		}
	}
}

// When runs start under a budget. All items but those fed later are there from
// the beginning.
func TestGateBudget(t *testing.T) {
	for _, c := range []struct {
		name    string
		gate    *reconcile.Gate
		workers int
		items   string
		later   map[time.Duration]string
		want    string
	}{
		{
			"none", &reconcile.Gate{Burst: 3}, 1, "a b c", nil,
			"0s a, 0s b, 0s c",
		},
		{
			"one by one", &reconcile.Gate{Every: time.Second}, 1, "a b c d", nil,
			"0s a, 1s b, 2s c, 3s d",
		},
		{
			"workers do not help", &reconcile.Gate{Every: time.Second}, 4, "a@9s b@9s c@9s d@9s", nil,
			"0s a@9s, 1s b@9s, 2s c@9s, 3s d@9s",
		},
		{
			"burst", &reconcile.Gate{Every: time.Second, Burst: 3}, 1, "a b c d e", nil,
			"0s a, 0s b, 0s c, 1s d, 2s e",
		},
		{
			"a pause is made up for by a burst, and no more", &reconcile.Gate{Every: time.Second, Burst: 3}, 1, "a b c d",
			map[time.Duration]string{time.Hour + time.Second/2: "e f g h i"},
			"0s a, 0s b, 0s c, 1s d, 1h0m0.5s e, 1h0m0.5s f, 1h0m0.5s g, 1h0m1.5s h, 1h0m2.5s i",
		},
		{
			"a short pause is made up for by so much", &reconcile.Gate{Every: time.Second, Burst: 3}, 1, "a b c",
			map[time.Duration]string{2500 * time.Millisecond: "d e f g"},
			"0s a, 0s b, 0s c, 2.5s d, 2.5s e, 3s f, 4s g",
		},
		{
			"without a burst a pause is not made up for", &reconcile.Gate{Every: time.Second}, 1, "a",
			map[time.Duration]string{1900 * time.Millisecond: "b c d"},
			"0s a, 1.9s b, 2.9s c, 3.9s d",
		},
		{
			"nor is a long run", &reconcile.Gate{Every: time.Second}, 1, "a@2500ms b c d", nil,
			"0s a@2500ms, 2.5s b, 3.5s c, 4.5s d",
		},
		{
			"nor a place that was missing", &reconcile.Gate{Every: time.Second, Max: 1}, 3, "a@2500ms b c d", nil,
			"0s a@2500ms, 2.5s b, 3.5s c, 4.5s d",
		},
		{
			"a burst that overflows", &reconcile.Gate{Every: time.Hour, Burst: 1 << 40}, 1, "a b c", nil,
			"0s a, 0s b, 0s c",
		},
		{
			"a budget for ever", &reconcile.Gate{Every: 1<<63 - 1}, 1, "a b", nil,
			"0s a",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := launchGated(t, reconcile.Reconciler[string]{Gate: c.gate, Workers: c.workers}, strings.Fields(c.items)...)
				for after, items := range c.later {
					time.AfterFunc(after, func() {
						for item := range strings.FieldsSeq(items) {
							l.q.Enqueue(item)
						}
					})
				}
				time.Sleep(2 * time.Hour)
				l.mustBe(t, strings.Split(c.want, ", ")...)
				l.end()
				mustBeIdle(t, c.gate)
			})
		})
	}
}

// What is over the budget waits in the queue, where events are folded into it,
// and what was run is given back although nothing can be taken.
func TestGateLeavesItemsInTheQueue(t *testing.T) {
	for _, d := range dequeuers {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &reconcile.Gate{Every: time.Minute}
				q := reconcile.NewQueue[string]()
				l := launchGated(t, reconcile.Reconciler[string]{Queue: d.of(q), Gate: g, Workers: 3})
				for item := range strings.FieldsSeq("a b=plan c") {
					q.Enqueue(item)
				}
				for range 59 {
					time.Sleep(time.Second)
					q.Enqueue("c")
					q.Enqueue("d")
				}
				synctest.Wait()
				if s := q.Stats(); q.Has("a") || s.Ready != 3 || s.InFlight != 0 {
					t.Errorf("Stats = %+v, a known: %v, want three items ready, and a done", s, q.Has("a"))
				}
				q.Remove("d")
				time.Sleep(time.Second)
				synctest.Wait()
				if s := q.State("b=plan"); s.Phase != reconcile.Waiting {
					t.Errorf("State(b) = %+v after its run, want it to wait for its next", s)
				}
				if r := l.results.last(t); d.name == "Queue" && r.Waited != time.Minute {
					t.Errorf("b waited %v, want 1m0s", r.Waited)
				}
				time.Sleep(time.Minute)
				l.mustBe(t, "0s a", "1m0s b=plan", "2m0s c")
				l.end()
				mustBeIdle(t, g)
			})
		})
	}
}

func TestGateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Max: 2}
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 5},
			"a@2s", "b@3s", "c@10s", "d@10s", "e@10s", "f@10s", "g@10s", "h@10s")
		synctest.Wait()
		if diff := cmp.Diff(reconcile.GateStats{Limit: 2, InFlight: 2, Waiting: 1}, g.Stats()); diff != "" {
			t.Errorf("Stats (-want +got):\n%s", diff)
		}
		time.Sleep(10 * time.Second)
		l.mustHold(t, "0s a@2s", "0s b@3s", "2s c@10s", "3s d@10s")
		l.end()
		mustBeIdle(t, g)
	})
}

// SetLimit is the number of workers, changed while they work.
func TestGateSetLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(reconcile.Gate)
		g.SetLimit(1)
		var items []string
		for i := range 9 {
			items = append(items, strconv.Itoa(i)+"@10s")
		}
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 6}, items...)
		at := func(d time.Duration, limit, inFlight int) {
			t.Helper()
			time.Sleep(d)
			g.SetLimit(limit)
			synctest.Wait()
			if s := g.Stats(); s.Limit != limit || s.InFlight != inFlight {
				t.Errorf("after SetLimit(%d): Stats = %+v, want %d in flight", limit, s, inFlight)
			}
			if err := reconcile.CheckGate(g); err != nil {
				t.Error(err)
			}
		}
		at(1*time.Second, 3, 3) // 1 and 2 start at once
		at(1*time.Second, 1, 3) // 0 to 2 go on until 10s and 11s
		at(7*time.Second, 2, 3)
		at(3*time.Second, 9, 6) // 12s: 3 and 4 since 11s
		time.Sleep(20 * time.Second)
		l.mustHold(t, "0s 0@10s", "1s 1@10s", "1s 2@10s", "11s 3@10s", "11s 4@10s",
			"12s 5@10s", "12s 6@10s", "12s 7@10s", "12s 8@10s")
		l.end()
		mustBeIdle(t, g)
	})
}

func TestGateSetLimitStaysWithinMinAndMax(t *testing.T) {
	for _, c := range []struct{ low, high, set, want int }{
		{0, 0, 0, 1},
		{0, 0, -5, 1},
		{0, 0, 7, 7},
		{3, 5, 2, 3},
		{3, 5, 4, 4},
		{3, 5, 6, 5},
		{3, 0, 100, 100},
		{0, 5, 0, 1},
	} {
		g := &reconcile.Gate{Min: c.low, Max: c.high}
		if got := g.Stats().Limit; got != c.high {
			t.Errorf("Min %d, Max %d: the limit is %d at first, want Max", c.low, c.high, got)
		}
		g.SetLimit(c.set)
		if got := g.Stats().Limit; got != c.want {
			t.Errorf("Min %d, Max %d: the limit is %d after SetLimit(%d), want %d", c.low, c.high, got, c.set, c.want)
		}
	}
}

// The limit is kept for the next Run, but not beyond bounds that were changed.
func TestGateLimitMeetsNewBounds(t *testing.T) {
	g := new(reconcile.Gate)
	g.SetLimit(9)
	for _, c := range []struct{ low, high, want int }{{0, 0, 9}, {0, 8, 8}, {2, 9, 8}, {10, 20, 10}} {
		g.Min, g.Max = c.low, c.high
		q := reconcile.NewQueue[string]()
		q.Close()
		if err := (&reconcile.Reconciler[string]{Queue: q, Reconcile: nothing, Gate: g}).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := g.Stats().Limit; got != c.want {
			t.Errorf("Min %d, Max %d: the limit is %d, want %d", c.low, c.high, got, c.want)
		}
	}
}

// A gate has a clock of its own, and so has each queue; they begin at any time.
func TestGateServesQueuesOfAnyAge(t *testing.T) {
	for _, d := range dequeuers {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				old := reconcile.NewQueue[string]()
				time.Sleep(time.Hour)
				g := &reconcile.Gate{Every: time.Second}
				for range 2 {
					for _, q := range []*reconcile.Queue[string]{old, reconcile.NewQueue[string]()} {
						l := launchGated(t, reconcile.Reconciler[string]{Queue: d.of(q), Gate: g})
						for _, item := range []string{"a", "b", "c"} {
							q.Enqueue(item)
						}
						time.Sleep(3900 * time.Millisecond)
						q.Enqueue("d")
						q.Enqueue("e")
						time.Sleep(time.Hour)
						l.end()
						l.mustBe(t, "0s a", "1s b", "2s c", "3.9s d", "4.9s e")
					}
				}
			})
		})
	}
}

// The fields may change between two Runs.
func TestGateWithoutItsBudgetAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Every: time.Hour}
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "a", "b")
		synctest.Wait()
		l.end()
		g.Every = 0
		l = launchGated(t, reconcile.Reconciler[string]{Gate: g}, "a", "b")
		l.mustBe(t, "0s a", "0s b")
		if next := g.Stats().Next; next != 0 {
			t.Errorf("the next turn is in %v, want at once", next)
		}
		l.end()
		mustBeIdle(t, g)
	})
}

// A worker waits for an item when the limit falls. It takes the next, and runs it
// when there is a place again.
func TestGateLimitFallsWhileAWorkerWaits(t *testing.T) {
	for _, d := range dequeuers {
		t.Run(d.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &reconcile.Gate{Max: 3}
				q := reconcile.NewQueue[string]()
				l := launchGated(t, reconcile.Reconciler[string]{Queue: d.of(q), Gate: g, Workers: 3})
				q.Enqueue("a@10s")
				time.Sleep(time.Second)
				g.SetLimit(1)
				q.Enqueue("b")
				q.Enqueue("c")
				synctest.Wait()
				if b, c := q.State("b").Phase, q.State("c").Phase; b != reconcile.InFlight || c != reconcile.Ready {
					t.Errorf("b is %v and c %v, want one of them in hand", b, c)
				}
				if s := g.Stats(); s.InFlight != 1 || s.Waiting != 1 {
					t.Errorf("Stats = %+v, want 1 in flight and 1 waiting", s)
				}
				time.Sleep(time.Hour)
				l.mustBe(t, "0s a@10s", "10s b", "10s c")
				for _, r := range l.results.all() {
					if want := 9 * time.Second; r.Item == "b" && (r.Waited != want || r.Duration != 0) {
						t.Errorf("b waited %v and took %v, want %v and 0s", r.Waited, r.Duration, want)
					}
				}
				l.end()
				mustBeIdle(t, g)
			})
		})
	}
}

func TestGateStatsTellTheNextTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Every: 10 * time.Second, Burst: 2}
		next := func(want time.Duration) {
			t.Helper()
			synctest.Wait()
			if got := g.Stats().Next; got != want {
				t.Errorf("the next turn is in %v, want %v", got, want)
			}
		}
		next(0)
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "a")
		next(0)
		l.q.Enqueue("b")
		next(10 * time.Second)
		time.Sleep(3 * time.Second)
		next(7 * time.Second)
		time.Sleep(time.Minute)
		next(0)
		l.end()
	})
}

// What Slow is told, and after which runs.
func TestGateSlowIsToldOfEachRunButAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := newJournal()
		g := &reconcile.Gate{Slow: func(err error, took time.Duration) bool {
			var panicked *reconcile.PanicError
			if errors.As(err, &panicked) {
				err = fmt.Errorf("*PanicError of %v", panicked.Value)
			}
			told.note("%v took %v", err, took)
			return false
		}}
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g},
			"a@1s", "b@2s=busy", "c=plan", "d=refuse", "e=panic", "f@1h")
		time.Sleep(time.Minute)
		l.end()
		told.mustBe(t, "1s <nil> took 1s", "3s "+errBusy.Error()+" took 2s", "3s requeue after 1h0m0s took 0s",
			"3s boom took 0s", "3s *PanicError of no disk took 0s")
		if got := l.results.last(t); got.Outcome != reconcile.Aborted {
			t.Errorf("the last result is %+v, want it aborted", got)
		}
		mustBeIdle(t, g)
	})
}

// Which results add to the limit, and which halve it.
func TestGateLimitAfterEachOutcome(t *testing.T) {
	for item, want := range map[string]int{
		"a": 6, "a=plan": 6, "a=fail": 5, "a=refuse": 5, "a=panic": 5, "a@1h": 5, "a=busy": 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			g := &reconcile.Gate{Slow: busy}
			g.SetLimit(5)
			others := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 4}, "1@9h", "2@9h", "3@9h", "4@9h")
			synctest.Wait()
			for range 5 { // alone in taking the last place
				if item == "a=busy" {
					others.end()
				}
				l := launchGated(t, reconcile.Reconciler[string]{Gate: g}, item)
				synctest.Wait()
				l.end()
			}
			if got := g.Stats().Limit; got != want {
				t.Errorf("the limit is %d after five of %s, want %d", got, item, want)
			}
			others.end()
			mustBeIdle(t, g)
		})
	}
}

// A run that ends early because its item was enqueued again says nothing of the
// far side.
func TestGateLimitAfterAnOutdatedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Slow: busy}
		g.SetLimit(1)
		q := reconcile.NewQueue[string]()
		q.Enqueue("a")
		var limits []int
		runs := 0
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Gate: g, Logger: unlogged(),
			Reconcile: func(ctx context.Context, item string) error {
				if runs++; runs > 3 {
					return nil
				}
				ctx, stop := reconcile.UntilChanged(ctx)
				defer stop()
				q.Enqueue(item)
				<-ctx.Done()
				return context.Cause(ctx)
			},
			OnResult: func(reconcile.Result[string]) { limits = append(limits, g.Stats().Limit) },
		})
		synctest.Wait()
		run.end()
		if got := fmt.Sprint(limits); got != "[1 1 1 2]" {
			t.Errorf("limits after three outdated runs and a good one: %v, want [1 1 1 2]", got)
		}
	})
}

// A far side can do so many at once, and answers 429 to the others.
func TestGateLimitSettlesOnWhatTheFarSideCanDo(t *testing.T) {
	for _, c := range []struct{ capacity, low, high, from, to int }{
		// By itself it goes between 4 and 9. But who ends in the same instant as
		// a refusal, and has left by then, is up to the scheduler.
		{8, 0, 0, 2, 16},
		{8, 0, 6, 6, 6}, // never in the way of the far side
		{8, 6, 0, 6, 16},
		{1, 0, 0, 1, 2},
		{20, 0, 0, 5, 17}, // as many as there are workers, and one more
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &reconcile.Gate{Min: c.low, Max: c.high, Slow: busy}
				q := reconcile.NewQueue[int]()
				for i := range 1000 {
					q.Enqueue(i)
				}
				far := make(chan bool, c.capacity)
				seen := make(map[int]bool)
				served, begin := 0, time.Now()
				r := &reconcile.Reconciler[int]{
					Queue: q, Gate: g, Workers: 16, Logger: unlogged(),
					Reconcile: func(_ context.Context, i int) error {
						select {
						case far <- true:
						default:
							time.Sleep(time.Millisecond) // it takes a while to refuse
							return fmt.Errorf("ask: %w", errBusy)
						}
						time.Sleep(100*time.Millisecond + time.Duration(i%7)*time.Millisecond)
						<-far
						return reconcile.RequeueAfter(0)
					},
					Retry: func(error, int) (time.Duration, bool) { return time.Second, true },
				}
				var results resultBook[int]
				r.OnResult = results.add
				run := launch(t, r)
				for range 600 {
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					if err := reconcile.CheckGate(g); err != nil {
						t.Fatal(err)
					}
					if time.Since(begin) > 30*time.Second {
						seen[g.Stats().Limit] = true
					}
				}
				for _, r := range results.all() {
					if r.Outcome == reconcile.Requeued {
						served++
					}
				}
				for limit := range seen {
					if limit != 0 && (limit < c.from || limit > c.to) {
						t.Errorf("the limit was %d, want %d to %d: %v", limit, c.from, c.to, seen)
					}
				}
				// Without a limit, most of what is asked is refused; with one of
				// half the capacity, half of the capacity is used at least.
				if most := 60 * min(c.capacity, 16) * 1000 / 103; served < most*6/10 {
					t.Errorf("%d served in a minute, want most of %d", served, most)
				}
				run.end()
				mustBeIdle(t, g)
			})
		})
	}
}
