// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"fmt"
	"math"
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
	Name  string
	Class string
	Value string // the latest
	Path  string // of an SVG path; empty if there is nothing to draw
	Area  string // the path of the area below, if it is to be filled
}

const (
	chartWidth  = 300
	chartHeight = 64
)

// A scale gives the height of a value in a chart, from 0 to 1.
type scale func(v float64) float64

func upTo(top float64) scale { return func(v float64) float64 { return v / top } }

// decades is a scale of powers of ten, from 10 to the power of low to that of
// high.
func decades(low, high float64) scale {
	return func(v float64) float64 {
		return min(1, max(0, (math.Log10(v)-low)/(high-low)))
	}
}

// draw draws the values, one for each bucket; a NaN leaves a gap.
func draw(values []float64, s scale) (path, area string) {
	x := func(i int) string { return coordinate(float64(i) * chartWidth / float64(len(values)-1)) }
	var points []string // of the piece that is being drawn
	for i := range len(values) + 1 {
		if i < len(values) && !math.IsNaN(values[i]) {
			points = append(points, x(i)+" "+coordinate(chartHeight*(1-s(values[i]))))
		} else if len(points) > 0 {
			// The h.01 is for a single point to be seen.
			path += "M" + strings.Join(append([]string{points[0] + "h.01"}, points[1:]...), "L")
			area += fmt.Sprintf("M%sL%s %dL%s %dZ", strings.Join(points, "L"), x(i-1), chartHeight, x(i-len(points)), chartHeight)
			points = nil
		}
	}
	return path, area
}

func coordinate(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

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

// charts draws those of a loop.
func (m *measures) charts() []chart {
	return []chart{m.rateChart(), m.durationChart(), m.depthChart()}
}

// series returns a number for each bucket. The one that has just begun is left
// out until it means something.
func (m *measures) series(value func(b *bucket, length time.Duration) float64) []float64 {
	values := make([]float64, len(m.buckets))
	for i := range m.buckets {
		b := &m.buckets[i]
		begin := time.Duration(b.number-1) * bucketLen
		length := min(bucketLen, m.now-begin)
		if b.number < 1 || i == len(m.buckets)-1 && length < bucketLen/4 {
			values[i] = math.NaN()
			continue
		}
		values[i] = value(b, length)
	}
	return values
}

// highest returns the highest of all values, 0 if there is none.
func highest(all ...[]float64) float64 {
	top := 0.0
	for _, values := range all {
		for _, v := range values {
			if !math.IsNaN(v) {
				top = max(top, v)
			}
		}
	}
	return top
}

// latest returns the last value that there is.
func latest(values []float64) (float64, bool) {
	for i := len(values) - 1; i >= 0; i-- {
		if !math.IsNaN(values[i]) {
			return values[i], true
		}
	}
	return 0, false
}

func (m *measures) rateChart() chart {
	runs := m.series(func(b *bucket, length time.Duration) float64 { return float64(b.runs()) / length.Seconds() })
	failed := m.series(func(b *bucket, length time.Duration) float64 { return float64(b.failed()) / length.Seconds() })
	top := nice(highest(runs))
	c := chart{Title: "Runs", Top: perSecond(top), Bottom: "0"}
	c.add("all", "rate", runs, upTo(top), perSecond)
	c.add("failed", "failed", failed, upTo(top), perSecond)
	c.Summary = fmt.Sprintf("Runs over the last 15 minutes: at most %s, of which failed at most %s; now %s.",
		perSecond(highest(runs)), perSecond(highest(failed)), perSecond(m.perSecond))
	return c
}

func (m *measures) durationChart() chart {
	quantile := func(q float64) []float64 {
		return m.series(func(b *bucket, _ time.Duration) float64 {
			if d, ok := b.durations.quantile(q); ok {
				return max(float64(d), 1)
			}
			return math.NaN()
		})
	}
	p50, p99 := quantile(0.5), quantile(0.99)
	c := chart{Title: "Duration of a run"}
	if highest(p99) == 0 {
		c.add("p99", "p99", p99, nil, nil)
		c.add("p50", "p50", p50, nil, nil)
		c.Summary = "No run in the last 15 minutes."
		return c
	}
	high := math.Ceil(math.Log10(highest(p99)))
	low := high - 1
	for _, v := range p50 {
		if !math.IsNaN(v) {
			low = min(low, math.Floor(math.Log10(v)))
		}
	}
	c.Top, c.Bottom = decade(high), decade(low)
	format := func(v float64) string { return took(time.Duration(v)) }
	c.add("p99", "p99", p99, decades(low, high), format)
	c.add("p50", "p50", p50, decades(low, high), format)
	c.Summary = fmt.Sprintf("Durations over the last 15 minutes: half of the runs took less than %s, 99 of 100 less than %s.",
		took(m.p50), took(m.p99))
	return c
}

// decade formats a power of ten of nanoseconds.
func decade(power float64) string {
	d := math.Pow(10, power)
	for _, u := range []struct {
		length float64
		name   string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if d >= u.length {
			return fmt.Sprintf("%s %s", number(int(d/u.length+0.5)), u.name)
		}
	}
	return fmt.Sprintf("%.0f ns", d)
}

func (m *measures) depthChart() chart {
	most := func(of func(d depth) int) []float64 {
		return m.series(func(b *bucket, _ time.Duration) float64 {
			if !b.depth.known {
				return math.NaN()
			}
			return float64(of(b.depth))
		})
	}
	ready := most(func(d depth) int { return d.ready })
	inFlight := most(func(d depth) int { return d.inFlight })
	top := nice(highest(ready, inFlight))
	c := chart{Title: "Queue", Top: number(int(top)), Bottom: "0"}
	format := func(v float64) string { return number(int(v)) }
	c.add("ready", "ready", ready, upTo(top), format)
	c.add("in flight", "in-flight", inFlight, upTo(top), format)
	c.Summary = fmt.Sprintf("Items over the last 15 minutes: at most %s ready and %s in flight at a time.",
		format(highest(ready)), format(highest(inFlight)))
	return c
}

func (c *chart) add(name, class string, values []float64, s scale, format func(float64) string) {
	l := line{Name: name, Class: class, Value: "–"}
	if v, ok := latest(values); ok {
		l.Value = format(v)
		l.Path, l.Area = draw(values, s)
	}
	c.Lines = append(c.Lines, l)
}
