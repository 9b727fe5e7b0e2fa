// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package badday

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"
)

const (
	minute = time.Minute
	hour   = time.Hour
)

// A figure measures a day. The figure of reconcile must not exceed its bound, nor the
// figure of any other service.
type figure struct {
	name  string
	of    func(w *world) float64
	unit  string  // "" for a count, "s" for a time
	bound float64 // of reconcile, with ten thousand assets
	grows bool    // in proportion to the number of assets
	alone bool    // is not compared with the other services
	many  bool    // is bounded only with ten thousand assets
}

// A day is a normal hour, then a fault, and some time after it.
type day struct {
	name    string
	long    bool // not with -short
	lasts   time.Duration
	bad     func(w *world)
	events  func(ctx context.Context, w *world, events chan<- string)
	figures []figure
}

func within(t, a, b time.Duration) bool { return t >= a && t < b }

func calls(a, b time.Duration) func(*world) float64 {
	return func(w *world) float64 { sum, _ := between(w.calls, a, b); return float64(sum) }
}

func rejected(a, b time.Duration) func(*world) float64 {
	return func(w *world) float64 { sum, _ := between(w.rejected, a, b); return float64(sum) }
}

func peak(a, b time.Duration) func(*world) float64 {
	return func(w *world) float64 { _, most := between(w.calls, a, b); return float64(most) }
}

func seconds(of func(*world) time.Duration) func(*world) float64 {
	return func(w *world) float64 { return of(w).Seconds() }
}

func correctedAfter(at time.Duration) func(*world) float64 {
	return seconds(func(w *world) time.Duration { return w.lastCorrected(at) })
}

func quantile(q float64, from time.Duration, chosen func(string) bool) func(*world) float64 {
	return seconds(func(w *world) time.Duration { return w.quantile(q, from, chosen) })
}

func deleted(w *world) float64 { return float64(w.deleted) }

func notR0(name string) bool { return region(name) != "r0" }

// part returns the entries that keep chooses.
func part(all map[string]string, keep func(i int) bool) map[string]string {
	some := map[string]string{}
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if keep(i) {
			some[name] = all[name]
		}
	}
	return some
}

// lies makes listings incomplete for little more than a minute: in that time each
// service lists once.
func lies(keep func(i, n int) bool) func(time.Duration, map[string]string) map[string]string {
	return func(t time.Duration, all map[string]string) map[string]string {
		if !within(t, hour, hour+62*time.Second) {
			return all
		}
		return part(all, func(i int) bool { return keep(i, len(all)) })
	}
}

var days = []day{
	{name: "normal", lasts: 3 * hour, figures: []figure{
		{name: "calls an hour", of: func(w *world) float64 { return calls(hour, 3*hour)(w) / 2 }, bound: 4000, grows: true},
		{name: "rejected with 429", of: rejected(0, 3*hour)},
		{name: "corrected, p50", of: quantile(0.5, 0, anyName), unit: "s", bound: 90},
		{name: "corrected, p99", of: quantile(0.99, 0, anyName), unit: "s", bound: 240},
	}},
	{
		name: "the cloud answers 503 for an hour", lasts: 3 * hour,
		bad: func(w *world) {
			w.fault = func(t time.Duration, _ string) fault {
				if within(t, hour, 2*hour) {
					return unavailable
				}
				return noFault
			}
		},
		figures: []figure{
			{name: "calls in it", of: calls(hour, 2*hour), bound: 500},
			{name: "all corrected after", of: correctedAfter(2 * hour), unit: "s", bound: 300},
		},
	},
	{
		name: "a region of four hangs for an hour", lasts: 3 * hour,
		bad: func(w *world) {
			w.fault = func(t time.Duration, name string) fault {
				if within(t, hour, 2*hour) && strings.HasPrefix(name, "r0") {
					return hangs
				}
				return noFault
			}
		},
		figures: []figure{
			{name: "the others corrected, p50", of: quantile(0.5, hour, notR0), unit: "s", bound: 135},
			{name: "the others corrected, p99", of: quantile(0.99, hour, notR0), unit: "s", bound: 300},
			{name: "p50 in percent of the hour before", of: func(w *world) float64 { return 100 * w.slowdown(hour, 2*hour, notR0) }, bound: 150, many: true, alone: true},
		},
	},
	{
		name: "the desired state is empty once", lasts: 2 * hour,
		bad:     func(w *world) { w.desiredListing = lies(func(int, int) bool { return false }) },
		figures: []figure{{name: "deleted", of: deleted}},
	},
	{
		name: "a page of ten of the desired state is missing once", lasts: 2 * hour,
		bad:     func(w *world) { w.desiredListing = lies(func(i, n int) bool { return i >= n/10 }) },
		figures: []figure{{name: "deleted", of: deleted}},
	},
	{
		name: "half of the desired state is missing once", lasts: 2 * hour,
		bad:     func(w *world) { w.desiredListing = lies(func(i, _ int) bool { return i%2 == 0 }) },
		figures: []figure{{name: "deleted", of: deleted}},
	},
	{
		name: "a page of ten of the cloud is missing once", lasts: 2 * hour,
		bad:     func(w *world) { w.list = lies(func(i, n int) bool { return i >= n/10 }) },
		figures: []figure{{name: "deleted", of: deleted}},
	},
	{
		name: "the listing of the cloud is empty once", lasts: 2 * hour,
		bad: func(w *world) { w.list = lies(func(int, int) bool { return false }) },
		figures: []figure{
			{name: "deleted", of: deleted},
			{name: "calls in the hour after", of: calls(hour, 2*hour), bound: 22000, grows: true}, // each asset is read once, or twice
		},
	},
	{
		name: "a restart", lasts: hour,
		figures: []figure{
			{name: "calls in the first minute", of: calls(0, minute), bound: 6000, grows: true},
			{name: "the worst second", of: peak(0, minute), bound: 200, grows: true},
			{name: "rejected with 429", of: rejected(0, hour)},
		},
	},
	{
		name: "one region has ten events for each asset", lasts: 2 * hour,
		events: func(ctx context.Context, w *world, events chan<- string) {
			time.Sleep(hour)
			for i := range 10 * len(w.desired) {
				if i%4 != 0 {
					continue
				}
				select {
				case events <- nameOf(i % len(w.desired)):
				case <-ctx.Done():
					return
				}
				if i%1000 == 0 {
					time.Sleep(time.Second)
				}
			}
		},
		figures: []figure{
			{name: "the others corrected, p50", of: quantile(0.5, hour, notR0), unit: "s", bound: 135},
			{name: "the others corrected, p99", of: quantile(0.99, hour, notR0), unit: "s", bound: 300},
		},
	},
	{
		name: "503 for ten minutes, and rejected calls count", lasts: 3 * hour,
		bad: func(w *world) {
			w.penal = true
			w.fault = func(t time.Duration, _ string) fault {
				if within(t, hour, hour+10*minute) {
					return unavailable
				}
				return noFault
			}
		},
		figures: []figure{
			{name: "rejected in the hour after", of: rejected(hour+10*minute, 2*hour+10*minute)},
			{name: "all corrected after", of: correctedAfter(hour + 10*minute), unit: "s", bound: 300},
		},
	},
	{
		name: "all calls take ten times as long", lasts: 3 * hour, long: true,
		bad: func(w *world) { w.latency = 10 },
		figures: []figure{
			{name: "corrected, p99", of: quantile(0.99, hour, anyName), unit: "s", bound: 400},
			{name: "rejected with 429", of: rejected(hour, 3*hour)},
		},
	},
	{
		name: "listings of the cloud are an hour old", lasts: 4 * hour, long: true,
		bad: func(w *world) { w.age, w.recheck = hour, 10*minute }, // listings this old show no drift in time: rechecks must
		figures: []figure{
			{name: "deleted", of: deleted},
			{name: "corrected, p99", of: quantile(0.99, hour, anyName), unit: "s", bound: 1200},
			{name: "calls an hour", of: func(w *world) float64 { return calls(2*hour, 4*hour)(w) / 2 }, bound: 70000, grows: true, alone: true},
		},
	},
}

// TestDays checks that no figure of reconcile exceeds its bound, and none that is
// compared exceeds that of another service. The table is in docs/production.md.
func TestDays(t *testing.T) {
	n := 10000
	if testing.Short() {
		n = 1000
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer out.Flush()
	fmt.Fprint(out, "day\tfigure")
	for _, s := range services {
		fmt.Fprint(out, "\t", s.name)
	}
	fmt.Fprintln(out)
	for _, d := range days {
		if d.long && testing.Short() {
			continue
		}
		values := make([][]float64, len(d.figures))
		for _, s := range services {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(n)
				if d.bad != nil {
					d.bad(w)
				}
				ctx, cancel := context.WithTimeout(t.Context(), d.lasts)
				defer cancel()
				w.live(ctx, n/50, n/100)
				events := make(chan string)
				if d.events != nil {
					go d.events(ctx, w, events)
				}
				s.run(ctx, w, events)
				<-ctx.Done()
				time.Sleep(2 * minute) // until assets in creation are ready
				for i, f := range d.figures {
					values[i] = append(values[i], f.of(w))
				}
			})
		}
		for i, f := range d.figures {
			bound := f.bound
			if f.grows {
				bound *= float64(n) / 10000
			}
			row := fmt.Sprintf("%s\t%s", d.name, f.name)
			for j, v := range values[i] {
				row += "\t" + show(v, f.unit)
				if j > 0 && !f.alone && values[i][0] > slack(v, f.unit) {
					t.Errorf("%s: %s is %s, and %s with %s", d.name, f.name, show(values[i][0], f.unit), show(v, f.unit), services[j].name)
				}
			}
			if values[i][0] > bound && !(f.many && testing.Short()) {
				t.Errorf("%s: %s is %s, want %s at most", d.name, f.name, show(values[i][0], f.unit), show(bound, f.unit))
			}
			fmt.Fprintln(out, row)
		}
	}
}

func show(v float64, unit string) string {
	if unit == "s" {
		return time.Duration(v * float64(time.Second)).Round(time.Second).String()
	}
	return fmt.Sprintf("%.0f", v)
}

// slack returns the largest value that counts as no worse than v. Days are random in
// part: a time to correct may differ by the two minutes of two listings.
func slack(v float64, unit string) float64 {
	if unit == "s" {
		return max(1.5*v, v+120)
	}
	return max(1.1*v, v+20)
}
