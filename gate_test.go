// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
