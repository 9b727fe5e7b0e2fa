// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package promadapter_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/reconkernel/reconcile"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
)

// promtool runs promtool, which ci.sh installs if it is missing.
func promtool(t *testing.T, stdin string, args ...string) (output string, ok bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("promtool: %v (ci.sh installs it)", err)
	}
	return string(out), err == nil
}

func TestAlertRules(t *testing.T) {
	if out, ok := promtool(t, "", "check", "rules", "--lint-fatal", "alerts.yml"); !ok {
		t.Errorf("promtool: %s", out)
	}
}

var (
	alertRule = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
	unitTest  = regexp.MustCompile(`(?m)^ +- alertname: (\w+)\n.*\n +exp_alerts:\n`)
)

// TestAlertUnits has promtool play the series of testdata/alerts_test.yml. Each
// alert must be seen to fire there.
func TestAlertUnits(t *testing.T) {
	if out, ok := promtool(t, "", "test", "rules", "testdata/alerts_test.yml"); !ok {
		t.Errorf("promtool: %s", out)
	}
	names := func(file string, re *regexp.Regexp) (all []string) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range re.FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
		return all
	}
	rules := names("alerts.yml", alertRule)
	if len(rules) == 0 {
		t.Error("no rules found")
	}
	for _, name := range rules {
		if !slices.Contains(names("testdata/alerts_test.yml", unitTest), name) {
			t.Errorf("%s never fires in testdata/alerts_test.yml", name)
		}
	}
}

// TestNamesLint has promtool look at the names, types and help of our own
// series. Those of others are as they are.
func TestNamesLint(t *testing.T) {
	var c promadapter.Collector
	r := &reconcile.Reconciler[string]{
		Name: "x", Queue: reconcile.NewQueue[string](),
		Reconcile: func(context.Context, string) error { return nil },
	}
	if err := promadapter.Instrument(&c, r); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(&c)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	if !strings.Contains(page.Body.String(), "reconcile_runs_total") {
		t.Fatalf("the page has no series of ours:\n%s", page.Body)
	}
	out, _ := promtool(t, page.Body.String(), "check", "metrics")
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "workqueue_") && !strings.HasPrefix(line, "controller_runtime_") {
			t.Errorf("promtool: %s", line)
		}
	}
}
