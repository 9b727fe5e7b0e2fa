// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
)

// results is a measurement, sorted for the report: all samples of a run, or the
// medians that are kept of one.
type results struct {
	samples map[place][]sample // by round
	ratios  map[comparison]float64
	allocs  map[string]int // of the operations that check counts; nil if it was not asked
	machine machineInfo
}

// A comparison is a ratio within the rounds, which medians alone do not tell.
type comparison struct {
	Workload string `json:"workload"`
	X        int    `json:"x,omitempty"`
	Metric   string `json:"metric"`
	Impl     string `json:"impl"`
	Against  string `json:"against"`
}

// A ratioLine and a machineLine are lines of the raw output, or of what is kept
// of it, as a sample is.
type (
	ratioLine struct {
		Ratio  *comparison `json:"ratio"`
		Median float64     `json:"median"`
	}
	machineLine struct {
		Machine *machineInfo `json:"machine"`
	}
)

// A place is what was measured in rounds.
type place struct {
	workload, impl string
	x              int
}

func readResults(in io.Reader) (*results, error) {
	r := &results{samples: make(map[place][]sample), ratios: make(map[comparison]float64)}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		if err := r.read(lines.Bytes()); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(r.samples) == 0 {
		return nil, errors.New("nothing was measured: want the output of run")
	}
	return r, nil
}

func (r *results) read(data []byte) error {
	var l struct {
		sample
		ratioLine
		machineLine
	}
	if err := json.Unmarshal(data, &l); err != nil {
		return err
	}
	switch m := l.Machine; {
	case m != nil: // more than one, if a measurement was done in parts
		if before := r.machine.Seconds; before > 0 {
			if m.Others >= 0 && r.machine.Others >= 0 {
				m.Others = (m.Others*m.Seconds + r.machine.Others*before) / (m.Seconds + before)
			}
			m.Seconds += before
		}
		r.machine = *m
	case l.Ratio != nil:
		r.ratios[*l.Ratio] = l.Median
	default:
		p := place{l.Workload, l.Impl, l.X}
		r.samples[p] = append(r.samples[p], l.sample)
	}
	return nil
}

// keep returns what the page and the pictures need of a run: the medians, the
// ratios, and the machine.
func (r *results) keep() []any {
	var lines []any
	for _, p := range r.places() {
		if why := r.wrong(p); why != "" {
			lines = append(lines, sample{Workload: p.workload, Impl: p.impl, X: p.x, Wrong: why})
			continue
		}
		s := sample{Workload: p.workload, Impl: p.impl, X: p.x, Values: make(map[string]float64)}
		for metric := range r.samples[p][0].Values {
			if strings.Contains(metric, ".") && metric != "p99.9" { // a part of another one
				continue
			}
			s.Values[metric] = rounded(r.median(p, metric))
		}
		lines = append(lines, s)
	}
	compare := func(w string, x int, metric, against string) {
		c := comparison{w, x, metric, nameOurs, against}
		if v := r.ratio(w, x, metric, nameOurs, against); !math.IsNaN(v) && !math.IsInf(v, 0) {
			lines = append(lines, ratioLine{&c, rounded(v)})
		}
	}
	for _, w := range rows {
		if !w.absolute && !w.parts {
			compare(w.workload, w.x, w.metric, w.peer())
		}
	}
	for _, w := range bars {
		compare(w.workload, 0, w.metric, w.against)
	}
	machine := r.machine
	machine.Fewest, machine.Most = r.rounds()
	return append(lines, machineLine{&machine})
}

// rounded leaves four digits.
func rounded(v float64) float64 {
	if v == 0 {
		return 0
	}
	unit := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*unit) / unit
}

// wrong returns what a sample at p had to object to, or "".
func (r *results) wrong(p place) string {
	for _, s := range r.samples[p] {
		if s.Wrong != "" {
			return s.Wrong
		}
	}
	return ""
}

// all returns the values of all rounds. There are none if one was wrong.
func (r *results) all(p place, metric string) []float64 {
	if r.wrong(p) != "" {
		return nil
	}
	var list []float64
	for _, s := range r.samples[p] {
		if v, ok := s.Values[metric]; ok {
			list = append(list, v)
		}
	}
	return list
}

// median returns the median over the rounds, or NaN.
func (r *results) median(p place, metric string) float64 { return median(r.all(p, metric)) }

// ratio compares two implementations: the median of the ratios within each
// round, which see the same machine. It is NaN if either was not measured.
func (r *results) ratio(w string, x int, metric, impl, against string) float64 {
	if v, ok := r.ratios[comparison{w, x, metric, impl, against}]; ok {
		return v
	}
	a, b := r.all(place{w, impl, x}, metric), r.all(place{w, against, x}, metric)
	if len(a) == 0 || len(a) != len(b) {
		return math.NaN()
	}
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return median(ratios)
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	list = slices.Sorted(slices.Values(list))
	n := len(list)
	return (list[(n-1)/2] + list[n/2]) / 2
}

// xs returns the places of a workload's curve for one implementation.
func (r *results) xs(w, impl string) []int {
	var list []int
	for p := range r.samples {
		if p.workload == w && p.impl == impl {
			list = append(list, p.x)
		}
	}
	slices.Sort(list)
	return list
}

// implsOf returns the implementations that were measured with a workload, in
// the order of workloads.
func (r *results) implsOf(w string) []string {
	var list []string
	for _, def := range workloads {
		if def.name != w {
			continue
		}
		for _, im := range def.impls {
			if len(r.xs(w, im.name)) > 0 {
				list = append(list, im.name)
			}
		}
	}
	return list
}

// places returns all places, sorted.
func (r *results) places() []place {
	return slices.SortedFunc(maps.Keys(r.samples), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.workload, b.workload), cmp.Compare(a.impl, b.impl), cmp.Compare(a.x, b.x))
	})
}

// rounds returns the least and the greatest number of rounds of any place that
// is measured more than once.
func (r *results) rounds() (fewest, most int) {
	if r.machine.Most > 0 {
		return r.machine.Fewest, r.machine.Most
	}
	for _, list := range r.samples {
		if len(list) > 1 && (fewest == 0 || len(list) < fewest) {
			fewest = len(list)
		}
		most = max(most, len(list))
	}
	return fewest, most
}
