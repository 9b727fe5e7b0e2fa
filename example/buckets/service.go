// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/postgres"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
	"github.com/reconkernel/reconcile/keep"
	"github.com/reconkernel/reconcile/statuspage"
	"github.com/reconkernel/reconcile/supervise"
)

// A service keeps the buckets of a store as the rows of a table say, while it leads.
type service struct {
	options
	table   table
	store   store
	leading atomic.Pointer[http.ServeMux] // the pages of a leader; nil while another replica leads
}

// run serves the pages, and keeps the buckets while this replica leads, until ctx is done.
func (s *service) run(ctx context.Context) error {
	leader := postgres.Elect(postgres.Config{Pool: s.table.pool, Name: "buckets", Lease: s.lease}, reconcile.RunFunc(s.term))
	prometheus.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "buckets_leader", Help: "1 while this replica leads, otherwise 0."}, func() float64 {
		if leader.IsLeader() {
			return 1
		}
		return 0
	}))
	var group supervise.Group
	group.Add("http", statuspage.Serve(s.http, s))
	group.Add("leader", leader)
	return group.Run(ctx)
}

// term runs all parts while this replica leads. They are new in each term.
func (s *service) term(ctx context.Context) error {
	queue := reconcile.NewQueue[string]()
	set := s.set(queue)
	loop := &statuspage.Loop[string]{Name: "buckets", Queue: queue}
	runs := &reconcile.Reconciler[string]{
		Name:  "buckets",
		Queue: postgres.Held(queue), // runs end when the lease is lost
		Reconcile: func(ctx context.Context, name string) error {
			call, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			r, found, _ := s.table.lookup(call, name, row{})
			err := set.Reconcile(call, name)
			if !found {
				return err
			}
			if err == nil && r.Deleted { // or no listing has shown the bucket yet
				err = s.store.gone(call, name, s.period)
			}
			return s.table.report(ctx, r, err)
		},
		Workers:  8,
		Timeout:  callTimeout + 10*time.Second, // the rest is for the status
		Grace:    10 * time.Second,
		Retry:    reconcile.Backoff(time.Second, s.period),
		OnResult: loop.OnResult(nil),
	}
	var metrics promadapter.Collector
	if err := errors.Join(promadapter.Instrument(&metrics, runs), promadapter.AddPending(&metrics, "buckets", queue), metrics.AddListing("buckets", set)); err != nil {
		return reconcile.Terminal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(&metrics)
	changes := postgres.Listen(s.table.pool.Config().ConnConfig, "buckets", func(name string) (string, error) { return name, nil }, set.Trigger)

	members := &statuspage.Group{Name: "Members"}
	members.Add("listings", set)
	members.Add("changes of the table", reconcile.Feed(queue, changes))
	members.Add("runs", runs)
	page := statuspage.New(loop, &statuspage.Listing{Name: "buckets", Of: set}, members)
	page.Title, page.AllowActions = "Buckets", true // whoever reaches the page may press its buttons

	mux := http.NewServeMux()
	mux.Handle("/", page)
	mux.Handle("/metrics", promhttp.HandlerFor(prometheus.Gatherers{prometheus.DefaultGatherer, registry}, promhttp.HandlerOpts{}))
	s.leading.Store(mux)
	defer s.leading.Store(nil)
	return members.Run(ctx)
}

// callTimeout is for the calls of one run.
const callTimeout = 30 * time.Second

// set returns the Set of all buckets.
func (s *service) set(queue reconcile.Enqueuer[string]) *keep.Set[string, row, bucket] {
	return &keep.Set[string, row, bucket]{
		Name:  "buckets",
		Queue: queue,
		Desired: func(ctx context.Context) (map[string]row, error) {
			all, err := s.table.list(ctx)
			for name, r := range all {
				if r.Deleted && !r.Done { // its bucket may be gone already, which no listing offers
					queue.Offer(name)
				}
			}
			return all, err
		},
		Actual:      s.store.list,
		InSync:      func(r row, b bucket) bool { return r.Done && r.bucket == b },
		Absent:      func(r row) bool { return r.Deleted },
		Lookup:      s.table.lookup,
		Ensure:      func(ctx context.Context, name string, r row) error { return s.store.ensure(ctx, name, r.bucket) },
		Delete:      func(ctx context.Context, name string, _ bucket) error { return s.store.remove(ctx, name) },
		Period:      s.period,
		Resync:      -1, // a listing shows all that Ensure corrects
		DeleteAfter: s.deleteAfter,
	}
}

// ServeHTTP serves the pages of the leader. While another replica leads, it has only metrics.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch pages := s.leading.Load(); {
	case pages != nil:
		pages.ServeHTTP(w, r)
	case r.URL.Path == "/metrics":
		promhttp.Handler().ServeHTTP(w, r)
	default:
		http.Error(w, "another replica leads: see its page", http.StatusServiceUnavailable)
	}
}
