// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"text/template"
	"time"
)

// What was measured last, and what is made of it.
const (
	figuresFile = "figures.json"
	docFile     = "../../docs/kube.md"
)

// sectionText is what stands between the two lines of docFile, with holes.
//
//go:embed section.md.tmpl
var sectionText string

// A row is a metric in a table of the section. Its label is a template of the load.
type row struct{ table, metric, label, unit string }

var rows = []row{
	{"files", "lines", "lines of code", ""},
	{"files", "binary", "binary, stripped", " MB"},
	{"files", "memory", "memory with {{.Objects}} objects known", " MiB"},
	{"files", "peak", "memory at most", " MiB"},
	{"files", "processor", "processor time", " s"},
	{"files", "allocations", "allocations", " M"},
	{"files", "runs", "runs for {{.Events}} events", ""},
	{"files", "requests", "requests to the API server", ""},
	{"files", "p50", "from update to file, p50", " ms"},
	{"files", "p99", "from update to file, p99", " ms"},
	{"files", "start", "from start until all files are there", " s"},
	{"files", "recovery", "until {{.Faulty}} updates after a kill -9 are files", " s"},
	{"files", "clean-up", "until all deleted objects are cleaned up", " s"},
	{"many", "many, memory", "memory with {{.Many}} objects known", " MiB"},
	{"many", "many, peak", "memory at most", " MiB"},
	{"many", "many, processor", "processor time", " s"},
	{"many", "many, allocations", "allocations", " M"},
	{"many", "many, start", "from start until all files are there", " s"},
	{"many", "many, clean-up", "until all deleted objects are cleaned up", " s"},
	{"standby", "gone", "runs of objects that are gone", ""},
	{"standby", "first run", "from the Lease to another run", " ms"},
	{"stale", "too many", "children too many", ""},
	{"stale", "stale runs", "runs", ""},
}

// compared reports whether it is about the two programs, and so has a ratio.
func (r row) compared() bool { return r.table == "files" || r.table == "many" }

// samples are the values of each metric, of each program, by round.
type samples map[string]map[string][]float64

func (s samples) add(program string, v values) {
	for metric, value := range v {
		if s[metric] == nil {
			s[metric] = make(map[string][]float64)
		}
		s[metric][program] = append(s[metric][program], value)
	}
}

// A spread says what the values of the rounds were.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(list []float64) spread {
	list = slices.Sorted(slices.Values(list))
	n := len(list)
	return spread{(list[(n-1)/2] + list[n/2]) / 2, list[0], list[n-1]}
}

// steady reports whether the same side was ahead in every round, or neither by
// more than a hundredth, of a spread of ratios.
func (s spread) steady() bool {
	return s.Max < 1 || s.Min > 1 || s.Min >= 0.99 && s.Max <= 1.01
}

// figures are what is kept of a measurement. Values are by metric and program;
// "ratio" is the quotient of ours and theirs within each round.
type figures struct {
	Rounds   int                          `json:"rounds"`
	Load     load                         `json:"load"`
	Procs    int                          `json:"procs"`
	Go       string                       `json:"go"`
	Versions map[string]string            `json:"versions"`
	Values   map[string]map[string]spread `json:"values"`
}

func (s samples) figures(rounds int, l load) figures {
	f := figures{rounds, l, runtime.GOMAXPROCS(0), runtime.Version(), make(map[string]string), make(map[string]map[string]spread)}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "k8s.io/client-go" || dep.Path == "sigs.k8s.io/controller-runtime" {
				f.Versions[dep.Path] = dep.Version
			}
		}
	}
	for _, r := range rows {
		of := make(map[string]spread)
		for program, list := range s[r.metric] {
			of[program] = spreadOf(list)
		}
		if r.compared() {
			ratios := slices.Clone(s[r.metric]["ours"])
			for i, theirs := range s[r.metric]["theirs"] {
				ratios[i] /= theirs
			}
			of["ratio"] = spreadOf(ratios)
		}
		f.Values[r.metric] = of
	}
	return f
}

func readFigures() (figures, error) {
	var f figures
	data, err := os.ReadFile(figuresFile)
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		return f, fmt.Errorf("%s: %w", figuresFile, err)
	}
	return f, nil
}

func (f figures) write() error {
	data, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(figuresFile, append(data, '\n'), 0o644)
}

// section returns what the document says of the figures.
func (f figures) section() (string, error) {
	label := func(r row) (string, error) { return execute(r.label, f.Load) }
	// table has a line for each of its metrics, unless it is not steady.
	table := func(name string, programs ...string) (string, error) {
		var b strings.Builder
		for _, r := range rows {
			if r.table != name || r.compared() && !f.Values[r.metric]["ratio"].steady() {
				continue
			}
			text, err := label(r)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "| %s |", text)
			for _, program := range programs {
				v := f.Values[r.metric][program]
				switch {
				case program == "ratio" && v.Max-v.Min < 0.01:
					fmt.Fprintf(&b, " %.2f |", v.Median)
				case program == "ratio":
					fmt.Fprintf(&b, " %.2f (%.2f–%.2f) |", v.Median, v.Min, v.Max)
				case r.compared() || v.Min == v.Max:
					fmt.Fprintf(&b, " %s%s |", number(v.Median), r.unit)
				default:
					fmt.Fprintf(&b, " %s%s (%s–%s) |", number(v.Median), r.unit, number(v.Min), number(v.Max))
				}
			}
			b.WriteByte('\n')
		}
		return strings.TrimSuffix(b.String(), "\n"), nil
	}
	// unsteady are the rows that are in no table.
	unsteady := func(name string) (string, error) {
		var labels []string
		for _, r := range rows {
			if r.table == name && !f.Values[r.metric]["ratio"].steady() {
				text, err := label(r)
				if err != nil {
					return "", err
				}
				labels = append(labels, text)
			}
		}
		return strings.Join(labels, "; "), nil
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
	version := func(module string) string { return strings.TrimPrefix(f.Versions[module], "v") }
	return execute(sectionText, f, template.FuncMap{"table": table, "unsteady": unsteady, "version": version, "ms": ms})
}

func execute(text string, data any, funcs ...template.FuncMap) (string, error) {
	t := template.New("")
	for _, f := range funcs {
		t.Funcs(f)
	}
	if _, err := t.Parse(text); err != nil {
		return "", err
	}
	var b bytes.Buffer
	err := t.Execute(&b, data)
	return b.String(), err
}

func number(v float64) string {
	switch {
	case v == float64(int(v)):
		return fmt.Sprint(int(v))
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v < 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.1f", v)
	}
}

const begin, end = "<!-- compare: begin -->\n", "<!-- compare: end -->\n"

// replace puts the section where a document wants it.
func replace(path, section string) error {
	before, _, after, err := parts(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(before+begin+section+end+after), 0o644)
}

// parts returns what a document has before, between and after the two lines.
func parts(path string) (before, section, after string, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", "", "", err
	}
	before, rest, ok := strings.Cut(string(data), begin)
	section, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		err = fmt.Errorf("%s has no lines %q and %q", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before, section, after, err
}
