// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package oteladapter_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/reconkernel/reconcile"
	oteladapter "github.com/reconkernel/reconcile/adapters/otel"
)

var writeDocs = flag.Bool("write-docs", false, "write the table of README.md")

// TestDocsNames compares the table of names with what is collected.
func TestDocsNames(t *testing.T) {
	const docs, mark = "README.md", "<!-- names: otel -->\n"
	reader := sdkmetric.NewManualReader()
	ran(t, &oteladapter.Telemetry[string]{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}, reconcile.NewQueue[string]())
	var rows []string
	for _, m := range collectMetrics(t, reader) {
		rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s |\n", m.Name, m.Unit, m.Description))
	}
	slices.Sort(rows)
	want := strings.Join(rows, "")

	text, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	begin, rest, ok1 := strings.Cut(string(text), mark)
	table, end, ok2 := strings.Cut(rest, "<!-- end -->")
	lines := strings.SplitAfterN(table, "\n", 3)
	if !ok1 || !ok2 || len(lines) != 3 || len(rows) == 0 {
		t.Fatalf("%s has no table of these names, or there are no names", docs)
	}
	switch {
	case lines[2] == want:
	case *writeDocs:
		text := begin + mark + lines[0] + lines[1] + want + "<!-- end -->" + end
		if err := os.WriteFile(docs, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has\n%swant (go test -run TestDocs . -write-docs)\n%s", docs, lines[2], want)
	}
}
