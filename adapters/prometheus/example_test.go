// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/reconkernel/reconcile"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
)

// A program with one reconciler, and what Prometheus reads of it. The handler
// is what a program serves under /metrics.
func Example() {
	q := reconcile.NewQueue[string]()
	r := &reconcile.Reconciler[string]{
		Name:  "disks",
		Queue: q,
		Reconcile: func(_ context.Context, disk string) error {
			if disk == "disk-3" {
				return reconcile.Terminal(errors.New("no such disk"))
			}
			return nil
		},
		Logger: slog.New(slog.DiscardHandler),
	}

	var metrics promadapter.Collector
	if err := promadapter.Instrument(&metrics, r); err != nil {
		fmt.Println(err)
		return
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(&metrics)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})

	for _, disk := range []string{"disk-1", "disk-2", "disk-3"} {
		q.Enqueue(disk)
	}
	q.Close() // so that Run returns when it has run them all
	if err := r.Run(context.Background()); err != nil {
		fmt.Println(err)
		return
	}

	page := httptest.NewRecorder()
	handler.ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for lines := bufio.NewScanner(page.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "controller_runtime_reconcile_total") {
			fmt.Println(lines.Text())
		}
	}

	// Output:
	// controller_runtime_reconcile_total{controller="disks",result="error"} 1
	// controller_runtime_reconcile_total{controller="disks",result="requeue"} 0
	// controller_runtime_reconcile_total{controller="disks",result="requeue_after"} 0
	// controller_runtime_reconcile_total{controller="disks",result="success"} 2
}
