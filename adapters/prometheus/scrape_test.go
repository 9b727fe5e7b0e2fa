// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reconkernel/reconcile"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
)

// TestScrapeBlocksNobody stops a scrape at every metric that it hands on, and
// has items run meanwhile.
func TestScrapeBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := reconcile.NewQueue[string]()
		runs := 0
		r := &reconcile.Reconciler[string]{
			Name: "x", Queue: q,
			Reconcile: func(context.Context, string) error { runs++; return nil },
		}
		var c promadapter.Collector
		end := instrumented(t, &c, r)

		ch := make(chan prometheus.Metric) // nobody reads it but below
		go func() {
			defer close(ch)
			c.Collect(ch)
		}()
		defer func() { // also when the test fails before the end of the scrape
			for range ch {
			}
		}()
		metrics := 0
		for open := true; open; {
			synctest.Wait() // the scrape stands still
			q.Enqueue("item")
			synctest.Wait()
			if runs != metrics+1 {
				t.Fatalf("while a scrape hands on its metric %d there were %d runs, want %d", metrics, runs, metrics+1)
			}
			if _, open = <-ch; open {
				metrics++
			}
		}
		end()
		if metrics < 25 {
			t.Errorf("the scrape had %d metrics, want all", metrics)
		}
	})
}

// TestScrapeKeepsNoLock has queues come and go while a scrape stands still. It is
// not in a bubble, which would wait for ever for what waits for a lock.
func TestScrapeKeepsNoLock(t *testing.T) {
	var c promadapter.Collector
	if err := c.AddQueue("x", reconcile.NewQueue[string]()); err != nil {
		t.Fatal(err)
	}
	ch := make(chan prometheus.Metric)
	go func() {
		defer close(ch)
		c.Collect(ch)
	}()
	<-ch // and now it stands still
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Remove("x")
		if err := c.AddQueue("x", reconcile.NewQueue[string]()); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Minute): // of the real clock: it bounds a hang
		t.Error("a scrape that stands still keeps queues from coming and going")
	}
	for range ch {
	}
	<-done
}

type brokenQueue struct{}

func (brokenQueue) Stats() reconcile.Stats { panic("no connection") }

// TestScrapeSurvivesAPanic has a queue that panics, in a Collector with labels for all of its
// series. A registry collects such a one in a goroutine that recovers nothing.
func TestScrapeSurvivesAPanic(t *testing.T) {
	var c promadapter.Collector
	if err := c.AddQueue("vms", brokenQueue{}); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	prometheus.WrapRegistererWith(prometheus.Labels{"region": "eu"}, registry).MustRegister(&c)
	if _, err := registry.Gather(); err == nil || !strings.Contains(err.Error(), "promadapter: collect: panic: no connection") {
		t.Errorf("Gather = %v, want the panic", err)
	}
}
