// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"math"
	"strings"
	"testing"
)

const raw = `{"workload":"cycle","impl":"reconcile","round":0,"values":{"wall":50,"cpu":40,"allocs":0.0001}}
{"workload":"cycle","impl":"client-go","round":0,"values":{"wall":100,"cpu":100,"allocs":1}}
{"workload":"cycle","impl":"reconcile","round":1,"values":{"wall":900,"cpu":50,"allocs":0}}
{"workload":"cycle","impl":"client-go","round":1,"values":{"wall":2000,"cpu":110,"allocs":1}}
{"workload":"cycle","impl":"reconcile","round":2,"values":{"wall":60,"cpu":60,"allocs":0}}
{"workload":"cycle","impl":"client-go","round":2,"values":{"wall":90,"cpu":80,"allocs":1}}
{"workload":"cycle","impl":"channel","round":0,"wrong":"took b, want a"}
{"workload":"requeue","impl":"reconcile","round":0,"values":{"rate":3e6}}
{"workload":"requeue","impl":"client-go","round":0,"values":{"rate":1e6}}
{"workload":"burst","impl":"reconcile","round":0,"values":{"wall":10,"held":79.9,"kept":2e6}}
{"workload":"parts","impl":"three locks and a map","round":0,"values":{"wall":30}}
{"workload":"parts","impl":"time.Since","round":0,"values":{"wall":10}}
{"machine":{"procs":2,"go":"go1.26"}}
`

func read(t *testing.T, raw string) *results {
	t.Helper()
	r, err := readResults(strings.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRatio(t *testing.T) {
	r := read(t, raw)
	for _, c := range []struct {
		w, metric, impl, against string
		want                     float64
	}{
		{"cycle", "wall", nameOurs, nameClient, 0.5}, // of 0.5, 0.45 and 0.67
		{"requeue", "rate", nameOurs, nameClient, 3},
		{"cycle", "wall", nameOurs, nameCtrl, math.NaN()},
		{"cycle", "wall", nameChannel, nameClient, math.NaN()}, // wrong
	} {
		if got := r.ratio(c.w, c.metric, c.impl, c.against); !same(got, c.want) {
			t.Errorf("ratio of %s %s, %s to %s: %v, want %v", c.w, c.metric, c.impl, c.against, got, c.want)
		}
	}
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

func TestTargetTable(t *testing.T) {
	r := read(t, raw)
	got := r.targetTable()
	for _, want := range []string{
		"| cycle, which in client-go keeps no times | 50.0 ns | 100 ns | 0.45 | ≤ 0.95 | met |\n",
		"| cycle, wall: three locks, a map, two clock readings | 60.0 ns | its parts: 50.0 ns | 1.20 | ≤ 1.15 | **not met** |\n",
		"| 10k items again after 1 ms: cycles a second | 3.00 M | 1.00 M | 3.00 | ≥ 3.00 | met |\n",
		"| … bytes an item | 79.9 B | – | – | ≤ 80.0 B | met |\n",
		"| … kept once drained | 2.00 MB | – | – | ≤ 1.00 MB | **not met** |\n",
		"| storm on hot items | – | – | – | ≤ 1.05 | not measured |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks\n%s\nit is\n%s", want, got)
		}
	}
}

func TestReadResults(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                    "nothing was measured",
		"{\"machine\":{}}\n":                  "nothing was measured",
		"{\"workload\":\"a\"}\nno\n":          "line 2: ",
		"{\"workload\":\"a\",\"values\":1}\n": "line 1: ",
	} {
		if _, err := readResults(strings.NewReader(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("readResults(%q): %v, want %q", raw, err, want)
		}
	}
}

// A measurement done in parts is one that took as long as both.
func TestReadParts(t *testing.T) {
	r := read(t, raw+`{"machine":{"seconds":30,"others":0.5}}
{"machine":{"seconds":10,"others":0.1}}
`)
	if m := r.machine; m.Seconds != 40 || m.Others != 0.4 {
		t.Errorf("%v seconds, others %v, want 40, 0.4", m.Seconds, m.Others)
	}
}

// A measurement becomes the tables of the page.
func TestReport(t *testing.T) {
	var out bytes.Buffer
	if err := measureAll(&out, tiny, 1, func(name string) bool { return name != "wake busy" }, func(impl) bool { return true }); err != nil {
		t.Fatal(err)
	}
	text := read(t, out.String()).text()
	for _, row := range rows {
		if row.hasTarget() && !strings.Contains(text, "| "+row.label+" |") {
			t.Errorf("the report has no row %q", row.label)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "%!", "**wrong**"} {
		if strings.Contains(text, bad) {
			t.Errorf("the report has %q:\n%s", bad, text)
		}
	}
}

func TestCompare(t *testing.T) {
	for name, c := range map[string]struct {
		kept, now map[string]int
		worse     bool
		say       string
	}{
		"same": {map[string]int{"a": 1}, map[string]int{"a": 1}, false, ""},
		"less": {map[string]int{"a": 2}, map[string]int{"a": 1}, false, "less than the 2 kept"},
		"more": {map[string]int{"a": 0}, map[string]int{"a": 1}, true, "MORE than the 0 kept"},
		"new":  {nil, map[string]int{"a": 0}, true, "not kept yet"},
	} {
		var out strings.Builder
		if worse := compareExact(&out, "allocations", c.kept, c.now); worse != c.worse || !strings.Contains(out.String(), c.say) {
			t.Errorf("%s: worse %t, said %q, want %t, %q", name, worse, out.String(), c.worse, c.say)
		}
	}
	var out strings.Builder
	compareRatios(&out, map[string]float64{"fine": 0.5, "worse": 0.5}, map[string]float64{"fine": 0.57, "worse": 0.58, "new": 1})
	for _, want := range []string{"0.58  WORSE than the 0.50 kept", "1.00  not kept yet", "1 of 3 no worse than kept"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("compareRatios said\n%swant %q", out.String(), want)
		}
	}
}

func TestCommand(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "want run, report or check"},
		{"walk", `"walk" is no command: want run, report or check`},
		{"run -only (", "error parsing regexp"},
		{"report", "nothing was measured"},
	} {
		err := command(strings.Fields(c.args), strings.NewReader(""), io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("bench %s: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestDigits(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 0.126: "0.13", 12.34: "12.3", 99.96: "100.0", 123.4: "123", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := digits(v); got != want {
			t.Errorf("digits(%v) = %q, want %q", v, got, want)
		}
	}
}
