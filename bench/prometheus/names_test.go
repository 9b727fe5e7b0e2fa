// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package prometheus_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/reconkernel/reconcile"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
)

// TestNames compares all that does not depend on the load: names, types, help,
// labels and buckets. Whatever controller-runtime tells of a controller, we must
// tell of a reconciler in the same words.
func TestNames(t *testing.T) {
	coming, _ := photographs(t)
	ours := coming["ours"]
	for _, name := range theirs {
		if len(coming[name]) < 15 {
			t.Errorf("controller-runtime tells of %s only %v", name, slices.Sorted(maps.Keys(coming[name])))
		}
		for _, family := range slices.Sorted(maps.Keys(coming[name])) {
			want, got := outline(coming[name][family]), outline(ours[family])
			if got != want {
				t.Errorf("%s: we have\n%s%s has\n%s", family, got, name, want)
			}
		}
	}
	for _, family := range slices.Sorted(maps.Keys(ours)) {
		if coming[theirs[0]][family] == nil && !strings.HasPrefix(family, "reconcile_") {
			t.Errorf("%s is ours alone, and has not our prefix", family)
		}
	}
}

// outline writes down a family without its values.
func outline(f *dto.MetricFamily) string {
	if f == nil {
		return "nothing\n"
	}
	lines := []string{fmt.Sprintf("%v %q %q", f.GetType(), f.GetUnit(), f.GetHelp())}
	for _, m := range f.Metric {
		var line strings.Builder
		for _, l := range m.Label {
			switch value := l.GetValue(); l.GetName() {
			case "controller", "name", "priority": // these differ
				fmt.Fprintf(&line, "%s, ", l.GetName())
			default:
				fmt.Fprintf(&line, "%s=%q, ", l.GetName(), value)
			}
		}
		if h := m.Histogram; h != nil {
			fmt.Fprintf(&line, "native %d, %g", h.GetSchema(), h.GetZeroThreshold())
			for _, b := range h.Bucket {
				fmt.Fprintf(&line, ", %g", b.GetUpperBound())
			}
		}
		lines = append(lines, line.String())
	}
	slices.Sort(lines[1:])
	return strings.Join(lines, "\n") + "\n"
}

// TestValues compares the values after the load, and while runs are stuck. The
// clocks are the same, so most values are too; the table says where not.
func TestValues(t *testing.T) {
	coming, stuck := photographs(t)

	compare(t, "coming and going", coming, nil)

	// What a run waited is counted when it ends, here; when it begins, there.
	differ := map[string]float64{"workqueue_queue_duration_seconds_count{}": -workers}
	for s := range flatten(stuck["ours"]) {
		if strings.HasPrefix(s, "workqueue_queue_duration_seconds_bucket{") {
			differ[s] = -workers
		}
	}
	// There a goroutine looks at the clock twice a second; here the scrape does.
	differ["workqueue_unfinished_work_seconds{}"] = 0.002
	differ["workqueue_longest_running_processor_seconds{}"] = 0.001
	compare(t, "stuck", stuck, differ)

	// The load must have been one that shows something.
	values := flatten(stuck["ours"])
	for s, want := range map[string]float64{
		"workqueue_depth{}":                                      2, // one that is ready, and one that is again
		"workqueue_retries_total{}":                              5,
		"workqueue_unfinished_work_seconds{}":                    350 + 340,
		"workqueue_longest_running_processor_seconds{}":          350,
		"controller_runtime_active_workers{}":                    2,
		"controller_runtime_reconcile_total{result=requeue}":     1,
		"controller_runtime_reconcile_panics_total{}":            1,
		"controller_runtime_reconcile_timeouts_total{}":          1,
		"controller_runtime_terminal_reconcile_errors_total{}":   2,
		"controller_runtime_reconcile_time_seconds_sum{}":        25,
		"workqueue_queue_duration_seconds_sum{}":                 2,
		"reconcile_queue_coalesced_total{}":                      1,
		"controller_runtime_reconcile_time_seconds_bucket{le=1}": 15,
	} {
		if values[s] != want {
			t.Errorf("%s is %v, want %v", s, values[s], want)
		}
	}
}

func compare(t *testing.T, when string, p picture, differ map[string]float64) {
	t.Helper()
	ours := flatten(p["ours"])
	for _, name := range theirs {
		for s, want := range flatten(p[name]) {
			if got := ours[s] - want; got-differ[s] > 1e-9 || got-differ[s] < -1e-9 {
				t.Errorf("%s: %s is %v, for %s it is %v: a difference of %g, want %g", when, s, ours[s], name, want, got, differ[s])
			}
		}
	}
}

// flatten returns the value of each series, named without the controller.
func flatten(families map[string]*dto.MetricFamily) map[string]float64 {
	values := make(map[string]float64)
	for name, f := range families {
		for _, m := range f.Metric {
			labels := ""
			if result := label(m, "result") + label(m, "outcome"); result != "" {
				labels = "result=" + result
			}
			switch {
			case m.Counter != nil:
				values[name+"{"+labels+"}"] = m.Counter.GetValue()
			case m.Gauge != nil:
				values[name+"{"+labels+"}"] = m.Gauge.GetValue()
			case m.Histogram != nil:
				values[name+"_count{}"] = float64(m.Histogram.GetSampleCount())
				values[name+"_sum{}"] = m.Histogram.GetSampleSum()
				for _, b := range m.Histogram.Bucket {
					values[fmt.Sprintf("%s_bucket{le=%g}", name, b.GetUpperBound())] = float64(b.GetCumulativeCount())
				}
			}
		}
	}
	return values
}

// TestCreated compares which counters say when they began at zero.
func TestCreated(t *testing.T) {
	coming, _ := photographs(t)
	for name, f := range coming[theirs[0]] {
		if !strings.HasPrefix(name, "controller_runtime_") || f.GetType() != dto.MetricType_COUNTER {
			continue
		}
		want := f.Metric[0].Counter.CreatedTimestamp.AsTime()
		if got := coming["ours"][name].Metric[0].Counter.CreatedTimestamp.AsTime(); !got.Equal(want) {
			t.Errorf("%s began at %v, want %v", name, got, want)
		}
	}
}

// TestSharedRegistry has a program with controllers of both kinds: our collector
// in the registry of controller-runtime, which has the same names already.
func TestSharedRegistry(t *testing.T) {
	photographs(t) // for series of theirs
	var metrics promadapter.Collector
	if err := metrics.AddQueue("shared", reconcile.NewQueue[string]()); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.Gatherers{ctrlmetrics.Registry}
	before, err := testutil.GatherAndCount(registry, "workqueue_depth")
	if err != nil {
		t.Fatal(err)
	}
	if err := ctrlmetrics.Registry.Register(&metrics); err != nil {
		t.Fatal(err)
	}
	defer metrics.Remove("shared") // what describes nothing cannot be unregistered
	after, err := testutil.GatherAndCount(registry, "workqueue_depth")
	if err != nil {
		t.Fatal(err)
	}
	if before < 2 || after != before+1 {
		t.Errorf("%d series of workqueue_depth, and %d with ours", before, after)
	}
}
