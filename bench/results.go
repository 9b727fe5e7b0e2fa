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

// results are all samples of a run, sorted for the report.
type results struct {
	samples map[place][]sample // by round
	machine machineInfo
}

// A machineLine is a line of the raw output, as a sample is.
type machineLine struct {
	Machine *machineInfo `json:"machine"`
}

// A place is what was measured in rounds.
type place struct {
	workload, impl string
}

func readResults(in io.Reader) (*results, error) {
	r := &results{samples: make(map[place][]sample)}
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
	default:
		p := place{l.Workload, l.Impl}
		r.samples[p] = append(r.samples[p], l.sample)
	}
	return nil
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
func (r *results) ratio(w, metric, impl, against string) float64 {
	a, b := r.all(place{w, impl}, metric), r.all(place{w, against}, metric)
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

// implsOf returns the implementations that were measured with a workload, in
// the order of workloads.
func (r *results) implsOf(w string) []string {
	var list []string
	for _, def := range workloads {
		if def.name != w {
			continue
		}
		for _, im := range def.impls {
			if len(r.samples[place{w, im.name}]) > 0 {
				list = append(list, im.name)
			}
		}
	}
	return list
}

// places returns all places, sorted.
func (r *results) places() []place {
	return slices.SortedFunc(maps.Keys(r.samples), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.workload, b.workload), cmp.Compare(a.impl, b.impl))
	})
}

// rounds returns the least and the greatest number of rounds of any place that
// is measured more than once.
func (r *results) rounds() (fewest, most int) {
	for _, list := range r.samples {
		if len(list) > 1 && (fewest == 0 || len(list) < fewest) {
			fewest = len(list)
		}
		most = max(most, len(list))
	}
	return fewest, most
}
