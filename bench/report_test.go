// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
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
		if got := r.ratio(c.w, 0, c.metric, c.impl, c.against); !same(got, c.want) {
			t.Errorf("ratio of %s %s, %s to %s: %v, want %v", c.w, c.metric, c.impl, c.against, got, c.want)
		}
	}
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

func TestTargetTable(t *testing.T) {
	r := read(t, raw)
	r.allocs = map[string]int{"State": 0, "Stats": 1}
	got := r.targetTable()
	for _, want := range []string{
		"| cycle, which in client-go keeps no times | 50.0 ns | 100 ns | 0.45 | ≤ 0.95 | met |\n",
		"| cycle, wall: three locks, a map, two clock readings | 60.0 ns | its parts: 50.0 ns | 1.20 | ≤ 1.15 | **not met** |\n",
		"| 10k items again after 1 ms: cycles a second | 3.00 M | 1.00 M | 3.00 | ≥ 3.00 | met |\n",
		"| … bytes an item | 79.9 B | – | – | ≤ 80.0 B | met |\n",
		"| … kept once drained | 2.00 MB | – | – | ≤ 1.00 MB | **not met** |\n",
		"| storm on hot items | – | – | – | ≤ 1.05 | not measured |\n",
		"| allocations, each of 2 operations | 1 | – | – | 0 | **not met** |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the table lacks\n%s\nit is\n%s", want, got)
		}
	}
	if want := []string{"cycle, wall: three locks, a map, two clock readings", "fill 1M and drain, kept once drained"}; !slices.Equal(r.missed(), want) {
		t.Errorf("missed %q, want %q", r.missed(), want)
	}
}

// What is kept of a run says the same as the run.
func TestKeep(t *testing.T) {
	r := read(t, raw)
	var kept bytes.Buffer
	enc := json.NewEncoder(&kept)
	for _, l := range r.keep() {
		if err := enc.Encode(l); err != nil {
			t.Fatal(err)
		}
	}
	again := read(t, kept.String())
	if got, want := again.targetTable(), r.targetTable(); got != want {
		t.Errorf("what is kept says\n%s\nwant\n%s", got, want)
	}
	if again.wrongList() != r.wrongList() || again.wrongList() == "" {
		t.Errorf("what is kept calls wrong %q, want %q", again.wrongList(), r.wrongList())
	}
	if fewest, most := again.rounds(); fewest != 3 || most != 3 {
		t.Errorf("what is kept is of %d to %d rounds, want 3 to 3", fewest, most)
	}
}

// The page is that of the figures that are kept.
func TestPageIsOfTheFigures(t *testing.T) {
	kept, err := readFigures()
	if err != nil {
		t.Fatal(err)
	}
	r, err := kept.results()
	if err != nil {
		t.Fatal(err)
	}
	want, err := r.page()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/performance.md is not what figures.json says; run: bash bench/run.sh -page")
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

// A measurement becomes a page and its charts.
func TestWrite(t *testing.T) {
	var out bytes.Buffer
	if err := measureAll(&out, tiny, 1, func(name string) bool { return name != "wake busy" }, func(impl) bool { return true }); err != nil {
		t.Fatal(err)
	}
	r := read(t, out.String())
	root := t.TempDir()
	if err := r.write(root); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "performance.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.hasTarget() && !bytes.Contains(page, []byte("| "+row.label+" |")) {
			t.Errorf("the page has no row %q", row.label)
		}
	}
	for _, bad := range []string{"NaN", "+Inf", "<no value>", "%!", "| **wrong**"} {
		if bytes.Contains(page, []byte(bad)) {
			t.Errorf("the page has %q:\n%s", bad, page)
		}
	}
	images, err := filepath.Glob(filepath.Join(root, "docs", "img", "*.svg"))
	if err != nil || len(images) != len(charts)+1 {
		t.Errorf("%d charts, %v, want %d", len(images), err, len(charts)+1)
	}
	for _, file := range images {
		name := filepath.Base(file)
		if !bytes.Contains(page, []byte("(img/"+name+")")) {
			t.Errorf("the page does not show %s", name)
		}
		svg, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if !bytes.Contains(svg, []byte("fill:#FFFFFF")) && !bytes.Contains(svg, []byte("prefers-color-scheme: dark")) {
			t.Errorf("%s has no white ground", name)
		}
		if bytes.Contains(svg, []byte("NaN")) {
			t.Errorf("%s has something that is not a number", name)
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
		{"", "want run, report, page or check"},
		{"walk", `"walk" is no command: want run, report, page or check`},
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
	for n, want := range map[int]string{8: "8", 1000: "1k", 1024: "1024", 65536: "65536", 10_000: "10k", 1_000_000: "1M"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestTimes(t *testing.T) {
	for ratio, want := range map[float64]string{0: "> 1,000× less", 0.02: "50× less", 0.3413: "2.9× less", 1: "1.0× less", 1.24: "1.2× more"} {
		if got, _ := times(ratio); got != want {
			t.Errorf("times(%v) = %q, want %q", ratio, got, want)
		}
	}
	if len(bars) > 8 {
		t.Errorf("the picture has %d rows, want 8 at most", len(bars))
	}
}
