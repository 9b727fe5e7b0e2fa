// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reconkernel/reconcile"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
)

// BenchmarkRun measures one run of a Reconcile that does nothing, with all that
// the kernel does around it: plain, instrumented, and instrumented while a
// scrape goes on all the time.
func BenchmarkRun(b *testing.B) {
	const items = 1024
	names := make([]string, items)
	for i := range names {
		names[i] = "item-" + strconv.Itoa(i)
	}
	bench := func(workers int, instrument, scrape bool) func(b *testing.B) {
		return func(b *testing.B) {
			c := new(promadapter.Collector)
			if scrape {
				registry := prometheus.NewRegistry()
				registry.MustRegister(c)
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for ctx.Err() == nil {
						if _, err := registry.Gather(); err != nil {
							b.Error(err)
						}
					}
				}()
				defer func() { cancel(); <-ended }()
			}
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				q := reconcile.NewQueue[string]()
				r := &reconcile.Reconciler[string]{
					Queue:     q,
					Reconcile: func(context.Context, string) error { return nil },
					Name:      "bench",
					Workers:   workers,
					Logger:    slog.New(slog.DiscardHandler),
				}
				if instrument {
					c.Remove("bench")
					if err := promadapter.Instrument(c, r); err != nil {
						b.Fatal(err)
					}
				}
				for _, name := range names {
					q.Enqueue(name)
				}
				q.Close()
				b.StartTimer()
				if err := r.Run(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N)/items, "ns/run")
		}
	}
	for _, workers := range []int{1, 8} {
		w := "workers=" + strconv.Itoa(workers)
		b.Run(w+"/plain", bench(workers, false, false))
		b.Run(w+"/instrumented", bench(workers, true, false))
		b.Run(w+"/instrumented and scraped", bench(workers, true, true))
	}
}

// BenchmarkScrape measures a scrape beside queues of different sizes: its cost
// must not depend on how many items there are.
func BenchmarkScrape(b *testing.B) {
	for _, n := range []int{0, 1000, 1_000_000} {
		b.Run("items="+strconv.Itoa(n), func(b *testing.B) {
			q := reconcile.NewQueue[int]()
			for i := range n {
				q.EnqueueAfter(i, time.Hour)
			}
			c := new(promadapter.Collector)
			r := &reconcile.Reconciler[int]{Queue: q, Reconcile: func(context.Context, int) error { return nil }, Name: "bench"}
			if err := promadapter.Instrument(c, r); err != nil {
				b.Fatal(err)
			}
			ch := make(chan prometheus.Metric, 1000)
			b.ReportAllocs()
			for b.Loop() {
				c.Collect(ch)
				for len(ch) > 0 {
					<-ch
				}
			}
		})
	}
}
