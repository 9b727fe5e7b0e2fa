// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// ErrInjected is the error of a call that fails, or whose response is lost, by a plan. A
// fake may replace it by its own error, such as a status 503.
var ErrInjected = errors.New("explore: injected fault")

// A Fault is the change that a plan makes to one call or event.
type Fault string

// The faults of calls, by [Process.Do] and [Read], and of events.
const (
	Fails      Fault = "fails"       // the call returns ErrInjected and has no effect
	AnswerLost Fault = "answer lost" // Do: the call has its effect and returns ErrInjected
	DiesBefore Fault = "dies before" // the process dies, and the call has no effect
	DiesAfter  Fault = "dies after"  // Do: the call has its effect, and the process dies
	Stops      Fault = "stops"       // the context of the process ends during the call; half a minute later the process dies
	Slow       Fault = "slow"        // Do, Read: the call has its effect, and returns a minute later, or shortly before its deadline if that is sooner
	NoAnswer   Fault = "no answer"   // Do, Read: the call has its effect, and returns the error of its context when that ends; see Scenario.With
	Stale      Fault = "stale"       // Read: the last other answer comes, if there was one
	StaleWatch Fault = "stale watch" // Read: for a minute the last other answer comes; then the events since that answer come again
	Outage     Fault = "outage"      // this call and those of its name that follow fail, for as long as Scenario.Within, 100 of them at most
	Blackout   Fault = "blackout"    // this call and all that follow fail, for as long as Scenario.Within, 100 of them at most
	Lost       Fault = "lost"        // the event does not come
	Twice      Fault = "twice"       // the event comes, and again a minute later
	Late       Fault = "late"        // the event comes a minute later
)

// The faults of the requests of [Transport], besides those of calls.
const (
	Unreachable Fault = "unreachable" // the connection is refused, and the request has no effect
	BodyCut     Fault = "body cut"    // the request has its effect, and the connection breaks in the middle of the body of the response
)

// outage reports whether calls fail for a while, of which one in a plan is enough.
func (f Fault) outage() bool { return f == Outage || f == Blackout }

// takesTime reports whether a call takes time.
func (f Fault) takesTime() bool { return f == Slow || f == NoAnswer }

// faultsOf lists what can happen to each kind. A process that dies after a read left
// the same world as one that died before it.
var faultsOf = [...][]Fault{
	onCall:  {Fails, DiesBefore, Stops},
	onDo:    {Fails, AnswerLost, DiesBefore, DiesAfter, Stops, Slow, NoAnswer},
	onRead:  {Fails, DiesBefore, Stops, Slow, NoAnswer, Stale},
	onEvent: {Lost, Twice, Late},
}

// longFaultsOf lists those that go on for a while. They are tried after the others, and
// after those of Scenario.CustomFaults, as their stories are longer.
var longFaultsOf = [...][]Fault{
	onCall:  {Outage, Blackout},
	onDo:    {Outage, Blackout},
	onRead:  {StaleWatch, Outage, Blackout},
	onEvent: {},
}

// Faults returns the faults that every world may have, in the order in which they are
// tried. A world may have more: see Scenario.CustomFaults.
func Faults() []Fault {
	return []Fault{
		Fails, AnswerLost, DiesBefore, DiesAfter, Stops, Slow, NoAnswer, Stale, StaleWatch, Outage, Blackout, Lost, Twice, Late, Unreachable, BodyCut,
	}
}

// A Scenario is the input of [Run]: a controller, and a world of type W. World, Start and
// Steps are required, and State or Final. The zero value of every other field is a good
// default.
//
// Each plan has its own bubble of testing/synctest and its own world. State, Invariant,
// Final and Steps are called while nothing else of that plan runs. Several plans run at
// the same time (see Parallel): World, Start and Steps must not share variables between
// plans.
type Scenario[W any] struct {
	// World makes the world: a fake, with its desired state. The world survives the death
	// of a process.
	World func() W

	// Start starts the controller with [Process.Go], and returns. It is called for each
	// process, in a goroutine of that process: at the beginning, and one second after
	// each death. A new process knows nothing of the process before, whose calls no
	// longer reach the world.
	Start func(proc *Process, w W)

	// Others starts other controllers of the same world, each in a process of its own
	// that dies alone.
	Others []func(proc *Process, w W)

	// Steps changes the world while the controller runs: the desired state, drift by
	// another client, and the events of both. It changes w and lets time pass. An outage
	// may last longer than Steps: so Steps must not rely on what the controller has done.
	Steps func(s *Environment, w W)

	// State describes the world. At the end of each plan the description must be the same
	// as without faults. So it has no times, no generated names, and nothing else that
	// may differ.
	State func(w W) string

	// Invariant is called after each call that may change the world, and after each
	// change by Steps. It returns an error if an invariant is violated. A nil Invariant
	// checks nothing.
	Invariant func(w W) error

	// Final is called at the end of each plan. It returns an error if the world is not in
	// an allowed final state. If Final is set, that state may differ from the state
	// without faults.
	Final func(w W) error

	// Close releases the resources of World, such as a server. It may be nil.
	Close func(w W)

	// Without lists the faults that this world does not have. Nil means that it has all
	// faults. After Lost and Stale no event reports the change, so a controller must
	// check again by itself within the time of Within.
	Without []Fault

	// With lists the faults that are tried only on request: NoAnswer, at all calls. It is
	// tried anyway at calls whose context has a deadline. With lists it for a controller
	// that must survive a call without a deadline that never returns.
	With []Fault

	// CustomFaults lists the faults of this world besides those of [Faults], in the order
	// in which they are tried. [Process.DoOr] and [Process.EventOr] implement them by
	// name. A fault that they implement and that is not listed is never injected. Its
	// effects may last: the time of Within begins a minute after it. With Stable, State must
	// not show the effects of these faults.
	CustomFaults []Fault

	// Stable fails a plan in which State reaches its expected value, and then changes
	// before Steps changes the world. It needs State. It is not checked in plans with
	// Stale or StaleWatch, because these may make any controller take a step back.
	Stable bool

	// Within is the time in which the controller must converge after the last fault or
	// the end of Steps, and for which it is watched after that, by the clock of the
	// bubble. 0 means an hour. Other values must be a minute or more.
	Within time.Duration

	// Plans and Budget limit the number of plans and the time of exploring, by the real
	// clock. If there are at most 1,000 plans of a single fault, all of them are played,
	// whatever the limits say. If there are more, at least 1,000 of them are played,
	// drawn by Seed. 0 means no limit. If both are 0, Plans is 2,000. With a Budget, the
	// number of plans depends on the speed and the load of the machine, and so may the
	// verdict.
	Plans  int
	Budget time.Duration

	// Parallel is the number of plans that are played at the same time. 0 means the
	// number of processors. A controller that changes variables of its package, or uses
	// libraries that do, needs 1. The next plan sees these variables: if they hold a state
	// by name, such as a back-off, World must make other names each time.
	Parallel int

	Seed uint64 // of the order of pairs, and of single faults if there are more than 1,000

	// Replay is one plan, as a failure prints it. If it is not nil, only this plan is
	// played.
	Replay []string

	// Known lists plans, as a failure prints them, whose failures are known. Each of them
	// must still fail, otherwise the test does. Exploring goes on past plans that fail by
	// the faults of one of them. A fault may be a line of All, without the number of its
	// call: it stands for each such call, whatever the process and the digits in its name,
	// and without a Budget one plan that is played must fail by it.
	Known [][]string

	// All goes on after a plan that fails, up to ten findings. The report begins with a line
	// for each. Two plans are one finding if they have the same faults at the same calls,
	// apart from numbers and the process, and the first lines of their failures are the same,
	// apart from numbers. If all lines are, other faults at these calls are the same finding.
	All bool
}

// Run plays a scenario without faults, then with each single fault at each call and
// event, then with pairs of faults, within the limits of s. The test fails at the first plan
// after which the world is not in the expected state. It prints a story: the smallest plan that
// fails, with its journal.
//
// The play without faults fails if it is no test of the controller: if the controller makes
// no call, if no call returns, if no call follows the first change by Steps, or if the
// controller never changes the state. An empty State has no change to show.
//
// A plan fails in these cases:
//
//   - An hour after the last fault the world still changes, or work is left: see Within
//     and [Process.Unfinished].
//   - Calls of one name are repeated without a pause and without a success: more than 40
//     times at one instant, or 60 times within a second, plus three times as many as
//     without faults.
//   - In the hour after that there are many more calls than without faults, or calls
//     never end.
//   - After that the state of the world is not the state without faults, or Final returns
//     an error.
//   - Invariant returns an error at any time.
//   - Start, or a function started by [Process.Go], has not returned an hour after the end
//     of its process.
//   - A goroutine of the module under test is left a second after that. Goroutines of other
//     modules may be left; they keep their memory.
//   - Steps, Close or a listener waits for ever.
//   - Steps takes longer than ten times its time without faults plus five times Within.
//   - A function started by [Process.Go] returns an error, or a function of the scenario
//     panics.
//   - There is no progress for 20 seconds of the real clock.
//
// A plan that ends later than the play without faults is compared with the state at that
// time: Run repeats that play for as long.
//
// A mutex that is held over a call stops the clock of a bubble, when another goroutine
// waits for it. Run then begins again, and lets each call through as soon as it is made.
// The order of calls is then that of the goroutines, calls are neither slow nor without an
// answer, and the report says so. It takes some seconds of the real clock to notice, and
// the goroutines of the plan that stood still are left.
//
// Calls are made one at a time, in an order that is the same each time. So the same Seed
// gives the same plans and journals on any number of processors. Random choices of the
// controller break this, and so do two goroutines that make a call of the same name at
// once. The random delays of package reconcile do not: in a plan the seed of each is its
// time. So two processes that draw a delay at one instant wait equally long.
//
// During a plan, output of the default loggers of log and log/slog goes to its journal.
// log.Fatal ends the process of the plan, and not the test; it fails the play without
// faults. A plan in which it ends a process that holds a mutex does not go on when another
// goroutine waits for that mutex, and the report says so. A panic in a goroutine that the
// controller started itself ends the test: the traceback names the plan, if GODEBUG has
// tracebacklabels=1.
// Run must not be called in a bubble. It blocks as long as Plans and Budget allow, or
// until all single faults have been played if that takes longer.
func Run[W any](t *testing.T, s Scenario[W]) {
	t.Helper()
	r, err := Search(t, s)
	if err != nil {
		t.Fatal(err)
	}
	if r.Found != nil {
		t.Error(r.Stories())
	}
	t.Log(r)
}

// Search is Run without failing the test: the report has the finding. The error reports
// an invalid field of s.
func Search[W any](t *testing.T, s Scenario[W]) (*Report, error) {
	x, err := newExplorer(t, s)
	if err != nil {
		return nil, err
	}
	return x.explore(), nil
}

// An explorer goes through the plans of a scenario.
type explorer struct {
	t        *testing.T
	direct   func(*play) // plays the scenario in a plan
	clean    *outcome
	patterns []pattern // of names with generated parts

	without   []Fault
	own       []Fault
	steady    bool
	immediate bool // each call is let through as soon as it is made
	forever   bool // NoAnswer is tried at calls without a deadline too
	plans     int
	budget    time.Duration
	seed      uint64
	replay    plan
	known     []plan
	lines     map[int]bool // of known, those without numbers by which a plan has failed
	all       bool
	workers   int
	hang      time.Duration
	enough    int // single faults that are tried whatever the limits say
	within    time.Duration

	begun  time.Time
	report Report
	first  []single
	second int // second faults, of which first has some
}

const (
	plansMax    = 2_000   // plans, if there are no limits
	secondMax   = 1_000   // second faults that are tried with a first one
	secondsMax  = 100_000 // that are remembered
	singlesMax  = 1_000   // single faults that are tried whatever the limits say
	hangMax     = 20 * time.Second
	hangLooks   = 100 // in that time
	listedMax   = 5   // the report names so many
	findingsMax = 10  // of Scenario.All
)

// A single is a plan of one fault that passed, and where a second one can be.
type single struct {
	fault injection
	next  []injection
}

// placed is the text of a place, with its number or without.
var placed = regexp.MustCompile(`(?s)^((call|event) .*?)(?: #(\d{1,9}))?$`)

func newExplorer[W any](t *testing.T, s Scenario[W]) (*explorer, error) {
	wrong := ""
	switch {
	case s.World == nil:
		wrong = "World is required, and nil; want a function that makes the world"
	case s.Start == nil:
		wrong = "Start is required, and nil; want a function that starts the controller"
	case slices.ContainsFunc(s.Others, func(f func(*Process, W)) bool { return f == nil }):
		wrong = "Others has a nil; want functions that start controllers"
	case s.Steps == nil:
		wrong = "Steps is required, and nil; want a function that says what happens"
	case s.State == nil && s.Final == nil:
		wrong = "State and Final are nil; want one of them at least"
	case s.Stable && s.State == nil:
		wrong = "Stable is set, and State is nil; want a description of the world to compare"
	case s.Within != 0 && s.Within < time.Minute:
		wrong = fmt.Sprintf("Within is %v, want 0 (which means an hour) or a minute at least", s.Within)
	case s.Plans < 0:
		wrong = fmt.Sprintf("Plans is %d, want 0 (which means 2,000, or no limit if Budget is set) or more", s.Plans)
	case s.Parallel < 0:
		wrong = fmt.Sprintf("Parallel is %d, want 0 (which means as many as there are processors) or more", s.Parallel)
	case s.Budget < 0:
		wrong = fmt.Sprintf("Budget is %v, want 0 (which means no limit) or more", s.Budget)
	}
	for _, f := range s.CustomFaults {
		if f == "" || slices.Contains(Faults(), f) {
			wrong = fmt.Sprintf("CustomFaults has %q, want a name other than %q", f, Faults())
		}
	}
	known := append(Faults(), s.CustomFaults...)
	for _, f := range s.Without {
		if !slices.Contains(known, f) {
			wrong = fmt.Sprintf("Without has %q, want one of %q", f, known)
		}
	}
	for _, f := range s.With {
		if f != NoAnswer {
			wrong = fmt.Sprintf("With has %q, want %q, the fault that is not always tried", f, NoAnswer)
		}
	}
	x := &explorer{
		t: t, without: slices.Clone(s.Without), own: append([]Fault{Unreachable, BodyCut}, s.CustomFaults...), steady: s.Stable, plans: s.Plans, budget: s.Budget, seed: s.Seed,
		workers: cmp.Or(s.Parallel, runtime.GOMAXPROCS(0)), hang: hangMax, enough: singlesMax, within: cmp.Or(s.Within, time.Hour), begun: time.Now(),
		all: s.All, lines: map[int]bool{}, forever: slices.Contains(s.With, NoAnswer),
	}
	parse := func(field string, texts []string) plan {
		p := plan{}
		for _, text := range texts {
			var fault Fault
			for _, f := range known { // the name of one may end with that of another
				if len(f) > len(fault) && strings.HasSuffix(text, ": "+string(f)) {
					fault = f
				}
			}
			m := placed.FindStringSubmatch(strings.TrimSuffix(text, ": "+string(fault)))
			if m == nil || fault == "" || m[3] == "" && field != "Known" ||
				!slices.Contains(s.CustomFaults, fault) && (m[2] == "event") != slices.Contains(faultsOf[onEvent], fault) {
				wrong = fmt.Sprintf(`%s has %q, want a fault as a failure prints it, such as "call create a #1: fails"`, field, text)
				break
			}
			nth, _ := strconv.Atoi(m[3]) // 0 is any
			p = append(p, injection{place{m[1], nth}, fault})
		}
		return p
	}
	if s.Replay != nil {
		x.replay = parse("Replay", s.Replay)
	}
	for _, texts := range s.Known {
		if len(texts) == 0 {
			wrong = "Known has a plan without faults, want plans as a failure prints them"
		}
		x.known = append(x.known, parse("Known", texts))
	}
	if wrong != "" {
		return nil, fmt.Errorf("explore: Scenario.%s", wrong)
	}
	if x.plans == 0 && x.budget == 0 {
		x.plans = plansMax
	}
	x.direct = func(p *play) {
		w := s.World()
		for _, start := range append([]func(*Process, W){s.Start}, s.Others...) {
			p.slots = append(p.slots, &slot{number: len(p.slots), start: func(proc *Process) { start(proc, w) }})
		}
		p.check, p.describe = func() error { return nil }, func() string { return "" }
		if s.Invariant != nil {
			p.check = func() error { return s.Invariant(w) }
		}
		if s.State != nil {
			p.describe = func() string { return s.State(w) }
		}
		if s.Close != nil {
			p.close = func() { s.Close(w) }
		}
		p.seen = p.describe()
		for _, slot := range p.slots {
			p.launch(slot)
		}
		p.advance(0) // so that Start has returned, and nothing runs beside Steps
		s.Steps(&Environment{p}, w)
		p.outcome.steps = p.now()
		p.noteSteps()
		p.awaitRest()
		var err error
		if s.Final != nil && !p.over(nil) {
			err = s.Final(w)
		}
		p.checkEnd(err, s.Final == nil)
	}
	return x, nil
}

// A plan is a list of faults.
type plan []injection

func (p plan) strings() []string {
	texts := make([]string, len(p))
	for i, one := range p {
		texts[i] = one.String()
	}
	return texts
}

// explore plays all plans, or those until one fails.
func (x *explorer) explore() *Report {
	watchSignals()
	defer divert()()
	if f := x.find(); f != nil && !slices.Contains(x.report.Findings, f) {
		x.report.Findings = append(x.report.Findings, f)
	}
	if x.report.all = len(x.report.Findings) == 0; !x.report.all {
		x.report.Found = x.report.Findings[0]
	}
	x.report.Took = time.Since(x.begun)
	return &x.report
}

// watchSignals starts the goroutines that package os/signal starts once in a process. Started
// in the bubble of the first controller that watches signals, they would end the test.
var watchSignals = sync.OnceFunc(func() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt)
	signal.Stop(c)
})

// find explores. If the controller holds a mutex over a call, it begins again, and lets
// each call through as soon as it is made.
func (x *explorer) find() *Finding {
	f := x.findFirst()
	if x.report.Held != "" {
		x.immediate, x.clean, x.patterns, x.first, x.second = true, nil, nil, nil, 0
		x.report = Report{Held: x.report.Held}
		x.without = append(x.without, Slow, NoAnswer)
		f = x.findFirst()
	}
	return f
}

func (x *explorer) findFirst() *Finding {
	clean, f := x.withoutFaults()
	if f != nil {
		return f
	}
	x.clean, clean.points = clean, slices.DeleteFunc(clean.points, func(p point) bool { return !p.tried() })
	x.report.journal, x.report.State = clean.journal, clean.state
	for _, p := range clean.points {
		if p.kind == onEvent {
			x.report.Events++
		} else {
			x.report.Calls++
		}
		known := slices.Contains(x.report.NeverStale, p.what) || slices.Contains(x.without, Stale)
		if p.kind == onRead && !known && !slices.ContainsFunc(clean.points, func(other point) bool { return other.what == p.what && other.stale }) {
			x.report.NeverStale = append(x.report.NeverStale, p.what)
		}
	}
	if x.replay != nil {
		return x.again()
	}
	singles := x.singles(clean.points)
	if len(singles) == 0 {
		clean.failure = "Without excludes each fault that the calls and events of this scenario can have, so nothing is tried"
		return x.finding(nil, clean)
	}
	for _, f := range x.own[2:] { // those of CustomFaults
		if !slices.Contains(x.without, f) && !slices.ContainsFunc(singles, func(i injection) bool { return i.fault == f }) {
			x.report.NeverCame = append(x.report.NeverCame, fmt.Sprintf("%s, which no call and no event has", f))
		}
	}
	if f := x.playKnown(); f != nil {
		return f
	}
	if f := x.playSingles(singles); f != nil {
		return f
	}
	if f := x.playPairs(); f != nil || x.budget != 0 {
		return f
	}
	for i, p := range x.known {
		if p.general() && !x.lines[i] {
			clean.failure = "no plan fails by this line of Known any more: take it out of the list"
			return x.finding(p, clean)
		}
	}
	return nil
}

// playKnown plays the plans of Known, each of which must fail.
func (x *explorer) playKnown() *Finding {
	for _, p := range x.known {
		if p.general() || x.immediate && slices.ContainsFunc(p, func(i injection) bool { return i.fault.takesTime() }) {
			continue // no call takes time now
		}
		if o := x.one(p); o.failure == "" || o.held != "" {
			o.failure = cmp.Or(o.failure, "this plan of Known does not fail any more: take it out of the list")
			return x.finding(p, o)
		}
	}
	return nil
}

// isKnown reports whether the faults of a plan that fails are those of a plan of Known, or of
// a finding that fails like this, and others.
func (x *explorer) isKnown(happened plan, failure string) bool {
	for i, known := range x.known {
		if happened.has(known) {
			x.lines[i] = true
			return true
		}
	}
	return slices.ContainsFunc(x.report.Findings, func(f *Finding) bool {
		return firstLine(f.Failure) == firstLine(failure) && slices.ContainsFunc(f.alike, happened.has)
	})
}

// hasCause reports whether two findings have the same failure, apart from numbers, by faults at
// the same calls.
func (f *Finding) hasCause(other *Finding) bool {
	return digits.ReplaceAllString(f.Failure, "*") == digits.ReplaceAllString(other.Failure, "*") &&
		slices.EqualFunc(f.alike[0], other.alike[0], func(i, j injection) bool { return i.place == j.place })
}

// has reports whether p has each fault of known.
func (p plan) has(known plan) bool {
	rest := slices.Clone(p)
	for _, i := range known {
		at := slices.IndexFunc(rest, func(is injection) bool { return is == i || i.nth == 0 && is.generalized() == i.generalized() })
		if at < 0 {
			return false
		}
		rest = slices.Delete(rest, at, at+1)
	}
	return true
}

// general reports whether a plan has a fault without the number of its call.
func (p plan) general() bool {
	return slices.ContainsFunc(p, func(i injection) bool { return i.nth == 0 })
}

func (p plan) generalized() plan {
	all := make(plan, len(p))
	for j, i := range p {
		all[j] = i.generalized()
	}
	return all
}

// generalized returns the fault at each such call, whatever the process.
func (i injection) generalized() injection {
	return injection{place{firstLine(i.what), 0}, i.fault}
}

// firstLine returns the first line of a text, without numbers and processes.
func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return digits.ReplaceAllString(besides.ReplaceAllString(line, ""), "*")
}

// withoutFaults plays the plan without faults, twice: what differs then would be taken
// for the work of a fault.
func (x *explorer) withoutFaults() (*outcome, *Finding) {
	clean := x.one(nil)
	if clean.failure != "" {
		return nil, x.reduce(nil, clean)
	}
	again := x.one(nil)
	switch {
	case again.failure != "":
		again.failure = "the scenario without faults passes, and fails when it is played again:\n" + again.failure
		return nil, x.finding(nil, again)
	case again.state != clean.state:
		clean.failure = "two plays without any fault end in another state:\n" + difference(clean.state, again.state, "(first play)") +
			"\nDoes the scenario keep something between plays, such as a World that is made once, a sync.Once or a counter? Or does the controller use random numbers?"
	case x.replay == nil:
		clean.failure = clean.whyNoTest()
	}
	if clean.failure != "" {
		return nil, x.finding(nil, clean)
	}
	if x.patterns = patternsOf(clean.points, again.points); len(x.patterns) > 0 {
		if clean = x.one(nil); clean.failure != "" {
			return nil, x.reduce(nil, clean)
		}
	}
	return clean, nil
}

// one plays one plan and counts it.
func (x *explorer) one(p plan) *outcome {
	x.report.Plans++
	return x.perform(x.report.Plans, p)
}

// singles lists all single faults, in the order in which they are tried.
func (x *explorer) singles(points []point) []injection {
	points = append(slices.DeleteFunc(slices.Clone(points), func(p point) bool { return p.idle }),
		slices.DeleteFunc(slices.Clone(points), func(p point) bool { return !p.idle })...)
	all := slices.Concat(x.faults(points, shortFaults), x.faults(points, ownFaults), x.faults(points, longFaults))
	if len(all) > x.enough && (x.plans == 0 || x.plans < len(all)) {
		x.draw(all)
	}
	return all
}

// draw shuffles so that each kind of fault at each kind of call comes early.
func (x *explorer) draw(all []injection) {
	random := rand.New(rand.NewPCG(x.seed, 1))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	seen := map[string]int{}
	rank := make(map[injection]int, len(all))
	for _, i := range all {
		kind := digits.ReplaceAllString(i.what, "*") + string(i.fault)
		rank[i] = seen[kind]
		seen[kind]++
	}
	slices.SortStableFunc(all, func(a, b injection) int { return cmp.Compare(rank[a], rank[b]) })
}

var (
	digits  = regexp.MustCompile(`\d+`)
	besides = regexp.MustCompile(` \(beside \d+\)`)
)

// playSingles plays each of them alone.
func (x *explorer) playSingles(singles []injection) *Finding {
	most := min(secondMax, max(2, secondsMax/max(1, len(singles))))
	begin := x.report.Plans
	f, played := x.batch(func(i int) plan {
		if i >= len(singles) || i >= x.enough && x.spent(begin+i) {
			return nil
		}
		return plan{singles[i]}
	}, func(i int, o *outcome) {
		if len(o.happened) == 0 {
			x.report.NeverCame = append(x.report.NeverCame, singles[i].String())
		}
		if o.failure != "" { // known, or a finding
			return
		}
		rest := o.points[min(o.after, len(o.points)):]
		next := append(x.faults(rest, shortFaults), x.faults(rest, ownFaults)...)
		if !singles[i].fault.outage() { // after which what comes first is what counts
			next = append(next, x.faults(rest, longFaults)...)
			random := rand.New(rand.NewPCG(x.seed, uint64(i)+2))
			random.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		}
		x.second += len(next)
		x.first = append(x.first, single{singles[i], slices.Clone(next[:min(len(next), most)])})
	})
	x.report.Singles, x.report.LeftOut = played, len(singles)-played
	return f
}

// spent reports whether the limits allow no further plan after so many.
func (x *explorer) spent(plans int) bool {
	return x.plans != 0 && plans >= x.plans || x.budget != 0 && time.Since(x.begun) >= x.budget
}

// playPairs plays pairs of faults, as long as it may.
func (x *explorer) playPairs() *Finding {
	begin, pairs := x.report.Plans, x.pairs()
	f, played := x.batch(func(i int) plan {
		if i >= len(pairs) || x.spent(begin+i) {
			return nil
		}
		return pairs[i]
	}, nil)
	x.report.Pairs, x.report.PairsLeft = played, x.second-played
	return f
}

// batch plays the plans that next returns, until that is nil or one fails. Several are played
// at the same time, and their outcomes are taken in the order of the plans, so that the first
// one that fails is the same however many processors there are. It returns how many plans were
// played up to there.
func (x *explorer) batch(next func(i int) plan, passed func(i int, o *outcome)) (f *Finding, played int) {
	var ahead []chan *outcome // of the plans from i on
	defer func() {
		for _, done := range ahead {
			<-done
		}
	}()
	begin, places := x.report.Plans, make(chan struct{}, x.workers)
	for i, last := 0, false; ; i++ {
		for !last && len(ahead) < 2*x.workers-1 { // so that one that takes long holds up no other
			one := next(i + len(ahead))
			if last = one == nil; last {
				break
			}
			done, number := make(chan *outcome, 1), begin+i+len(ahead)+1
			ahead = append(ahead, done)
			go func() {
				places <- struct{}{}
				done <- x.perform(number, one)
				<-places
			}()
		}
		if len(ahead) == 0 {
			return nil, i
		}
		o := <-ahead[0]
		ahead = ahead[1:]
		x.report.Plans = begin + i + 1
		if o.locked {
			x.report.locked++
		}
		known := o.failure != "" && x.isKnown(o.happened, o.failure)
		if o.failure != "" && !known {
			f := x.reduce(o.happened, o)
			if known = x.isKnown(f.faults, f.Failure); !known { // in other places, until it was reduced
				if j := slices.IndexFunc(x.report.Findings, f.hasCause); j >= 0 {
					x.report.Findings[j].alike = append(x.report.Findings[j].alike, f.alike...)
				} else {
					x.report.Findings = append(x.report.Findings, f)
				}
				if !x.all || o.held != "" || len(x.report.Findings) == findingsMax {
					return f, i + 1
				}
			}
		}
		if known {
			x.report.Known++
		}
		if passed != nil {
			passed(i, o)
		}
	}
}

// pairs lists plans of two faults, so that each first fault has its turn.
func (x *explorer) pairs() []plan {
	var all []plan
	for round := range secondMax {
		for _, one := range x.first {
			if round < len(one.next) {
				all = append(all, plan{one.fault, one.next[round]})
			}
		}
	}
	return all
}

func shortFaults(p point) []Fault { return faultsOf[p.kind] }
func ownFaults(p point) []Fault   { return p.own }
func longFaults(p point) []Fault  { return longFaultsOf[p.kind] }

// faults lists what can happen at these points, of those that each has.
func (x *explorer) faults(points []point, of func(point) []Fault) []injection {
	var all []injection
	for _, p := range points {
		for _, f := range of(p) {
			if p.tried() && !slices.Contains(x.without, f) && (p.allows(f) || f == NoAnswer && x.forever) {
				all = append(all, injection{p.place, f})
			}
		}
	}
	return all
}

// ownOf lists those faults of the world's own that can be where has is what happens by them.
func ownOf[F any](x *explorer, has map[Fault]F) (all []Fault) {
	for _, f := range x.own {
		if _, ok := has[f]; ok {
			all = append(all, f)
		}
	}
	return all
}

// perform plays one plan.
func (x *explorer) perform(number int, faults plan) *outcome {
	return x.performWith(&play{explorer: x, number: number, plan: faults, clean: x.clean})
}

// decide returns the fault of a place. Where each call is let through as it is made, none
// may let time pass, because its caller may hold a mutex.
func (p *play) decide(at place) Fault {
	i := slices.IndexFunc(p.plan, func(i injection) bool { return i.place == at })
	if i < 0 || p.immediate && p.plan[i].fault.takesTime() {
		return ""
	}
	return p.plan[i].fault
}

func (x *explorer) performWith(p *play) *outcome {
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		labels := pprof.Labels("explore", fmt.Sprintf("%s, plan %d: %q", x.t.Name(), p.number, p.plan.strings()))
		pprof.Do(context.Background(), labels, func(context.Context) { p.perform(x.t) })
	}()
	timer := time.NewTicker(x.hang / hangLooks)
	defer timer.Stop()
	for was, idle := int64(0), 0; ; {
		select {
		case r := <-done:
			if r != nil {
				panic(r)
			}
			// After the end of the play without faults, a cron job may have run once more.
			if o := &p.outcome; o.differs && x.clean != nil && o.end > x.clean.end && x.performWith(&play{explorer: x, until: o.end}).state == o.state {
				p.outcome.failure, p.outcome.differs = p.outcome.restless, false
			}
			return &p.outcome
		case <-timer.C:
		}
		if is := p.progress.Load(); is != was {
			was, idle = is, 0
			continue
		}
		idle++
		if o := p.stuck(idle); o != nil {
			return o
		}
	}
}

// again plays the plan of Replay.
func (x *explorer) again() *Finding {
	o := x.one(x.replay)
	x.report.journal = o.journal
	for _, i := range x.replay {
		if o.failure == "" && !slices.Contains(o.happened, i) {
			o.failure = fmt.Sprintf("a fault of Replay does not come any more: %q", i)
		}
	}
	if o.failure == "" {
		return nil
	}
	return x.finding(x.replay, o)
}

// reduce makes a finding of a plan that fails: it leaves out a fault without which it fails
// too, and sees whether it fails again.
func (x *explorer) reduce(p plan, o *outcome) *Finding {
	if o.hung {
		return x.finding(p, o)
	}
	for i := 0; i < len(p) && len(p) > 1; i++ {
		smaller := slices.Delete(slices.Clone(p), i, i+1)
		if one := x.perform(0, smaller); one.failure != "" && !one.hung {
			p, o = slices.Clone(one.happened), one // what did not come is not needed
		}
	}
	again := x.perform(0, p)
	if again.failure != "" {
		return x.finding(p, again)
	}
	f := x.finding(p, o)
	f.Differs = differs(lines(o.journal), lines(again.journal))
	return f
}

func (x *explorer) finding(p plan, o *outcome) *Finding {
	if o.held != "" {
		x.report.Held = o.held // so find begins again
	}
	return &Finding{
		faults: p, alike: []plan{p.generalized()}, Plan: p.strings(), Failure: o.failure, Journal: lines(o.journal), Number: x.report.Plans, Hung: o.hung,
		rest: o.rest,
	}
}

// A pattern matches the names of calls and events with generated parts.
type pattern struct {
	text string // "*" is a generated part
	*regexp.Regexp
}

var (
	token = regexp.MustCompile(`[\pL\pN_-]+|[^\pL\pN_-]+`)
	piece = regexp.MustCompile(`[\pL\pN]+|[_-]+`)
)

// patternsOf compares the names of two runs that are to be the same, and returns the
// patterns of those that only one of them has: a token that no name of the other run has is
// generated, except for the pieces at its ends that a token there has too. Both runs must have
// names of a pattern: else it is that of a call that one of them made by chance.
func patternsOf(first, second []point) []pattern {
	tokensOf := func(points []point) map[string][]string {
		tokens := map[string][]string{}
		for _, p := range points {
			for _, text := range token.FindAllString(p.what, -1) {
				tokens[text] = piece.FindAllString(text, -1)
			}
		}
		return tokens
	}
	tokens1, tokens2 := tokensOf(first), tokensOf(second)
	of := func(points []point, mine, theirs map[string][]string) map[string]pattern {
		patterns := map[string]pattern{}
		for _, p := range points {
			text, match := "", "^"
			for _, t := range token.FindAllString(p.what, -1) {
				if _, known := theirs[t]; known {
					text, match = text+t, match+regexp.QuoteMeta(t)
					continue
				}
				head, tail := endsOf(mine[t], theirs, mine)
				text += head + "*" + tail
				match += regexp.QuoteMeta(head) + `[\pL\pN_-]+` + regexp.QuoteMeta(tail)
			}
			if text != p.what {
				patterns[text] = pattern{text, regexp.MustCompile(string([]rune(match)) + "$")} // a name may be no UTF-8
			}
		}
		return patterns
	}
	patterns, others := of(first, tokens1, tokens2), of(second, tokens2, tokens1)
	maps.DeleteFunc(patterns, func(text string, _ pattern) bool { return others[text].Regexp == nil })
	return slices.SortedFunc(maps.Values(patterns), func(a, b pattern) int { return strings.Compare(a.text, b.text) })
}

// endsOf returns the ends of a generated token that are not generated: those that it has in
// common with one that the other run alone has, as far as possible.
func endsOf(pieces []string, theirs, mine map[string][]string) (head, tail string) {
	most := 0
	for _, text := range slices.Sorted(maps.Keys(theirs)) {
		others := theirs[text]
		if _, known := mine[text]; known {
			continue
		}
		i, j, n := 0, 0, min(len(pieces), len(others))-1
		for i < n && pieces[i] == others[i] {
			i++
		}
		for i+j < n && pieces[len(pieces)-1-j] == others[len(others)-1-j] {
			j++
		}
		if i+j > most {
			most, head, tail = i+j, strings.Join(pieces[:i], ""), strings.Join(pieces[len(pieces)-j:], "")
		}
	}
	return head, tail
}

// placeName returns the name of the places of what a call or event is called.
func (x *explorer) placeName(what string) string {
	if i := slices.IndexFunc(x.patterns, func(p pattern) bool { return p.MatchString(what) }); i >= 0 {
		return x.patterns[i].text
	}
	return what
}
