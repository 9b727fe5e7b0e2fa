// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reconkernel/reconcile"
)

// A Statser tells the counts of a queue. [reconcile.Queue] is one. Stats must
// not block, and may be called from any goroutine.
type Statser interface {
	Stats() reconcile.Stats
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
	gates  map[string]*reconcile.Gate
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
func (c *Collector) AddGate(name string, g *reconcile.Gate) error {
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
		c.gates = make(map[string]*reconcile.Gate)
	}
	c.gates[name] = g
	return nil
}

// Remove forgets the queue, the reconciler and the gate of that name, for one that
// has ended; the name may then be used again. It reports whether there was one.
func (c *Collector) Remove(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, queue := c.queues[name]
	_, runs := c.runs[name]
	delete(c.queues, name)
	delete(c.runs, name)
	_, gate := c.gates[name]
	delete(c.gates, name)
	return queue || runs || gate
}

// add adds a queue, or runs, or both, but not one alone of the two.
func (c *Collector) add(name string, q Statser, r *runs) error {
	if err := checkName(name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
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
func isNil(q Statser) bool {
	v := reflect.ValueOf(q)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Describe does nothing; see [Collector].
func (c *Collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics as they are now. It is for registries.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	queues := make(map[string]Statser, len(c.queues))
	for name, q := range c.queues {
		queues[name] = q
	}
	all := make([]*runs, 0, len(c.runs))
	for _, r := range c.runs {
		all = append(all, r)
	}
	gates := maps.Clone(c.gates)
	c.mu.Unlock()

	for name, q := range queues {
		collectQueue(ch, name, q.Stats())
	}
	for name, g := range gates {
		collectGate(ch, name, g.Stats())
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
	gauge(ch, waitingDesc, float64(s.Waiting-s.Settled), name, name)
	gauge(ch, settledDesc, float64(s.Settled), name, name)
	gauge(ch, inFlightDesc, float64(s.InFlight), name, name)
	gauge(ch, againDesc, float64(s.Again), name, name)
	counter(ch, takenDesc, s.Taken, name, name)
	counter(ch, coalescedDesc, s.Coalesced, name, name)
}

func collectGate(ch chan<- prometheus.Metric, name string, s reconcile.GateStats) {
	limit := float64(s.Limit)
	if s.Limit == 0 {
		limit = math.Inf(1)
	}
	gauge(ch, gateLimitDesc, limit, name)
	gauge(ch, gateInFlightDesc, float64(s.InFlight), name)
	gauge(ch, gateWaitingDesc, float64(s.Waiting), name)
	counter(ch, gateHalvedDesc, s.Halved, name)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, n uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
