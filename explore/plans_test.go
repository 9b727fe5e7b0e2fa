// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func only(faults ...Fault) []Fault {
	return slices.DeleteFunc(Faults(), func(f Fault) bool { return slices.Contains(faults, f) })
}

// All single faults are played whatever the limits say, up to a thousand, then pairs; of more
// than a thousand a sample, with each kind of call in it.
func TestLimits(t *testing.T) {
	for _, test := range []struct {
		plans                   int
		budget                  time.Duration
		without                 []Fault
		singles, pairs, leftOut int
	}{
		{1, 0, nil, 36, 0, 0},
		{0, 1, nil, 36, 0, 0},
		{38 + 40, 0, nil, 36, 40, 0},
		{38 + 40, time.Hour, nil, 36, 40, 0},
		{50, 0, only(Fails), 4, 12, 0}, // there are no more
	} {
		s := plain()
		s.Plans, s.Budget, s.Without = test.plans, test.budget, test.without
		r := search(t, s)
		if r.Found != nil {
			t.Error(r.Found)
		}
		if r.Singles != test.singles || r.Pairs != test.pairs || r.LeftOut != test.leftOut || r.Plans != 2+r.Singles+r.Pairs {
			t.Errorf("Plans %d, Budget %v, Without %q plays %+v, want %d and %d", test.plans, test.budget, test.without, r, test.singles, test.pairs)
		}
	}
}

// crowd is a scenario of n things.
func crowd(n int) Scenario[*shelf] {
	s := plain()
	s.Steps = func(s *Environment, w *shelf) {
		for i := range n {
			w.desired[fmt.Sprint("a", i)] = "1"
		}
		s.Event("all")
		s.Advance(time.Minute)
	}
	s.Plans = 1
	return s
}

func TestSinglesAreSampled(t *testing.T) {
	s := crowd(10)
	s.Plans = 150
	tried := map[string]int{}
	x := explorerOf(t, s)
	x.workers, x.enough = 1, 100
	x.watch(func(p *play) {
		for _, i := range p.outcome.happened {
			tried[digits.ReplaceAllString(i.what, "*")+string(i.fault)]++
		}
	})
	r := x.explore()
	if r.Found != nil {
		t.Fatal(r.Found)
	}
	if r.Singles != 148 || r.LeftOut < 50 {
		t.Errorf("exploring plays %s, want a sample of 148", r)
	}
	for _, kind := range []string{"call put a*answer lost", "call get a*fails", "event alllate", "call put a*outage"} {
		if tried[kind] == 0 {
			t.Errorf("%q was never tried, of %v", kind, tried)
		}
	}
	if want := fmt.Sprintf("NOT TRIED: %d of %d single faults; those that were tried were drawn by Seed", r.LeftOut, 148+r.LeftOut); !strings.Contains(r.String(), want) {
		t.Errorf("the report is %q, want %q in it", r, want)
	}
}

// The world is described when time passes, not after each call.
func TestStateIsCalledOnlyWhenNeeded(t *testing.T) {
	s := crowd(50)
	described := 0
	s.State = func(w *shelf) string { described++; return w.String() }
	o := explorerOf(t, s).perform(0, nil)
	if o.failure != "" || len(o.points) < 200 || described > 50 {
		t.Errorf("in a plan of %d calls and events the world is described %d times, want 50 at most: %s", len(o.points), described, o.failure)
	}
}

// Two plans wait for each other, in the real time.
func TestPlansAtTheSameTime(t *testing.T) {
	x := explorerOf(t, plain())
	if x.workers != runtime.GOMAXPROCS(0) {
		t.Errorf("%d plans are played at the same time, want %d", x.workers, runtime.GOMAXPROCS(0))
	}
	x.workers, x.hang = 2, time.Minute
	direct, met := x.direct, make(chan struct{})
	x.direct = func(p *play) {
		select {
		case met <- struct{}{}:
		case <-met:
		}
		direct(p)
	}
	f, played := x.batch(func(i int) plan { return []plan{{}, {}, nil}[i] }, nil)
	if f != nil || played != 2 {
		t.Errorf("%d plans are played at the same time, want 2: %v", played, f)
	}
}

// Of two plans that fail at once, the first one is told, also if it fails later.
func TestFirstFailingPlanIsReported(t *testing.T) {
	s := plain()
	s.Final = func(*shelf) error { return errBoom }
	x := explorerOf(t, s)
	x.workers, x.hang = 2, time.Minute
	second := make(chan struct{})
	x.watch(func(p *play) {
		switch p.number {
		case 1:
			<-second
		case 2:
			close(second)
		}
	})
	f, played := x.batch(func(int) plan { return plan{} }, nil)
	if played != 1 || f == nil || f.Number != 1 {
		t.Errorf("after %d plans is told %v, want the first one", played, f)
	}
}

// No pair is played twice, and all of them if there is time.
func TestPairs(t *testing.T) {
	s := plain()
	s.Plans = 1
	x := explorerOf(t, s)
	x.explore()
	all, seen := 0, map[string]bool{}
	for _, one := range x.first {
		all += len(one.next)
	}
	for _, p := range x.pairs() {
		seen[strings.Join(p.strings(), "; ")] = true
	}
	if len(seen) != all || all < 300 {
		t.Errorf("%d different pairs are played, want all %d of them", len(seen), all)
	}
}

// Of many singles, few second faults each are remembered.
func TestSecondFaultsHaveALimit(t *testing.T) {
	x := explorerOf(t, crowd(30))
	x.explore()
	all := 0
	for _, one := range x.first {
		all += len(one.next)
	}
	if all > secondsMax || all < secondsMax/2 {
		t.Errorf("%d second faults of %d single ones are remembered, want %d at most", all, len(x.first), secondsMax)
	}
}

// Another seed means other pairs.
func TestSeed(t *testing.T) {
	pairs := func(seed uint64) string {
		s := plain()
		s.Plans, s.Seed = 1, seed
		x := explorerOf(t, s)
		x.explore()
		return fmt.Sprint(x.pairs()[:20])
	}
	first, other := pairs(1), pairs(2)
	if again := pairs(1); again != first {
		t.Errorf("the same seed gives\n%s\nand\n%s", first, again)
	}
	if first == other {
		t.Errorf("two seeds give the pairs\n%s", first)
	}
}

// What goes on for ever is disturbed twice at each place, while nothing changes.
func TestPointsEnd(t *testing.T) {
	x := explorerOf(t, plain())
	nth := map[string]int{}
	for _, p := range x.perform(0, nil).points {
		if p.tried() {
			nth[p.what] = max(nth[p.what], p.nth)
		}
	}
	// One for the event, and two of the six rounds after Steps.
	if want := map[string]int{"event a": 1, "call get a": 3, "call put a": 1}; !maps.Equal(nth, want) {
		t.Errorf("the last points are %v, want %v", nth, want)
	}
}

func TestScenarioIsChecked(t *testing.T) {
	faults := strings.Join(strings.Split(fmt.Sprintf("%q", Faults()), "\n"), "")
	for want, change := range map[string]func(*Scenario[*shelf]){
		"World is required, and nil; want a function that makes the world":                                         func(s *Scenario[*shelf]) { s.World = nil },
		"Start is required, and nil; want a function that starts the controller":                                   func(s *Scenario[*shelf]) { s.Start = nil },
		"Others has a nil; want functions that start controllers":                                                  func(s *Scenario[*shelf]) { s.Others = make([]func(*Process, *shelf), 1) },
		"Steps is required, and nil; want a function that says what happens":                                       func(s *Scenario[*shelf]) { s.Steps = nil },
		"State and Final are nil; want one of them at least":                                                       func(s *Scenario[*shelf]) { s.State = nil },
		"Stable is set, and State is nil; want a description of the world to compare":                              func(s *Scenario[*shelf]) { s.State, s.Final, s.Stable = nil, func(*shelf) error { return nil }, true },
		"Within is 59s, want 0 (which means an hour) or a minute at least":                                         func(s *Scenario[*shelf]) { s.Within = 59 * time.Second },
		"Within is -1ns, want 0 (which means an hour) or a minute at least":                                        func(s *Scenario[*shelf]) { s.Within = -1 },
		"Plans is -1, want 0 (which means 2,000, or no limit if Budget is set) or more":                            func(s *Scenario[*shelf]) { s.Plans = -1 },
		"Budget is -1ns, want 0 (which means no limit) or more":                                                    func(s *Scenario[*shelf]) { s.Budget = -1 },
		"Parallel is -1, want 0 (which means as many as there are processors) or more":                             func(s *Scenario[*shelf]) { s.Parallel = -1 },
		`Without has "none", want one of ` + faults:                                                                func(s *Scenario[*shelf]) { s.Without = []Fault{"none"} },
		`With has "fails", want "no answer", the fault that is not always tried`:                                   func(s *Scenario[*shelf]) { s.With = []Fault{Fails} },
		`CustomFaults has "fails", want a name other than ` + faults:                                               func(s *Scenario[*shelf]) { s.CustomFaults = []Fault{"breaks", Fails} },
		`CustomFaults has "", want a name other than ` + faults:                                                    func(s *Scenario[*shelf]) { s.CustomFaults = []Fault{""} },
		`Replay has "call a", want a fault as a failure prints it, such as "call create a #1: fails"`:              func(s *Scenario[*shelf]) { s.Replay = []string{"call a"} },
		`Replay has "call a #0x1: fails", want a fault as a failure prints it, such as "call create a #1: fails"`:  func(s *Scenario[*shelf]) { s.Replay = []string{"call a #0x1: fails"} },
		`Replay has "call a #1: lost", want a fault as a failure prints it, such as "call create a #1: fails"`:     func(s *Scenario[*shelf]) { s.Replay = []string{"call a #1: lost"} },
		`Replay has "event a #1: fails", want a fault as a failure prints it, such as "call create a #1: fails"`:   func(s *Scenario[*shelf]) { s.Replay = []string{"event a #1: fails"} },
		`Known has "call a", want a fault as a failure prints it, such as "call create a #1: fails"`:               func(s *Scenario[*shelf]) { s.Known = [][]string{{"call a"}} },
		"Known has a plan without faults, want plans as a failure prints them":                                     func(s *Scenario[*shelf]) { s.Known = [][]string{nil} },
		`Replay has "call a #1: explodes", want a fault as a failure prints it, such as "call create a #1: fails"`: func(s *Scenario[*shelf]) { s.Replay = []string{"call a #1: explodes"} },
	} {
		s := plain()
		change(&s)
		_, err := newExplorer(t, s)
		if want := "explore: Scenario." + want; err == nil || err.Error() != want {
			t.Errorf("the error is %v, want %s", err, want)
		}
	}
	s := plain()
	s.CustomFaults, s.Without = []Fault{"breaks"}, []Fault{"breaks"}
	s.Replay = []string{"call put #1: x\ny #12: dies after", "call put #1: breaks", "event put #1: breaks"}
	x := explorerOf(t, s)
	if want := (injection{place{"call put #1: x\ny", 12}, DiesAfter}); x.replay[0] != want {
		t.Errorf("the fault is %q, want %q", x.replay[0], want)
	}
}

func TestExcerpt(t *testing.T) {
	f := &Finding{rest: 200}
	for i := range 300 {
		line := fmt.Sprint(i, " line ", i)
		if i == 50 {
			line += mark
		}
		f.Journal = append(f.Journal, line)
	}
	got := f.excerpt()
	if want := "... 30 lines"; got[0] != want || got[1] != "30 line 30" {
		t.Errorf("the excerpt begins with %q, want %q and then 30", got[:2], want)
	}
	if want := "... 98 lines, in which nothing changes"; got[len(got)-1] != want || got[len(got)-2] != "201 line 201" {
		t.Errorf("the excerpt ends with %q, want 201 and then %q", got[len(got)-2:], want)
	}
	if len(got) != 121 {
		t.Errorf("the excerpt has %d lines, want 121", len(got))
	}
}

// What is repeated is told once, with how often and until when.
func TestExcerptOfRepeats(t *testing.T) {
	var lines []string
	for i := range 9 {
		lines = append(lines, fmt.Sprintf("%ds call get", i), fmt.Sprintf("%ds call put", i))
	}
	lines = append(append([]string{"0s start"}, lines...), "9s end", "10s end", "11s end")
	want := []string{"0s start", "0s call get", "0s call put", "... and so on, 9 times until 8s", "9s end", "10s end", "11s end"}
	if got := withoutRepeats(lines); !slices.Equal(got, want) {
		t.Errorf("withoutRepeats(%q) = %q, want %q", lines, got, want)
	}
}

func TestDifference(t *testing.T) {
	for _, test := range []struct{ want, got, text string }{
		{"a\nb", "b\nc", "- a  (before)\n+ c"},
		{"a\na", "a", "- a  (before)"},
		{"a\nb", "b\na", "its lines are in another order:\nb\na"},
		{"", "a", "- (nothing)  (before)\n+ a"},
	} {
		if text := difference(test.want, test.got, "(before)"); text != test.text {
			t.Errorf("difference(%q, %q) = %q, want %q", test.want, test.got, text, test.text)
		}
	}
}

// A plan without faults that is no test of the controller is a finding.
func TestNothingIsPlayed(t *testing.T) {
	for name, c := range map[string]struct {
		start func(proc *Process, c client) func(ctx context.Context) error
		want  string
	}{
		"no call": {func(proc *Process, c client) func(context.Context) error {
			return func(context.Context) error { return nil }
		}, "the controller makes no call by Do, Read or Transport"},
		"a call that blocks": {func(proc *Process, c client) func(context.Context) error {
			return func(ctx context.Context) error {
				return c.Do(ctx, "put a", func() error { <-proc.Context().Done(); return nil })
			}
		}, `no call returns, so there is little to inject a fault into; the first one is "call put a"`},
		"an end before the first change": {func(proc *Process, c client) func(context.Context) error {
			done := false
			return func(ctx context.Context) error {
				if done {
					return nil
				}
				done = true
				return c.put(ctx, "b", "")
			}
		}, "the controller makes no call after Steps has changed the world"},
		"a loop without a pause": {func(proc *Process, c client) func(context.Context) error {
			return func(ctx context.Context) error {
				_ = c.put(ctx, "a", "1")
				for ctx.Err() == nil {
					_ = c.Do(ctx, "hot", func() error { return errBoom })
				}
				return nil
			}
		}, `at one instant; "call hot" has come `},
		"a panic that is recovered": {func(proc *Process, c client) func(context.Context) error {
			return func(ctx context.Context) error {
				defer func() { _ = recover() }()
				_, _ = c.get(ctx, "a")
				panic("no disk")
			}
		}, "the controller never changes the state of the world"},
	} {
		s := plain()
		s.Start = func(proc *Process, w *shelf) { loop(proc, 10*time.Minute, c.start(proc, client{proc, w})) }
		s.State = func(w *shelf) string { return fmt.Sprint("there is: ", w) }
		r := search(t, s)
		if r.Found == nil || len(r.Found.Plan) > 0 || !strings.Contains(r.Found.Failure, c.want) {
			t.Errorf("%s: exploring finds %v, want %q", name, r.Found, c.want)
		}
	}
	for _, what := range []string{"Start panicked: boom", "Final: boom"} {
		s, played := plain(), 0
		start := s.Start
		s.Start = func(proc *Process, w *shelf) {
			if played++; played == 2 && what == "Start panicked: boom" {
				panic("boom")
			}
			start(proc, w)
		}
		s.Final = func(*shelf) error {
			if played == 2 {
				return errBoom
			}
			return nil
		}
		if r := search(t, s); r.Found == nil || !strings.HasPrefix(r.Found.Failure, "the scenario without faults passes, and fails when it is played again:\n"+what) {
			t.Errorf("exploring finds %v, want the failure of the second play: %s", r.Found, what)
		}
	}
	s := plain()
	s.Without = Faults()
	if r := search(t, s); r.Found == nil || !strings.Contains(r.Found.Failure, "so nothing is tried") {
		t.Errorf("exploring without faults finds %v, want that nothing is tried", r.Found)
	}
}

// A Steps that waits for a state ends when the plan has failed, when it waits for too
// long, or when it calls Advance too often.
func TestStepsThatWaits(t *testing.T) {
	s := plain()
	s.Steps = func(s *Environment, w *shelf) {
		w.desired["a"] = "1"
		s.Event("a")
		for w.things["a"] == "" {
			s.Advance(time.Second)
		}
	}
	s.Start = func(proc *Process, w *shelf) {
		tried := false
		loop(proc, 10*time.Minute, func(ctx context.Context) error {
			if tried || w.desired["a"] == "" {
				return nil
			}
			tried = true // and never again
			return (client{proc, w}).put(ctx, "a", "1")
		})
	}
	s.Without = only(Fails)
	if r := search(t, s); r.Found == nil || !strings.Contains(r.Found.Failure, "Steps does not end: ") {
		t.Errorf("exploring finds %v, want that Steps does not end", r.Found)
	}
	s.Steps = func(s *Environment, w *shelf) {
		for {
			s.Advance(time.Nanosecond)
		}
	}
	if r := search(t, s); r.Found == nil || !strings.HasPrefix(r.Found.Failure, "Steps does not end: it has called Advance 100001 times.") {
		t.Errorf("exploring finds %v, want that Steps does not end", r.Found)
	}
	s.Invariant = func(w *shelf) error { return errBoom }
	s.Steps = func(s *Environment, w *shelf) {
		for {
			s.Advance(time.Second)
		}
	}
	if r := search(t, s); r.Found == nil || !strings.Contains(r.Found.Failure, "Invariant: boom") {
		t.Errorf("exploring finds %v, want the failure of Invariant", r.Found)
	}
}

// Exploring goes on past the plans of Known, each of which must still fail.
func TestKnown(t *testing.T) {
	s := of(func(c client) func(context.Context) error {
		tried := map[string]bool{}
		return func(ctx context.Context) error {
			for _, name := range slices.Sorted(maps.Keys(c.desired)) {
				if !tried[name] {
					tried[name] = true // and never again
					_ = c.put(ctx, name, "1")
				}
			}
			return nil
		}
	})
	s.Steps = func(s *Environment, w *shelf) {
		for _, name := range []string{"a", "b"} {
			w.desired[name] = "1"
			s.Event(name)
			s.Advance(time.Minute)
		}
	}
	s.Without = only(Fails)
	for _, c := range []struct {
		known [][]string
		found string
	}{
		{nil, "call put a #1: fails"},
		{[][]string{{"call put a #1: fails"}}, "call put b #1: fails"},
		{[][]string{{"call put a #1: fails"}, {"call put b #1: fails"}}, ""},
		{[][]string{{"call put a #2: fails"}}, "call put a #2: fails"},
		{[][]string{{"call put a: fails"}, {"call put b: fails"}}, ""},
		{[][]string{{"call put a: fails"}, {"call put b: fails"}, {"call put c: fails"}}, "call put c: fails"},
	} {
		s.Known = c.known
		found := ""
		r := search(t, s)
		if r.Found != nil {
			found = strings.Join(r.Found.Plan, "; ")
		}
		if found != c.found {
			t.Errorf("Known %q: exploring finds %v, want %q", c.known, r.Found, c.found)
		}
		if c.found == "" && (r.Known < 2 || !strings.Contains(r.String(), "plans failed by the faults of Scenario.Known")) {
			t.Errorf("the report is %s, want the known plans", r)
		}
	}
	// All lists both, one of the other kind, and a line of Known that is too old, once each.
	s.Known, s.All, s.Without = [][]string{{"call put c: fails"}}, true, only(Fails, DiesAfter)
	work := s.Start
	s.Start = func(proc *Process, w *shelf) {
		if work(proc, w); w.things["b"] != "" {
			proc.Go(func(ctx context.Context) error { sleep(ctx, time.Second); return client{proc, w}.put(ctx, "late", "1") })
		}
	}
	r := search(t, s)
	want := "findings: 4; Scenario.Known takes what is in braces:\n\t{\"call put a: fails\"}: the world is not what it is without faults:\n" +
		"\t{\"call put b: fails\"}: the world is not what it is without faults:\n\t{\"call put b: dies after\"}: the world is not what it is without faults:\n" +
		"\t{\"call put c: fails\"}: no plan fails by this line of Known any more: take it out of the list\n"
	if got := r.Stories(); !strings.HasPrefix(got, want) || strings.Count(got, "and then:") != 4 || r.Found != r.Findings[0] || r.Pairs == 0 {
		t.Errorf("the stories are %s\nwant four, and first\n%s; in %s", got, want, r)
	}
}

// Numbers, processes and other faults at a call make no other finding, and All lists ten of
// them at most.
func TestFindingsAreDistinct(t *testing.T) {
	for letters, want := range map[string]int{"a": 1, "abcdefghijkl": findingsMax} {
		s := plain()
		s.Start = func(proc *Process, w *shelf) {
			proc.Go(func(ctx context.Context) error {
				for letter := range strings.SplitSeq(letters, "") {
					for i := range 2 { // and never again
						_ = proc.Do(ctx, fmt.Sprint("count ", letter, i), func() error { w.made++; return nil })
					}
				}
				return nil
			})
		}
		s.Others = []func(*Process, *shelf){s.Start}
		s.Steps = func(env *Environment, _ *shelf) { env.Advance(time.Minute) }
		s.State = func(w *shelf) string { return fmt.Sprint(w.made) }
		s.All, s.Plans, s.Without = true, 1, only(Fails, Outage)
		first := fmt.Sprintf("findings: %d; Scenario.Known takes what is in braces:\n\t{\"call count a*: fails\"}", want)
		if letters == "a" {
			first += `, {"call count a*: outage"}: the world`
		}
		if r := search(t, s); len(r.Findings) != want || !strings.HasPrefix(r.Stories(), first) {
			t.Errorf("exploring %q lists %d findings, want %q:\n%s", letters, len(r.Findings), first, r.Stories())
		}
	}
}
