// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A meter measures the processor time and the allocations of each item of a benchmark,
// whose operation is often many items. Processor time includes the garbage collector
// and the wake-ups, and other processes disturb it less than wall time.
type meter struct {
	b       *testing.B
	items   int
	cpu     time.Duration
	mallocs uint64

	beganCPU     time.Duration // when start was called
	beganMallocs uint64
}

// each runs a workload again and again, each time with a new queue. The workload
// calls start and stop.
func each(b *testing.B, im impl, workload func(m *meter, q queue)) {
	m := &meter{b: b}
	for b.Loop() {
		b.StopTimer()
		q := im.open()
		workload(m, q)
		q.Close()
		b.StartTimer()
	}
	b.StopTimer()
	m.report()
}

// repeat measures op, which processes one item.
func repeat(b *testing.B, op func()) {
	m := &meter{b: b}
	m.start()
	for b.Loop() {
		op()
	}
	m.stop(b.N)
	m.report()
}

// start begins to measure, with all garbage of before collected.
func (m *meter) start() {
	runtime.GC()
	m.beganMallocs = memStats().Mallocs
	m.beganCPU = processorTime()
	m.b.StartTimer()
}

// stop ends what start began, and counts the items that were processed.
func (m *meter) stop(items int) {
	m.b.StopTimer()
	m.cpu += processorTime() - m.beganCPU
	m.mallocs += memStats().Mallocs - m.beganMallocs
	m.items += items
}

func (m *meter) report() {
	n := float64(m.items)
	m.b.ReportMetric(float64(m.cpu)/n, "cpu-ns/item")
	m.b.ReportMetric(float64(m.mallocs)/n, "allocs/item")
}

// lateness reports how late things were.
func (m *meter) lateness(late []time.Duration) {
	slices.Sort(late)
	at := func(part float64) float64 {
		return float64(late[int(math.Ceil(part*float64(len(late))))-1])
	}
	m.b.ReportMetric(at(0.5), "p50-ns")
	m.b.ReportMetric(at(0.99), "p99-ns")
}

// processorTime returns the user and system time of this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // never for this process
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func memStats() (ms runtime.MemStats) {
	runtime.ReadMemStats(&ms)
	return ms
}

// liveBytes returns the bytes that are reachable.
func liveBytes() float64 {
	runtime.GC()
	runtime.GC() // what the first one found to be finalized
	return float64(memStats().HeapAlloc)
}

// names makes n distinct names of assets. They share one backing string, so
// that the collector sees one object, whatever the number.
func names(n int) []string {
	const width = len("team-00/asset-00000000")
	var buf []byte
	for i := range n {
		buf = fmt.Appendf(buf, "team-%02d/asset-%08d", i%100, i)
	}
	all := string(buf)
	list := make([]string, n)
	for i := range list {
		list[i] = all[i*width : (i+1)*width]
	}
	return list
}

// index is the inverse of names.
func index(name string) int {
	i := 0
	for _, c := range []byte(name[len(name)-8:]) {
		i = i*10 + int(c-'0')
	}
	return i
}

// A ledger checks that each item comes out as often as it must, and is in one
// worker at a time. It panics otherwise, because the other workers would wait for ever.
type ledger struct {
	taken []atomic.Bool
	left  atomic.Int64
	all   chan struct{} // closed when nothing is left
}

func newLedger(n int) *ledger {
	l := &ledger{taken: make([]atomic.Bool, n), all: make(chan struct{})}
	l.left.Store(int64(n))
	return l
}

// take notes that a worker has item i.
func (l *ledger) take(i int) {
	if l.taken[i].Swap(true) {
		panic(fmt.Sprintf("item %d was handed out twice", i))
	}
}

// giveBack notes that no worker has item i any more.
func (l *ledger) giveBack(i int) { l.taken[i].Store(false) }

// finish notes that an item has come out for the last time.
func (l *ledger) finish() {
	if l.left.Add(-1) == 0 {
		close(l.all)
	}
}
