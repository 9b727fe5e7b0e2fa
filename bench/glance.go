// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"strings"
)

// A bar is one row of the picture of a few rows: the cost of the kernel, and
// below it that of a peer.
type bar struct {
	label, detail    string
	workload, metric string
	unit             unit
	against, peer    string // the implementation, and how the picture calls it
}

// bars are the rows of the picture. Eight are as many as one takes in.
var bars = []bar{
	{"cycle", "in, out, done; the same times kept", "clock", "cpu", ns, nameClientMetrics, "client-go with its metrics"},
	{"burst", "fill with 1M items and drain; one item", "burst", "cpu", ns, nameClient, nameClient},
	{"memory after the burst", "what the queue still holds", "burst", "kept", inMemory, nameClient, nameClient},
	{"delays", "100k that end within 200 ms; all", "fire", "total cpu", ms, nameClient, nameClient},
	{"requeue", "10k items again after 1 ms; one item", "requeue", "wall", ns, nameClient, nameClient},
	{"loop", "1M runs that do nothing; one run", "loop", "cpu", ns, nameClient, "a loop on client-go"},
	{"wake", "from Enqueue to an idle worker, p50", "wake", "p50", µs, nameClient, nameClient},
	{"binary", "the same controller of Kubernetes", "binary", "size", inMegabytes, nameCtrl, nameCtrl},
}

// The measures of the picture, in pixels.
const (
	glanceWidth = 900
	labelRight  = 260 // where the labels end
	barLeft     = 275
	barFull     = 230 // the longer bar of each row
	factorRight = 880 // where the factors end
	rowsTop     = 84
	rowHeight   = 50
)

// Both schemes paint their own ground: the page around an image may not follow
// the scheme that the image is told of.
const glanceStyle = `
text { font-family: system-ui, -apple-system, "Segoe UI", "Liberation Sans", Helvetica, Arial, sans-serif; fill: #1f2328 }
.ground { fill: #ffffff }
.title { font-size: 19px; font-weight: 600 }
.label { font-size: 15px; font-weight: 600 }
.amount { font-size: 13px }
.small { font-size: 12px; fill: #59636e }
.factor { font-size: 18px; font-weight: 600; fill: #0054a6 }
.more { fill: #a03c00 }
.ours { fill: #0054a6 }
.peer { fill: #b3bac2 }
@media (prefers-color-scheme: dark) {
	text { fill: #f0f6fc }
	.ground { fill: #0d1117 }
	.small { fill: #9da7b1 }
	.factor { fill: #6cb6ff }
	.more { fill: #ff9a57 }
	.ours { fill: #4493f8 }
	.peer { fill: #565e68 }
}
`

// glance draws the bars that were measured, in one file for light and dark pages.
func (r *results) glance(file string) error {
	var b strings.Builder
	y := rowsTop
	for _, row := range bars {
		ours, theirs := r.median(place{row.workload, nameOurs, 0}, row.metric), r.median(place{row.workload, row.against, 0}, row.metric)
		if math.IsNaN(ours) || math.IsNaN(theirs) {
			continue
		}
		ratio := max(0, r.ratio(row.workload, 0, row.metric, nameOurs, row.against))
		longer := max(ratio, 1)
		oursLength, theirsLength := max(2, ratio/longer*barFull), max(2, barFull/longer)
		write(&b, labelRight, y+16, "end", "label", row.label)
		write(&b, labelRight, y+33, "end", "small", row.detail)
		fmt.Fprintf(&b, "<rect class=\"ours\" x=\"%d\" y=\"%d\" width=\"%.0f\" height=\"15\"/>\n", barLeft, y+3, oursLength)
		fmt.Fprintf(&b, "<rect class=\"peer\" x=\"%d\" y=\"%d\" width=\"%.0f\" height=\"15\"/>\n", barLeft, y+20, theirsLength)
		write(&b, barLeft+int(oursLength)+6, y+15, "start", "amount", row.unit(ours))
		write(&b, barLeft+int(theirsLength)+6, y+32, "start", "amount", row.unit(theirs)+" "+row.peer)
		text, class := times(ratio)
		write(&b, factorRight, y+24, "end", class, text)
		y += rowHeight
	}
	if y == rowsTop {
		return fmt.Errorf("%s: nothing to draw", file)
	}
	height := y + 26
	var all strings.Builder
	fmt.Fprintf(&all, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%[1]d\" height=\"%[2]d\" role=\"img\">\n", glanceWidth, height)
	fmt.Fprintf(&all, "<title>What the same work costs reconcile and its peers</title>\n<style>%s</style>\n", glanceStyle)
	fmt.Fprintf(&all, "<rect class=\"ground\" width=\"%d\" height=\"%d\"/>\n", glanceWidth, height)
	write(&all, 20, 32, "start", "title", "What the same work costs")
	fmt.Fprintf(&all, "<rect class=\"ours\" x=\"%d\" y=\"52\" width=\"15\" height=\"15\"/>\n", barLeft)
	write(&all, barLeft+22, 64, "start", "amount", nameOurs)
	fmt.Fprintf(&all, "<rect class=\"peer\" x=\"%d\" y=\"52\" width=\"15\" height=\"15\"/>\n", barLeft+110)
	write(&all, barLeft+132, 64, "start", "amount", "the peer that is named")
	write(&all, factorRight, 64, "end", "small", "shorter is better")
	all.WriteString(b.String())
	m := r.machine
	write(&all, 20, height-12, "start", "small", fmt.Sprintf("Medians of one run, in turns, on %d processors, %s, %s; processor time unless it waits.", m.Procs, m.System, m.Go))
	all.WriteString("</svg>\n")
	return os.WriteFile(file, []byte(all.String()), 0o644)
}

func write(b *strings.Builder, x, y int, anchor, class, text string) {
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\" text-anchor=\"%s\" class=\"%s\">%s</text>\n", x, y, anchor, class, html.EscapeString(text))
}

// times says how many times less or more a ratio is.
func times(ratio float64) (text, class string) {
	switch {
	case ratio < 0.001:
		return "> 1,000× less", "factor"
	case ratio <= 1:
		return factor(1/ratio) + "× less", "factor"
	}
	return factor(ratio) + "× more", "factor more"
}

func factor(v float64) string {
	if v >= 10 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}
