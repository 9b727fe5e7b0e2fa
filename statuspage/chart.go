// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A chart is a small picture of the last 15 minutes. It is drawn in a box of
// chartWidth by chartHeight that the browser stretches.
type chart struct {
	Title   string
	Summary string // in words, for those who do not see it
	Top     string // what the upper edge stands for
	Bottom  string // what the lower edge stands for
	Lines   []line
}

type line struct {
	Name   string
	Class  string
	values []float64 // one for each bucket; a NaN leaves a gap
	Value  string    // the latest
	Path   string    // of an SVG path; empty if there is nothing to draw
	Area   string    // the path of the area below
}

const (
	chartWidth  = 300
	chartHeight = 64
)

// add adds a line to the chart. The height of a value in it is from 0 to 1.
func (c *chart) add(l line, height func(v float64) float64, format func(v float64) string) {
	l.Value = "–"
	if k := known(l.values); len(k) > 0 {
		l.Value = format(k[len(k)-1])
	}
	var points []string // of the piece that is being drawn
	for i := range len(l.values) + 1 {
		if i < len(l.values) && !math.IsNaN(l.values[i]) {
			x, y := float64(i)*chartWidth/float64(len(l.values)-1), chartHeight*(1-height(l.values[i]))
			points = append(points, coordinate(x)+" "+coordinate(y))
		} else if len(points) > 0 {
			begin, _, _ := strings.Cut(points[0], " ")
			l.Area += fmt.Sprintf("M%sV%dH%sZ", strings.Join(points, "L"), chartHeight, begin)
			points[0] += "h.01" // for a single point to be seen
			l.Path += "M" + strings.Join(points, "L")
			points = nil
		}
	}
	c.Lines = append(c.Lines, l)
}

func coordinate(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

// known returns the values that there are.
func known(all ...[]float64) []float64 { return slices.DeleteFunc(slices.Concat(all...), math.IsNaN) }

// highest returns the highest of all values, 0 if there is none.
func highest(all ...[]float64) float64 { return slices.Max(append(known(all...), 0)) }

// nice returns the smallest of 1, 2, 5, 10, 20, 50, … that is not below v.
func nice(v float64) float64 {
	for n := 1.0; ; n *= 10 {
		for _, top := range [...]float64{n, 2 * n, 5 * n} {
			if v <= top {
				return top
			}
		}
	}
}

// series returns a number for each bucket. The one that has just begun is left
// out until it means something.
func (m *measures) series(value func(b *bucket, seconds float64) float64) []float64 {
	values := make([]float64, len(m.buckets))
	for i := range m.buckets {
		b := &m.buckets[i]
		length := min(bucketLen, m.age-time.Duration(b.number-1)*bucketLen)
		values[i] = math.NaN()
		if b.number > 0 && (i < len(m.buckets)-1 || length >= bucketLen/4) {
			values[i] = value(b, length.Seconds())
		}
	}
	return values
}

// charts draws those of a loop.
func (m *measures) charts() []chart {
	runs := m.series(func(b *bucket, seconds float64) float64 { return float64(b.runs) / seconds })
	failed := m.series(func(b *bucket, seconds float64) float64 { return float64(b.failed) / seconds })
	rate := linear("Runs", perSecond, line{Name: "all", Class: "rate", values: runs}, line{Name: "failed", Class: "failed", values: failed})
	rate.Summary = fmt.Sprintf("Runs over the last 15 minutes: at most %s, of which failed at most %s; now %s.",
		perSecond(highest(runs)), perSecond(highest(failed)), perSecond(m.perSecond))

	depth := func(of func(b *bucket) int) []float64 {
		return m.series(func(b *bucket, _ float64) float64 {
			if !b.sampled {
				return math.NaN()
			}
			return float64(of(b))
		})
	}
	ready := depth(func(b *bucket) int { return b.ready })
	inFlight := depth(func(b *bucket) int { return b.inFlight })
	format := func(v float64) string { return number(int(v)) }
	queue := linear("Queue", format, line{Name: "most ready", Class: "ready", values: ready}, line{Name: "most in flight", Class: "in-flight", values: inFlight})
	queue.Summary = fmt.Sprintf("Items over the last 15 minutes: at most %s ready and %s in flight at a time.",
		format(highest(ready)), format(highest(inFlight)))

	return []chart{rate, m.durations(), queue}
}

// linear returns a chart from 0 to a number that is not below any value.
func linear(title string, format func(v float64) string, lines ...line) chart {
	top := 1.0
	for _, l := range lines {
		top = max(top, nice(highest(l.values)))
	}
	c := chart{Title: title, Top: format(top), Bottom: "0"}
	for _, l := range lines {
		c.add(l, func(v float64) float64 { return v / top }, format)
	}
	return c
}

// durations returns a chart of powers of ten.
func (m *measures) durations() chart {
	quantile := func(q float64) []float64 {
		return m.series(func(b *bucket, _ float64) float64 {
			if d := b.durations.quantile(q); d != none {
				return float64(d)
			}
			return math.NaN()
		})
	}
	p50, p99 := quantile(0.5), quantile(0.99)
	c := chart{Title: "Duration of a run", Summary: "No run in the last 15 minutes."}
	longest := highest(p99)
	high := math.Ceil(math.Log10(longest))
	low := min(high-1, math.Floor(math.Log10(slices.Min(append(known(p50), longest)))))
	if longest > 0 {
		c.Top, c.Bottom = decade(high), decade(low)
		c.Summary = fmt.Sprintf("Durations over the last 15 minutes: half of the runs took less than %s, 99 of 100 less than %s.",
			took(m.p50), took(m.p99))
	}
	height := func(v float64) float64 { return min(1, max(0, (math.Log10(v)-low)/(high-low))) }
	format := func(v float64) string { return took(duration(v)) }
	c.add(line{Name: "p99", Class: "p99", values: p99}, height, format)
	c.add(line{Name: "p50", Class: "p50", values: p50}, height, format)
	return c
}

// decade formats a power of ten of nanoseconds.
func decade(power float64) string {
	d := time.Duration(math.Round(math.Pow(10, power)))
	for _, u := range units {
		if d >= u.length {
			return number(int(d/u.length)) + " " + u.name
		}
	}
	return fmt.Sprintf("%d ns", d)
}
