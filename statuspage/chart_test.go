// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"math"
	"testing"
	"time"
)

func TestDraw(t *testing.T) {
	gap := math.NaN()
	for _, test := range []struct {
		name       string
		values     []float64
		path, area string
	}{
		{"nothing", []float64{gap, gap, gap}, "", ""},
		{"a line", []float64{0, 5, 10}, "M0 64h.01L150 32L300 0", "M0 64L150 32L300 0L300 64L0 64Z"},
		{"a point", []float64{gap, 5, gap}, "M150 32h.01", "M150 32L150 64L150 64Z"},
		{"two pieces", []float64{5, gap, 5}, "M0 32h.01M300 32h.01", "M0 32L0 64L0 64ZM300 32L300 64L300 64Z"},
	} {
		path, area := draw(test.values, upTo(10))
		if path != test.path || area != test.area {
			t.Errorf("%s:\n%s\n%s, want\n%s\n%s", test.name, path, area, test.path, test.area)
		}
	}
}

func TestScales(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 1: 1, 1.1: 2, 3: 5, 5: 5, 6: 10, 99: 100, 101: 200, 123456: 200000} {
		if got := nice(v); got != want {
			t.Errorf("nice(%v) = %v, want %v", v, got, want)
		}
	}
	s := decades(6, 9) // from a millisecond to a second
	for v, want := range map[float64]float64{1e6: 0, 1e9: 1, 1e5: 0, 1e10: 1, math.Sqrt(1e15): 0.5} {
		if got := s(v); math.Abs(got-want) > 1e-9 {
			t.Errorf("decades(6, 9)(%v) = %v, want %v", v, got, want)
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
			o := succeeded
			if i == 0 {
				o = retrying
			}
			h.count(run{ended: time.Duration(s)*time.Second + 1, outcome: o, duration: 20 * time.Millisecond})
		}
		h.sample(time.Duration(s)*time.Second, 30, 4)
	}
	m := measures{now: time.Minute + time.Second, buckets: make([]bucket, bucketCount)}
	h.addTo(&m)
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
		for _, l := range got.Lines {
			if l.Path == "" {
				t.Errorf("chart %q has no line %q", got.Title, l.Name)
			}
		}
	}
}

func TestChartsOfNothing(t *testing.T) {
	var nothing, begun history
	begun.count(run{ended: time.Second, outcome: succeeded, duration: time.Second}) // in a bucket that has just begun
	for name, h := range map[string]*history{"nothing": &nothing, "begun": &begun} {
		m := measures{now: time.Second, buckets: make([]bucket, bucketCount)}
		h.addTo(&m)
		m.sum()
		for _, c := range m.charts() {
			for _, l := range c.Lines {
				if l.Path != "" || l.Value != "–" {
					t.Errorf("%s: chart %q, line %q: value %q, path %q", name, c.Title, l.Name, l.Value, l.Path)
				}
			}
		}
		if c := m.durationChart(); c.Top != "" || c.Bottom != "" {
			t.Errorf("%s: the durations are between %q and %q", name, c.Bottom, c.Top)
		}
	}
}
