// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ErrInjected is what a call returns that fails, or whose answer is lost, by a plan of
// [Explore]. A fake may turn it into an error of its own, such as a status 503.
var ErrInjected = errors.New("reconciletest: injected fault")

// A Fault is what a plan does to one call or event.
type Fault string

// The faults of calls by [Kit.Do], [Kit.Call] and [Read], and of events by
// [Kit.Event] and [Stage.Event].
const (
	Fails      Fault = "fails"       // the call returns ErrInjected and has no effect
	AnswerLost Fault = "answer lost" // Do: the call has its effect and returns ErrInjected
	DiesBefore Fault = "dies before" // the process dies, and the call has no effect
	DiesAfter  Fault = "dies after"  // Do: the call has its effect, and the process dies
	Slow       Fault = "slow"        // Do, Read: the call has its effect, and answers when its context has ended or a minute is over
	Stale      Fault = "stale"       // Read: the last other answer comes, if there was one
	Lost       Fault = "lost"        // the event does not come
	Twice      Fault = "twice"       // the event comes, and again a minute later
	Late       Fault = "late"        // the event comes a minute later
)

// faultsOf lists what can happen to each kind. A process that dies after a read left
// the same world as one that died before it.
var faultsOf = [...][]Fault{
	onCall:  {Fails, DiesBefore},
	onDo:    {Fails, AnswerLost, DiesBefore, DiesAfter, Slow},
	onRead:  {Fails, DiesBefore, Slow, Stale},
	onEvent: {Lost, Twice, Late},
}

var allFaults = []Fault{Fails, AnswerLost, DiesBefore, DiesAfter, Slow, Stale, Lost, Twice, Late}

// A Scenario is what [Explore] plays: a controller of items of type T, and a world of
// type W. World, Start and Play are required, and so is State or Final; the zero value
// of every other field is a good default.
//
// Each plan has a bubble of [testing/synctest] and a world of its own. State, Check,
// Final and Play are called while nothing else runs.
type Scenario[T comparable, W any] struct {
	// World makes the world: a fake, with what is wished for. It survives when the
	// process dies.
	World func() W

	// Start starts the controller, by [Kit.Start] and [Kit.Go], and returns. It is
	// called for each process, in a goroutine of that: at the beginning, and a second
	// after each death. All that the one before knew is gone, and its calls reach
	// the world no more.
	Start func(k *Kit[T], w W)

	// Play is what happens to the world beside the controller: wishes, changes by
	// another hand, events of these. It changes w, and lets time pass.
	Play func(s *Stage[T], w W)

	// State describes the world. At the end of each plan it must be what it is
	// without faults. So it has what counts, and nothing that may differ: no times,
	// no generated names.
	State func(w W) string

	// Check is called after each call that may change the world, and after each
	// change by Play. It returns an error if what never may be is so; nil means that
	// all may be.
	Check func(w W) error

	// Final is called at the end of each plan, and returns an error if the world is
	// not as it has to be. If it is set, the end need not be what it is without
	// faults.
	Final func(w W) error

	// Close ends what World started, such as a server; it may be nil.
	Close func(w W)

	// Without lists the faults that this world does not have; nil means that it has
	// all. After Lost and Stale no event tells the truth, so they need a controller
	// that looks again by itself, within the time of Within.
	Without []Fault

	// Within is how long the controller may take to converge after the last fault,
	// or the end of Play, and how long it is watched after that, in the time of the
	// bubble. 0 means an hour; otherwise it is a minute or more.
	Within time.Duration

	// Plans and Budget limit how many plans are played, and for how long, in the
	// time of the machine. All plans of a single fault are played whatever they say.
	// 0 means no limit; if both are 0, Budget is a second.
	Plans  int
	Budget time.Duration

	Seed uint64 // of the plans of many faults

	// Replay is one plan, as a failure prints it. If it is set, this plan is played
	// alone.
	Replay []string
}

// A Stage is what the Play of a [Scenario] has in hand. Its methods are for the
// goroutine of Play.
type Stage[T comparable] struct{ play *play[T] }

// Advance lets d pass, and returns when everything that is to happen by then has
// happened. While Play does anything else, the controller stands still.
func (s *Stage[T]) Advance(d time.Duration) {
	s.play.advance(s.play.now() + d)
}

// Event tells the process that is there that something happened to an item, as
// [Kit.Event] does, once time passes. While none is there, nobody hears it.
func (s *Stage[T]) Event(item T) { s.play.tell(nil, item) }

// Note writes a line to the journal.
func (s *Stage[T]) Note(text string) {
	s.play.mu.Lock()
	defer s.play.mu.Unlock()
	s.play.noteLocked("%s", text)
}

// Explore plays a scenario without faults, then with each single fault at each call
// and event, then with pairs and with more of them, as s says. The test fails at the
// first plan after which the world is not as it has to be, and prints a story: the
// smallest plan that fails, with its journal.
//
// A plan fails if
//   - the world does not stand still, or an item has work left, an hour after the last
//     fault: see Within. What is only to be looked at again, by
//     [reconcile.RecheckWithin], has none;
//   - there are many more runs or calls in the hour after than without faults, or
//     runs and calls without end;
//   - the world is then not what it is without faults, or Final says no;
//   - Check says no at any time;
//   - a goroutine is left when the process is ended, or all wait for ever;
//   - an event was enqueued and no run followed;
//   - a runner returns an error, or something of the scenario panics.
//
// Calls go through one at a time, in an order that is the same each time, and so the
// same Seed gives the same plans and journals. What is left to chance in the
// controller spoils that: a [reconcile.Poller] has its chance taken out, but not a
// [reconcile.Backoff]; leave [reconcile.Reconciler.Retry] nil.
//
// Explore must not be called in a bubble. It blocks for as long as Plans and Budget
// say, or as all single faults take if that is longer.
func Explore[T comparable, W any](t *testing.T, s Scenario[T, W]) {
	t.Helper()
	x, err := newExplorer(t, s)
	if err != nil {
		t.Fatal(err)
	}
	found := x.explore()
	if found != nil {
		t.Error(found.story())
	}
	t.Log(x.summary())
}

// An explorer goes through the plans of a scenario.
type explorer[T comparable] struct {
	t     *testing.T
	setup func(*play[T])
	clean *outcome

	without []Fault
	plans   int
	budget  time.Duration
	seed    uint64
	replay  plan

	begun                time.Time
	played               int
	singles, pairs, many int // of these
	random               *rand.Rand
	first                []single
	round, turn          int // of pair
}

// secondMax bounds how many second faults are tried with a first one.
const secondMax = 1000

// A single is a plan of one fault that passed, and where a second one can be.
type single struct {
	fault injection
	next  []injection
}

// injected is the text of an injection.
var injected = regexp.MustCompile(`(?s)^((call|event) .*) #(\d{1,9}): (.+)$`)

func newExplorer[T comparable, W any](t *testing.T, s Scenario[T, W]) (*explorer[T], error) {
	wrong := ""
	switch {
	case s.World == nil:
		wrong = "World is required, and nil; want a function that makes the world"
	case s.Start == nil:
		wrong = "Start is required, and nil; want a function that starts the controller"
	case s.Play == nil:
		wrong = "Play is required, and nil; want a function that says what happens"
	case s.State == nil && s.Final == nil:
		wrong = "State and Final are nil; want one of them at least"
	case s.Within != 0 && s.Within < time.Minute:
		wrong = fmt.Sprintf("Within is %v, want 0 (which means an hour) or a minute at least", s.Within)
	case s.Plans < 0:
		wrong = fmt.Sprintf("Plans is %d, want 0 (which means no limit) or more", s.Plans)
	case s.Budget < 0:
		wrong = fmt.Sprintf("Budget is %v, want 0 (which means no limit, or a second if Plans is 0 too) or more", s.Budget)
	}
	for _, f := range s.Without {
		if !slices.Contains(allFaults, f) {
			wrong = fmt.Sprintf("Without has %q, want one of %q", f, allFaults)
		}
	}
	x := &explorer[T]{
		t: t, without: s.Without, plans: s.Plans, budget: s.Budget, seed: s.Seed,
		begun: time.Now(), random: rand.New(rand.NewPCG(s.Seed, 0)),
	}
	for _, text := range s.Replay {
		m := injected.FindStringSubmatch(text)
		if m == nil || !slices.Contains(allFaults, Fault(m[4])) || (m[2] == "event") != slices.Contains(faultsOf[onEvent], Fault(m[4])) {
			wrong = fmt.Sprintf(`Replay has %q, want a fault as a failure prints it, such as "call create a #1: fails"`, text)
			break
		}
		nth, _ := strconv.Atoi(m[3])
		x.replay = append(x.replay, injection{place{m[1], nth}, Fault(m[4])})
	}
	if wrong != "" {
		return nil, fmt.Errorf("reconciletest: Scenario.%s", wrong)
	}
	if x.plans == 0 && x.budget == 0 {
		x.budget = time.Second
	}
	direct := func(p *play[T]) {
		w := s.World()
		p.start = func(k *Kit[T]) { s.Start(k, w) }
		p.inspect = func() (text string, err error) {
			if s.Check != nil {
				err = s.Check(w)
			}
			if s.State != nil {
				text = s.State(w)
			}
			return text, err
		}
		if s.Close != nil {
			p.close = func() { s.Close(w) }
		}
		p.launch()
		p.advance(0) // so that Start has returned, and nothing runs beside Play
		s.Play(&Stage[T]{p}, w)
		p.settle()
		var err error
		if s.Final != nil && !p.over(nil) {
			err = s.Final(w)
		}
		p.judge(err, s.Final == nil)
	}
	x.setup = func(p *play[T]) { p.direct, p.within = direct, cmp.Or(s.Within, time.Hour) }
	return x, nil
}

// A plan is a list of faults.
type plan []injection

func (p plan) String() string {
	texts := make([]string, len(p))
	for i, one := range p {
		texts[i] = one.String()
	}
	return strings.Join(texts, "; ")
}

func (p plan) decide(at point) Fault {
	for _, i := range p {
		if i.place == at.place {
			return i.fault
		}
	}
	return ""
}

// A finding is a plan that fails.
type finding struct {
	plan    plan
	number  int // of the plan in which it was found
	outcome *outcome
	flaky   bool // it did not fail again
}

// explore plays all plans, or those until one fails.
func (x *explorer[T]) explore() *finding {
	clean := x.perform(plan{}.decide, false)
	if clean.failure != "" {
		return x.find(nil, clean)
	}
	switch again := x.perform(plan{}.decide, false); {
	case again.state != clean.state: // it would be taken for the work of a fault
		clean.failure = "the world is once so and once so, without any fault:\n" + difference(clean.state, again.state)
	case len(clean.points) == 0:
		clean.failure = "there is nothing to disturb: no call by Do, Read or Call, and no event"
	}
	if clean.failure != "" {
		return &finding{number: x.played, outcome: clean}
	}
	x.clean = clean
	if x.replay != nil {
		return x.again()
	}
	for _, one := range x.faults(clean.points) {
		x.singles++
		o := x.perform(plan{one}.decide, false)
		if o.failure != "" {
			return x.find(plan{one}, o)
		}
		next := x.faults(o.points[o.after:])
		x.random.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
		x.first = append(x.first, single{one, next[:min(len(next), secondMax)]})
	}
	return x.combine()
}

// combine plays pairs of faults, and plans of more between them, as long as it may.
func (x *explorer[T]) combine() *finding {
	for len(x.first) > 0 && (x.plans == 0 || x.played < x.plans) && (x.budget == 0 || time.Since(x.begun) < x.budget) {
		decide := x.dice(x.many)
		if p := x.pair(); p != nil {
			x.pairs++
			decide = p.decide
		} else {
			x.many++
		}
		if o := x.perform(decide, false); o.failure != "" {
			return x.find(o.happened, o)
		}
	}
	return nil
}

// pair returns the next plan of two faults, or nil if it is the turn of one of more:
// that is each fourth, as pairs may take all the time that there is. Each first fault
// has its turn.
func (x *explorer[T]) pair() plan {
	if (x.pairs+x.many)%4 == 3 {
		return nil
	}
	for ; x.round < secondMax; x.round++ {
		for x.turn < len(x.first) {
			one := x.first[x.turn]
			x.turn++
			if x.round < len(one.next) {
				return plan{one.fault, one.next[x.round]}
			}
		}
		x.turn = 0
	}
	return nil
}

// dice decides by a hash of the place, so that it is the same in any order.
func (x *explorer[T]) dice(number int) func(point) Fault {
	left, rate := 2+number%7, 2<<(number%4)
	return func(at point) Fault {
		at.stale = true // perhaps
		options := x.faults([]point{at})
		if left == 0 || len(options) == 0 {
			return ""
		}
		h := fnv.New64a()
		fmt.Fprint(h, number, at.place)
		random := rand.New(rand.NewPCG(x.seed, h.Sum64()))
		if random.IntN(rate) > 0 {
			return ""
		}
		left--
		return options[random.IntN(len(options))].fault
	}
}

// faults lists all that can happen at these points.
func (x *explorer[T]) faults(points []point) []injection {
	var all []injection
	for _, p := range points {
		for _, f := range faultsOf[p.kind] {
			if !slices.Contains(x.without, f) && (f != Stale || p.stale) {
				all = append(all, injection{p.place, f})
			}
		}
	}
	return all
}

// perform plays one plan.
func (x *explorer[T]) perform(decide func(point) Fault, journal bool) *outcome {
	x.played++
	p := &play[T]{decide: decide, journal: journal, clean: x.clean}
	x.setup(p)
	return p.perform(x.t)
}

// again plays the plan of Replay.
func (x *explorer[T]) again() *finding {
	o := x.perform(x.replay.decide, true)
	for _, i := range x.replay {
		if o.failure == "" && !slices.Contains(o.happened, i) {
			o.failure = fmt.Sprintf("a fault of Replay does not come any more: %q", i)
		}
	}
	if o.failure == "" {
		return nil
	}
	return &finding{plan: x.replay, number: x.played, outcome: o}
}

// find makes a finding of a plan that fails: it leaves out the faults without which it
// fails too.
func (x *explorer[T]) find(p plan, o *outcome) *finding {
	f := &finding{plan: p, number: x.played, outcome: o}
	for i := 0; i < len(f.plan) && len(f.plan) > 1; {
		smaller := slices.Delete(slices.Clone(f.plan), i, i+1)
		if x.perform(smaller.decide, false).failure == "" {
			i++
		} else {
			f.plan, i = smaller, 0
		}
	}
	if o := x.perform(f.plan.decide, true); o.failure != "" {
		f.outcome = o
	} else {
		f.flaky = true
	}
	return f
}

func (x *explorer[T]) summary() string {
	took := time.Since(x.begun)
	return fmt.Sprintf("%d plans in %v, %.0f a second: %d of one fault, %d of two, %d of more",
		x.played, took.Round(time.Millisecond), float64(x.played)/took.Seconds(), x.singles, x.pairs, x.many)
}

// story tells what happened.
func (f *finding) story() string {
	var b strings.Builder
	replay := make([]string, len(f.plan))
	switch len(f.plan) {
	case 0:
		b.WriteString("it fails without any fault\n")
	case 1:
		fmt.Fprintf(&b, "it fails with one fault, found in plan %d:\n", f.number)
	default:
		fmt.Fprintf(&b, "it fails with %d faults, but not if one of them is left out, found in plan %d:\n", len(f.plan), f.number)
	}
	for i, one := range f.plan {
		fmt.Fprintf(&b, "\t%s\n", one)
		replay[i] = strconv.Quote(one.String())
	}
	if f.flaky {
		b.WriteString("but not when it was played again: something is left to chance\n")
	}
	fmt.Fprintf(&b, "this happened:\n%sand then:\n%s", indent(f.outcome.excerpt()), indent(strings.Split(f.outcome.failure, "\n")))
	if len(f.plan) > 0 {
		fmt.Fprintf(&b, "to play this plan alone, set\n\tReplay: []string{%s},\n", strings.Join(replay, ", "))
	}
	return b.String()
}

// excerpt returns the journal without what comes long before the first fault, and long
// after the last change.
func (o *outcome) excerpt() []string {
	const before, most, after = 20, 60, 2
	lines := o.journal
	if end := o.rest + after; end+1 < len(lines) {
		lines = append(lines[:end:end], fmt.Sprintf("... %d lines, in which nothing changes", len(lines)-end))
	}
	first := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, mark) })
	if from := first - before; from > 0 {
		lines = append([]string{fmt.Sprintf("... %d lines", from)}, lines[from:]...)
	}
	if left := len(lines) - 2*most; left > 0 {
		lines = slices.Concat(lines[:most], []string{fmt.Sprintf("... %d lines", left)}, lines[len(lines)-most:])
	}
	return lines
}

// difference says which lines only one of two texts has.
func difference(want, got string) string {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	var lines []string
	for _, line := range wants {
		if i := slices.Index(gots, line); i >= 0 {
			gots = slices.Delete(gots, i, i+1)
		} else {
			lines = append(lines, "- "+line+"  (without faults)")
		}
	}
	for _, line := range gots {
		lines = append(lines, "+ "+line)
	}
	if len(lines) == 0 {
		return "its lines are in another order:\n" + got
	}
	return strings.Join(lines, "\n")
}
