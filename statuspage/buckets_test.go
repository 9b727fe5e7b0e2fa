// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package statuspage

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

func TestHistogramExtremes(t *testing.T) {
	var h histogram
	h.add(-1)
	h.add(0)
	h.add(math.MaxInt64)
	if h[0] != 2 || h[len(h)-1] != 1 {
		t.Errorf("the first step has %d, the last %d, want 2 and 1", h[0], h[len(h)-1])
	}
	if d := new(histogram).quantile(0.5); d != none {
		t.Errorf("quantile of nothing = %v", d)
	}
}

// TestHistogramQuantile compares quantiles with exact ones, over durations from
// microseconds to minutes.
func TestHistogramQuantile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 10, 1000, 20_000} {
		var h histogram
		var all []duration
		for range n {
			d := duration(math.Exp(random.Float64()*18) * 1000)
			h.add(d)
			all = append(all, d)
		}
		slices.Sort(all)
		for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
			want := all[int(q*float64(n-1))]
			got := h.quantile(q)
			if off := math.Abs(float64(got-want)) / float64(want); off > 0.2 {
				t.Errorf("quantile %v of %d = %v, want %v", q, n, time.Duration(got), time.Duration(want))
			}
		}
	}
}

func TestHistory(t *testing.T) {
	const chartLen = bucketCount * bucketLen
	var h history
	count := func(at time.Duration, o reconcile.Outcome) { h.count(at, &run{Outcome: o, Duration: 1e6}) }
	count(0, reconcile.OutcomeSucceeded)
	count(9*time.Second, reconcile.OutcomeRetrying)
	count(10*time.Second, reconcile.OutcomeGaveUp)
	h.sample(11*time.Second, 5, 1)
	h.sample(12*time.Second, 3, 2)
	count(chartLen+5*time.Second, reconcile.OutcomeSucceeded)
	count(3*time.Second, reconcile.OutcomeSucceeded) // a straggler, and still in the charts' reach

	m := measures{age: chartLen + 9*time.Second}
	m.add(&h)
	if got := m.buckets[0]; got.number != 2 || got.runs != 1 || got.failed != 1 {
		t.Errorf("the oldest bucket is %d with %d runs, %d failed; want 2, 1, 1", got.number, got.runs, got.failed)
	}
	if got := m.buckets[0]; !got.sampled || got.ready != 5 || got.inFlight != 2 {
		t.Errorf("%d are ready and %d in flight, want the highest of each: 5 and 2", got.ready, got.inFlight)
	}
	if got := m.buckets[bucketCount-1]; got.number != bucketCount+1 || got.runs != 1 {
		t.Errorf("the latest bucket is %d with %d runs, want %d with 1", got.number, got.runs, bucketCount+1)
	}

	// A later round takes the place of a bucket, and stragglers do not come back.
	count(2*chartLen+20*time.Second, reconcile.OutcomeAborted)
	count(0, reconcile.OutcomeSucceeded)
	m = measures{age: 2*chartLen + 20*time.Second}
	m.add(&h)
	for i, b := range m.buckets {
		want := 0
		if i == bucketCount-1 {
			want = 1
		}
		if b.runs != want {
			t.Errorf("bucket %d of a round later has %d runs, want %d", i, b.runs, want)
		}
	}
}
