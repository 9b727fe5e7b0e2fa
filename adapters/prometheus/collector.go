// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"reflect"
	"runtime/debug"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/keep"
)

// A Statser tells the counts of a queue. [reconcile.Queue] is one. Stats must
// not block, and may be called from any goroutine.
type Statser interface {
	Stats() reconcile.Stats
}

// A Lister lists the items of a queue. [reconcile.Queue] is one. All may be called from any
// goroutine.
type Lister[T comparable] interface {
	All() iter.Seq2[T, reconcile.State]
}

// A Collector collects the metrics of queues and reconcilers. Tell it of them
// with [Instrument] and [Collector.AddQueue], and register it.
//
// The zero Collector is empty and ready. All methods may be called from any
// goroutine at any time, and none blocks: a scrape reads counters, and keeps no
// lock while it hands them on.
//
// It is what Prometheus calls an unchecked collector: it describes nothing in
// advance, so that it can share a registry with the metrics of
// controller-runtime, which have the same names. The price is that a registry
// neither refuses a Collector that it has already (its next scrape fails) nor
// lets one go; to take something out again, see [Collector.Remove].
type Collector struct {
	// mu guards the fields below. What they hold does not change once it is in.
	mu     sync.Mutex
	queues map[string]Statser
	runs   map[string]*runs
	gates  map[string]*gate.Gate
	lists  map[string]Set
	oldest map[string]func() time.Duration // by AddPending
	ended  map[string]bool                 // reconcilers that the next scrape shows once more, and whether queues has theirs
}

var _ prometheus.Collector = (*Collector)(nil)

// AddQueue adds the counts of a queue that no instrumented reconciler serves.
// The name becomes the labels name and controller. AddQueue returns an error if
// the name is empty, not UTF-8 or taken, or if q is nil.
func (c *Collector) AddQueue(name string, q Statser) error {
	if isNil(q) {
		return fmt.Errorf("promadapter: queue %q is nil", name)
	}
	return c.add(name, q, nil)
}

// AddGate adds the counts of a gate: once, also if reconcilers share it. The name
// becomes the label name; a queue or a reconciler may have the same. AddGate
// returns an error if the name is empty, not UTF-8 or that of another gate, or if
// g is nil.
func (c *Collector) AddGate(name string, g *gate.Gate) error {
	if g == nil {
		return fmt.Errorf("promadapter: gate %q is nil", name)
	}
	if err := checkName(name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gates[name] != nil {
		return fmt.Errorf("promadapter: there is a gate %q already; each needs a name of its own", name)
	}
	if c.gates == nil {
		c.gates = make(map[string]*gate.Gate)
	}
	c.gates[name] = g
	return nil
}

// A Set is a [*keep.Set]. Its methods must not block, and may be called from any
// goroutine.
type Set interface {
	Stats() keep.Stats
	Age() time.Duration
	Rejected() (since time.Time, err error)
}

// AddListing adds what the listings of a Set show: how many things are listed, missing, out
// of sync and surplus, for how long no listing was complete, and for how long listings have
// been rejected.
// The name becomes the label name; a queue, a reconciler or a gate may have the same.
// AddListing returns an error if the name is empty, not UTF-8 or that of another
// listing, or if l is nil.
func (c *Collector) AddListing(name string, l Set) error {
	if isNil(l) {
		return fmt.Errorf("promadapter: listing %q is nil", name)
	}
	if err := checkName(name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lists[name] != nil {
		return fmt.Errorf("promadapter: there is a listing %q already; each needs a name of its own", name)
	}
	if c.lists == nil {
		c.lists = make(map[string]Set)
	}
	c.lists[name] = l
	return nil
}

// AddPending adds the age of the item of q that has been out of sync for longest. It
// is apart from the rest, since each scrape goes through the whole queue, which holds
// it up for some milliseconds with 100,000 items. The name becomes the labels name and
// controller; it may be that of the queue or its reconciler. AddPending returns an
// error if the name is empty, not UTF-8 or was given to another AddPending, or if c or
// q is nil.
func AddPending[T comparable](c *Collector, name string, q Lister[T]) error {
	switch {
	case c == nil:
		return errors.New("promadapter: AddPending needs a Collector, got nil")
	case isNil(q):
		return fmt.Errorf("promadapter: queue %q is nil", name)
	}
	if err := checkName(name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.oldest[name] != nil {
		return fmt.Errorf("promadapter: AddPending was called for %q already; each needs a name of its own", name)
	}
	if c.oldest == nil {
		c.oldest = make(map[string]func() time.Duration)
	}
	c.oldest[name] = func() (age time.Duration) {
		for _, s := range q.All() {
			if !s.Pending.IsZero() {
				age = max(age, time.Since(s.Pending))
			}
		}
		return age
	}
	return nil
}

// Remove forgets the queue, the reconciler, the gate and the listing of that
// name, for one that has ended; the name may then be used again. It reports whether
// there was one.
func (c *Collector) Remove(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, queue := c.queues[name]
	_, runs := c.runs[name]
	delete(c.queues, name)
	delete(c.runs, name)
	delete(c.ended, name)
	_, isGate := c.gates[name]
	delete(c.gates, name)
	_, isPending := c.oldest[name]
	delete(c.oldest, name)
	_, isListing := c.lists[name]
	delete(c.lists, name)
	return queue || runs || isGate || isPending || isListing
}

// add adds a queue, or runs, or both, but not one alone of the two.
func (c *Collector) add(name string, q Statser, r *runs) error {
	if err := checkName(name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropEnded(name)
	if q != nil && c.queues[name] != nil {
		return fmt.Errorf("promadapter: there is a queue %q already; each needs a name of its own", name)
	}
	if r != nil && c.runs[name] != nil {
		return fmt.Errorf("promadapter: there is a reconciler %q already; each needs a name of its own", name)
	}
	if c.queues == nil {
		c.queues, c.runs = make(map[string]Statser), make(map[string]*runs)
	}
	if q != nil {
		c.queues[name] = q
	}
	if r != nil {
		c.runs[name] = r
	}
	return nil
}

// dropEnded forgets a reconciler that has ended, and its queue, if c has one.
func (c *Collector) dropEnded(name string) {
	queue, ended := c.ended[name]
	delete(c.ended, name)
	if ended {
		delete(c.runs, name)
	}
	if queue {
		delete(c.queues, name)
	}
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("promadapter: the name is empty; it tells the series apart")
	case !utf8.ValidString(name):
		return fmt.Errorf("promadapter: the name %q is not UTF-8, as Prometheus wants it", name)
	}
	return nil
}

// isNil reports whether q is nil, or a nil pointer.
func isNil(q any) bool {
	v := reflect.ValueOf(q)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Describe does nothing; see [Collector].
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics as they are now. It is for registries. A panic of a queue or a
// Set is an error of the scrape.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	defer func() { // A registry does that too, but not for a Collector that WrapRegistererWith gives labels.
		if p := recover(); p != nil {
			err := fmt.Errorf("promadapter: collect: panic: %v\n%s", p, debug.Stack())
			ch <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(err), err)
		}
	}()
	c.mu.Lock()
	queues := make(map[string]Statser, len(c.queues))
	for name, q := range c.queues {
		queues[name] = q
	}
	all := make([]*runs, 0, len(c.runs))
	for _, r := range c.runs {
		all = append(all, r)
	}
	for name := range c.ended {
		c.dropEnded(name)
	}
	gates, oldest, lists := maps.Clone(c.gates), maps.Clone(c.oldest), maps.Clone(c.lists)
	c.mu.Unlock()

	for name, q := range queues {
		collectQueue(ch, name, q.Stats())
	}
	for name, age := range oldest {
		gauge(ch, pendingDesc, age().Seconds(), name, name)
	}
	for name, g := range gates {
		collectGate(ch, name, g.Stats())
	}
	for name, l := range lists {
		collectListing(ch, name, l)
	}
	for _, r := range all {
		r.collect(ch)
	}
}

func collectQueue(ch chan<- prometheus.Metric, name string, s reconcile.Stats) {
	// As client-go counts: what is enqueued while in flight is in the depth at once.
	// Without a priority, as of a queue that has none.
	gauge(ch, depthDesc, float64(s.Ready+s.Again), name, name, "")
	counter(ch, addsDesc, s.Enqueued+s.Requeued, name, name)
	counter(ch, retriesDesc, s.Requeued, name, name)
	gauge(ch, waitingDesc, float64(s.Waiting-s.Rechecks), name, name)
	gauge(ch, rechecksDesc, float64(s.Rechecks), name, name)
	gauge(ch, inFlightDesc, float64(s.InFlight), name, name)
	gauge(ch, againDesc, float64(s.Again), name, name)
	counter(ch, takenDesc, s.Taken, name, name)
	counter(ch, coalescedDesc, s.Coalesced, name, name)
}

func collectListing(ch chan<- prometheus.Metric, name string, l Set) {
	s := l.Stats()
	gauge(ch, listingDesiredDesc, float64(s.Desired), name)
	gauge(ch, listingActualDesc, float64(s.Actual), name)
	gauge(ch, listingMissingDesc, float64(s.Missing), name)
	gauge(ch, listingOutOfSyncDesc, float64(s.OutOfSync), name)
	gauge(ch, listingSurplusDesc, float64(s.Surplus), name)
	age := l.Age() // since Run began, if no listing was complete
	if !s.Completed.IsZero() {
		age = time.Since(s.Completed)
	}
	gauge(ch, listingAgeDesc, age.Seconds(), name)
	rejected := 0.0
	if since, err := l.Rejected(); err != nil {
		rejected = time.Since(since).Seconds()
	}
	gauge(ch, listingRejectedDesc, rejected, name)
}

func collectGate(ch chan<- prometheus.Metric, name string, s gate.Stats) {
	limit := float64(s.Limit)
	if s.Limit == 0 {
		limit = math.Inf(1)
	}
	gauge(ch, gateLimitDesc, limit, name)
	gauge(ch, gateInFlightDesc, float64(s.InFlight), name)
	gauge(ch, gateWaitingDesc, float64(s.Waiting), name)
	counter(ch, gateHalvedDesc, s.Halved, name)
	paused := 0.0 // also after a pause, while there is nothing to do that could be the probe
	if !s.PausedSince.IsZero() && (s.Waiting > 0 || time.Now().Before(s.Until)) {
		paused = 1
	}
	gauge(ch, gatePausedDesc, paused, name)
	counter(ch, gatePausesDesc, s.Pauses, name)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, n uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
