// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package explore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Report is the result of [Search].
type Report struct {
	Found    *Finding   // nil if no plan fails
	Findings []*Finding // Found, and with Scenario.All those after it

	Plans     int      // played, up to the plan that fails, without those that make it smaller
	Singles   int      // plans of one fault among them
	Pairs     int      // plans of two faults
	LeftOut   int      // single faults that were not tried
	NeverCame []string // single faults whose call or event did not occur when they were tried
	Held      string   // a call over which the controller holds a mutex; see Run
	Known     int      // plans that failed by the faults of Scenario.Known, or like a finding before them
	PairsLeft int      // pairs of faults that were not tried

	NeverStale []string // reads that were never stale, because they had no other answer before

	Calls  int    // calls of the play without faults, of those that repeat while nothing changes the first two, and the last one before Steps changes the world
	Events int    // events of the play without faults, in the same way
	State  string // the world at the end of the play without faults, by Scenario.State
	Took   time.Duration

	journal []entry
	all     bool // no finding ended it
	locked  int  // plans that were given up after a log.Fatal
}

// Journal returns the journal of the plan that fails; if there is none, that of Replay, or
// of the plan without faults.
func (r *Report) Journal() []string {
	if r.Found != nil {
		return r.Found.Journal
	}
	return lines(r.journal)
}

// Stories tells the stories of all findings, after a line for each if there are several, or
// several plans of one.
func (r *Report) Stories() string {
	var b strings.Builder
	if len(r.Findings) > 1 || len(r.Findings) == 1 && len(r.Findings[0].alike) > 1 {
		fmt.Fprintf(&b, "findings: %d; Scenario.Known takes what is in braces:\n", len(r.Findings))
		for _, f := range r.Findings {
			plans := make([]string, len(f.alike))
			for i, p := range f.alike {
				plans[i] = strings.TrimPrefix(fmt.Sprintf("%#v", p.strings()), "[]string")
			}
			fmt.Fprintf(&b, "\t%s: %s\n", strings.Join(plans, ", "), firstLine(f.Failure))
		}
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s\n", f)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// stateMax is the number of lines of a state in a report.
const stateMax = 10

// String says how much was tried, and what was not.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d plans in %v, %.0f a second: %d of one fault, %d of two",
		r.Plans, r.Took.Round(time.Millisecond), float64(r.Plans)/r.Took.Seconds(), r.Singles, r.Pairs)
	if r.Held != "" {
		fmt.Fprintf(&b, "\nNOT TRIED: slow calls and calls without an answer, because a mutex is held over %q, which stops the clock of a bubble", r.Held)
	}
	if !r.all || r.Singles+r.LeftOut == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "\nfaults at %d calls and %d events; ", r.Calls, r.Events)
	if r.LeftOut == 0 {
		fmt.Fprintf(&b, "each was hit by each of its faults (the first %d of those that repeat while nothing changes, and the last one before a change by Steps; outages at the first %d of a name)", idleEnough, outagesMax)
	} else {
		fmt.Fprintf(&b, "NOT TRIED: %d of %d single faults; those that were tried were drawn by Seed", r.LeftOut, r.Singles+r.LeftOut)
	}
	if r.locked > 0 {
		fmt.Fprintf(&b, "\nNOT TRIED: the end of %d plans in which log.Fatal ends the process while that holds a mutex, which stops the clock of a bubble", r.locked)
	}
	if r.PairsLeft > 0 {
		fmt.Fprintf(&b, "\nNOT TRIED: %d of %d pairs of faults", r.PairsLeft, r.Pairs+r.PairsLeft)
	}
	if r.Known > 0 {
		fmt.Fprintf(&b, "\n%d plans failed by the faults of Scenario.Known, or like a finding before them", r.Known)
	}
	for _, left := range []struct {
		why string
		all []string
	}{
		{"these, because the call or event never came in their plan:", r.NeverCame},
		{"a stale answer of these, because they had no other answer before:", r.NeverStale},
	} {
		for i, text := range left.all {
			if i == 0 {
				fmt.Fprintf(&b, "\nNOT TRIED: %s", left.why)
			}
			if i == listedMax {
				fmt.Fprintf(&b, " and %d more", len(left.all)-i)
				break
			}
			fmt.Fprintf(&b, "\n\t%s", text)
		}
	}
	if r.State != "" {
		state := strings.Split(strings.TrimSuffix(r.State, "\n"), "\n")
		if n := len(state) - stateMax; n > 0 {
			state = append(state[:stateMax:stateMax], fmt.Sprintf("... %d lines", n))
		}
		fmt.Fprintf(&b, "\nthe state at the end without faults, with which each plan was compared:\n%s", indent(state))
	}
	return b.String()
}

// A Finding is a plan that fails.
type Finding struct {
	Plan    []string // its faults, for Scenario.Replay; empty if it fails without faults
	Failure string   // the failure
	Journal []string // the calls, events and notes of the plan
	Number  int      // of the plan that failed first
	Differs string   // the result of a second play, if that did not fail
	Hung    bool     // the plan did not end

	faults plan   // as Plan has them
	alike  []plan // these, without the numbers of their calls, and others with the same cause
	rest   int    // of the journal, the lines before that have a change
}

// String tells the story.
func (f *Finding) String() string {
	var b strings.Builder
	switch len(f.Plan) {
	case 0:
		b.WriteString("it fails without any fault\n")
	case 1:
		fmt.Fprintf(&b, "it fails with one fault, found in plan %d:\n", f.Number)
	default:
		fmt.Fprintf(&b, "it fails with %d faults, but not if one of them is left out, found in plan %d:\n", len(f.Plan), f.Number)
	}
	for _, one := range f.Plan {
		fmt.Fprintf(&b, "\t%s\n", one)
	}
	if f.Differs != "" {
		fmt.Fprintf(&b, "but not when it was played again: something is left to chance; %s\n", f.Differs)
	}
	fmt.Fprintf(&b, "this happened:\n%sand then:\n%s", indent(f.excerpt()), indent(strings.Split(f.Failure, "\n")))
	switch {
	case len(f.Plan) == 0:
	case f.Differs != "":
		fmt.Fprintf(&b, "Replay may play another one, with\n\tReplay: %#v,\n", f.Plan)
	default:
		fmt.Fprintf(&b, "to play this plan alone, set\n\tReplay: %#v,\n", f.Plan)
	}
	return b.String()
}

// excerpt returns the journal without what comes long before the first fault, and long
// after the last change.
func (f *Finding) excerpt() []string {
	const before, most, after = 20, 60, 2
	lines := f.Journal
	if end := f.rest + after; end+1 < len(lines) {
		lines = append(lines[:end:end], fmt.Sprintf("... %d lines, in which nothing changes", len(lines)-end))
	}
	first := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, mark) })
	if from := first - before; from > 0 {
		lines = append([]string{fmt.Sprintf("... %d lines", from)}, lines[from:]...)
	}
	lines = withoutRepeats(lines)
	if left := len(lines) - 2*most; left > 0 {
		lines = slices.Concat(lines[:most], []string{fmt.Sprintf("... %d lines", left)}, lines[len(lines)-most:])
	}
	return lines
}

// withoutRepeats leaves out lines that come again and again, whatever the time.
func withoutRepeats(lines []string) []string {
	texts := make([]string, len(lines))
	for i, line := range lines {
		_, texts[i], _ = strings.Cut(line, " ")
	}
	var kept []string
	for i := 0; i < len(lines); {
		n, times := repeats(texts[i:])
		kept = append(kept, lines[i:i+n]...)
		i += n * times
		if times > 1 {
			at, _, _ := strings.Cut(lines[i-1], " ")
			kept = append(kept, fmt.Sprintf("... and so on, %d times until %s", times, at))
		}
	}
	return kept
}

// repeats returns how many of the first texts come again, and how often they come: up to eight
// that come four times at least. If there are none, it returns 1, 1.
func repeats(texts []string) (n, times int) {
	for n = 1; n <= 8; n++ {
		times = 1
		for end := 2 * n; end <= len(texts) && slices.Equal(texts[:n], texts[end-n:end]); end += n {
			times++
		}
		if times >= 4 {
			return n, times
		}
	}
	return 1, 1
}

// difference says which lines only one of two texts has.
func difference(want, got, of string) string {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	var lines []string
	for _, line := range wants {
		if i := slices.Index(gots, line); i >= 0 {
			gots = slices.Delete(gots, i, i+1)
		} else {
			lines = append(lines, "- "+cmp.Or(line, "(nothing)")+"  "+of)
		}
	}
	for _, line := range gots {
		lines = append(lines, "+ "+cmp.Or(line, "(nothing)"))
	}
	if len(lines) == 0 {
		return "its lines are in another order:\n" + got
	}
	return strings.Join(lines, "\n")
}
