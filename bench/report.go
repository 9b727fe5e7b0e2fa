// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"
)

// A row is one line of the table of targets.
type row struct {
	label    string
	chart    string // its name in the overview; "" leaves it out
	workload string
	x        int
	metric   string
	unit     unit

	against  string  // the ratio is to this implementation; "" means client-go
	ratio    float64 // the target: at most so much of it, or at least if more; 0 means none
	more     bool    // more is better
	atMost   float64 // the target, if it is an amount: see absolute
	absolute bool
}

func (r row) peer() string {
	if r.against == "" {
		return nameClient
	}
	return r.against
}

// rows are the targets, in the order of the table. Times are those of the
// processor, for one operation or one item, where the label says nothing else.
var rows = []row{
	{label: "cycle: Enqueue, Dequeue, Done", chart: "cycle: Enqueue, Dequeue, Done", workload: "cycle", metric: "cpu", unit: ns, ratio: 0.50},
	{label: "… allocations", workload: "cycle", metric: "allocs", unit: plain, absolute: true},
	{label: "cycle, struct of two strings", chart: "cycle, struct of two strings", workload: "cycle pairs", metric: "cpu", unit: ns, ratio: 0.45},
	{label: "… allocations", workload: "cycle pairs", metric: "allocs", unit: plain, absolute: true},
	{label: "cycle with 64k items waiting their turn", chart: "cycle, 64k items waiting", workload: "cycle held", metric: "cpu", unit: ns, ratio: 0.45},
	{label: "Enqueue of a queued item", chart: "Enqueue of a queued item", workload: "add queued", metric: "cpu", unit: ns, ratio: 0.80},
	{label: "Enqueue of an item in flight, Done, Dequeue", chart: "Enqueue in flight, Done, Dequeue", workload: "add in flight", metric: "cpu", unit: ns, ratio: 0.40},
	{label: "fill 1M and drain", chart: "fill 1M and drain", workload: "burst", metric: "cpu", unit: ns, ratio: 0.50},
	{label: "… bytes per item held", chart: "… bytes per item held", workload: "burst", metric: "held", unit: inBytes, absolute: true, atMost: 80},
	{label: "… bytes kept once drained", chart: "… bytes kept once drained", workload: "burst", metric: "kept", unit: inMegabytes, absolute: true, atMost: 1e6},
	{label: "1M EnqueueAfter of up to 1 h", chart: "1M EnqueueAfter", workload: "fill delayed", metric: "cpu", unit: ns, ratio: 0.30},
	{label: "… bytes per item held", chart: "… bytes per item held", workload: "fill delayed", metric: "held", unit: inBytes, absolute: true, atMost: 90},
	{label: "… goroutines", workload: "fill delayed", metric: "goroutines", unit: plain, absolute: true},
	{label: "100k delays end within 200 ms: late, p50", chart: "100k delays in 200 ms: late, p50", workload: "fire", metric: "p50", unit: ms, ratio: 0.5},
	{label: "… late, p99", chart: "… late, p99", workload: "fire", metric: "p99", unit: ms, ratio: 0.5},
	{label: "… in all", chart: "… processor time", workload: "fire", metric: "total cpu", unit: ms, ratio: 0.5},
	{label: "10k items, each again after 1 ms, 4 workers: cycles a second", chart: "10k items again after 1 ms", workload: "requeue", metric: "rate", unit: millions, ratio: 4, more: true},
	{label: "a failed run, given back for its back-off", chart: "a failed run given back", workload: "fail", metric: "cpu", unit: ns},
	{label: "2 producers and 2 workers", chart: "2 producers, 2 workers", workload: "crowd 2", metric: "cpu", unit: ns, ratio: 0.70},
	{label: "8 producers and 8 workers", chart: "8 producers, 8 workers", workload: "crowd 8", metric: "cpu", unit: ns, ratio: 0.70},
	{label: "64 producers and 64 workers", chart: "64 producers, 64 workers", workload: "crowd 64", metric: "cpu", unit: ns, ratio: 0.70},
	{label: "storm: 8 producers on 1k hot items, 4 workers; one Enqueue", chart: "storm on 1k hot items", workload: "storm", x: 1000, metric: "cpu", unit: ns, ratio: 1},
	{label: "wake an idle worker, p50", chart: "wake an idle worker, p50", workload: "wake", metric: "p50", unit: µs, ratio: 1},
	{label: "… p99", chart: "… p99", workload: "wake", metric: "p99", unit: µs, ratio: 1},
	{label: "wake an idle worker while its producer works on, p50", chart: "wake it, producer works on, p50", workload: "wake busy", metric: "p50", unit: µs, ratio: 1},
	{label: "… p99", chart: "… p99", workload: "wake busy", metric: "p99", unit: µs, ratio: 1},
	{label: "loop: no-op reconcile over 1M items", chart: "loop: no-op over 1M items", workload: "loop", metric: "cpu", unit: ns, ratio: 0.45},
	{label: "… beside controller-runtime", workload: "loop", metric: "cpu", unit: ns, ratio: 0.10, against: nameCtrl},
	{label: "loop, 4 workers", chart: "… 4 workers", workload: "loop 4", metric: "cpu", unit: ns},
	{label: "loop, slog at Info", chart: "… slog at Info", workload: "loop info", metric: "cpu", unit: ns},
	{label: "loop: 100k delays over 10 s: late, p50", chart: "loop: 100k delays in 10 s: late, p50", workload: "loop late", metric: "p50", unit: µs, ratio: 1},
	{label: "… late, p99", chart: "… late, p99", workload: "loop late", metric: "p99", unit: µs, ratio: 1},
	{label: "… late, p99.9", chart: "… late, p99.9", workload: "loop late", metric: "p99.9", unit: µs, ratio: 1},
	{label: "… in all", chart: "… processor time", workload: "loop late", metric: "total cpu", unit: ms, ratio: 1},
	{label: "loop: wake an idle worker, p50", chart: "loop: wake an idle worker, p50", workload: "loop wake", metric: "p50", unit: µs, ratio: 1},
	{label: "… p99", chart: "… p99", workload: "loop wake", metric: "p99", unit: µs, ratio: 1},
}

// A unit says how an amount is written.
type unit func(v float64) string

func ns(v float64) string          { return digits(v) + " ns" }
func µs(v float64) string          { return digits(v/1e3) + " µs" }
func ms(v float64) string          { return digits(v/1e6) + " ms" }
func inBytes(v float64) string     { return digits(v) + " B" }
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
	median, best float64 // the ratio, or the amount if the target is one
	target       string
	met          bool
	judged       bool // there is a target, and the row was measured
}

func (r *results) judge(w row) verdict {
	if w.absolute {
		v := verdict{median: r.median(place{w.workload, nameOurs, w.x}, w.metric)}
		v.best = v.median
		v.target = "≤ " + w.unit(w.atMost)
		if w.atMost == 0 {
			v.target = "0"
		}
		v.judged = !math.IsNaN(v.median)
		v.met = w.unit(v.median) == w.unit(w.atMost) || v.median <= w.atMost
		return v
	}
	med, best := r.ratio(w.workload, w.x, w.metric, nameOurs, w.peer(), w.more)
	v := verdict{median: med, best: best, judged: w.ratio > 0 && !math.IsNaN(med)}
	switch {
	case w.ratio == 0:
	case w.more:
		v.target, v.met = fmt.Sprintf("≥ %.2f", w.ratio), med >= w.ratio
	default:
		v.target, v.met = fmt.Sprintf("≤ %.2f", w.ratio), med <= w.ratio
	}
	return v
}

var tableImpls = []string{nameOurs, nameClient, nameCtrl, nameMutex, nameChannel}

// targetTable is the table of all rows: medians, ratios and targets.
func (r *results) targetTable() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| | %s | ratio | best | wall | target | |\n", strings.Join(tableImpls, " | "))
	fmt.Fprintf(&b, "|---|%s--:|--:|--:|--:|---|\n", strings.Repeat("--:|", len(tableImpls)))
	for _, w := range rows {
		if len(r.implsOf(w.workload)) == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s |", w.label)
		for _, im := range tableImpls {
			fmt.Fprintf(&b, " %s |", r.cell(place{w.workload, im, w.x}, w.metric, w.unit))
		}
		v := r.judge(w)
		if w.absolute {
			b.WriteString(" | | |")
		} else {
			wall := math.NaN()
			if w.metric == "cpu" {
				wall, _ = r.ratio(w.workload, w.x, "wall", nameOurs, w.peer(), false)
			}
			fmt.Fprintf(&b, " %s | %s | %s |", v.text(), ratioText(v.best), ratioText(wall))
		}
		fmt.Fprintf(&b, " %s | %s |\n", v.target, v.mark())
	}
	return b.String()
}

func (v verdict) mark() string {
	switch {
	case !v.judged:
		return ""
	case v.met:
		return "met"
	default:
		return "**not met**"
	}
}

// text is the median ratio; with one more digit if it is a near miss.
func (v verdict) text() string {
	text := ratioText(v.median)
	if v.judged && !v.met && strings.HasSuffix(v.target, text) {
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
	return u(r.median(p, metric))
}

// costTable shows the other side of the same measurements: wall and processor
// time, allocations and bytes of each operation.
func (r *results) costTable() string {
	var b strings.Builder
	b.WriteString("| workload | implementation | wall | best | processor | allocations | bytes |\n")
	b.WriteString("|---|---|--:|--:|--:|--:|--:|\n")
	for _, w := range workloads {
		if w.name == "parts" || len(w.curve[full]) > 1 {
			continue
		}
		for _, im := range r.implsOf(w.name) {
			p := place{w.name, im, r.xs(w.name, im)[0]}
			fmt.Fprintf(&b, "| %s | %s |", w.name, im)
			if why := r.wrong(p); why != "" {
				fmt.Fprintf(&b, " **wrong**: %s | | | | |\n", why)
				continue
			}
			wall, best := ns(r.median(p, "wall")), ns(least(r.all(p, "wall")))
			if w.paced {
				wall, best = "–", "–"
			}
			fmt.Fprintf(&b, " %s | %s | %s | %s | %s |\n", wall, best, ns(r.median(p, "cpu")),
				plain(r.median(p, "allocs")), digits(r.median(p, "bytes")))
		}
	}
	return b.String()
}

func least(list []float64) float64 {
	m := math.NaN()
	for _, v := range list {
		if !(m <= v) {
			m = v
		}
	}
	return m
}

// partsTable shows what the pieces of a queue cost on this machine.
func (r *results) partsTable() string {
	var b strings.Builder
	b.WriteString("| part | wall | best |\n|---|--:|--:|\n")
	for _, im := range r.implsOf("parts") {
		p := place{"parts", im, 0}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", im, ns(r.median(p, "wall")), ns(least(r.all(p, "wall"))))
	}
	return b.String()
}

// clockTable shows what it costs to know since when.
func (r *results) clockTable() string {
	var b strings.Builder
	b.WriteString("| cycle | wall | processor | allocations | ratio to client-go | best |\n|---|--:|--:|--:|--:|--:|\n")
	for _, im := range r.implsOf("clock") {
		p := place{"clock", im, 0}
		med, best := r.ratio("clock", 0, "wall", im, nameClient, false)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", im,
			ns(r.median(p, "wall")), ns(r.median(p, "cpu")), plain(r.median(p, "allocs")), ratioText(med), ratioText(best))
	}
	return b.String()
}

// curveTable shows a curve as numbers.
func (r *results) curveTable(w, x, metric string, u unit) string {
	impls := r.implsOf(w)
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s |\n|--:|%s\n", x, strings.Join(impls, " | "), strings.Repeat("--:|", len(impls)))
	for _, n := range r.xs(w, nameOurs) {
		fmt.Fprintf(&b, "| %s |", count(n))
		for _, im := range impls {
			fmt.Fprintf(&b, " %s |", r.cell(place{w, im, n}, metric, u))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// memoryTable shows the bytes of a queue before, at the peak of and after a
// burst.
func (r *results) memoryTable() string {
	var b strings.Builder
	b.WriteString("| | empty | filled | drained |\n|---|--:|--:|--:|\n")
	for _, im := range r.implsOf("burst") {
		p := place{"burst", im, 0}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", im,
			r.cell(p, "empty", inMegabytes), r.cell(p, "peak", inMegabytes), r.cell(p, "kept", inMegabytes))
	}
	return b.String()
}

// wrongList names all that does not count, and why.
func (r *results) wrongList() string {
	var b strings.Builder
	for _, p := range r.places() {
		if why := r.wrong(p); why != "" {
			fmt.Fprintf(&b, "- %s, %s at %d: %s\n", p.workload, p.impl, p.x, why)
		}
	}
	return b.String()
}

// missed lists the rows whose targets are not met.
func (r *results) missed() []string {
	var list []string
	label := ""
	for _, w := range rows {
		if detail, more := strings.CutPrefix(w.label, "… "); more {
			w.label = label + ", " + detail
		} else {
			label = w.label
		}
		if v := r.judge(w); v.judged && !v.met {
			got := v.text()
			if w.absolute {
				got = w.unit(v.median)
			}
			list = append(list, fmt.Sprintf("%s (%s): %s, target %s", w.label, w.workload, got, v.target))
		}
	}
	return list
}
