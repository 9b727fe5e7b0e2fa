// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"sync"
	"time"
)

// Flights are the runs that go on, oldest first. A start, an end and a reading
// each take a short lock, whose length does not depend on how many there are.
type flights struct {
	base time.Time // of the clock

	// mu guards the fields below. The ring from root holds count flights in the
	// order in which they started; sum is the sum of their starts. The sum may
	// wrap around: what is read of it is a difference, which is right again.
	mu    sync.Mutex
	root  flight
	free  *flight // to be used again, linked by next
	count int
	sum   int64
}

// A flight is a run that goes on.
type flight struct {
	start      int64 // nanoseconds since base
	prev, next *flight
}

func newFlights() *flights {
	f := &flights{base: time.Now()}
	f.root.prev, f.root.next = &f.root, &f.root
	return f
}

// begin notes that a run starts.
func (f *flights) begin() *flight {
	now := int64(time.Since(f.base)) // before the lock, to hold it for less time
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.free
	if r == nil {
		r = new(flight)
	} else {
		f.free = r.next
	}
	r.start = now
	last := f.root.prev
	r.prev, r.next = last, &f.root
	last.next, f.root.prev = r, r
	f.count++
	f.sum += now
	return r
}

// end notes that a run has ended.
func (f *flights) end(r *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.prev.next, r.next.prev = r.next, r.prev
	f.count--
	f.sum -= r.start
	r.prev, r.next = nil, f.free
	f.free = r
}

// now tells how many runs go on, how long all of them together have, and how
// long the oldest has.
func (f *flights) now() (count int, total, oldest time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		return 0, 0, 0
	}
	// Under the lock, or a run that starts meanwhile would have a negative age.
	now := int64(time.Since(f.base))
	return f.count, time.Duration(int64(f.count)*now - f.sum), time.Duration(now - f.root.next.start)
}
