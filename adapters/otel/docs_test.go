// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter_test

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/reconkernel/reconcile"
	oteladapter "github.com/reconkernel/reconcile/adapters/otel"
	"github.com/reconkernel/reconcile/internal/record"
)

var writeDocs = flag.Bool("write-docs", false, "write the table of README.md")

// TestDocsNames compares the table of names with what is collected.
func TestDocsNames(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	ran(t, &oteladapter.Telemetry[string]{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}, reconcile.NewQueue[string]())
	var rows []string
	for _, m := range collectMetrics(t, reader) {
		rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s |", m.Name, m.Unit, m.Description))
	}
	slices.Sort(rows)
	record.WantTable(t, *writeDocs, rows)
}
