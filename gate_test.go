// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
// item says after an @, such as a@3s; then it ends as the item says after an =,
// such as b=busy.
func launchGated(t *testing.T, r reconcile.Reconciler[string], items ...string) *gated {
	t.Helper()
	if r.Queue == nil {
		r.Queue = reconcile.NewQueue[string]()
	}
	l := &gated{journal: newJournal(), q: queueInside(r.Queue)}
	for _, item := range items {
		l.q.Enqueue(item)
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
		case "recheck":
			return reconcile.RecheckWithin(time.Hour)
		case "changed": // by the run itself, the first time
			if len(l.results.all()) == 0 {
				ctx, stop := reconcile.UntilChanged(ctx)
				defer stop()
				l.q.Enqueue(item + "=changed")
				<-ctx.Done()
			}
			return errBoom
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

// checkGate checks the rules that stand at the gate's mutex.
func checkGate(t *testing.T, g *reconcile.Gate) {
	t.Helper()
	if err := reconcile.CheckGate(g); err != nil {
		t.Error(err)
	}
}

// mustBeIdle checks that no run is in the gate, and none waits.
func mustBeIdle(t *testing.T, g *reconcile.Gate) {
	t.Helper()
	synctest.Wait()
	checkGate(t, g)
	if s := g.Stats(); s.InFlight != 0 || s.Waiting != 0 {
		t.Errorf("Stats() = %+v after all runs, want none in flight and none waiting", s)
	}
}

// split is strings.Split at commas, and nothing for nothing.
func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ", ")
}

func TestGateFieldsAreChecked(t *testing.T) {
	for gate, says := range map[*reconcile.Gate]string{
		{Every: -time.Second}: "Gate.Every is -1s, want 0", {Burst: -1}: "Gate.Burst is -1, want 0",
		{Min: -2}: "Gate.Min is -2, want 0", {Max: -3}: "Gate.Max is -3, want 0",
		{Min: 5, Max: 4}: "Gate.Min is 5, want no more than Max, which is 4",
		{Min: 5, Max: 5}: "", {Min: 5}: "", {Every: 1, Burst: 1, Min: 1, Max: 1}: "", {}: "",
	} {
		if err := runEmpty(t, gate); says == "" && err != nil || says != "" && !strings.HasPrefix(fmt.Sprint(err), "reconcile: Reconciler."+says) {
			t.Errorf("Run = %v, want %q", err, says)
		}
	}
}

// runEmpty runs a loop that has nothing to do.
func runEmpty(t *testing.T, g *reconcile.Gate) error {
	q := reconcile.NewQueue[string]()
	q.Close()
	none := func(context.Context, string) error { return nil }
	return (&reconcile.Reconciler[string]{Queue: q, Gate: g, Reconcile: none}).Run(t.Context())
}

// When runs start under a budget. All items, except those fed later, are there
// from the beginning.
func TestGateBudget(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		name    string
		gate    *reconcile.Gate
		workers int
		items   string
		later   map[time.Duration]string
		want    string
	}{
		{"none", &reconcile.Gate{Burst: 3}, 1, "a b c", nil, "0s a, 0s b, 0s c"},
		{"one by one", &reconcile.Gate{Every: second}, 1, "a b c d", nil, "0s a, 1s b, 2s c, 3s d"},
		{
			"workers do not help", &reconcile.Gate{Every: second}, 4, "a@9s b@9s c@9s d@9s", nil,
			"0s a@9s, 1s b@9s, 2s c@9s, 3s d@9s",
		},
		{"burst", &reconcile.Gate{Every: second, Burst: 3}, 1, "a b c d e", nil, "0s a, 0s b, 0s c, 1s d, 2s e"},
		{
			"a pause is made up for by a burst, and no more", &reconcile.Gate{Every: second, Burst: 3}, 1, "a b c d",
			map[time.Duration]string{time.Hour + second/2: "e f g h i"},
			"0s a, 0s b, 0s c, 1s d, 1h0m0.5s e, 1h0m0.5s f, 1h0m0.5s g, 1h0m1.5s h, 1h0m2.5s i",
		},
		{
			"a short pause is made up for by so much", &reconcile.Gate{Every: second, Burst: 3}, 1, "a b c",
			map[time.Duration]string{2500 * time.Millisecond: "d e f g"},
			"0s a, 0s b, 0s c, 2.5s d, 2.5s e, 3s f, 4s g",
		},
		{
			"without a burst a pause is not made up for", &reconcile.Gate{Every: second}, 1, "a",
			map[time.Duration]string{1900 * time.Millisecond: "b c d"},
			"0s a, 1.9s b, 2.9s c, 3.9s d",
		},
		{"nor is a long run", &reconcile.Gate{Every: second}, 1, "a@1700ms b c", nil, "0s a@1700ms, 1.7s b, 2.7s c"},
		{"nor the limit", &reconcile.Gate{Every: second, Max: 1}, 3, "a@1700ms b c", nil, "0s a@1700ms, 1.7s b, 2.7s c"},
		{"nor a longer one", &reconcile.Gate{Every: second, Max: 1}, 3, "a@2500ms b c", nil, "0s a@2500ms, 2.5s b, 3.5s c"},
		{"a burst that overflows", &reconcile.Gate{Every: time.Hour, Burst: 1 << 40}, 1, "a b c", nil, "0s a, 0s b, 0s c"},
		{"a burst without end", &reconcile.Gate{Every: math.MaxInt64, Burst: math.MaxInt}, 1, "a b c", nil, "0s a, 0s b, 0s c"},
		{"a budget for ever", &reconcile.Gate{Every: math.MaxInt64}, 1, "a b", nil, "0s a"},
		{"a burst of it", &reconcile.Gate{Every: math.MaxInt64, Burst: 2}, 1, "a b c", nil, "0s a, 0s b"},
		{"a budget for long", &reconcile.Gate{Every: 1e6 * time.Hour, Burst: 4}, 1, "a b c d e", nil, "0s a, 0s b, 0s c, 0s d"},
	} {
		runBubble(t, c.name, func(t *testing.T) {
			l := launchGated(t, reconcile.Reconciler[string]{Gate: c.gate, Workers: c.workers}, strings.Fields(c.items)...)
			for after, items := range c.later {
				time.AfterFunc(after, func() {
					for item := range strings.FieldsSeq(items) {
						l.q.Enqueue(item)
					}
				})
			}
			time.Sleep(2 * time.Hour)
			l.mustBe(t, split(c.want)...)
			if next := c.gate.Stats().Next; (next > 0) != (l.q.Stats().InFlight > 0) {
				t.Errorf("the budget allows a run in %v, and an item in hand: %v", next, l.q.Stats())
			}
			checkGate(t, c.gate)
			l.end()
			mustBeIdle(t, c.gate)
		})
	}
}

// A lateQueue is a queue of ints whose Lease takes long, which makes an item that
// waits come late to the gate.
type lateQueue struct {
	plainQueue[int]
	until func(item int) time.Time
}

func (q lateQueue) Lease(ctx context.Context, item int) context.Context {
	if d := time.Until(q.until(item)); d > 0 {
		time.Sleep(d)
	}
	return ctx
}

// A run is let in later than it could be, because a timer or a goroutine is late.
// Its token is that of the instant when it could, so the next is not late too. A
// run that is late by Every or more is charged for now.
func TestGateBudgetDoesNotDrift(t *testing.T) {
	const second, ms = time.Second, time.Millisecond
	random := rand.New(rand.NewPCG(1, 2))
	late := []time.Duration{0}
	for i := range time.Duration(60) {
		late = append(late, (i+1)*second+time.Duration(random.IntN(1e9)))
	}
	for _, c := range []struct {
		name     string
		limit    int
		first    time.Duration // how long the first run takes
		reach    []time.Duration
		want     []time.Duration
		lastNext time.Duration
	}{
		{"late", 0, 0, []time.Duration{0, 1300 * ms}, []time.Duration{0, 1300 * ms, 2 * second, 3 * second}, second},
		{"later", 0, 0, []time.Duration{0, 2*second - 1}, []time.Duration{0, 2*second - 1, 2 * second, 3 * second}, second},
		{"a pause", 0, 0, []time.Duration{0, 2 * second}, []time.Duration{0, 2 * second, 3 * second, 4 * second}, second},
		{"a long pause", 0, 0, []time.Duration{0, time.Hour}, []time.Duration{0, time.Hour, time.Hour + second}, second},
		{"for a minute", 0, 0, late, late, 61*second - late[60]},
		{"there was room", 2, 1200 * ms, []time.Duration{0, 1300 * ms}, []time.Duration{0, 1300 * ms, 2 * second}, second},
		{"there was no room", 1, 1200 * ms, []time.Duration{0, 1300 * ms}, []time.Duration{0, 1300 * ms, 2200 * ms}, second},
	} {
		runBubble(t, c.name, func(t *testing.T) {
			begin := time.Now()
			q := lateQueue{plainly(reconcile.NewQueue[int]()), func(item int) time.Time {
				if item >= len(c.reach) {
					return begin
				}
				return begin.Add(c.reach[item])
			}}
			for i := range c.want {
				q.q.Enqueue(i)
			}
			q.q.Close()
			var got []time.Duration
			g := &reconcile.Gate{Every: second, Max: c.limit}
			run := launch(t, &reconcile.Reconciler[int]{
				Queue: q, Gate: g, Workers: 2, Logger: unlogged(),
				Reconcile: func(_ context.Context, item int) error {
					if got = append(got, time.Since(begin)); item == 0 && c.first > 0 {
						time.Sleep(c.first)
					}
					return nil
				},
			})
			if err := run.wait(); err != nil {
				t.Error(err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("runs start at\n %v, want\n %v", got, c.want)
			}
			if next := g.Stats().Next; next != c.lastNext {
				t.Errorf("after all, the budget allows a run in %v, want %v", next, c.lastNext)
			}
			mustBeIdle(t, g)
		})
	}
}

// One item of a Run waits in hand. The others wait in the queue, where events are
// folded into them; and what was run is given back at once.
func TestGateLeavesItemsInTheQueue(t *testing.T) {
	eachDequeuer(t, func(t *testing.T, d reconcile.Dequeuer[string]) {
		g := &reconcile.Gate{Every: time.Minute}
		l := launchGated(t, reconcile.Reconciler[string]{Queue: d, Gate: g, Workers: 3})
		q := l.q
		if synctest.Wait(); g.Stats().Waiting != 0 {
			t.Errorf("Stats() = %+v without an item, want that none waits", g.Stats())
		}
		for item := range strings.FieldsSeq("a b=plan c") {
			q.Enqueue(item)
		}
		for range 59 {
			time.Sleep(time.Second)
			q.Enqueue("c")
			q.Enqueue("d")
		}
		synctest.Wait()
		if s := q.Stats(); q.Has("a") || s.Ready != 2 || s.InFlight != 1 {
			t.Errorf("Stats() = %+v, Has(a) = %v, want two items ready, one in hand, and a done", s, q.Has("a"))
		}
		wantSame(t, "Stats()", g.Stats(), reconcile.GateStats{Waiting: 1, Next: time.Second})
		q.Remove("d")
		time.Sleep(time.Second)
		synctest.Wait()
		if s := q.State("b=plan"); s.Phase != reconcile.Waiting {
			t.Errorf("State(b) = %+v after its run, want it to wait for its next", s)
		}
		if r := l.results.last(t); r.Waited != time.Minute || r.Duration != 0 {
			t.Errorf("b waited %v and took %v, want 1m0s and 0s", r.Waited, r.Duration)
		}
		time.Sleep(10 * time.Minute)
		l.mustBe(t, "0s a", "1m0s b=plan", "2m0s c")
		wantWaited := 2 * time.Minute // in the queue, and then in hand
		if _, known := d.(*reconcile.Queue[string]); !known {
			wantWaited = time.Minute // what a foreign queue keeps an item for is not known
		}
		if r := l.results.last(t); r.Waited != wantWaited || r.Duration != 0 {
			t.Errorf("c waited %v and took %v, want %v and 0s", r.Waited, r.Duration, wantWaited)
		}
		if next := g.Stats().Next; next != 0 {
			t.Errorf("the budget allows a run in %v after a pause, want now", next)
		}
		l.end()
		mustBeIdle(t, g)
	})
}

// A gate has a clock of its own, and so has each queue; they begin at any time.
func TestGateServesQueuesOfAnyAge(t *testing.T) {
	for _, d := range dequeuers {
		runBubble(t, d.name, func(t *testing.T) {
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
			g.Every = 0 // the fields may change between two Runs
			l := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "a", "b")
			l.mustBe(t, "0s a", "0s b")
			l.end()
			mustBeIdle(t, g)
		})
	}
}

// Each step is a letter and a number: + starts so many runs, each in a Run of its
// own; so many of the first end well by w, fail by f, are aborted by a; the first
// is slow by s; = sets the limit. The number behind a colon is the limit then.
func TestGateLimitAdapts(t *testing.T) {
	for _, c := range []struct {
		name      string
		low, high int
		steps     string
	}{
		{"nothing moves it without a slow result", 0, 0, "+8:0 w8:0 +8:0 f8:0"},
		{"half of those in flight", 0, 0, "+8:0 s1:4"},
		{"half of an odd number", 0, 0, "+7:0 s1:3"},
		{"half of one", 0, 0, "+1:0 s1:1"},
		{"half, but not below Min", 3, 0, "+4:0 s1:3"},
		{"half of those in flight, not of the limit", 0, 40, "+8:40 s1:4"},
		{"half, but it does not rise", 0, 0, "+10:0 =2:2 s1:2"},
		{"half, but it does not rise at all", 0, 40, "+10:40 =4:4 s1:4"},
		{"only once for those in flight", 0, 0, "+9:0 s1:4 s1:4 s1:4 w6:4 +4:4 s1:2"},
		{"those in flight say nothing good either", 0, 0, "+8:0 s1:4 w7:4 +4:4 w4:4 +4:4 w4:4 +4:4 w4:4 +4:4 w3:4 w1:5"},
		{"each limit's worth adds one", 0, 0, "+8:0 =2:2 w8:2 +2:2 w1:2 +1:2 w1:2 +1:2 w1:3 +2:3 w1:3 +1:3 w1:3 +1:3 w1:3 +1:3 w1:4"},
		{"but not if it is not in the way", 0, 0, "=4:4 +3:4 w3:4 +3:4 w3:4 +3:4 w3:4 +3:4 w3:4"},
		{"only those count that took the last place", 0, 0, "=3:3 +3:3 w3:3 +3:3 w3:3 +3:3 w2:3 w1:4"},
		{"failures and aborted runs do not count", 0, 0, "=1:1 +1:1 f1:1 +1:1 a1:1 +1:1 f1:1 +1:1 w1:2"},
		{"a slow result starts the count anew", 0, 0, "=2:2 +2:2 w1:2 +1:2 w1:2 +1:2 s1:1 w1:1 +1:1 w1:2"},
		{"SetLimit starts the count anew", 0, 0, "=2:2 +2:2 w2:2 =2:2 +2:2 w2:2 +2:2 w2:3"},
		{"up to Max and no further", 0, 2, "=1:1 +1:1 w1:2 +2:2 w2:2 +2:2 w2:2 +2:2 w2:2 s0:2"},
		{"down and up again", 0, 3, "+3:3 s1:1 w2:1 +1:1 w1:2 +2:2 w1:2 +1:2 w1:2 +1:2 w1:3"},
		{"SetLimit within the bounds", 3, 5, "+0:5 =2:3 =-2:3 =4:4 =6:5"},
		{"SetLimit below one", 0, 0, "+0:0 =0:1 =-5:1 =100:100"},
	} {
		runBubble(t, c.name, func(t *testing.T) {
			g := &reconcile.Gate{Min: c.low, Max: c.high, Slow: busy}
			type oneRun struct {
				*running
				ends chan error
			}
			var runs []oneRun
			halved, epoch := uint64(0), 0 // runs that had started at the last halving are no longer asked
			for step := range strings.FieldsSeq(c.steps) {
				var verb byte
				var n, want int
				if _, err := fmt.Sscanf(step, "%c%d:%d", &verb, &n, &want); err != nil {
					t.Fatal(step, err)
				}
				if verb == '=' {
					g.SetLimit(n)
					n = 0
				}
				for range n {
					if verb == '+' {
						ends := make(chan error)
						q := reconcile.NewQueue[string]()
						q.Enqueue("x")
						q.Close()
						runs = append(runs, oneRun{launch(t, &reconcile.Reconciler[string]{
							Queue: q, Gate: g, Retry: reconcile.NoRetry, Logger: unlogged(),
							Reconcile: func(ctx context.Context, _ string) error {
								select {
								case err := <-ends:
									return err
								case <-ctx.Done():
									return ctx.Err()
								}
							},
						}), ends})
						synctest.Wait() // so that they are let in in order
						continue
					}
					switch first := runs[0]; verb {
					case 'w':
						first.ends <- nil
					case 'f':
						first.ends <- errBoom
					case 's':
						if first.ends <- errBusy; epoch <= 0 {
							halved, epoch = halved+1, len(runs)
						}
					case 'a':
						first.end()
					}
					if err := runs[0].wait(); err != nil {
						t.Error(err)
					}
					runs, epoch = runs[1:], epoch-1
				}
				synctest.Wait()
				if s := g.Stats(); s.Limit != want || s.InFlight != len(runs) || s.Waiting != 0 || s.Halved != halved {
					t.Fatalf("%s: Stats = %+v, want %d in flight and %d halved", step, s, len(runs), halved)
				}
				checkGate(t, g)
			}
		})
	}
}

// Which results add to the limit, and which halve it.
func TestGateLimitAfterEachOutcome(t *testing.T) {
	for item, want := range map[string]int{
		"a": 6, "a=plan": 6, "a=recheck": 6, "a=fail": 5, "a=refuse": 5, "a=panic": 5, "a@1h": 5, "a=changed": 5, "a=busy": 1,
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

// SetLimit is the number of workers, changed while they work and wait. It lets in
// no more than the budget does.
func TestGateSetLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(reconcile.Gate)
		g.SetLimit(1)
		var items []string
		for i := range 9 {
			items = append(items, strconv.Itoa(i)+"@10s")
		}
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 6}, items...)
		at := func(d time.Duration, want reconcile.GateStats) {
			t.Helper()
			time.Sleep(d)
			g.SetLimit(want.Limit)
			synctest.Wait()
			wantSame(t, fmt.Sprintf("after SetLimit(%d), Stats()", want.Limit), g.Stats(), want)
			checkGate(t, g)
		}
		at(1*time.Second, reconcile.GateStats{Limit: 3, InFlight: 3, Waiting: 1}) // 1 and 2 start at once
		at(1*time.Second, reconcile.GateStats{Limit: 1, InFlight: 3, Waiting: 1}) // they go on until 10s and 11s
		at(7*time.Second, reconcile.GateStats{Limit: 2, InFlight: 3, Waiting: 1})
		at(3*time.Second, reconcile.GateStats{Limit: 9, InFlight: 6}) // 12s: 3 and 4 since 11s
		time.Sleep(20 * time.Second)
		l.mustHold(t, "0s 0@10s", "1s 1@10s", "1s 2@10s", "11s 3@10s", "11s 4@10s",
			"12s 5@10s", "12s 6@10s", "12s 7@10s", "12s 8@10s")
		l.end()
		mustBeIdle(t, g)
	})
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Every: 10 * time.Second, Burst: 2, Max: 9}
		g.SetLimit(1)
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 9}, "a@1h", "b@1h", "c@1h", "d@1h")
		time.Sleep(time.Minute)
		g.SetLimit(9)
		time.Sleep(time.Minute)
		l.mustHold(t, "0s a@1h", "1m0s b@1h", "1m0s c@1h", "1m10s d@1h")
		l.end()
		mustBeIdle(t, g)
	})
}

// The limit is kept for the next Run, but not beyond bounds that were changed.
func TestGateLimitMeetsNewBounds(t *testing.T) {
	g := new(reconcile.Gate)
	g.SetLimit(9)
	for _, c := range []struct{ low, high, want int }{{0, 0, 9}, {0, 8, 8}, {2, 9, 8}, {10, 20, 10}} {
		g.Min, g.Max = c.low, c.high
		if err := runEmpty(t, g); err != nil {
			t.Fatal(err)
		}
		if got := g.Stats().Limit; got != c.want {
			t.Errorf("Min %d, Max %d: the limit is %d, want %d", c.low, c.high, got, c.want)
		}
	}
}

// Before the first Run a budget is whole.
func TestGateStatsBeforeTheFirstRun(t *testing.T) {
	g := &reconcile.Gate{Every: time.Hour, Burst: 3, Max: 7}
	wantSame(t, "Stats()", g.Stats(), reconcile.GateStats{Limit: 7})
}

// What Slow is called with, and after which runs.
func TestGateSlowIsCalledAfterEachRunExceptAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := newJournal()
		g := &reconcile.Gate{Slow: func(err error, took time.Duration) bool {
			var panicked *reconcile.PanicError
			if errors.As(err, &panicked) {
				err = fmt.Errorf("*PanicError of %v", panicked.Value)
			}
			calls.note("%v took %v", err, took)
			return false
		}}
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g},
			"a@1s", "b@2s=busy", "c=plan", "d=refuse", "e=panic", "f@1h")
		time.Sleep(time.Minute)
		l.end()
		calls.mustBe(t, "1s <nil> took 1s", "3s "+errBusy.Error()+" took 2s", "3s requeue after 1h0m0s took 0s",
			"3s boom took 0s", "3s *PanicError of no disk took 0s")
		if got := l.results.last(t); got.Outcome != reconcile.Aborted {
			t.Errorf("the last result is %+v, want it aborted", got)
		}
		mustBeIdle(t, g)
	})
}

// A run leaves the gate before its outcome is logged.
func TestGateDoesNotWaitForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Max: 1}
		log := slog.New(funcHandler{newLogBook(), func(r slog.Record) {
			if r.Message == "run succeeded" {
				time.Sleep(time.Minute)
			}
		}})
		l := launchGated(t, reconcile.Reconciler[string]{Gate: g, Workers: 2, Logger: log}, "a", "b")
		time.Sleep(time.Hour)
		l.mustBe(t, "0s a", "0s b")
		l.end()
		mustBeIdle(t, g)
	})
}

// launchInts launches a loop for each name, which share a gate. Its journal has
// the name of each run.
func launchInts(t *testing.T, g *reconcile.Gate, workers int, takes func() time.Duration, names ...string) (*journal, map[string]*reconcile.Queue[int], func()) {
	t.Helper()
	d := newJournal()
	queues := make(map[string]*reconcile.Queue[int])
	var runs []*running
	for _, name := range names {
		queues[name] = reconcile.NewQueue[int]()
		runs = append(runs, launch(t, &reconcile.Reconciler[int]{
			Queue: queues[name], Gate: g, Workers: workers, Logger: unlogged(),
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

func feedInts(q *reconcile.Queue[int], n int) {
	for i := range n {
		q.Enqueue(i)
	}
	synctest.Wait()
}

// Alone, a Run has all of a budget; those that share it take turns.
func TestGateBudgetIsTakenByTurns(t *testing.T) {
	for _, workers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			quick := func() time.Duration { return time.Millisecond }
			d, queues, end := launchInts(t, &reconcile.Gate{Every: time.Second}, workers, quick, "crowd", "one", "two")
			feedInts(queues["crowd"], 1000)
			var want []string
			for i := range 11 {
				want = append(want, fmt.Sprintf("%ds crowd", i))
			}
			time.Sleep(10500 * time.Millisecond)
			feedInts(queues["one"], 20)
			feedInts(queues["two"], 20)
			time.Sleep(45 * time.Second)
			for i := range 45 {
				want = append(want, fmt.Sprintf("%ds %s", 11+i, []string{"crowd", "one", "two"}[i%3]))
			}
			d.mustBe(t, want...)
			end()
		})
	}
}

// While others wait, none starts a second run before each of them started one.
func TestGateLimitIsTakenByTurns(t *testing.T) {
	var seed uint64
	defer tellSeed(t, &seed)
	for seed = range 10 {
		synctest.Test(t, func(t *testing.T) {
			r, mu := rand.New(rand.NewPCG(seed, 1)), sync.Mutex{}
			takes := func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(1 + r.IntN(1e9))
			}
			names := []string{"a", "b", "c", "d"}
			d, queues, end := launchInts(t, &reconcile.Gate{Max: 3}, 5, takes, names...)
			for _, name := range names {
				feedInts(queues[name], 50)
				queues[name].Close()
			}
			time.Sleep(time.Hour)
			end()
			if len(d.list) != 200 {
				t.Fatalf("%d runs, want 200", len(d.list))
			}
			since := make(map[string]int)
			for i, line := range d.list[3:160] { // all were fed by then
				_, name, _ := strings.Cut(line, " ")
				if before, ok := since[name]; ok && i-before != len(names) {
					t.Fatalf("run %d is the next of %s after %d others, want 3: %v", i, name, i-before-1, d.list)
				}
				since[name] = i
			}
		})
	}
}

// Those that wait are let in in the order in which they came, whatever they came
// for; one that goes away leaves its turn to the next.
func TestGateTurnsAreFirstComeFirstServed(t *testing.T) {
	for range 20 { // in some, those that come at a turn are there before the timer
		synctest.Test(t, func(t *testing.T) {
			g := &reconcile.Gate{Every: 10 * time.Second}
			first := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "first@10s")
			synctest.Wait()
			var loops []*gated
			for i := range 4 {
				loops = append(loops, launchGated(t, reconcile.Reconciler[string]{Gate: g}, strconv.Itoa(i)+"@1h"))
				synctest.Wait()
			}
			late := launchGated(t, reconcile.Reconciler[string]{Gate: g})
			time.AfterFunc(10*time.Second, func() { late.q.Enqueue("late") })
			if s := g.Stats(); s.Waiting != 4 || s.InFlight != 1 {
				t.Errorf("Stats = %+v, want 4 waiting", s)
			}
			loops[1].end()
			checkGate(t, g)
			time.Sleep(time.Hour)
			first.mustBe(t, "0s first@10s")
			loops[0].mustBe(t, "10s 0@1h")
			loops[1].mustBe(t)
			loops[2].mustBe(t, "20s 2@1h")
			loops[3].mustBe(t, "30s 3@1h")
			late.mustBe(t, "40s late")
			for _, l := range append(loops, first, late) {
				l.end()
			}
			mustBeIdle(t, g)
		})
	}
}

// Run returns as soon as its queue is closed and empty, however many workers
// wait; an item in hand is run first.
func TestGateRunEndsWithItsQueue(t *testing.T) {
	for _, d := range dequeuers {
		for _, c := range []struct {
			items string
			end   time.Duration
			want  string
		}{
			{"", 10 * time.Second, ""},
			{"a", 10 * time.Second, "0s a"},
			{"a@1m", time.Minute, "0s a@1m"},
			{"a@1m=fail", time.Hour + time.Minute, "0s a@1m=fail, 1h0m0s a@1m=fail"},
			{"a b", time.Hour, "0s a, 1h0m0s b"},
			{"a b c", 2 * time.Hour, "0s a, 1h0m0s b, 2h0m0s c"},
		} {
			runBubble(t, d.name+"/"+c.items, func(t *testing.T) {
				g := &reconcile.Gate{Every: time.Hour}
				l := launchGated(t, reconcile.Reconciler[string]{
					Queue: d.of(reconcile.NewQueue[string]()), Gate: g, Workers: 3,
					Retry: func(_ error, failures int) (time.Duration, bool) { return 0, failures < 2 },
				}, strings.Fields(c.items)...)
				time.AfterFunc(10*time.Second, l.q.Close)
				if err := l.wait(); err != nil || time.Since(l.begun) != c.end {
					t.Errorf("Run = %v after %v, want nil after %v", err, time.Since(l.begun), c.end)
				}
				l.mustBe(t, split(c.want)...)
				mustBeIdle(t, g)
			})
		}
	}
}

// alone makes goroutines run one after the other: they see all at once that f did.
func alone(f func()) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f()
}

// The context ends while an item waits in hand, with other workers behind it; or
// at the turn of that item, a moment before or after, and then nothing of the turn
// is lost.
func TestGateRunEndsWithItsContext(t *testing.T) {
	for _, d := range dequeuers {
		for name, c := range map[string]struct {
			every time.Duration
			limit int
			items string
			end   func(g *reconcile.Gate, l *gated)
			next  time.Duration
		}{
			"budget":        {time.Hour, 0, "a b c", func(_ *reconcile.Gate, l *gated) { l.cancel(errEnd) }, time.Hour - time.Minute},
			"limit":         {time.Minute, 1, "a@1h b c", func(_ *reconcile.Gate, l *gated) { l.cancel(errEnd) }, 0},
			"no more items": {time.Hour, 0, "a", func(_ *reconcile.Gate, l *gated) { l.cancel(errEnd) }, time.Hour - time.Minute},
			"turn after":    {time.Minute, 1, "a@1h b c", func(g *reconcile.Gate, l *gated) { l.cancel(errEnd); g.SetLimit(2) }, 0},
			"turn before":   {time.Minute, 1, "a@1h b c", func(g *reconcile.Gate, l *gated) { g.SetLimit(2); l.cancel(errEnd) }, 0},
		} {
			runBubble(t, d.name+"/"+name, func(t *testing.T) {
				g := &reconcile.Gate{Every: c.every}
				if c.limit > 0 {
					g.SetLimit(c.limit)
				}
				items := strings.Fields(c.items)
				l := launchGated(t, reconcile.Reconciler[string]{Queue: d.of(reconcile.NewQueue[string]()), Gate: g, Workers: 3}, items...)
				time.Sleep(time.Minute)
				synctest.Wait()
				alone(func() { c.end(g, l) })
				l.end()
				if took := time.Since(l.begun); took != time.Minute {
					t.Errorf("Run returned after %v, want a minute", took)
				}
				mustBeIdle(t, g)
				l.mustBe(t, "0s "+items[0])
				left := len(items)
				if r := l.results.only(t); r.Outcome != reconcile.Aborted {
					left--
				}
				if s := l.q.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Ready != left {
					t.Errorf("Stats() = %+v, want %d ready", s, left)
				}
				if next := g.Stats().Next; next != c.next {
					t.Errorf("the budget allows a run in %v, want %v", next, c.next)
				}
			})
		}
	}
}

// An item in hand is in flight: an event makes it run again, and ends its run at
// once by UntilChanged. It is given back as if its run was aborted, and does not
// run though the grace of another run makes room.
func TestGateItemInHand(t *testing.T) {
	for _, d := range dequeuers {
		synctest.Test(t, func(t *testing.T) {
			g, q := &reconcile.Gate{Max: 1}, reconcile.NewQueue[string]()
			q.Enqueue("b")
			b, _ := q.Dequeue(t.Context())
			q.Requeue(b, reconcile.Wait{Delay: 5 * time.Second, Err: errBoom})
			q.Enqueue("a@10s")
			l := launchGated(t, reconcile.Reconciler[string]{Queue: d.of(q), Gate: g, Workers: 2, Grace: time.Minute})
			time.Sleep(6 * time.Second)
			if s := q.State("b"); s.Phase != reconcile.InFlight {
				t.Errorf("%s: State(b) = %+v, want it in hand", d.name, s)
			}
			l.end()
			l.mustBe(t, "0s a@10s")
			if s := q.State("b"); s.Phase != reconcile.Ready || s.Failures != 1 || s.Err != errBoom {
				t.Errorf("%s: State(b) = %+v, want it ready, with 1 failure", d.name, s)
			}
			if r := l.results.only(t); r.Outcome != reconcile.Succeeded || r.Duration != 10*time.Second {
				t.Errorf("%s: result of a = %+v, want it to end well in the grace", d.name, r)
			}
			mustBeIdle(t, g)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		d, g, q := newJournal(), &reconcile.Gate{Every: time.Minute}, reconcile.NewQueue[string]()
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Gate: g, Workers: 2, Logger: unlogged(),
			Reconcile: func(ctx context.Context, item string) error {
				c, stop := reconcile.UntilChanged(ctx)
				defer stop()
				d.note("%s: %v", item, context.Cause(c))
				return nil
			},
		})
		q.Enqueue("a")
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

// The context of Run ends a moment before that which workers wait under. An item
// in hand does not run, though its turn comes between.
func TestGateItemInHandDoesNotRunAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer time.Sleep(time.Minute) // until all have been notified
		defer cancel()
		g, q := new(reconcile.Gate), reconcile.NewQueue[string]()
		g.SetLimit(1)
		other := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "other@1h")
		synctest.Wait()
		run := launch(t, reconcile.RunFunc(func(context.Context) error {
			return (&reconcile.Reconciler[string]{
				Queue: q, Gate: g, Logger: unlogged(),
				Reconcile: func(context.Context, string) error { t.Error("the item runs"); return nil },
			}).Run(lateContext{ctx})
		}))
		q.Enqueue("a")
		time.Sleep(time.Minute)
		time.AfterFunc(time.Second/2, func() { g.SetLimit(2) })
		cancel()
		if err := run.wait(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		wantPhase(t, q, "a", reconcile.Ready)
		other.end()
		mustBeIdle(t, g)
	})
}

// An item in hand is leased already. If the lease is lost while the item waits, or
// at its turn, a moment before or after, the item is given back as if it had not
// run, and leased anew; nothing of the turn is lost.
func TestGateLeaseIsLostAtItsTurn(t *testing.T) {
	for name, end := range map[string]func(g *reconcile.Gate, lose func()){
		"after":       func(g *reconcile.Gate, lose func()) { g.SetLimit(2); lose() },
		"before":      func(g *reconcile.Gate, lose func()) { lose(); g.SetLimit(2) },
		"long before": func(g *reconcile.Gate, lose func()) { lose(); synctest.Wait(); g.SetLimit(2) },
	} {
		synctest.Test(t, func(t *testing.T) {
			g := new(reconcile.Gate)
			g.SetLimit(1)
			other := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "other@1m")
			synctest.Wait()
			q, j := newLeasing(), newJournal()
			var results resultBook[string]
			run := launch(t, &reconcile.Reconciler[string]{
				Queue: q, Gate: g, OnResult: results.add, Logger: unlogged(),
				Reconcile: func(ctx context.Context, item string) error {
					j.note("run %s, %v", item, ctx.Value(leaseKey{}))
					return ctx.Err()
				},
			})
			q.q.Enqueue("a")
			time.Sleep(time.Second)
			synctest.Wait()
			alone(func() { end(g, func() { q.lose["a"](reconcile.ErrLeaseLost) }) })
			time.Sleep(time.Second)
			g.SetLimit(1)
			q.q.Enqueue("b") // which waits its own turn
			time.Sleep(time.Hour)
			j.mustBe(t, "1s run a, lease of a", "1m0s run b, lease of b")
			if n := q.q.Stats().Taken; n != 3 {
				t.Errorf("%s: %d items were taken, want 3: a twice", name, n)
			}
			for _, r := range results.all() {
				if r.Outcome != reconcile.Succeeded {
					t.Errorf("%s: result %+v, want success", name, r)
				}
			}
			run.end()
			other.end()
			mustBeIdle(t, g)
		})
	}
}

// An item in hand is leased anew for its run. Its first lease has ended by then, so
// that a Leaser knows that nobody uses it.
func TestGateItemInHandHasOneLeaseAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := new(reconcile.Gate)
		g.SetLimit(1)
		other := launchGated(t, reconcile.Reconciler[string]{Gate: g}, "other@1m")
		synctest.Wait()
		var leases []context.Context
		q := leaser{plainly(reconcile.NewQueue[string]()), func(ctx context.Context) context.Context {
			ctx = context.WithValue(ctx, leaseKey{}, len(leases))
			leases = append(leases, ctx)
			return ctx
		}}
		run := launch(t, &reconcile.Reconciler[string]{
			Queue: q, Gate: g, Logger: unlogged(),
			Reconcile: func(ctx context.Context, _ string) error {
				if n := ctx.Value(leaseKey{}); n != 1 || leases[0].Err() == nil || ctx.Err() != nil {
					t.Errorf("lease %v, the first: %v, this one: %v; want lease 1, and just the first ended", n, leases[0].Err(), ctx.Err())
				}
				return nil
			},
		})
		q.q.Enqueue("bad")
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := len(leases); n != 2 {
			t.Errorf("%d leases, want 2", n)
		}
		run.end()
		other.end()
	})
}

// A gate has no goroutine. Its timer runs while a Run waits for the budget, and
// not for the limit.
func TestGateTimerStopsWithTheLastThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &reconcile.Gate{Every: time.Hour, Max: 2}
		timer := func(want bool) {
			t.Helper()
			synctest.Wait()
			checkGate(t, g)
			if got := reconcile.GateTimerRuns(g); got != want {
				t.Errorf("the timer runs: %v, want %v", got, want)
			}
			stacks := make([]byte, 1<<20)
			if stacks = stacks[:runtime.Stack(stacks, true)]; bytes.Contains(stacks, []byte("created by github.com/reconkernel/reconcile.(*Gate)")) {
				t.Errorf("there is a goroutine of the gate:\n%s", stacks)
			}
		}
		loop := func(items ...string) *gated {
			defer synctest.Wait()
			return launchGated(t, reconcile.Reconciler[string]{Gate: g}, items...)
		}
		first := loop("a@9h")
		timer(false)
		second, third := loop("b"), loop("c")
		timer(true)
		second.end()
		timer(true)
		g.SetLimit(1) // it is in the way now
		timer(false)
		g.SetLimit(2)
		timer(true)
		third.end()
		timer(false)
		first.end()
		timer(false)
	})
}

// A run waits at the gate without an allocation.
func TestGateAddsNoAllocation(t *testing.T) {
	const items = 2000
	allocs := func(g *reconcile.Gate) float64 {
		return testing.AllocsPerRun(1, func() {
			q := reconcile.NewQueue[int]()
			for i := range items {
				q.Enqueue(i)
			}
			q.Close()
			r := &reconcile.Reconciler[int]{
				Queue: q, Gate: g, Workers: 4, Logger: unlogged(),
				Reconcile: func(context.Context, int) error { runtime.Gosched(); return nil }, // and others come to wait
			}
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
	without := allocs(nil)
	for name, g := range map[string]*reconcile.Gate{
		"open":   {},
		"limit":  {Max: 1, Slow: func(error, time.Duration) bool { return false }},
		"budget": {Every: time.Microsecond, Burst: 2},
	} {
		if got := allocs(g) - without; got > items/10 { // some are those of a Run, and the runtime's own
			t.Errorf("%s: %v allocations more in %d runs, want none", name, got, items)
		}
	}
}

// Loops that share a gate come and go; the limit moves, by hand and by itself;
// queues are closed, runs are aborted, and user code ends badly.
func TestGateUnderStress(t *testing.T) {
	var seed uint64
	defer tellSeed(t, &seed)
	for _, every := range []time.Duration{0, time.Millisecond} {
		for seed = range 3 {
			synctest.Test(t, func(t *testing.T) { stressGate(t, every, seed) })
		}
	}
}

func stressGate(t *testing.T, every time.Duration, seed uint64) {
	const loops, items, highest = 5, 100, 6
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
			drawn := randoms(seed, uint64(1000*(n+1)), items)
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
					select {
					case <-time.After(time.Duration(1 + drawn[i].IntN(3e6))): // of the bubble
					case <-ctx.Done():
						return ctx.Err()
					}
					switch drawn[i].IntN(10) {
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
	r := rand.New(rand.NewPCG(seed, loops))
	for range 1500 {
		time.Sleep(3 * time.Millisecond)
		g.SetLimit(r.IntN(highest + 2))
		checkGate(t, g)
	}
	all.Wait()
	mustBeIdle(t, g)
}
