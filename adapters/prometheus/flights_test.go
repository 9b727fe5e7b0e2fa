// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestFlights does random starts and ends, and compares what flights tell with
// a plain list.
func TestFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 2))
		f := newFlights()
		type run struct {
			f     *flight
			start time.Time
		}
		var model []run
		for step := range 5000 {
			time.Sleep(time.Duration(rnd.IntN(1000)) * time.Millisecond)
			if n := len(model); n > 0 && rnd.IntN(20) < n {
				i := rnd.IntN(n)
				f.end(model[i].f)
				model = append(model[:i], model[i+1:]...)
			} else {
				model = append(model, run{f.begin(), time.Now()})
			}
			var total, oldest time.Duration
			for _, r := range model {
				age := time.Since(r.start)
				total += age
				oldest = max(oldest, age)
			}
			if gotN, gotTotal, gotOldest := f.now(); gotN != len(model) || gotTotal != total || gotOldest != oldest {
				t.Fatalf("step %d: now() = %d, %v, %v, want %d, %v, %v", step, gotN, gotTotal, gotOldest, len(model), total, oldest)
			}
		}
	})
}

// TestFlightsMemory checks that ended flights are used again.
func TestFlightsMemory(t *testing.T) {
	f := newFlights()
	f.end(f.begin())
	if n := testing.AllocsPerRun(100, func() {
		a, b := f.begin(), f.begin()
		f.end(a)
		f.end(b)
	}); n != 0 {
		t.Errorf("two runs allocate %v times, want 0", n)
	}
}

// TestFlightsConcurrent has the race detector look at many workers and a
// scrape, and checks that no age is ever negative.
func TestFlightsConcurrent(t *testing.T) {
	f := newFlights()
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for range 2000 {
				f.end(f.begin())
			}
		})
	}
	for range 2000 {
		if _, total, oldest := f.now(); total < 0 || oldest < 0 {
			t.Errorf("total %v, oldest %v: negative", total, oldest)
		}
	}
	workers.Wait()
	if n, total, oldest := f.now(); n != 0 || total != 0 || oldest != 0 {
		t.Errorf("at the end now() = %d, %v, %v, want zeros", n, total, oldest)
	}
}
