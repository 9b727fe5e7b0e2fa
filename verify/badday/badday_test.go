// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package badday simulates days with outages, in bubbles. Two services keep two thousand
// assets in the cloud of the example, which allows twenty calls a second: the controller
// of the example, and a loop on client-go's workqueue that compares listings, too.
//
//	go test -count=1 -v ./badday
package badday

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile/example/cloud"
)

const (
	minute = time.Minute
	hour   = time.Hour
	assets = 2000
)

// A figure measures a day. The figure of reconcile must not exceed its bound, nor the
// figure of the other service.
type figure struct {
	name  string
	of    func(w *world) float64
	unit  string  // "" for a count, "s" for a time
	bound float64 // of reconcile
	alone bool    // is not compared with the other service
}

// A day is a normal hour, then a fault, and some time after it.
type day struct {
	name    string
	lasts   time.Duration
	twice   bool // a second process, with other desired versions, from one hour to two
	bad     func(w *world)
	figures []figure
}

func callsAnHour(a, b time.Duration) func(*world) float64 {
	return func(w *world) float64 { return float64(w.callsBetween(a, b)) / (b - a).Hours() }
}

func correctedAfter(at time.Duration) func(*world) float64 {
	return func(w *world) float64 { return w.lastCorrected(at).Seconds() }
}

func quantile(q float64, from time.Duration, chosen func(cloud.ID) bool) func(*world) float64 {
	return func(w *world) float64 { return w.quantile(q, from, chosen).Seconds() }
}

func deleted(w *world) float64 { return float64(w.deleted) }

func anyAsset(cloud.ID) bool { return true }

func ofOtherRegions(id cloud.ID) bool { return !isFirstRegion(id) }

// The answers of a cloud that is down, or does not allow a call.
var (
	unavailable = &cloud.Error{Code: 503, Message: "unavailable"}
	forbidden   = &cloud.Error{Code: 403, Message: "forbidden"}
)

// during is a fault of the chosen calls from a to b.
func during(a, b time.Duration, fault error, chosen func(op string, id cloud.ID) bool) func(w *world) {
	return func(w *world) {
		w.fault = func(t time.Duration, op string, id cloud.ID) error {
			if t >= a && t < b && chosen(op, id) {
				return fault
			}
			return nil
		}
	}
}

func anyCall(string, cloud.ID) bool { return true }

func isListing(op string, _ cloud.ID) bool { return op == "list" }

func ofFirstRegion(_ string, id cloud.ID) bool { return isFirstRegion(id) }

// slowListings makes a listing of the cloud take three minutes after an hour.
func slowListings(w *world) {
	w.latency = func(t time.Duration, op string) float64 {
		if t >= hour && op == "list" {
			return 60 // for each of the ten pages
		}
		return 1
	}
}

// emptyOnce makes the first listing of the desired state after an hour empty.
func emptyOnce(w *world) {
	lied := false
	w.listed = func(t time.Duration, desired specs) specs {
		if t < hour || lied {
			return desired
		}
		lied = true
		return nil
	}
}

// pagesMissing makes each third listing of a side lack a page of ten after an hour. A page
// that is repeated makes no difference.
func pagesMissing(w *world) {
	w.losePages = true
	w.listed = func(t time.Duration, desired specs) specs {
		if t < hour || rand.IntN(3) > 0 {
			return desired
		}
		page := rand.IntN(10)
		for i := page * assets / 10; i < (page+1)*assets/10; i++ {
			delete(desired, idOf(i))
		}
		return desired
	}
}

var days = []day{
	{name: "normal", lasts: 3 * hour, figures: []figure{
		{name: "calls an hour", of: callsAnHour(hour, 3*hour), bound: 1300},
		{name: "corrected, p99", of: quantile(0.99, 0, anyAsset), unit: "s", bound: 240},
	}},
	{
		name: "the cloud answers 503 for an hour", lasts: 3 * hour,
		bad: during(hour, 2*hour, unavailable, anyCall),
		figures: []figure{
			{name: "calls in it", of: callsAnHour(hour, 2*hour), bound: 500},
			{name: "all corrected after", of: correctedAfter(2 * hour), unit: "s", bound: 300},
		},
	},
	{
		name: "a region of four hangs for an hour", lasts: 3 * hour,
		bad:     during(hour, 2*hour, cloud.ErrHangs, ofFirstRegion),
		figures: []figure{{name: "the others corrected, p99", of: quantile(0.99, hour, ofOtherRegions), unit: "s", bound: 300}},
	},
	{
		name: "the desired state is empty once", lasts: 2 * hour,
		bad:     emptyOnce,
		figures: []figure{{name: "deleted", of: deleted}},
	},
	{
		name: "30 % of the calls fail for three hours", lasts: 5 * hour,
		bad: func(w *world) {
			w.fault = func(t time.Duration, _ string, _ cloud.ID) error {
				if t >= hour && t < 4*hour && rand.Float64() < 0.3 {
					return unavailable
				}
				return nil
			}
		},
		figures: []figure{{name: "corrected, p99", of: quantile(0.99, hour, anyAsset), unit: "s", bound: 400}},
	},
	{
		name: "listings of both sides lack a page of ten", lasts: 4 * hour,
		bad: pagesMissing,
		figures: []figure{
			{name: "deleted", of: deleted},
			{name: "corrected, p99", of: quantile(0.99, hour, anyAsset), unit: "s", bound: 400},
		},
	},
	{
		// Drift is found by the Resync alone.
		name: "listings of the cloud are answered with 403 for six hours", lasts: 8 * hour,
		bad: during(hour, 7*hour, forbidden, isListing),
		figures: []figure{
			{name: "deleted", of: deleted},
			{name: "corrected, p50", of: quantile(0.5, hour, anyAsset), unit: "s", bound: 2 * 3600, alone: true},
			{name: "all corrected after", of: correctedAfter(7 * hour), unit: "s", bound: 300},
		},
	},
	{
		name: "a listing of the cloud takes three minutes", lasts: 4 * hour,
		bad:     slowListings,
		figures: []figure{{name: "corrected, p99", of: quantile(0.99, 2*hour, anyAsset), unit: "s", bound: 900}},
	},
	{
		// A Set checks what stays out of sync again with each fourth listing only.
		name: "reads of an asset are five minutes old", lasts: 4 * hour,
		bad: func(w *world) { w.behind = 5 * minute },
		figures: []figure{
			{name: "corrected, p99", of: quantile(0.99, hour, anyAsset), unit: "s", bound: 720, alone: true},
			{name: "calls an hour", of: callsAnHour(hour, 4*hour), bound: 3500},
		},
	},
	{
		// Each corrects what the other one did, as often as its gate allows.
		name: "two versions with other desired states run for an hour", lasts: 4 * hour, twice: true,
		figures: []figure{
			{name: "all corrected after", of: correctedAfter(2 * hour), unit: "s", bound: 480},
			{name: "deleted", of: deleted},
		},
	},
}

// TestDays checks that no figure of reconcile exceeds its bound, and none that is
// compared exceeds that of the other service. The table is in docs/production.md.
func TestDays(t *testing.T) {
	for _, d := range days {
		t.Run(d.name, func(t *testing.T) {
			values, others := d.play(t, ours), d.play(t, theirs)
			for i, f := range d.figures {
				got, other := show(values[i], f.unit), show(others[i], f.unit)
				t.Logf("%s: %s, and %s with a workqueue", f.name, got, other)
				if !f.alone && values[i] > slack(others[i], f.unit) {
					t.Errorf("%s is %s, and %s with a workqueue", f.name, got, other)
				}
				if values[i] > f.bound {
					t.Errorf("%s is %s, want %s at most", f.name, got, show(f.bound, f.unit))
				}
			}
		})
	}
}

// play has a service live through the day, and returns the figures.
func (d *day) play(t *testing.T, service func(ctx context.Context, w *world)) (values []float64) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t.Context(), assets)
		if d.bad != nil {
			d.bad(w)
		}
		ctx, cancel := context.WithTimeout(t.Context(), d.lasts)
		defer cancel()
		w.live(ctx, assets/50, assets/100)
		var second sync.WaitGroup
		if d.twice {
			second.Go(func() {
				time.Sleep(hour)
				ctx, cancel := context.WithTimeout(ctx, hour)
				defer cancel()
				service(otherVersion(ctx), w)
			})
		}
		service(ctx, w)
		<-ctx.Done()
		second.Wait()
		for _, f := range d.figures {
			values = append(values, f.of(w))
		}
	})
	return values
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
