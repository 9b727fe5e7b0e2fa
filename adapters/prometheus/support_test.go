// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// values collects through a registry that checks everything, and returns what a
// scrape would have: a value for each series, without the buckets.
func values(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	for _, family := range gather(t, c) {
		name := family.GetName()
		for _, m := range family.Metric {
			switch family.GetType() {
			case dto.MetricType_COUNTER:
				all[series(name, m)] = m.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				all[series(name, m)] = m.GetGauge().GetValue()
			case dto.MetricType_HISTOGRAM:
				all[series(name+"_count", m)] = float64(m.GetHistogram().GetSampleCount())
				all[series(name+"_sum", m)] = m.GetHistogram().GetSampleSum()
			default:
				t.Errorf("%s is a %v", name, family.GetType())
			}
		}
	}
	return all
}

func gather(t *testing.T, c prometheus.Collector) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// series names a series as Prometheus prints it; labels that are empty are
// left out, as they do not differ from labels that are missing.
func series(name string, m *dto.Metric) string {
	var labels []string
	for _, l := range m.Label {
		if l.GetValue() != "" {
			labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
		}
	}
	return name + "{" + strings.Join(labels, ",") + "}"
}

// wantValues compares those series that are not zero.
func wantValues(t *testing.T, c prometheus.Collector, want map[string]float64) {
	t.Helper()
	got := values(t, c)
	for _, s := range slices.Sorted(maps.Keys(got)) {
		if got[s] != want[s] {
			t.Errorf("%s is %v, want %v", s, got[s], want[s])
		}
	}
	for _, s := range slices.Sorted(maps.Keys(want)) {
		if _, ok := got[s]; !ok {
			t.Errorf("there is no %s", s)
		}
	}
}
