// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package prometheus_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// common are queries of the kind that dashboards and alerts for
// controller-runtime and client-go are made of.
var common = []string{
	`sum by (name) (rate(workqueue_adds_total{name=~".+"}[5m]))`,
	`sum by (name) (workqueue_depth)`,
	`workqueue_depth{controller=~".+"} > 100`,
	`histogram_quantile(0.5, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket[5m])))`,
	`histogram_quantile(0.99, sum(rate(workqueue_queue_duration_seconds_bucket[5m])) by (instance, name, le))`,
	`histogram_quantile(0.99, rate(workqueue_work_duration_seconds_bucket{controller!=""}[5m]))`,
	`histogram_quantile(0.9, sum(rate(workqueue_queue_duration_seconds[5m])))`, // a native histogram
	`rate(workqueue_work_duration_seconds_sum[5m]) / rate(workqueue_work_duration_seconds_count[5m])`,
	`workqueue_unfinished_work_seconds{name!=""} > 300`,
	`max by (name) (workqueue_longest_running_processor_seconds)`,
	`sum by (name) (rate(workqueue_retries_total[5m]))`,
	`sum by (controller) (rate(controller_runtime_reconcile_total{result="error"}[5m])) / sum by (controller) (rate(controller_runtime_reconcile_total[5m])) > 0.1`,
	`sum(rate(controller_runtime_reconcile_total{result=~"success|requeue|requeue_after"}[5m])) by (controller, result)`,
	`increase(controller_runtime_reconcile_errors_total[10m]) > 0`,
	`rate(controller_runtime_terminal_reconcile_errors_total[5m])`,
	`increase(controller_runtime_reconcile_panics_total[1h])`,
	`increase(controller_runtime_reconcile_timeouts_total[1h])`,
	`histogram_quantile(0.95, sum by (le, controller) (rate(controller_runtime_reconcile_time_seconds_bucket[5m])))`,
	`histogram_quantile(0.95, sum by (controller) (rate(controller_runtime_reconcile_time_seconds[5m])))`,
	`controller_runtime_active_workers / controller_runtime_max_concurrent_reconciles`,
}

// TestCommonQueries checks that each selector of those queries finds as many
// series of ours as of a controller of controller-runtime.
func TestCommonQueries(t *testing.T) {
	coming, _ := photographs(t)
	ours, want := scraped(coming["ours"]), scraped(coming[theirs[0]])
	for _, query := range common {
		for _, s := range selectors(t, query) {
			if got, want := len(match(ours, s)), len(match(want, s)); got != want || want == 0 {
				t.Errorf("%s finds %d series of ours and %d of theirs, in\n%s", s, got, want, query)
			}
		}
	}
}

// TestOurQueries parses every query of alerts.yml and dashboard.json, and checks
// that the series and labels that they name exist.
func TestOurQueries(t *testing.T) {
	coming, _ := photographs(t)
	have := scraped(coming["ours"])
	queries := append(dashboardQueries(t), alertQueries(t)...)
	if len(queries) < 20 {
		t.Errorf("only %d queries found", len(queries))
	}
	for _, query := range queries {
		for _, s := range selectors(t, query) {
			if len(match(have, s)) == 0 {
				t.Errorf("%s finds nothing, in\n%s", s, query)
			}
		}
		names := make(map[string]bool)
		for _, s := range selectors(t, query) {
			for _, series := range match(have, s) {
				series.Range(func(l labels.Label) { names[l.Name] = true })
			}
		}
		for _, name := range grouping(t, query) {
			if !names[name] {
				t.Errorf("no series has the label %s, in\n%s", name, query)
			}
		}
	}
}

// TestOurQueriesAreComplete checks that each metric of our own is in an alert or
// on the dashboard: one that nobody looks at need not be there.
func TestOurQueriesAreComplete(t *testing.T) {
	coming, _ := photographs(t)
	text := strings.Join(append(dashboardQueries(t), alertQueries(t)...), "\n")
	for _, name := range slices.Sorted(maps.Keys(coming["ours"])) {
		if strings.HasPrefix(name, "reconcile_") && !strings.Contains(text, name) {
			t.Errorf("%s is in no query", name)
		}
	}
}

var promql = parser.NewParser(parser.Options{})

func parse(t *testing.T, query string) parser.Expr {
	t.Helper()
	expr, err := promql.ParseExpr(query)
	if err != nil {
		t.Fatalf("%v, in\n%s", err, query)
	}
	return expr
}

func selectors(t *testing.T, query string) (all []*parser.VectorSelector) {
	t.Helper()
	parser.Inspect(parse(t, query), func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			all = append(all, s)
		}
		return nil
	})
	return all
}

// grouping returns the labels that the query groups and joins by.
func grouping(t *testing.T, query string) (names []string) {
	t.Helper()
	parser.Inspect(parse(t, query), func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			names = append(names, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				names = append(names, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	return names
}

// scraped returns the series as Prometheus stores them, with the labels that
// come with a scrape.
func scraped(families map[string]*dto.MetricFamily) (all []labels.Labels) {
	for name, f := range families {
		for _, m := range f.Metric {
			b := labels.NewBuilder(labels.FromStrings("job", "x", "instance", "x"))
			for _, l := range m.Label {
				b.Set(l.GetName(), l.GetValue())
			}
			add := func(name string) { all = append(all, b.Set(model.MetricNameLabel, name).Labels()) }
			add(name)
			if m.Histogram == nil {
				continue
			}
			add(name + "_sum")
			add(name + "_count")
			for _, bucket := range m.Histogram.Bucket {
				b.Set("le", model.SampleValue(bucket.GetUpperBound()).String())
				add(name + "_bucket")
			}
		}
	}
	return all
}

func match(series []labels.Labels, s *parser.VectorSelector) (found []labels.Labels) {
	for _, candidate := range series {
		if !slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
			return !m.Matches(candidate.Get(m.Name))
		}) {
			found = append(found, candidate)
		}
	}
	return found
}

func dashboardQueries(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../adapters/prometheus/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$controller", ".*", "$gate", ".*", "$listing", ".*")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, variables.Replace(target.Expr))
		}
	}
	return all
}

func alertQueries(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../adapters/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			all = append(all, r.Expr)
		}
	}
	return all
}
