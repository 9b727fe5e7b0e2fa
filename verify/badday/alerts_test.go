// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package badday

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/reconkernel/reconcile"
	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
	"github.com/reconkernel/reconcile/example/cloud"
)

// An alertDay begins with a normal hour, and its fault lasts for two hours. Each alert in
// fires must fire within its time after the first hour. Alerts in may are allowed to fire,
// and all others are not.
type alertDay struct {
	name  string
	bad   func(w *world)
	fires map[string]time.Duration
	may   string
	early bool // the fault is there from the beginning
	twice bool // a second process, with other desired versions, after an hour
}

var alertDays = []alertDay{
	{name: "normal"},
	{
		name: "the cloud answers 503",
		bad:  during(hour, 24*hour, unavailable, anyCall),
		fires: map[string]time.Duration{
			"ReconcileListingOld": 20 * minute, "ReconcileGatePaused": 30 * minute, "ReconcileItemOutOfSync": 90 * minute,
		},
		may: "ReconcileErrors|ReconcileItemKeepsFailing",
	},
	{
		name:  "the listings of the cloud are answered with 403",
		bad:   during(hour, 24*hour, forbidden, isListing),
		fires: map[string]time.Duration{"ReconcileListingOld": 20 * minute},
	},
	{
		name:  "two versions with other desired states run",
		twice: true,
		bad:   func(w *world) { w.rate *= 4 }, // as many calls as both can use
		fires: map[string]time.Duration{"ReconcileManyOutOfSync": 40 * minute},
		may:   "ReconcileItemOutOfSync",
	},
	{
		name: "the desired state is empty",
		bad: func(w *world) {
			w.listed = func(t time.Duration, desired specs) specs {
				if t >= hour {
					return nil
				}
				return desired
			}
		},
		fires: map[string]time.Duration{"ReconcileListingRejected": 10 * minute},
		may:   "ReconcileItemOutOfSync", // the rejected items wait
	},
	{
		name:  "reads of an asset are five minutes old", // what was created is created again, and refused
		bad:   func(w *world) { w.behind = 5 * minute },
		fires: map[string]time.Duration{"ReconcileItemKeepsFailing": 90 * minute},
		may:   "ReconcileErrors", // a write with the version that was read is refused
		early: true,
	},
	{
		name: "a region of four hangs",
		bad:  during(hour, 24*hour, cloud.ErrHangs, ofFirstRegion),
		fires: map[string]time.Duration{
			"ReconcileErrors": 40 * minute, "ReconcileItemKeepsFailing": 60 * minute, "ReconcileItemOutOfSync": 90 * minute,
		},
		may: "ReconcileWorkersBusy|ReconcileQueueSlow|ReconcileManyOutOfSync",
	},
	{
		name:  "runs of a region ignore their context",
		bad:   during(hour, 24*hour, errStuck, ofFirstRegion),
		fires: map[string]time.Duration{"ReconcileRunStuck": 25 * minute},
		may:   "ReconcileErrors|ReconcileItemOutOfSync|ReconcileWorkersBusy|ReconcileQueueSlow|ReconcileQueueStalled|ReconcileItemKeepsFailing|ReconcileManyOutOfSync",
	},

	// These need nobody.
	{name: "for five minutes the cloud asks for a pause of a day", bad: during(hour, hour+5*minute, &cloud.Error{Code: 503, RetryAfter: 24 * hour}, anyCall)},
	{name: "a listing of the cloud takes three minutes", bad: slowListings},
	{name: "calls take longer by the minute, up to forty times", bad: func(w *world) {
		w.latency = func(t time.Duration, _ string) float64 { return min(40, max(1, t.Minutes()-60)) }
	}},
}

// TestAlerts has a real Prometheus evaluate the alerts of adapters/prometheus over recorded
// days. Each day with a fault fires its alerts in time, and the normal day fires none.
func TestAlerts(t *testing.T) {
	rules, err := filepath.Abs("../../adapters/prometheus/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	used, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range alertDays {
		t.Run(d.name, func(t *testing.T) {
			var text strings.Builder
			fmt.Fprintf(&text, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n", rules)
			synctest.Test(t, func(t *testing.T) { d.record(t, &text, string(used)) })
			text.WriteString("  promql_expr_test:\n")
			expect := func(expr string, at time.Duration, samples string) {
				fmt.Fprintf(&text, "  - expr: %q\n    eval_time: %dm\n    exp_samples: %s\n", expr, int(at.Minutes()), samples)
			}
			for _, alert := range slices.Sorted(maps.Keys(d.fires)) {
				fired := fmt.Sprintf("count by (alertname) (max_over_time(ALERTS{alertname=%q,alertstate=%q}[%%dm])) > bool 0", alert, "firing")
				expect(fmt.Sprintf(fired, 200), hour+d.fires[alert], fmt.Sprintf("[{labels: '{alertname=%q}', value: 1}]", alert))
				if !d.early {
					expect(fmt.Sprintf(fired, 60), hour, "[]")
				}
			}
			known := strings.Join(append(slices.Sorted(maps.Keys(d.fires)), d.may), "|")
			expect(fmt.Sprintf("count by (alertname) (max_over_time(ALERTS{alertname!~%q,alertstate=%q}[200m]))", known, "firing"), 3*hour, "[]")

			file := filepath.Join(t.TempDir(), "day.yml")
			if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", file).CombinedOutput(); err != nil {
				t.Errorf("promtool, which ci.sh installs: %v\n%s", err, out)
			}
		})
	}
}

// record simulates the day and writes the used series of our service as Prometheus
// scrapes them, once a minute.
func (d *alertDay) record(t *testing.T, text *strings.Builder, used string) {
	const fewer = 1000 // a day of alerts has no figures
	w := newWorld(t.Context(), fewer)
	if d.bad != nil {
		d.bad(w)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*hour+minute/2)
	defer cancel()
	w.live(ctx, fewer/5, fewer/10) // as many an hour as of ten thousand
	rec := &recorder{series: map[string][]string{}, used: used}
	w.watch = func(p *parts) { rec.watch(t, p) }
	var all sync.WaitGroup
	all.Go(func() { ours(ctx, w) })
	synctest.Wait()
	w.watch = nil
	for i := 0; ctx.Err() == nil; i++ {
		if i == 60 && d.twice {
			all.Go(func() { ours(otherVersion(ctx), w) })
		}
		rec.scrape(t, i)
		time.Sleep(minute)
	}
	all.Wait()
	for _, name := range slices.Sorted(maps.Keys(rec.series)) {
		fmt.Fprintf(text, "  - series: %q\n    values: '%s'\n", name, strings.Join(rec.series[name], " "))
	}
}

// A recorder keeps scraped values, by series.
type recorder struct {
	parts     *parts
	collector promadapter.Collector
	series    map[string][]string // a value each minute, _ if there was none
	used      string              // has the names of all series that are worth keeping
}

// watch instruments our service, as docs/production.md says.
func (r *recorder) watch(t *testing.T, p *parts) {
	r.parts = p
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	must(r.collector.AddGate("cloud", p.gate))
	must(r.collector.AddListing("assets", p.assets))
	must(r.collector.AddQueue("assets", p.regions))
	lane := p.regions.Reconciler
	p.regions.Reconciler = func(name string) *reconcile.Reconciler[cloud.ID] {
		reconciler := lane(name)
		r.collector.Remove(name)
		must(promadapter.Instrument(&r.collector, reconciler))
		return reconciler
	}
}

func (r *recorder) scrape(t *testing.T, at int) {
	for lane, queue := range r.parts.regions.All() {
		_ = promadapter.AddPending(&r.collector, lane, queue) // or it is known
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(&r.collector)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string, labels []string, value float64) {
		if !strings.Contains(r.used, name) {
			return
		}
		slices.Sort(labels)
		name += "{" + strings.Join(labels, ",") + "}"
		for len(r.series[name]) < at {
			r.series[name] = append(r.series[name], "_")
		}
		r.series[name] = append(r.series[name], strconv.FormatFloat(value, 'f', -1, 64))
	}
	for _, f := range families {
		for _, m := range f.Metric {
			labels := []string{`job="badday"`, `instance="here"`}
			for _, l := range m.Label {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			labels = slices.Clip(labels)
			h := m.GetHistogram()
			if h == nil {
				add(f.GetName(), labels, m.GetGauge().GetValue()+m.GetCounter().GetValue())
				continue
			}
			add(f.GetName()+"_count", labels, float64(h.GetSampleCount()))
			for _, b := range h.Bucket {
				add(f.GetName()+"_bucket", append(labels, fmt.Sprintf("le=%q", fmt.Sprint(b.GetUpperBound()))), float64(b.GetCumulativeCount()))
			}
			add(f.GetName()+"_bucket", append(labels, `le="+Inf"`), float64(h.GetSampleCount()))
		}
	}
}
