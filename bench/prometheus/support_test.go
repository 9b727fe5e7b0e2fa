// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package prometheus_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	ctrlreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/reconkernel/reconcile"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/keep"
)

// This file puts the same load on three controllers: ours, and that of
// controller-runtime with each of its two queues. They run in one bubble, so
// that their clocks are the same.

const (
	workers = 2
	timeout = 10 * time.Second
	backoff = time.Second // after each failure
)

// An answer is what a run returns, in the terms of neither.
type answer struct {
	err      error
	terminal bool
	now      bool          // requeue at once
	after    time.Duration // requeue then
}

var errBroken = errors.New("broken")

// A world is what one controller looks at.
type world struct {
	mu      sync.Mutex
	runs    map[string]int
	release chan struct{} // for those that are stuck
}

func newWorld() *world {
	return &world{runs: make(map[string]int), release: make(chan struct{})}
}

// run is the Reconcile of all three. Most runs take a second.
func (w *world) run(ctx context.Context, item string) answer {
	w.mu.Lock()
	w.runs[item]++
	first, third := w.runs[item] == 1, w.runs[item] == 3
	w.mu.Unlock()

	switch item {
	case "slow":
		<-ctx.Done()
		return answer{err: ctx.Err(), terminal: true}
	case "stuck 1", "stuck 2":
		<-w.release
		return answer{}
	}
	time.Sleep(time.Second)
	switch {
	case item == "terminal":
		return answer{err: errBroken, terminal: true}
	case item == "failing" && !third:
		return answer{err: errBroken}
	case item == "faulty" && first:
		panic("a fault of the program")
	case item == "later" && first:
		return answer{after: time.Minute}
	case item == "again" && first:
		return answer{now: true}
	}
	return answer{}
}

// A subject is a controller that goes on.
type subject struct {
	name    string
	enqueue func(item string)
	world   *world
	end     func() // and wait
}

func startOurs(t *testing.T, metrics *promadapter.Collector) *subject {
	t.Helper()
	w, q := newWorld(), reconcile.NewQueue[string]()
	r := &reconcile.Reconciler[string]{
		Name: "ours", Queue: q, Workers: workers, Timeout: timeout,
		Logger: slog.New(slog.DiscardHandler),
		Retry:  func(error, int) (time.Duration, bool) { return backoff, true },
		Reconcile: func(ctx context.Context, item string) error {
			switch a := w.run(ctx, item); {
			case a.terminal:
				return reconcile.Terminal(a.err)
			case a.now:
				return reconcile.RequeueWithin(0)
			case a.after > 0:
				return reconcile.RequeueAfter(a.after)
			default:
				return a.err
			}
		},
	}
	if err := promadapter.Instrument(metrics, r); err != nil {
		t.Fatal(err)
	}
	if err := metrics.AddGate("ours", new(gate.Gate)); err != nil {
		t.Fatal(err)
	}
	if err := metrics.AddListing("ours", new(keep.Set[string, int, int])); err != nil {
		t.Fatal(err)
	}
	if err := promadapter.AddPending(metrics, "ours", q); err != nil {
		t.Fatal(err)
	}
	return &subject{"ours", q.Enqueue, w, background(t, r.Run)}
}

func startTheirs(t *testing.T, name string, priority bool) *subject {
	t.Helper()
	w := newWorld()
	queue := make(chan func(string), 1)
	c, err := controller.NewTypedUnmanaged(name, controller.TypedOptions[string]{
		UsePriorityQueue:        &priority,
		MaxConcurrentReconciles: workers,
		ReconciliationTimeout:   timeout,
		Logger:                  logr.Discard(),
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[string](backoff, backoff),
		Reconciler: ctrlreconcile.TypedFunc[string](func(ctx context.Context, item string) (ctrlreconcile.Result, error) {
			a := w.run(ctx, item)
			if a.terminal {
				a.err = ctrlreconcile.TerminalError(a.err)
			}
			//lint:ignore SA1019 Requeue is deprecated, but a result with a label of its own
			return ctrlreconcile.Result{Requeue: a.now, RequeueAfter: a.after}, a.err
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Watch(source.TypedFunc[string](func(_ context.Context, q workqueue.TypedRateLimitingInterface[string]) error {
		queue <- q.Add
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	end := background(t, c.Start)
	return &subject{name, <-queue, w, end}
}

// background runs a controller. The function that it returns ends it and waits.
func background(t *testing.T, run func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// A picture is what a registry tells of each controller, by name.
type picture map[string]map[string]*dto.MetricFamily

// photograph gathers what both registries tell of the three.
func photograph(t *testing.T, ours prometheus.Gatherer, suffix string) picture {
	t.Helper()
	p := make(picture)
	for _, g := range []prometheus.Gatherer{ours, ctrlmetrics.Registry} {
		families, err := g.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.Metric {
				name, ok := strings.CutSuffix(cmp.Or(label(m, "controller"), label(m, "name")), suffix) // a gate has no controller
				if !ok && name != "ours" {
					continue // of another load, or of the process
				}
				if p[name] == nil {
					p[name] = make(map[string]*dto.MetricFamily)
				}
				if p[name][f.GetName()] == nil {
					p[name][f.GetName()] = &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Unit: f.Unit}
				}
				of := p[name][f.GetName()]
				of.Metric = append(of.Metric, m)
			}
		}
	}
	return p
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// The controllers of controller-runtime: with its own queue, and with client-go's.
var theirs = []string{"theirs-priority", "theirs-plain"}

// loads counts the loads of this process: the registry of controller-runtime is
// one for all, so each load needs controllers of its own.
var loads atomic.Int64

// photographs puts the load on all three: a while of coming and going, then
// runs that are stuck. It returns a picture of each.
func photographs(t *testing.T) (coming, stuck picture) {
	t.Helper()
	suffix := fmt.Sprintf(" of load %d", loads.Add(1))
	metrics := new(promadapter.Collector)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	synctest.Test(t, func(t *testing.T) {
		all := []*subject{
			startOurs(t, metrics),
			startTheirs(t, theirs[0]+suffix, true),
			startTheirs(t, theirs[1]+suffix, false),
		}
		defer func() {
			for _, s := range all {
				close(s.world.release)
				s.end()
			}
		}()
		synctest.Wait()
		for _, item := range []string{"well", "terminal", "failing", "faulty", "later", "slow", "again"} {
			for _, s := range all {
				s.enqueue(item)
			}
			time.Sleep(30 * time.Second) // one at a time: none waits for another
		}
		for _, item := range []string{"one", "two", "three", "four"} {
			for _, s := range all {
				s.enqueue(item)
			}
		}
		time.Sleep(10*time.Minute + time.Millisecond)
		synctest.Wait()
		coming = photograph(t, registry, suffix)

		for _, item := range []string{"stuck 1", "stuck 2", "well", "well", "stuck 1"} { // the last is in flight
			for _, s := range all {
				s.enqueue(item)
			}
			time.Sleep(10 * time.Second)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		stuck = photograph(t, registry, suffix)
	})
	return coming, stuck
}
