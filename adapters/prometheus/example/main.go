// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Example keeps disks in sync that have all the troubles disks can have, and
// serves what Prometheus reads of it:
//
//	go run . -http 127.0.0.1:8080
//	curl http://127.0.0.1:8080/metrics
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/reconkernel/reconcile"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/keep"
)

func main() {
	addr := flag.String("http", "127.0.0.1:8080", "where to serve /metrics; port 0 takes a free one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := run(ctx, *addr); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string) error {
	q := reconcile.NewQueue[string]()
	far := &gate.Gate{Max: 3}
	disks := &reconcile.Reconciler[string]{
		Name:      "disks",
		Queue:     q,
		Workers:   4,
		Timeout:   200 * time.Millisecond,
		Retry:     reconcile.Backoff(50*time.Millisecond, time.Second),
		Reconcile: attach,
		Admit:     far.Admit,
	}
	poll := &reconcile.Poller[string]{
		Name:     "disks",
		Queue:    q,
		Period:   500 * time.Millisecond,
		GetItems: list,
	}

	var metrics promadapter.Collector
	if err := promadapter.Instrument(&metrics, disks); err != nil {
		return err
	}
	if err := metrics.AddGate("disks", far); err != nil {
		return err
	}
	snapshots := newSnapshots()
	if err := metrics.AddListing("snapshots", snapshots); err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(&metrics)

	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	fmt.Printf("listening on http://%s/metrics\n", listener.Addr())
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}

	var group reconcile.Group
	group.Add("disks", disks)
	group.Add("poll", poll)
	group.Add("snapshots", snapshots)
	group.Add("http", reconcile.RunFunc(func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}))
	return group.Run(ctx)
}

// newSnapshots returns a Set of snapshots, of which one is missing and one is surplus. No
// Reconciler corrects that: its listings are here for their metrics.
func newSnapshots() *keep.Set[string, string, string] {
	return &keep.Set[string, string, string]{
		Queue:  reconcile.NewQueue[string](),
		Period: time.Second,
		Desired: func(context.Context) (map[string]string, error) {
			return map[string]string{"monday": "1", "tuesday": "1"}, nil
		},
		Actual: func(context.Context) (map[string]string, error) {
			return map[string]string{"sunday": "1", "monday": "1"}, nil
		},
		InSync: func(desired, actual string) bool { return desired == actual },
		Ensure: func(context.Context, string, string) error { return nil },
		Delete: func(context.Context, string, string) error { return nil },
	}
}

// list returns the disks that there are.
func list(context.Context) ([]string, error) {
	disks := []string{"broken", "forbidden", "faulty", "slow", "young"}
	for i := range 20 {
		disks = append(disks, fmt.Sprintf("disk-%d", i))
	}
	return disks, nil
}

// attach attaches a disk, if it is a good one, and looks at it again every second.
func attach(ctx context.Context, disk string) error {
	switch disk {
	case "broken":
		return errors.New("disk is broken")
	case "forbidden":
		return reconcile.Terminal(errors.New("not ours"))
	case "faulty":
		panic("a fault of the program")
	case "slow":
		<-ctx.Done()
		return context.Cause(ctx)
	case "young":
		return fmt.Errorf("being made: %w", reconcile.RequeueAfter(300*time.Millisecond))
	}
	select {
	case <-time.After(rand.N(20 * time.Millisecond)):
		return reconcile.RecheckWithin(time.Second)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
