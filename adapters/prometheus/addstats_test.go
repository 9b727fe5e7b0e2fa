// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	promadapter "github.com/reconkernel/reconcile/adapters/prometheus"
)

// figures are stats of something that is no queue of the kernel.
type figures struct {
	Outbox     int
	Full       bool
	Idle       bool
	LeasesLost uint64
	Name       string
	Age        time.Duration
	secret     int
}

// Each figure of a struct is a metric, as it is at the scrape.
func TestAddStats(t *testing.T) {
	var c promadapter.Collector
	var now figures
	if err := promadapter.AddStats(&c, "nats_queue", "vms", func() figures { return now }); err != nil {
		t.Fatal(err)
	}
	if err := promadapter.AddStats(&c, "nats_queue", "disks", func() figures { return figures{} }); err != nil {
		t.Fatal(err)
	}
	now = figures{Outbox: 3, Full: true, LeasesLost: 2, Name: "x", Age: time.Hour, secret: 4}
	want := map[string]float64{}
	for name, v := range map[string]float64{"outbox": 3, "full": 1, "idle": 0, "leases_lost_total": 2} {
		want["reconcile_nats_queue_"+name+`{name="vms"}`] = v
		want["reconcile_nats_queue_"+name+`{name="disks"}`] = 0
	}
	if got := values(t, &c); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !c.Remove("vms") || !c.Remove("disks") || len(values(t, &c)) != 0 {
		t.Errorf("after Remove: %v", values(t, &c))
	}

	type total struct{ LeasesLostTotal int }
	if err := promadapter.AddStats(&c, "nats_queue", "y", func() total { return total{} }); err == nil {
		t.Error("a metric is something else after Remove")
	}

	// Another type with the same figure is the same metric, of another name.
	type others struct{ Outbox, Timers int }
	if err := promadapter.AddStats(&c, "nats_queue", "files", func() others { return others{1, 2} }); err != nil {
		t.Fatal(err)
	}
	if err := promadapter.AddStats(&c, "nats_queue", "vms", func() figures { return now }); err != nil {
		t.Fatal(err)
	}
	if got := values(t, &c); got[`reconcile_nats_queue_outbox{name="files"}`] != 1 || got[`reconcile_nats_queue_outbox{name="vms"}`] != 3 {
		t.Errorf("two types: %v", got)
	}
	type clash struct{ FooBar, Foo_Bar int }

	stats := func() figures { return figures{} }
	if err := promadapter.AddStats(&c, "q", "x", stats); err != nil {
		t.Fatal(err)
	}
	for want, err := range map[string]error{
		"needs a Collector":         promadapter.AddStats(nil, "q", "y", stats),
		`stats "y" is nil`:          promadapter.AddStats[figures](&c, "q", "y", nil),
		`the prefix is "q-q"`:       promadapter.AddStats(&c, "q-q", "y", stats),
		"Foo_Bar would be":          promadapter.AddStats(&c, "q", "y", func() clash { return clash{} }),
		"LeasesLostTotal would be":  promadapter.AddStats(&c, "nats_queue", "y", func() total { return total{} }),
		`the prefix is "oldest"`:    promadapter.AddStats(&c, "oldest", "y", stats),
		`the prefix is "queue_in"`:  promadapter.AddStats(&c, "queue_in", "y", stats),
		`the prefix is "failures"`:  promadapter.AddStats(&c, "failures", "y", stats),
		`the prefix is "queue"`:     promadapter.AddStats(&c, "queue", "y", stats),
		"the name is empty":         promadapter.AddStats(&c, "q", "", stats),
		`stats "x" with the prefix`: promadapter.AddStats(&c, "q", "x", stats),
		"are int, want a struct":    promadapter.AddStats(&c, "q", "y", func() int { return 1 }),
		"are struct {}, want":       promadapter.AddStats(&c, "q", "y", func() struct{} { return struct{}{} }),
	} {
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "promadapter: ") {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
