// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// A row is what check compares, and a line of the table of targets if it has one.
type row struct {
	label    string
	workload string
	metric   string
	unit     unit

	against  string  // the ratio is to this implementation; "" means client-go
	parts    bool    // it is to the sum of the parts instead
	ratio    float64 // the target: at most so much of it, or at least if more; 0 means none
	more     bool    // more is better
	atMost   float64 // the target, if it is an amount: see absolute
	absolute bool
}

func (r row) hasTarget() bool { return r.absolute || r.ratio > 0 }

func (r row) peer() string {
	switch {
	case r.parts:
		return "its parts"
	case r.against == "":
		return nameClient
	}
	return r.against
}

// rows are the targets, in the order of the table. Times are those of the
// processor, for one operation or one item, where the label says nothing else.
var rows = []row{
	{label: "cycle, the same times kept", workload: "clock", metric: "cpu", unit: ns, against: nameClientMetrics, ratio: 0.35},
	{label: "cycle, which in client-go keeps no times", workload: "cycle", metric: "cpu", unit: ns, ratio: 0.95},
	{label: "cycle, wall: three locks, a map, two clock readings", workload: "cycle", metric: "wall", unit: ns, parts: true, ratio: 1.15},
	{label: "cycle, struct of two strings", workload: "cycle pairs", metric: "cpu", unit: ns, ratio: 0.75},
	{label: "cycle with 64k items held", workload: "cycle held", metric: "cpu", unit: ns, ratio: 0.55},
	{label: "Enqueue of a queued item", workload: "add queued", metric: "cpu", unit: ns, ratio: 1},
	{label: "Enqueue of an item in flight, Done, Dequeue", workload: "add in flight", metric: "cpu", unit: ns, ratio: 0.85},
	{label: "fill 1M and drain", workload: "burst", metric: "cpu", unit: ns, ratio: 0.40},
	{label: "… bytes an item", workload: "burst", metric: "held", unit: inBytes, absolute: true, atMost: 80},
	{label: "… kept once drained", workload: "burst", metric: "kept", unit: inMemory, absolute: true, atMost: 1e6},
	{label: "longest call at 1M items", workload: "longest", metric: "max", unit: ms, absolute: true, atMost: 5e6},
	{label: "1M EnqueueAfter of up to 1 h", workload: "fill delayed", metric: "cpu", unit: ns, ratio: 0.28},
	{label: "… bytes an item", workload: "fill delayed", metric: "held", unit: inBytes, absolute: true, atMost: 95},
	{label: "100k delays within 200 ms: late, p50", workload: "fire", metric: "p50", unit: ms, ratio: 0.7},
	{label: "… late, p99", workload: "fire", metric: "p99", unit: ms, ratio: 0.5},
	{label: "… in all", workload: "fire", metric: "total cpu", unit: ms, ratio: 0.45},
	{label: "10k items again after 1 ms: cycles a second", workload: "requeue", metric: "rate", unit: millions, ratio: 3, more: true},
	{label: "a failed run, given back for its back-off", workload: "fail", metric: "cpu", unit: ns},
	{label: "2 producers, 2 workers", workload: "crowd 2", metric: "cpu", unit: ns, ratio: 0.90},
	{label: "8 producers, 8 workers", workload: "crowd 8", metric: "cpu", unit: ns, ratio: 0.90},
	{label: "64 producers, 64 workers", workload: "crowd 64", metric: "cpu", unit: ns, ratio: 0.90},
	{label: "storm on hot items", workload: "storm", metric: "cpu", unit: ns, ratio: 1.05},
	{label: "wake an idle worker, p50", workload: "wake", metric: "p50", unit: µs, ratio: 1},
	{label: "… in the loop, p50", workload: "loop wake", metric: "p50", unit: µs, ratio: 1.05},
	{label: "loop over 1M no-op runs", workload: "loop", metric: "cpu", unit: ns, ratio: 0.45},
	{label: "… beside its controller", workload: "loop", metric: "cpu", unit: ns, ratio: 0.05, against: nameCtrl},
	{label: "loop, 4 workers", workload: "loop 4", metric: "cpu", unit: ns},
	{label: "loop, slog at Info", workload: "loop info", metric: "cpu", unit: ns},
	{label: "an empty queue", workload: "burst", metric: "empty", unit: inKilobytes, absolute: true, atMost: 4e3},
}

// A unit says how an amount is written.
type unit func(v float64) string

func ns(v float64) string          { return digits(v) + " ns" }
func µs(v float64) string          { return digits(v/1e3) + " µs" }
func ms(v float64) string          { return digits(v/1e6) + " ms" }
func inBytes(v float64) string     { return digits(v) + " B" }
func inKilobytes(v float64) string { return digits(v/1e3) + " kB" }

// inMemory writes what may be a few kilobytes or many megabytes.
func inMemory(v float64) string {
	if math.Abs(v) < 1e6 {
		return fmt.Sprintf("%.0f kB", v/1e3)
	}
	return inMegabytes(v)
}

func inMegabytes(v float64) string { return digits(v/1e6) + " MB" }
func millions(v float64) string    { return digits(v/1e6) + " M" }
func plain(v float64) string       { return fmt.Sprint(math.Round(v*100) / 100) }

// digits writes three digits, or all before the point.
func digits(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return thousands(int64(math.Round(v)))
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// verdict says how a row came out.
type verdict struct {
	median   float64 // the ratio, or the amount if the target is one
	target   string
	met      bool
	measured bool // the row was measured
}

func (r *results) verdict(w row) verdict {
	ours := place{w.workload, nameOurs}
	var v verdict
	switch {
	case w.absolute:
		v.median, v.target = r.median(ours, w.metric), "≤ "+w.unit(w.atMost)
		v.met = v.median <= w.atMost || w.unit(v.median) == w.unit(w.atMost)
	case w.parts:
		v.median = r.median(ours, w.metric) / r.partsSum()
	default:
		v.median = r.ratio(w.workload, w.metric, nameOurs, w.peer())
	}
	switch {
	case w.absolute:
	case w.more:
		v.target, v.met = fmt.Sprintf("≥ %.2f", w.ratio), v.median >= w.ratio
	default:
		v.target, v.met = fmt.Sprintf("≤ %.2f", w.ratio), v.median <= w.ratio
	}
	v.measured = !math.IsNaN(v.median)
	return v
}

// partsSum is what a cycle cannot do without: three locks, a map, and two
// readings of the clock.
func (r *results) partsSum() float64 {
	return r.median(place{"parts", "three locks and a map"}, "wall") + 2*r.median(place{"parts", "time.Since"}, "wall")
}

var (
	tableImpls = []string{nameOurs, nameClient, nameCtrl, nameMutex, nameChannel}
	allocImpls = tableImpls[:3] // the bounds allocate next to nothing
)

// targetTable is the table of the targets: what was measured beside what was
// wanted.
func (r *results) targetTable() string {
	var b strings.Builder
	b.WriteString("| workload | reconcile | client-go | ratio | target | |\n|---|--:|---|--:|--:|---|\n")
	for _, w := range rows {
		if !w.hasTarget() {
			continue
		}
		beside := ""
		if w.peer() != nameClient {
			beside = w.peer() + ": "
		}
		switch p := (place{w.workload, w.peer()}); {
		case w.absolute:
			beside = "–"
		case w.parts:
			beside += w.unit(r.partsSum())
		default:
			beside += r.cell(p, w.metric, w.unit)
		}
		v := r.verdict(w)
		ratio := v.text()
		if w.absolute {
			ratio = "–"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", w.label, r.cell(place{w.workload, nameOurs}, w.metric, w.unit), beside, ratio, v.target, v.mark())
	}
	return b.String()
}

func (v verdict) mark() string {
	switch {
	case !v.measured:
		return "not measured"
	case v.met:
		return "met"
	default:
		return "**not met**"
	}
}

// text is the median ratio; with one more digit if it is a near miss.
func (v verdict) text() string {
	text := ratioText(v.median)
	if v.measured && !v.met && strings.HasSuffix(v.target, text) {
		text = fmt.Sprintf("%.3f", v.median)
	}
	return text
}

func ratioText(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return fmt.Sprintf("%.2f", v)
}

// cell is the median of a place, or why there is none.
func (r *results) cell(p place, metric string, u unit) string {
	if len(r.samples[p]) == 0 {
		return "–"
	}
	if r.wrong(p) != "" {
		return "**wrong**"
	}
	v := r.median(p, metric)
	if math.IsNaN(v) {
		return "–"
	}
	return u(v)
}

// costTable shows the time of each workload, or its allocations.
func (r *results) costTable(impls []string, cell func(w *workload, p place) string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| workload | %s |\n|---|%s\n", strings.Join(impls, " | "), strings.Repeat("--:|", len(impls)))
	for _, w := range workloads {
		if slices.Contains([]string{"parts", "clock", "longest"}, w.name) {
			continue // it is elsewhere on the page
		}
		fmt.Fprintf(&b, "| %s |", w.name)
		for _, im := range impls {
			var cells []string
			for _, name := range r.implsOf(w.name) { // im itself, and its variants
				variant, ok := strings.CutPrefix(name, im)
				if !ok {
					continue
				}
				p := place{w.name, name}
				text := cell(w, p)
				if r.wrong(p) != "" {
					text = "**wrong**"
				}
				cells = append(cells, strings.TrimSpace(strings.TrimPrefix(variant, ",")+" "+text))
			}
			fmt.Fprintf(&b, " %s |", cmp.Or(strings.Join(cells, "; "), "–"))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// timeCell is the processor time of an operation, or how late what waits on
// purpose was.
func (r *results) timeCell(w *workload, p place) string {
	if !w.paced {
		return digits(r.median(p, "cpu"))
	}
	return fmt.Sprintf("%s / %s µs", digits(r.median(p, "p50")/1e3), digits(r.median(p, "p99")/1e3))
}

// allocsCell is the allocations of an operation.
func (r *results) allocsCell(_ *workload, p place) string {
	return plain(r.median(p, "allocs"))
}

// partsTable shows what the pieces of a queue cost on this machine.
func (r *results) partsTable() string {
	names, values, line := "|", "|", "|"
	for _, im := range r.implsOf("parts") {
		names += " " + im + " |"
		values += " " + ns(r.median(place{"parts", im}, "wall")) + " |"
		line += "--:|"
	}
	return names + "\n" + line + "\n" + values + "\n"
}

// wrongList names all that does not count, and why.
func (r *results) wrongList() string {
	var b strings.Builder
	for _, p := range r.places() {
		if why := r.wrong(p); why != "" {
			fmt.Fprintf(&b, "- %s, %s: %s\n", p.workload, p.impl, why)
		}
	}
	return b.String()
}

// text is what report prints.
func (r *results) text() string {
	m := r.machine
	fewest, most := r.rounds()
	text := fmt.Sprintf("Measured on %s, %d processors, %s, %s, beside %s, in %.1f minutes, in %d to %d rounds a workload; other processes used %.2g %% of the machine.\n\n",
		m.CPU, m.Procs, m.System, m.Go, strings.Join(slices.Sorted(maps.Values(m.Versions)), " and "), m.Seconds/60, fewest, most, 100*m.Others)
	if m.Others > 0.1 {
		text += "**The machine was not quiet.** Wall times and lateness say little here; measure again.\n\n"
	}
	text += r.targetTable()
	if wrong := r.wrongList(); wrong != "" {
		text += "\nWrong, and so not counted:\n\n" + wrong
	}
	return text + "\n" + r.partsTable() + "\n" + r.costTable(tableImpls, r.timeCell) + "\n" + r.costTable(allocImpls, r.allocsCell)
}
