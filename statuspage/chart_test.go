// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestDraw(t *testing.T) {
	gap := math.NaN()
	for _, test := range []struct {
		name       string
		values     []float64
		path, area string
	}{
		{"nothing", []float64{gap, gap, gap}, "", ""},
		{"a line", []float64{0, 5, 10}, "M0 64h.01L150 32L300 0", "M0 64L150 32L300 0V64H0Z"},
		{"a point", []float64{gap, 5, gap}, "M150 32h.01", "M150 32V64H150Z"},
		{"two pieces", []float64{5, gap, 5}, "M0 32h.01M300 32h.01", "M0 32V64H0ZM300 32V64H300Z"},
	} {
		var c chart
		c.add(line{values: test.values}, func(v float64) float64 { return v / 10 }, perSecond)
		if l := c.Lines[0]; l.Path != test.path || l.Area != test.area {
			t.Errorf("%s:\n%s\n%s, want\n%s\n%s", test.name, l.Path, l.Area, test.path, test.area)
		}
	}
}

func TestScales(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 1: 1, 1.1: 2, 3: 5, 5: 5, 6: 10, 99: 100, 101: 200, 123456: 200000} {
		if got := nice(v); got != want {
			t.Errorf("nice(%v) = %v, want %v", v, got, want)
		}
	}
	for power, want := range map[float64]string{2: "100 ns", 3: "1 µs", 5: "100 µs", 6: "1 ms", 8: "100 ms", 9: "1 s", 12: "1,000 s"} {
		if got := decade(power); got != want {
			t.Errorf("decade(%v) = %q, want %q", power, got, want)
		}
	}
}

func TestCharts(t *testing.T) {
	var h history
	for s := range 60 {
		for i := range 10 {
			o := reconcile.OutcomeSucceeded
			if i == 0 {
				o = reconcile.OutcomeRetrying
			}
			h.count(time.Duration(s)*time.Second+1, &run{Outcome: o, Duration: 20e6})
		}
		h.sample(time.Duration(s)*time.Second, 30, 4)
	}
	m := measures{age: time.Minute + time.Second}
	m.add(&h)
	m.sum()
	if math.Abs(m.perSecond-500.0/51) > 1e-9 {
		t.Errorf("runs a second = %v, want those of 50 s in the 51 s that the last buckets cover", m.perSecond)
	}
	for i, want := range []chart{
		{Title: "Runs", Top: "10/s", Bottom: "0", Summary: "Runs over the last 15 minutes: at most 10/s, of which failed at most 1.0/s; now 9.8/s."},
		{Title: "Duration of a run", Top: "100 ms", Bottom: "10 ms", Summary: "Durations over the last 15 minutes: half of the runs took less than 18 ms, 99 of 100 less than 20 ms."},
		{Title: "Queue", Top: "50", Bottom: "0", Summary: "Items over the last 15 minutes: at most 30 ready and 4 in flight at a time."},
	} {
		got := m.charts()[i]
		if got.Title != want.Title || got.Top != want.Top || got.Bottom != want.Bottom || got.Summary != want.Summary {
			t.Errorf("chart %d = %q, %q, %q, %q, want %q, %q, %q, %q", i, got.Title, got.Top, got.Bottom, got.Summary,
				want.Title, want.Top, want.Bottom, want.Summary)
		}
		var heights []string // of the first point of each line
		for _, l := range got.Lines {
			begin, _, _ := strings.Cut(l.Path, "h.01L")
			heights = append(heights, strings.Fields(begin + " none")[1])
		}
		if text := strings.Join(heights, " "); text != []string{"0 57.6", "43.5 46.4", "25.6 58.9"}[i] {
			t.Errorf("the lines of chart %q begin at the heights %s", got.Title, text)
		}
	}
}

func TestChartsWithoutRuns(t *testing.T) {
	var nothing, begun history
	begun.count(time.Second, &run{Outcome: reconcile.OutcomeSucceeded, Duration: 1e9}) // in a bucket that has just begun
	for name, h := range map[string]*history{"nothing": &nothing, "begun": &begun} {
		m := measures{age: time.Second}
		m.add(h)
		m.sum()
		for _, c := range m.charts() {
			for _, l := range c.Lines {
				if l.Path != "" || l.Value != "–" {
					t.Errorf("%s: chart %q, line %q: value %q, path %q", name, c.Title, l.Name, l.Value, l.Path)
				}
			}
		}
		if c := m.durations(); c.Top != "" || c.Bottom != "" {
			t.Errorf("%s: the durations are between %q and %q", name, c.Bottom, c.Top)
		}
	}
}
