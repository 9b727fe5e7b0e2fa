// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package promadapter_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// A dashboard is what matters here of dashboard.json.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type string }
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  *source
	GridPos     struct{ X, Y, W, H int }
	Targets     []target
}

type target struct {
	Expr, RefID string
	Datasource  *source
}

type source struct{ Type, UID string }

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d dashboard) targets() (all []target) {
	for _, p := range d.Panels {
		all = append(all, p.Targets...)
	}
	return all
}

// selector matches the name of a series, with its labels if it has any.
var selector = regexp.MustCompile(`\b(reconcile|workqueue|controller_runtime)_\w+({[^}]*})?`)

var variable = regexp.MustCompile(`\$\{?(\w+)`)

// TestDashboard checks what Grafana would not complain of, but show badly:
// panels that overlap or have no query, variables that are nowhere, and series
// that no panel shows.
// TestPrometheus asks its queries.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.Title == "" || d.UID == "" || d.SchemaVersion == 0 {
		t.Errorf("title %q, uid %q, schema version %d: want all", d.Title, d.UID, d.SchemaVersion)
	}
	known := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		known[v.Name] = true
	}
	ids := make(map[int]string)
	cells := make(map[[2]int]string)
	shown := make(map[string]bool)
	for _, p := range d.Panels {
		if p.Title == "" || ids[p.ID] != "" {
			t.Errorf("panel %d is %q, want a title, and an id other than that of %q", p.ID, p.Title, ids[p.ID])
		}
		ids[p.ID] = p.Title
		g := p.GridPos
		if g.X < 0 || g.W < 1 || g.H < 1 || g.X+g.W > 24 {
			t.Errorf("panel %q is at %+v, want it within 24 columns", p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if cells[[2]int{x, y}] != "" {
					t.Fatalf("panel %q lies over %q", p.Title, cells[[2]int{x, y}])
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %q, a %s, has %d queries", p.Title, p.Type, len(p.Targets))
		}
		refs := make(map[string]bool)
		for _, q := range p.Targets {
			if q.Expr == "" || q.RefID == "" || refs[q.RefID] {
				t.Errorf("panel %q has a query %q with the id %q", p.Title, q.Expr, q.RefID)
			}
			refs[q.RefID] = true
			if q.Datasource == nil || q.Datasource.Type != "prometheus" || q.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q: the data source of %q is %+v, want the variable", p.Title, q.RefID, q.Datasource)
			}
			for _, m := range variable.FindAllStringSubmatch(q.Expr, -1) {
				if !known[m[1]] {
					t.Errorf("panel %q: no variable is called $%s", p.Title, m[1])
				}
			}
			for _, sum := range selector.FindAllString(q.Expr, -1) {
				filter := `controller=~"$controller"`
				if strings.HasPrefix(sum, "reconcile_gate_") {
					filter = `name=~"$gate"`
				}
				if strings.HasPrefix(sum, "reconcile_listing_") {
					filter = `name=~"$listing"`
				}
				if !strings.Contains(sum, `job=~"$job", `+filter) {
					t.Errorf("panel %q: %s does not heed $job and %s", p.Title, sum, filter)
				}
				shown[strings.SplitN(sum, "{", 2)[0]] = true
			}
		}
	}
	for _, name := range []string{
		"reconcile_queue_rechecks", "reconcile_queue_again",
		"reconcile_gate_limit", "reconcile_gate_in_flight", "reconcile_gate_waiting", "reconcile_gate_halved_total",
	} {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}
