// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconciletest

import (
	"testing"
)

// BenchmarkPlan is what a plan costs: without anything that looks again, and with a
// poll each ten minutes of the two hours and more that a plan lasts.
func BenchmarkPlan(b *testing.B) {
	for _, bench := range []struct {
		name  string
		alone bool
	}{{"events", true}, {"polls", false}} {
		b.Run(bench.name, func(b *testing.B) {
			s := exhibit{play: comes, alone: bench.alone}.scenario(asWanted)
			s.Without = []Fault{Lost}
			inTest(b, func(t *testing.T) {
				s.Plans = 0
				x := explorerOf(t, s)
				b.ReportAllocs()
				x.clean = x.perform(plan{}.decide, false)
				all := x.faults(x.clean.points)
				n := 0
				for b.Loop() {
					if o := x.perform(plan{all[n%len(all)]}.decide, false); o.failure != "" {
						b.Fatal(o.failure)
					}
					n++
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "plans/s")
		})
	}
}

// inTest calls f with a T: only that can make a bubble.
func inTest(b *testing.B, f func(t *testing.T)) {
	all := func(_, _ string) (bool, error) { return true, nil }
	ran := false
	once := func(t *testing.T) {
		if !ran { // RunTests heeds -count, and so does the benchmark
			ran = true
			f(t)
		}
	}
	if !testing.RunTests(all, []testing.InternalTest{{Name: b.Name(), F: once}}) {
		b.Fail()
	}
}
