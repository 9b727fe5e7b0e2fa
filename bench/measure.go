// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A sample is one measurement, one line of the raw output.
type sample struct {
	Workload string             `json:"workload"`
	Impl     string             `json:"impl"`
	Round    int                `json:"round"`
	Values   map[string]float64 `json:"values,omitempty"`
	Wrong    string             `json:"wrong,omitempty"` // why it does not count
}

// A mode says how much is measured.
type mode int

const (
	tiny  mode = iota // by the tests of this module
	quick             // by the checks
	full
)

func (m mode) String() string { return [...]string{"tiny", "quick", "full"}[m] }

// A workload is one thing that all implementations do, and that is measured.
// Run fails when what came out is not right; the measurement then counts as
// wrong, however fast it was.
type workload struct {
	name   string
	impls  []impl
	size   [full + 1]int // trial.n
	rounds [full + 1]int
	paced  bool // the wall time is mostly that of waiting
	run    func(t *trial) error
}

// A trial is one run of a workload with one implementation.
type trial struct {
	impl   impl
	mode   mode
	n      int
	round  int
	values map[string]float64

	ended  chan struct{} // closed when the time is up
	mu     sync.Mutex    // guards the fields below
	closes []func()      // end what the workload waits for
	failed error         // the first mistake that a worker found

	began   time.Time
	beganMS runtime.MemStats
	beganUs time.Duration
}

// stuckAfter is how long a trial may take. One that takes longer waits for an
// item that will not come.
const stuckAfter = 10 * time.Minute

var errStuck = errors.New("stuck: an item is lost, or a worker sleeps while one is queued")

// measure runs w once. What the workload started has ended when it returns,
// unless it is stuck for good.
func (w *workload) measure(im impl, m mode, round int) sample {
	t := &trial{
		impl: im, mode: m, n: w.size[m], round: round,
		values: make(map[string]float64), ended: make(chan struct{}),
	}
	s := sample{Workload: w.name, Impl: im.name, Round: round, Values: t.values}

	done := make(chan error, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil { // a send on a closed channel, once stuck
				done <- fmt.Errorf("panic: %v", v)
			}
		}()
		done <- w.run(t)
	}()
	patience := time.NewTimer(stuckAfter)
	defer patience.Stop()
	var err error
	select {
	case err = <-done:
		t.close()
	case <-patience.C:
		close(t.ended)
		t.close()
		err = errStuck
		patience.Reset(stuckAfter)
		select {
		case <-done:
		case <-patience.C:
		}
	}
	if err == nil {
		err = t.failure()
	}
	if err != nil {
		s.Wrong, s.Values = err.Error(), nil
	}
	return s
}

// use registers a queue, so that it is closed when the trial is over.
func use[T comparable](t *trial, q queue[T]) queue[T] {
	t.atEnd(q.Close)
	return q
}

func (t *trial) atEnd(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closes = append(t.closes, f)
}

func (t *trial) close() {
	t.mu.Lock()
	closes := t.closes
	t.mu.Unlock()
	for _, f := range closes {
		f()
	}
}

// fail notes a mistake that a worker found. The first one counts.
func (t *trial) fail(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failed == nil {
		t.failed = fmt.Errorf(format, args...)
	}
}

func (t *trial) failure() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed
}

// wait waits for c to be closed.
func (t *trial) wait(c <-chan struct{}) error {
	select {
	case <-c:
		return t.failure()
	case <-t.ended:
		return errStuck
	}
}

// ops returns how often a small operation is repeated: less often by an
// implementation that takes ten times as long.
func (t *trial) ops() int {
	if t.impl.slow {
		return max(1, t.n/10)
	}
	return t.n
}

// start begins to measure, with all garbage of before collected.
func (t *trial) start() {
	runtime.GC()
	runtime.ReadMemStats(&t.beganMS)
	t.beganUs = processorTime()
	t.began = time.Now()
}

// stop ends what start began, and records what n operations took: wall and
// processor time in ns, allocations and bytes, each per operation.
func (t *trial) stop(prefix string, n int) {
	wall, processor := time.Since(t.began), processorTime()-t.beganUs
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	t.values[prefix+"wall"] = float64(wall) / float64(n)
	t.values[prefix+"cpu"] = float64(processor) / float64(n)
	t.values[prefix+"allocs"] = float64(ms.Mallocs-t.beganMS.Mallocs) / float64(n)
	t.values[prefix+"bytes"] = float64(ms.TotalAlloc-t.beganMS.TotalAlloc) / float64(n)
}

// lateness records how late things were, in ns.
func (t *trial) lateness(late []time.Duration) {
	slices.Sort(late)
	at := func(q float64) float64 {
		return float64(late[min(len(late)-1, int(math.Ceil(q*float64(len(late))))-1)])
	}
	t.values["p50"], t.values["p99"], t.values["p99.9"] = at(0.5), at(0.99), at(0.999)
	t.values["max"] = at(1)
}

// processorTime returns the user and system time of this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // never for this process
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// liveBytes returns the bytes that are reachable.
func liveBytes() float64 {
	runtime.GC()
	runtime.GC() // what the first one found to be finalized
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return float64(ms.HeapAlloc)
}

// A ledger checks that each item comes out as often as it must, and is in one
// hand at a time.
type ledger struct {
	t     *trial
	taken []atomic.Bool
	left  atomic.Int64
	all   chan struct{} // closed when nothing is left
}

func (t *trial) ledger(n int) *ledger {
	l := &ledger{t: t, taken: make([]atomic.Bool, n), all: make(chan struct{})}
	l.left.Store(int64(n))
	return l
}

// take notes that item i is in somebody's hands.
func (l *ledger) take(i int) {
	if l.taken[i].Swap(true) {
		l.t.fail("item %d was handed out twice", i)
	}
}

// giveBack notes that item i is not in anybody's hands any more.
func (l *ledger) giveBack(i int) { l.taken[i].Store(false) }

// finish notes that an item has come out for the last time.
func (l *ledger) finish() {
	switch left := l.left.Add(-1); {
	case left == 0:
		close(l.all)
	case left < 0:
		l.t.fail("more came out than went in")
	}
}
