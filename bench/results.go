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
)

// results is the raw output, sorted for the report.
type results struct {
	samples map[place][]sample // by round
	machine machineInfo
}

// A place is what was measured in rounds.
type place struct {
	workload, impl string
	x              int
}

func readResults(in io.Reader) (*results, error) {
	r := &results{samples: make(map[place][]sample)}
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		var line struct {
			sample
			Machine *machineInfo `json:"machine"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if m := line.Machine; m != nil { // more than one, if a measurement was done in parts
			if before := r.machine.Seconds; before > 0 {
				if m.Others >= 0 && r.machine.Others >= 0 {
					m.Others = (m.Others*m.Seconds + r.machine.Others*before) / (m.Seconds + before)
				}
				m.Seconds += before
			}
			r.machine = *m
			continue
		}
		p := place{line.Workload, line.Impl, line.X}
		r.samples[p] = append(r.samples[p], line.sample)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(r.samples) == 0 {
		return nil, errors.New("nothing was measured: want the output of run")
	}
	return r, nil
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
// round, which see the same machine, and the ratio of the best rounds of each.
// Both are NaN if either was not measured. More says that more is better; the
// best round is then the one with the most.
func (r *results) ratio(w string, x int, metric, impl, against string, more bool) (med, best float64) {
	a, b := r.all(place{w, impl, x}, metric), r.all(place{w, against, x}, metric)
	if len(a) == 0 || len(a) != len(b) {
		return math.NaN(), math.NaN()
	}
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	if more {
		return median(ratios), slices.Max(a) / slices.Max(b)
	}
	return median(ratios), slices.Min(a) / slices.Min(b)
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

// rounds returns the least and the greatest number of rounds of any place.
func (r *results) rounds() (fewest, most int) {
	for _, list := range r.samples {
		if fewest == 0 || len(list) < fewest {
			fewest = len(list)
		}
		most = max(most, len(list))
	}
	return fewest, most
}
