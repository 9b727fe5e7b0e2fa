// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/reconkernel/reconcile"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/internal/record"
	"github.com/reconkernel/reconcile/keep"
)

var writeDocs = flag.Bool("write-docs", false, "write the table of README.md")

// TestDocsNames compares the table of names with what a scrape has.
func TestDocsNames(t *testing.T) {
	var c promadapter.Collector
	r := &reconcile.Reconciler[string]{
		Name: "x", Queue: reconcile.NewQueue[string](),
		Reconcile: func(context.Context, string) error { return nil },
	}
	if err := promadapter.Instrument(&c, r); err != nil {
		t.Fatal(err)
	}
	if err := c.AddGate("x", new(gate.Gate)); err != nil {
		t.Fatal(err)
	}
	if err := c.AddListing("x", new(keep.Set[string, int, int])); err != nil {
		t.Fatal(err)
	}
	if err := promadapter.AddPending(&c, "x", reconcile.NewQueue[string]()); err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, f := range gather(t, &c) {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", ")))
	}
	group := func(row string) int {
		return slices.IndexFunc([]string{"| `workqueue_", "| `controller_runtime_", "| `reconcile_"}, func(p string) bool { return strings.HasPrefix(row, p) })
	}
	slices.SortStableFunc(rows, func(a, b string) int { return group(a) - group(b) })
	record.WantTable(t, *writeDocs, rows)
}

var rule = regexp.MustCompile(`- alert: (\w+)\n(?s:(.*?))severity: (\w+)`)

// TestDocsAlerts checks that docs/production.md has a row for each alert, with
// its severity and for how long it waits, in the order of the rules.
func TestDocsAlerts(t *testing.T) {
	rules, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range rule.FindAllStringSubmatch(string(rules), -1) {
		wait := "at once"
		if _, after, ok := strings.Cut(m[2], "\n        for: "); ok {
			wait, _, _ = strings.Cut(after, "\n")
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | %s |", m[1], m[3], wait))
	}
	got := regexp.MustCompile("(?m)^\\| `Reconcile[A-Z]\\w+` \\|[^|]+\\|[^|]+\\|").FindAllString(string(page), -1)
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("docs/production.md has the alerts\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
