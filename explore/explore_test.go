// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A right controller is found by no plan, whatever it is told.
func TestNoFalseAlarm(t *testing.T) {
	for name, play := range map[string]func(*Environment, *shelf){
		"comes": comes,
		"goes":  func(s *Environment, w *shelf) { comes(s, w); delete(w.desired, "a"); s.Event("a") },
		"many": func(s *Environment, w *shelf) {
			for i := range 8 {
				w.desired[fmt.Sprint("a", i)] = "1"
				s.Event(i)
			}
			s.Advance(0)
			s.Event("b")
		},
		"another client": func(s *Environment, w *shelf) {
			comes(s, w)
			w.things["a"] = "2"
			s.Advance(time.Hour)
		},
	} {
		s := plain()
		s.Steps, s.Stable = play, true
		r := search(t, s)
		if r.Found != nil {
			t.Errorf("%s: exploring finds something:\n%s", name, r.Found)
		}
		t.Logf("%s: %s", name, r)
	}
}

// What the faults do that go on for a while.
func TestLongFaults(t *testing.T) {
	s := plain()
	s.Within = 10 * time.Minute
	for fault, want := range map[string][]string{
		"call put a #1: outage": {
			"0s event a", "0s call get a", "0s call put a  <== outage",
			"1s call get a", "1s call put a: explore: injected fault",
			"2s call get a", "2s call put a: explore: injected fault",
		},
		"call get a #1: blackout": {
			"0s event a", "0s call get a  <== blackout", "1s call get a: explore: injected fault", "2s call get a: explore: injected fault",
		},
	} {
		got, failure := played(t, s, fault)
		if len(got) < len(want) || !slices.Equal(got[:len(want)], want) || failure != "" {
			t.Errorf("%q: this happened:\n%swant first:\n%sand no failure, got %q", fault, indent(got), indent(want), failure)
		}
	}
	got, _ := played(t, s, "call put a #1: outage")
	if want := []string{"1m39s call get a", "1m39s call put a"}; !slices.Equal(got[len(got)-3:len(got)-1], want) {
		t.Errorf("the outage ends with\n%swant\n%s", indent(got[len(got)-4:]), indent(want))
	}
}

// A cache that is behind shows for a minute what was there, tells nothing, and then
// tells what it left out.
func TestStaleWatch(t *testing.T) {
	s := plain()
	s.Within = time.Minute
	s.Steps = func(s *Environment, w *shelf) {
		comes(s, w)
		w.things["a"] = "2"
		s.Event("a")
		s.Advance(10 * time.Second)
		s.Event("b")
	}
	got, failure := played(t, s, "call get a #2: stale watch")
	want := []string{
		"0s event a", "0s call get a", "0s call put a",
		"1m0s event a", "1m0s call get a  <== stale watch", "1m0s call put a",
		"2m1s event a", "2m1s event b", "2m1s call get a", "2m1s call get a",
	}
	if !slices.Equal(got, want) || failure != "" {
		t.Errorf("this happened:\n%swant:\n%sand no failure, got %q", indent(got), indent(want), failure)
	}
}

// An outage finds a back-off of its own that never resets.
func TestExploreFindsABackOffThatNeverResets(t *testing.T) {
	backOff := func(reset bool) Scenario[*shelf] {
		s := plain()
		s.Start = func(proc *Process, w *shelf) {
			pause := time.Second
			proc.Go(func(ctx context.Context) error {
				for proc.Step() {
					wait := 10 * time.Second
					if err := (client{proc, w}).asDesired(ctx); err != nil {
						pause *= 2
						wait = min(pause, 2*time.Hour)
						if reset {
							wait = min(pause, 5*time.Minute)
						}
					} else if reset {
						pause = time.Second
					}
					select {
					case <-time.After(wait):
					case <-ctx.Done():
					}
				}
				return nil
			})
		}
		s.Plans = 500
		return s
	}
	r := search(t, backOff(false))
	if r.Found == nil || !strings.Contains(strings.Join(r.Found.Plan, ";"), string(Outage)) && !strings.Contains(strings.Join(r.Found.Plan, ";"), string(Blackout)) {
		t.Errorf("exploring finds %v, want an outage", r.Found)
	}
	if r := search(t, backOff(true)); r.Found != nil {
		t.Errorf("exploring the correct twin finds something:\n%s", r.Found)
	}
}

// Two controllers of one world die each for itself.
func TestOthers(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		loop(proc, 10*time.Minute, func(ctx context.Context) error { return client{proc, w}.put(ctx, "a", "1") })
	}
	s.Others = []func(*Process, *shelf){func(proc *Process, w *shelf) {
		loop(proc, 10*time.Minute, func(ctx context.Context) error { return client{proc, w}.put(ctx, "b", "1") })
	}}
	s.Steps = func(s *Environment, w *shelf) { s.Advance(2 * time.Second); s.Event("x"); s.Advance(time.Second) }
	s.Within = time.Minute
	got, failure := played(t, s, "call put b (beside 1) #1: dies after")
	want := []string{
		"0s call put a", "0s call put b (beside 1)  <== dies after", "1s start (beside 1)", "1s call put b (beside 1)",
		"2s event x", "2s event x (beside 1)", "2s call put a", "2s call put b (beside 1)",
	}
	if !slices.Equal(got, want) || failure != "" {
		t.Errorf("this happened:\n%swant:\n%sand no failure, got %q", indent(got), indent(want), failure)
	}
	if r := search(t, s); r.Found != nil {
		t.Errorf("exploring finds something:\n%s", r.Found)
	}
}

// generating makes the desired things, each time under a new name.
func generating(c client) func(context.Context) error {
	return func(ctx context.Context) error {
		have, err := Read(ctx, c.Process, "list", func() ([]string, error) { return slices.Sorted(maps.Keys(c.things)), nil })
		if err != nil {
			return err
		}
		for name := range c.desired {
			if i := slices.IndexFunc(have, func(h string) bool { return strings.HasPrefix(h, name+"-") }); i < 0 {
				id := fmt.Sprintf("%s-%x%s%x\xff", name, rand.Uint64(), []string{"-", "_", ""}[rand.IntN(3)], rand.Uint64())
				if err := c.Do(ctx, "create "+id, func() error { c.things[id] = "1"; return nil }); err != nil {
					return err
				}
			} else if _, err := c.get(ctx, have[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// ajar is plain in a world with faults of its own: a put may break what is beside it, and an
// event may be a fall. Only the put names what it may do.
func ajar(own ...Fault) Scenario[*shelf] {
	s := of(func(c client) func(context.Context) error {
		return func(ctx context.Context) error {
			if is, err := c.get(ctx, "a"); err != nil || is == c.desired["a"] {
				return err
			}
			return c.DoOr(ctx, "put a", func() error { c.things["a"] = c.desired["a"]; return nil }, map[Fault]func() error{
				"500 #1: breaks": func() error { c.things["b"] = "broken"; return errBoom },
				"nil":            nil,
				"never":          func() error { panic("it is not listed") },
			})
		}
	})
	start := s.Start
	s.Start = func(proc *Process, w *shelf) {
		start(proc, w)
		proc.EventOr("wind", map[Fault]func(){"falls": func() { w.things["c"] = "fallen" }})
	}
	s.CustomFaults = own
	return s
}

// TestCustomFaults has faults of the world's own, which come where they are named if they are
// listed: alone and in pairs.
func TestCustomFaults(t *testing.T) {
	for _, test := range []struct {
		own, without []Fault
		want         string
	}{
		{nil, nil, ""},
		{[]Fault{"500 #1: breaks", "falls"}, []Fault{"500 #1: breaks", "falls"}, ""},
		{[]Fault{"500 #1: breaks", "falls"}, []Fault{"falls"}, "call put a #1: 500 #1: breaks"},
		{[]Fault{"500 #1: breaks", "falls"}, []Fault{"500 #1: breaks"}, "event wind #1: falls"},
		{[]Fault{"nil"}, nil, "call put a #1: nil"}, // which panics
	} {
		s := ajar(test.own...)
		s.Without, s.Plans = test.without, 1
		r := search(t, s)
		if test.want == "" {
			if r.Found != nil {
				t.Errorf("CustomFaults %q, Without %q: %v", test.own, test.without, r.Found)
			}
			continue
		}
		if r.Found == nil || strings.Join(r.Found.Plan, "; ") != test.want {
			t.Errorf("CustomFaults %q, Without %q finds %v, want %s", test.own, test.without, r.Found, test.want)
			continue
		}
		if journal, failure := played(t, s, r.Found.Plan...); firstLine(failure) != firstLine(r.Found.Failure) || !slices.Equal(journal, r.Found.Journal) {
			t.Errorf("%s, played again, is %q, want %q", test.want, failure, r.Found.Failure)
		}
	}
	if journal, _ := played(t, ajar("500 #1: breaks"), "call put a #1: 500 #1: breaks"); !slices.Contains(journal, "0s call put a: boom  <== 500 #1: breaks") || slices.Contains(journal, "0s call put a: boom") {
		t.Errorf("the journal is %q, want the fault and its error", journal)
	}
	s := plain() // whose put names nothing
	s.CustomFaults = []Fault{"500 #1: breaks"}
	if _, failure := played(t, s, "call put a #1: 500 #1: breaks"); failure != `a fault of Replay does not come any more: "call put a #1: 500 #1: breaks"` {
		t.Errorf("where a call does not name it, it is %q", failure)
	}

	s = ajar("500 #1: breaks", "falls")
	s.State = func(w *shelf) string { return w.things["a"] } // and what broke is no matter
	s.Plans = 800
	came := map[string]int{}
	x := explorerOf(t, s)
	x.workers = 1
	x.watch(func(p *play) {
		for i, one := range p.outcome.happened {
			came[fmt.Sprint(len(p.outcome.happened), " faults, ", i, ": ", one.fault)]++
		}
	})
	if r := x.explore(); r.Found != nil {
		t.Error(r.Found)
	}
	s.Without = Faults()
	if r := search(t, s); r.Singles == 0 || r.Pairs == 0 {
		t.Errorf("with its own faults alone it plays %v, want pairs", r)
	}
	for _, want := range []string{"1 faults, 0: 500 #1: breaks", "1 faults, 0: falls", "2 faults, 0: falls", "2 faults, 1: 500 #1: breaks"} {
		if came[want] == 0 {
			t.Errorf("%s never came, of %v", want, came)
		}
	}
}

// Names with generated parts are found again by what else is in them.
func TestGeneratedNames(t *testing.T) {
	s := of(generating)
	s.Without, s.State = []Fault{Stale, StaleWatch}, func(w *shelf) string { return fmt.Sprint(len(w.things)) }
	r := search(t, s)
	if r.Found != nil {
		t.Errorf("exploring finds something:\n%s", r.Found)
	}
	if len(r.NeverCame) > 0 || r.LeftOut > 0 || r.Singles < 15 {
		t.Errorf("exploring plays %s, want each single fault to come", r)
	}
	if all := patternsOf([]point{{place: place{what: "GET /a"}}, {place: place{what: "HEAD /nonce"}}}, []point{{place: place{what: "GET /a"}}}); len(all) > 0 {
		t.Errorf("a call that one play makes by chance has the pattern %v", all)
	}
	if _, failure := played(t, s, "call create a-*\xff #1: dies after"); failure != "" {
		t.Errorf("a generated name in Replay fails with %q", failure)
	}
}

// The end says what was tried, and what never came.
func TestReport(t *testing.T) {
	r := search(t, plain())
	if want := "faults at 4 calls and 1 events; each was hit by each of its faults (the first 2 of those that repeat while nothing changes, and the last one before a change by Steps; outages at the first 3 of a name)\nNOT TRIED: 513 of 775 pairs of faults\n" +
		"the state at the end without faults, with which each plan was compared:\n\ta = 1\n"; !strings.HasSuffix(r.String(), want) {
		t.Errorf("the report is %q, want %q at its end", r, want)
	}
	s := of(func(c client) func(context.Context) error {
		tries := 0
		return func(ctx context.Context) error {
			if tries++; tries == 3 && c.things["b"] == "" && plays.Add(1) > 3 {
				return nil // what is done once is not done again
			}
			if tries == 3 {
				_ = c.put(ctx, "far", "")
			}
			_, _ = c.get(ctx, "constant")
			return c.put(ctx, "a", "")
		}
	})
	s.State, s.CustomFaults = func(*shelf) string { return "" }, []Fault{"typo"}
	plays.Store(0)
	r = search(t, s)
	if r.Found != nil || len(r.NeverCame) == 0 || !strings.Contains(r.String(), "because the call or event never came in their plan:\n\ttypo, which no call and no event has\n\tcall put far #1: fails") {
		t.Errorf("the report is %q, want what never came: %v", r, r.NeverCame)
	}
	if want := "NOT TRIED: a stale answer of these, because they had no other answer before:\n\tcall get constant"; !strings.Contains(r.String(), want) {
		t.Errorf("the report is %q, want %q in it", r, want)
	}
}

var plays atomic.Int64

// Retries while there is work left are no unrest after it.
func TestLongWork(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		var left atomic.Int64
		proc.Unfinished(func() string { return strings.Repeat("retries", int(min(1, left.Load()))) })
		proc.Go(func(ctx context.Context) error {
			for proc.Step() {
				if (client{proc, w}).put(ctx, "a", "1") != nil {
					left.Store(1000)
				}
				pause := 10 * time.Minute
				if left.Load() > 0 && left.Add(-1) > 0 {
					pause = time.Second
				}
				time.Sleep(pause)
			}
			return nil
		})
	}
	s.Without, s.Plans = only(Fails), 60
	if r := search(t, s); r.Found != nil {
		t.Errorf("exploring finds something:\n%s", r.Found)
	}
}

// Invariant sees what Steps does last, before the controller does.
func TestInvariantAfterSteps(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) { proc.OnEvent(func(any) { w.wrong = nil }) }
	s.Steps = func(s *Environment, w *shelf) {
		s.Advance(time.Minute)
		w.wrong = errBoom
		s.Event("a")
	}
	if r := search(t, s); r.Found == nil || r.Found.Failure != "Invariant: boom" || len(r.Found.Plan) > 0 {
		t.Errorf("exploring finds %v, want what Invariant says without any fault", r.Found)
	}
}

// What is made, taken away and made again is not steady, though it ends well.
func TestStable(t *testing.T) {
	restless := func(c client) func(context.Context) error {
		return func(ctx context.Context) error {
			is, err := c.get(ctx, "a")
			if err != nil {
				if err := c.remove(ctx, "a"); err != nil {
					return err
				}
			}
			if err != nil || is != "1" && c.desired["a"] != "" {
				return errors.Join(err, c.put(ctx, "a", "1"))
			}
			return nil
		}
	}
	s := of(restless)
	s.Without = []Fault{Lost}
	if r := search(t, s); r.Found != nil {
		t.Errorf("exploring finds something without Stable:\n%s", r.Found)
	}
	s.Stable = true
	if r := search(t, s); r.Found == nil || !strings.HasPrefix(r.Found.Failure, "Stable: the world was what it has to be, and then was not:\n- a = 1  (before)") {
		t.Errorf("exploring finds %v, want a world that is not steady", r.Found)
	}
}

// A plan loses the fault that it does not need.
func TestShrinking(t *testing.T) {
	s := of(func(c client) func(context.Context) error {
		return func(ctx context.Context) error {
			is, err := c.get(ctx, "a")
			if err == nil && is == "" && c.put(ctx, "a", "1") != nil {
				return c.put(ctx, "b", "broken")
			}
			return err
		}
	})
	for _, text := range []string{"call get a #1: fails; call put a #1: fails", "call put a #1: fails; call get a #2: fails"} {
		x := explorerOf(t, s)
		x.clean = x.perform(0, nil)
		o := x.perform(0, planOf(t, text))
		if f := x.reduce(o.happened, o); len(o.happened) != 2 || !slices.Equal(f.Plan, []string{"call put a #1: fails"}) {
			t.Errorf("of the plan %q happens %v, and it becomes %q, want the put alone", text, o.happened, f.Plan)
		}
	}
}

// A smaller plan that fails, and then stands still because of a log.Fatal, is no smaller
// plan: where its faults can be is not known.
func TestShrinkingBesideALogFatal(t *testing.T) {
	s := of(func(c client) func(context.Context) error {
		failed := 0
		return func(ctx context.Context) error {
			if err := c.put(ctx, "a", "1"); err != nil {
				failed++
				return err
			}
			if failed > 0 {
				c.Errorf("%d faults", failed)
			}
			if failed == 1 {
				var mu sync.Mutex
				mu.Lock()
				go mu.Lock()
				log.Fatal("cannot go on")
			}
			return nil
		}
	})
	x := explorerOf(t, s)
	defer divert()()
	x.hang = time.Second // of the real clock
	x.clean = x.perform(0, nil)
	p := planOf(t, "call put a #1: fails; call put a #2: fails")
	o := x.perform(0, p)
	if f := x.reduce(o.happened, o); f.Failure != "2 faults" || len(f.Plan) != 2 {
		t.Errorf("the plan of two faults becomes %v, want it as it is", f)
	}
}

// A mutex held over a call, for which another worker waits, ends the plan with its
// journal and the goroutine that waits, instead of the test program.
func TestExploreReportsAMutexLockedDuringACall(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		var mu sync.Mutex
		for i := range 2 {
			proc.Go(func(ctx context.Context) error {
				<-time.After(time.Duration(i) * 10 * time.Second)
				for proc.Step() {
					mu.Lock()
					_ = proc.Do(ctx, "put", func() error {
						if ctx.Err() == nil && i == 0 {
							time.Sleep(30 * time.Second)
						}
						return nil
					})
					mu.Unlock()
					time.Sleep(time.Hour)
				}
				return nil
			})
		}
	}
	x := explorerOf(t, s)
	x.hang = time.Second // of the real clock: a plan that is not stuck goes on sooner, also on a busy machine
	r := x.explore()
	f := r.Found
	if f == nil || !f.Hung {
		t.Fatalf("exploring finds %v, want a plan that hangs", f)
	}
	text := f.String()
	for _, want := range []string{"0s event a", "it hangs: for 1s of the real clock", "One waits for a mutex", "sync.Mutex.Lock", "TestExploreReportsAMutexLockedDuringACall"} {
		if !strings.Contains(text, want) {
			t.Errorf("the story lacks %q:\n%s", want, text)
		}
	}
}

// What stops the clock without a mutex is named, with what to do. The goroutines are left
// as they are: if they went on, so would the plan.
func TestWhyAPlanHangs(t *testing.T) {
	global := make(chan int)
	for want, wait := range map[string]func(){
		"One waits for a channel that was made outside of the plan": func() { <-global },
		"One waits for a socket": func() {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = listener.Accept()
		},
	} {
		s := plain()
		s.World = func() *shelf {
			go wait()
			return newShelf()
		}
		x := explorerOf(t, s)
		x.hang = time.Second // of the real clock
		if f := x.explore().Found; f == nil || !f.Hung || !strings.Contains(f.Failure, want) {
			t.Errorf("exploring finds %v, want a plan that hangs, and %q", f, want)
		}
	}
}

// A goroutine that waits for ever is shown, and none of explore's own.
func TestGoroutineThatDoesNotEnd(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, _ *shelf) {
		proc.Go(func(context.Context) error { var never sync.WaitGroup; never.Add(1); never.Wait(); return nil })
	}
	if f := search(t, s).Found; f == nil || !strings.Contains(f.Failure, "WaitGroup).Wait(") || strings.Count(f.Failure, "synctest bubble") != 1 {
		t.Errorf("exploring finds %v, want the goroutine that waits", f)
	}
}

// What does not fail again is told with the journal of the time when it did, and what
// was different.
func TestFindingThatDoesNotFailAgain(t *testing.T) {
	var worlds atomic.Int64
	s := plain()
	s.World = func() *shelf { w := newShelf(); w.made = int(worlds.Add(1)); return w }
	s.Invariant = func(w *shelf) error {
		if w.made == 5 {
			return errBoom
		}
		return nil
	}
	x := explorerOf(t, s)
	x.workers = 1
	f := x.explore().Found
	if f == nil || f.Differs == "" || f.Failure != "Invariant: boom" || len(f.Journal) > 0 {
		t.Fatalf("exploring finds %v, want what did not fail again", f)
	}
	s.Invariant = nil
	s.Final = func(w *shelf) error {
		if w.made == 5 {
			return errBoom
		}
		return nil
	}
	s.Start = func(proc *Process, w *shelf) {
		loop(proc, 10*time.Minute, func(ctx context.Context) error {
			if w.made == 5 {
				proc.Note("a line of chance")
			}
			return client{proc, w}.asDesired(ctx)
		})
	}
	worlds.Store(0)
	x = explorerOf(t, s)
	x.workers = 1
	f = x.explore().Found
	if f == nil || !strings.Contains(f.String(), "a line of chance  (when it failed)") || len(f.Journal) == 0 || !strings.Contains(f.String(), "Replay may play another one") {
		t.Errorf("exploring finds %v, want the journal of the time when it failed, and what differs", f)
	}
}

// What a plan logs goes to its journal, and what others log where it went.
func TestLogs(t *testing.T) {
	var mu sync.Mutex
	var outside strings.Builder
	was, flags := log.Writer(), log.Flags()
	log.SetOutput(sink(func(text string) { mu.Lock(); defer mu.Unlock(); outside.WriteString(text + "\n") }))
	defer func() { log.SetOutput(was); log.SetFlags(flags) }()
	before := slog.Default()
	s := of(func(c client) func(context.Context) error {
		return func(ctx context.Context) error {
			log.Print("by log")
			slog.Info("by slog", "n", 1)
			slog.With("a", "b").WithGroup("g").Warn("with", "n", 2)
			c.Logger().Info("by the logger of the process")
			return c.asDesired(ctx)
		}
	})
	s.Invariant = func(*shelf) error { return nil }
	s.World = func() *shelf { return newShelf() }
	journal, failure := played(t, s)
	for _, want := range []string{`level=INFO msg="by slog" n=1`, "level=WARN msg=with a=b g.n=2", `level=INFO msg="by the logger of the process"`, "by log"} {
		if !slices.ContainsFunc(journal, func(line string) bool { return strings.HasPrefix(line, "0s log: ") && strings.Contains(line, want) }) {
			t.Errorf("the journal lacks %q:\n%s", want, indent(journal))
		}
	}
	if failure != "" || outside.Len() > 0 {
		t.Errorf("the plan fails with %q, and outside of it was logged:\n%s", failure, &outside)
	}
	back := divert()
	slog.Info("of another")
	log.Print("of a third")
	back()
	if text := outside.String(); !strings.Contains(text, "INFO of another") || !strings.Contains(text, "of a third") {
		t.Errorf("outside of a plan was logged:\n%s", text)
	}
	if slog.Default() != before || log.Flags() != flags {
		t.Error("the default loggers are not what they were")
	}
}

// The same seed gives the same plans and journals on any number of processors.
func TestSameSeedSamePlans(t *testing.T) {
	journals := func(seed uint64, workers int) string {
		s := busy()
		s.Seed = seed
		x := explorerOf(t, s)
		x.workers = workers
		var mu sync.Mutex
		all := map[int]string{}
		x.watch(func(p *play) {
			mu.Lock()
			defer mu.Unlock()
			all[p.number] = fmt.Sprint(p.number, plan(p.outcome.happened).strings(), "\n", strings.Join(lines(p.outcome.journal), "\n"))
		})
		r := x.explore()
		if r.Found != nil {
			t.Error(r.Found)
		}
		if r.Plans != s.Plans {
			t.Errorf("%d plans are played, want %d: %s", r.Plans, s.Plans, r)
		}
		var b strings.Builder
		for _, n := range slices.Sorted(maps.Keys(all)) {
			b.WriteString(all[n] + "\n")
		}
		return b.String()
	}
	first := journals(1, 1)
	for i := range 20 {
		workers := []int{1, 2, 4}[i%3]
		was := runtime.GOMAXPROCS(workers)
		got := journals(1, workers)
		runtime.GOMAXPROCS(was)
		if got != first {
			t.Fatalf("the same seed on %d processors gives another journal: %s", workers, differs(strings.Split(first, "\n"), strings.Split(got, "\n")))
		}
	}
	if journals(2, 2) == first {
		t.Error("another seed gives the same plans")
	}
}

// busy is a scenario with several workers and names.
func busy() Scenario[*shelf] {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		for i := range 3 {
			begun := false
			loop(proc, 10*time.Minute, func(ctx context.Context) error {
				if !begun {
					begun = true
					proc.Event(fmt.Sprint("begun ", i))
				}
				proc.Note(fmt.Sprint("round of ", i))
				slog.Info("round", "of", i)
				for j := range 2 {
					if name := fmt.Sprint("a", (i+j)%3); w.desired[name] != "" {
						if is, err := (client{proc, w}).get(ctx, name); err != nil || is != w.desired[name] {
							if err := (client{proc, w}).put(ctx, name, w.desired[name]); err != nil {
								return err
							}
						}
					}
				}
				return nil
			})
		}
	}
	s.Steps = func(s *Environment, w *shelf) {
		for i := range 3 {
			w.desired[fmt.Sprint("a", i)] = "1"
			s.Event(i)
		}
		s.Advance(time.Minute)
		w.desired["a1"] = "2"
		s.Event(1)
	}
	s.Within, s.Plans, s.Without = 20*time.Minute, 120, []Fault{Stale, StaleWatch, Slow, NoAnswer, Stops, Outage, Blackout}
	return s
}

// Two thousand goroutines make three calls each at one instant, and no loop is suspected.
func TestManyGoroutines(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		for i := range 2000 {
			proc.Go(func(ctx context.Context) error {
				for j := range 3 {
					if err := (client{proc, w}).put(ctx, fmt.Sprint(i, " ", j), "1"); err != nil {
						return nil
					}
				}
				return nil
			})
		}
	}
	x := explorerOf(t, s)
	if clean := x.perform(1, nil); clean.failure != "" {
		t.Error(clean.failure)
	}
}

// A process that ends by log.Fatal is started again. Without faults, its end is a finding.
func TestLogFatal(t *testing.T) {
	s := of(func(c client) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := c.asDesired(ctx); err != nil && ctx.Err() == nil {
				log.Fatal("cannot go on: ", err)
			}
			return nil
		}
	})
	journal, failure := played(t, s, "call put a #1: fails")
	want := []string{"0s call put a  <== fails", "0s log: cannot go on: explore: injected fault", "0s the process ends by log.Fatal", "1s start", "1s call get a", "1s call put a"}
	if i := slices.Index(journal, want[0]); failure != "" || i < 0 || !slices.Equal(journal[i:min(len(journal), i+len(want))], want) {
		t.Errorf("this happened:\n%swant in it:\n%sand no failure, got %q", indent(journal), indent(want), failure)
	}
	s.Start = func(proc *Process, w *shelf) {
		loop(proc, 10*time.Minute, func(ctx context.Context) error {
			if err := (client{proc, w}).asDesired(ctx); err != nil && ctx.Err() == nil {
				Exit(3) // as a hook of logrus, zap or klog
			}
			return nil
		})
	}
	journal, failure = played(t, s, "call put a #1: fails")
	if i := slices.Index(journal, "0s the process ends by Exit(3)"); failure != "" || i < 0 || journal[i+1] != "1s start" {
		t.Errorf("this happened:\n%swant an Exit(3) and a start in it, and no failure, got %q", indent(journal), failure)
	}
	s.Start = func(proc *Process, w *shelf) {
		proc.Go(func(context.Context) error {
			for i := range 3 {
				time.Sleep(time.Second)
				log.Print("step ", i)
			}
			log.Fatalf("no configuration")
			return nil
		})
	}
	r := search(t, s)
	if r.Found == nil || !strings.HasPrefix(r.Found.Failure, "the controller called log.Fatalf") || !strings.Contains(r.Found.String(), "no configuration") {
		t.Errorf("exploring finds %v, want the call of log.Fatalf with what it logged", r.Found)
	}
}

// Steps that wait after a fault, a Close that waits, and a listener that waits, are no success.
func TestScenarioThatWaitsForEver(t *testing.T) {
	steps := plain()
	steps.Steps = func(s *Environment, w *shelf) {
		comes(s, w)
		if w.things["a"] != "1" {
			<-make(chan int)
		}
	}
	closes := plain()
	closes.Close = func(*shelf) { <-make(chan int) }
	hears := plain()
	hears.Start = func(proc *Process, _ *shelf) { proc.OnEvent(func(any) { <-make(chan int) }) }
	for name, s := range map[string]Scenario[*shelf]{"Steps": steps, "Close": closes, "OnEvent": hears} {
		if r := search(t, s); r.Found == nil || !strings.HasPrefix(r.Found.Failure, "the scenario waits for ever") {
			t.Errorf("%s: exploring finds %v, want that the scenario waits", name, r.Found)
		}
	}
}

// What a process logged before its error is shown, and what it logs in the end is not.
func TestLogsBeforeAnError(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, _ *shelf) {
		proc.Go(func(ctx context.Context) error {
			for i := range 3 {
				time.Sleep(time.Second)
				slog.Info("step", "i", i)
			}
			slog.Info("no configuration")
			return errors.New("cannot go on")
		})
	}
	if r := search(t, s); r.Found == nil || !strings.Contains(r.Found.String(), "no configuration") {
		t.Errorf("exploring finds %v, want what was logged", r.Found)
	}
	s = plain()
	start := s.Start
	s.Start = func(proc *Process, w *shelf) {
		start(proc, w)
		proc.Go(func(ctx context.Context) error {
			go func() {
				go func() {
					<-ctx.Done()
					time.Sleep(500 * time.Millisecond)
					log.Fatal("too late")
				}()
			}()
			<-ctx.Done()
			return nil
		})
	}
	s.Others = []func(*Process, *shelf){start}
	s.Replay = []string{"call put a #1: fails"}
	if r := search(t, s); r.Found != nil || strings.Contains(indent(r.Journal()), "too late") {
		t.Errorf("exploring finds %v, with the journal\n%s", r.Found, indent(r.Journal()))
	}
}

// What a process that has died logs by log.Fatal ends no other process, and not the plan;
// and each of several processes may end by it.
func TestLogFatalOfADeadProcess(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		proc.Go(func(context.Context) error { // ends when it has slept
			for {
				time.Sleep(20 * time.Second)
				if _, err := (client{proc, w}).get(context.Background(), "heartbeat"); err != nil {
					log.Fatal(err)
				}
			}
		})
		loop(proc, 10*time.Minute, (client{proc, w}).asDesired)
	}
	for _, others := range [][]func(*Process, *shelf){nil, {s.Start}} {
		s.Others = others
		journal, failure := played(t, s, "call put a #1: dies before")
		ends := slices.ContainsFunc(journal, func(line string) bool { return strings.Contains(line, "ends by log.Fatal") })
		if failure != "" || ends {
			t.Errorf("with %d others, this happened:\n%swant no other end, and no failure, got %q", len(others), indent(journal[:min(20, len(journal))]), failure)
		}
		journal, failure = played(t, s, "call get heartbeat #2: fails")
		if i := slices.Index(journal, "40s the process ends by log.Fatal"); failure != "" || i < 0 {
			t.Errorf("with %d others, this happened:\n%swant an end by log.Fatal, and no failure, got %q", len(others), indent(journal[:min(20, len(journal))]), failure)
		}
	}
}

// A controller that holds a mutex over its calls is explored, and the report says what
// was not tried.
func TestMutexHeldOverCalls(t *testing.T) {
	for name, faulty := range map[string]bool{"correct": false, "faulty": true} {
		s := plain()
		s.Start = func(proc *Process, w *shelf) {
			var mu sync.Mutex
			tried := false
			for range 2 {
				loop(proc, 10*time.Minute, func(ctx context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					if w.desired["a"] == "" || faulty && tried {
						return nil
					}
					tried = true
					return (client{proc, w}).asDesired(ctx)
				})
			}
		}
		x := explorerOf(t, s)
		x.hang = time.Second // of the real clock
		r := x.explore()
		if want := `NOT TRIED: slow calls and calls without an answer, because a mutex is held over "call get a"`; !faulty && (r.Found != nil || r.Singles < 20 || !strings.Contains(r.String(), want)) {
			t.Errorf("%s: exploring finds %v, in %s; want %q", name, r.Found, r, want)
		}
		if faulty && (r.Found == nil || strings.Join(r.Found.Plan, "; ") != "call get a #1: fails") {
			t.Errorf("%s: exploring finds %v, want a call that fails", name, r.Found)
		}
	}
}

// A process that dies in a call over which it holds a mutex starts again after a second.
func TestRestartAfterAMutexHeldOverACall(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		var mu sync.Mutex
		for range 2 {
			proc.Go(func(ctx context.Context) error {
				for {
					select {
					case <-ctx.Done():
						return nil
					case <-time.After(time.Minute): // while Steps lets more time pass
					}
					if !proc.Step() { // then it sees the changes of Steps
						return nil
					}
					mu.Lock()
					_ = (client{proc, w}).asDesired(ctx)
					mu.Unlock()
				}
			})
		}
	}
	s.Steps = func(env *Environment, w *shelf) {
		w.desired["a"] = "1"
		env.Advance(10 * time.Minute)
	}
	for fault, start := range map[string]string{"dies after": "1m1s start", "stops": "1m31s start"} {
		s.Replay = []string{"call put a #1: " + fault}
		x := explorerOf(t, s)
		x.hang = time.Second // of the real clock
		if r := x.explore(); r.Found != nil || !slices.Contains(r.Journal(), start) {
			t.Errorf("this happened:\n%swant %q, and no failure, got %v", indent(r.Journal()[:min(20, len(r.Journal()))]), start, r.Found)
		}
	}
}

// A process that ends by log.Fatal while it holds a mutex for which another goroutine
// waits is no failure, and the report says that the plan did not go on.
func TestLogFatalUnderAMutex(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		var mu sync.Mutex
		for range 2 {
			loop(proc, 10*time.Minute, func(ctx context.Context) error {
				mu.Lock()
				if err := (client{proc, w}).asDesired(ctx); err != nil {
					go mu.Lock() // on one processor the other loop may end before it waits
					log.Fatal("cannot go on: ", err)
				}
				mu.Unlock()
				return nil
			})
		}
	}
	s.Plans = 1 // besides those of one fault
	explore := func() *Report {
		x := explorerOf(t, s)
		x.hang = time.Second // of the real clock
		return x.explore()
	}
	r := explore()
	if want := "in which log.Fatal ends the process while that holds a mutex"; r.Found != nil || r.Singles < 20 || !strings.Contains(r.String(), want) {
		t.Errorf("exploring finds %v, in %s; want %q", r.Found, r, want)
	}
	s.Start = func(proc *Process, w *shelf) {
		var mu sync.Mutex
		for range 2 {
			proc.Go(func(context.Context) error { mu.Lock(); log.Fatal("no configuration"); return nil })
		}
	}
	left := make(chan struct{}) // goroutines of the test, or of plans before, do not hide those of a plan
	defer close(left)
	for range 5_000 {
		go func() { <-left }()
	}
	if r := explore(); r.Found == nil || !strings.HasPrefix(r.Found.Failure, "the controller called log.Fatal") {
		t.Errorf("exploring finds %v, want the call of log.Fatal", r.Found)
	}
}

// A plan that lasts past midnight has one run of a cron job more.
func TestCronJob(t *testing.T) {
	s := of(func(c client) func(context.Context) error {
		return func(ctx context.Context) error {
			if _, err := c.get(ctx, fmt.Sprint("a at ", time.Now().Hour())); err != nil {
				return err
			}
			return c.put(ctx, "day", time.Now().Format("Jan 2"))
		}
	})
	s.Steps = func(s *Environment, w *shelf) { s.Event("a"); s.Advance(22*time.Hour + 30*time.Minute) }
	s.Without = only(Outage)
	if r := search(t, s); r.Found != nil {
		t.Errorf("exploring finds something:\n%s", r.Found)
	}
}

// The error of a call whose process has to stop is a context.Canceled, for which a
// controller asks that does not take its own end for a failure.
func TestStopIsACancellation(t *testing.T) {
	var got error
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		loop(proc, 10*time.Minute, func(ctx context.Context) error {
			err := (client{proc, w}).asDesired(ctx)
			if ctx.Err() != nil {
				got = (client{proc, w}).put(ctx, "a", "")
			}
			return err
		})
	}
	s.Parallel = 1
	journal, failure := played(t, s, "call put a #1: stops")
	if failure != "" || !errors.Is(got, context.Canceled) {
		t.Errorf("the call returns %v, want an error that is context.Canceled; and no failure, got %q", got, failure)
	}
	if want := fmt.Sprint("0s call put a: ", got); !slices.Contains(journal, want) {
		t.Errorf("this happened:\n%swant in it, since the call has no effect:\n%s", indent(journal), want)
	}
}

// A plan in which only the fault makes two goroutines want a mutex at one instant fails
// by Replay as it failed when it was found, and is known by Known.
func TestReplayOfAMutexHeldOverCalls(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		var mu sync.Mutex
		wait := func(ctx context.Context, d time.Duration) bool {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(d):
				return proc.Step()
			}
		}
		proc.Go(func(ctx context.Context) error {
			tried, pause := false, time.Minute
			for wait(ctx, pause) {
				pause = time.Minute
				mu.Lock()
				_, err := (client{proc, w}).get(ctx, "a")
				if err == nil && w.desired["a"] != "" && !tried {
					tried = true
					err = (client{proc, w}).put(ctx, "a", w.desired["a"])
				}
				mu.Unlock()
				if err != nil {
					pause = 30 * time.Second
				}
			}
			return nil
		})
		proc.Go(func(ctx context.Context) error {
			for pause := 30 * time.Second; wait(ctx, pause); pause = time.Minute {
				mu.Lock()
				_, _ = (client{proc, w}).get(ctx, "b")
				mu.Unlock()
			}
			return nil
		})
	}
	s.Steps = func(env *Environment, w *shelf) {
		w.desired["a"] = "1"
		env.Advance(5 * time.Minute)
	}
	s.Without = []Fault{Slow, NoAnswer}
	find := func(s Scenario[*shelf]) *Report {
		x := explorerOf(t, s)
		x.hang = time.Second // of the real clock
		return x.explore()
	}
	s.Replay = []string{"call put a #1: fails"}
	if r := find(s); r.Found == nil || r.Found.Hung || !strings.HasPrefix(r.Found.Failure, "the world is not") {
		t.Errorf("Replay finds %v, want a world that is another one", r.Found)
	}
	s.Replay, s.Known, s.Plans = nil, [][]string{{"call put a #1: fails"}}, 1
	if r := find(s); r.Held == "" || r.Found == nil && r.Known == 0 {
		t.Errorf("exploring finds %v, in %s; want a plan that is known, and a mutex that is held", r.Found, r)
	}
}

// After an outage a controller does at once what it could not do for an hour. Its calls have
// one name, and each of them succeeds: this is no retry.
func TestManyCallsAfterAnOutage(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		loop(proc, time.Minute, func(ctx context.Context) error {
			is, err := (client{proc, w}).get(ctx, "list")
			if err != nil {
				return nil
			}
			for range len(w.desired) - len(is) {
				if err := proc.Do(ctx, "add", func() error { w.things["list"] += "x"; return nil }); err != nil {
					return nil
				}
			}
			return nil
		})
	}
	s.Steps = func(env *Environment, w *shelf) {
		for i := range 50 {
			w.desired[fmt.Sprint(i)] = ""
			env.Advance(time.Minute)
		}
	}
	if _, failure := played(t, s, "call get list #1: outage"); failure != "" {
		t.Error(failure)
	}
}

// One effect runs at a time, so that a world needs no lock; also if a mutex is held over
// the calls of others.
func TestEffectsOneAtATimeBesideAMutex(t *testing.T) {
	var atOnce, running atomic.Int32
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		var mu sync.Mutex
		for i := range 6 {
			loop(proc, time.Minute, func(ctx context.Context) error {
				if i < 2 {
					mu.Lock()
					defer mu.Unlock()
				}
				return proc.Do(ctx, fmt.Sprint("put ", i), func() error {
					atOnce.Store(max(atOnce.Load(), running.Add(1)))
					for range 1000 {
						runtime.Gosched()
					}
					running.Add(-1)
					w.mu.Lock()
					defer w.mu.Unlock()
					w.things[fmt.Sprint(i)] = w.desired["a"]
					return nil
				})
			})
		}
	}
	s.Parallel, s.Replay = 1, []string{}
	x := explorerOf(t, s)
	x.hang = time.Second // of the real clock
	if r := x.explore(); r.Found != nil || r.Held == "" || atOnce.Load() > 1 {
		t.Errorf("%d effects run at once, want 1; exploring finds %v, and a mutex at %q", atOnce.Load(), r.Found, r.Held)
	}
}

// Steps may change the world where State does not show it. The calls after that meet each
// of their faults too.
func TestStepsThatStateDoesNotShow(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		loop(proc, time.Minute, func(ctx context.Context) error {
			wanted, err := (client{proc, w}).get(ctx, "wanted")
			if err != nil {
				wanted = "" // the fault: it takes a failure for an empty list
			}
			return proc.Do(ctx, "keep "+wanted, func() error {
				if wanted == "" && w.desired["data"] != "" {
					w.wrong = errors.New("data is lost")
				}
				w.things["kept"] = "yes"
				return nil
			})
		})
	}
	s.Steps = func(env *Environment, w *shelf) {
		w.things["wanted"] = "home"
		env.Advance(10 * time.Minute)
		w.desired["data"] = "thesis" // a user works
		env.Advance(10 * time.Minute)
		w.desired["data"] = ""
		env.Advance(10 * time.Minute)
	}
	s.Plans, s.Without = 1, []Fault{Outage, Blackout, Stale, StaleWatch} // single faults alone
	r := search(t, s)
	if r.Found == nil || !strings.HasPrefix(r.Found.Failure, "Invariant: data is lost") {
		t.Errorf("exploring finds %v, want lost data; %s", r.Found, r)
	}
}

// A controller that watches signals itself ends no test: the goroutines of os/signal are
// not in a bubble.
func TestControllerThatWatchesSignals(t *testing.T) {
	s := plain()
	start := s.Start
	s.Start = func(proc *Process, w *shelf) {
		proc.Go(func(ctx context.Context) error {
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
			defer stop()
			<-ctx.Done()
			return nil
		})
		start(proc, w)
	}
	if r := search(t, s); r.Found != nil {
		t.Errorf("exploring finds something:\n%s", r.Found)
	}
}

// A controller that polls every ten seconds is at rest, also if Within is two days.
func TestWithinOfTwoDays(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) { loop(proc, 10*time.Second, client{proc, w}.asDesired) }
	s.Within = 48 * time.Hour
	if _, failure := played(t, s); failure != "" {
		t.Errorf("without faults the plan fails: %s", failure)
	}
}

// An error that is a nil pointer has no text to ask for. The call that returns it is a line
// of the journal as any other.
func TestErrorThatIsANilPointer(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		loop(proc, 10*time.Minute, func(ctx context.Context) error {
			_, _ = Read(ctx, proc, "list", func() (string, error) { return "", (*os.PathError)(nil) })
			_ = proc.Do(ctx, "try", func() error { return (*os.PathError)(nil) })
			return client{proc, w}.asDesired(ctx)
		})
	}
	journal, failure := played(t, s)
	if want := []string{"0s call list: <nil>", "0s call try: <nil>"}; failure != "" || !slices.Equal(journal[:2], want) {
		t.Errorf("this happened:\n%swant in it:\n%sand no failure, got %q", indent(journal), indent(want), failure)
	}
}

// The end of an outage is not the end of another fault: an event that is late comes in time.
func TestALateEventInAnOutage(t *testing.T) {
	s := plain()
	s.Start = func(proc *Process, w *shelf) {
		c, events := client{proc, w}, make(chan string, 10)
		proc.OnEvent(func(event any) { events <- event.(string) })
		proc.Go(func(ctx context.Context) error {
			for proc.Step() {
				if _, err := c.get(ctx, "a"); err == nil {
					return c.put(ctx, "a", "1")
				}
				time.Sleep(500 * time.Millisecond)
			}
			return nil
		})
		proc.Go(func(ctx context.Context) error {
			for {
				select {
				case name := <-events:
					_ = c.put(ctx, name, "1")
				case <-ctx.Done():
					return nil
				}
			}
		})
	}
	s.Steps = func(env *Environment, w *shelf) {
		env.Advance(49 * time.Second)
		env.Event("b")
		env.Advance(time.Millisecond)
	}
	s.Within = time.Minute
	if _, failure := played(t, s, "call get a #1: outage", "event b #1: late"); failure != "" {
		t.Error(failure)
	}
}
