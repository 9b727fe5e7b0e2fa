// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// pageText is docs/performance.md with holes for the tables.
//
//go:embed performance.md.tmpl
var pageText string

// notesText says, for each target that is not met, why.
//
//go:embed notes.md
var notesText string

// charts are the curves that are drawn, each from one workload.
var charts = []struct {
	file, workload, metric, title, x, y string
	scale                               float64
}{
	{"perf-held", "held", "cpu", "One cycle, by the number of items in the queue", "items held", "processor ns", 1},
	{"perf-held-bytes", "held", "held", "Memory of an item in the queue (the item itself not counted)", "items held", "bytes an item", 1},
	{"perf-delayed", "delayed", "cpu", "One more delayed item, by the number of those that wait", "items that wait", "processor ns", 1},
	{"perf-delayed-bytes", "delayed", "held", "Memory of a delayed item (the item itself not counted)", "items that wait", "bytes an item", 1},
	{"perf-workers", "workers", "cpu", "100k items from 4 producers, by the number of workers", "workers", "processor ns an item", 1},
	{"perf-producers", "producers", "cpu", "100k items to 4 workers, by the number of producers", "producers", "processor ns an item", 1},
	{"perf-in-flight", "in flight", "cpu", "One cycle, by the number of items in flight (all enqueued again)", "items in flight", "processor ns", 1},
	{"perf-hot", "hot", "cpu", "Storm of 8 producers, 4 workers, by the number of hot items", "hot items", "processor ns an Enqueue", 1},
}

// write makes docs/performance.md and its pictures below root.
func (r *results) write(root string) error {
	img := filepath.Join(root, "docs", "img")
	if err := os.MkdirAll(img, 0o755); err != nil {
		return err
	}
	if err := r.glance(filepath.Join(img, "perf-overview.svg")); err != nil {
		return err
	}
	for _, c := range charts {
		if err := r.curve(filepath.Join(img, c.file+".svg"), c.workload, c.metric, c.title, c.x, c.y, c.scale); err != nil {
			return err
		}
	}
	page, err := r.page()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, "docs", "performance.md"), []byte(page), 0o644)
}

func (r *results) page() (string, error) {
	t, err := template.New("performance.md").Funcs(template.FuncMap{
		"percent": func(v float64) string { return digits(v*100) + " %" },
		"minutes": func(v float64) string { return digits(v / 60) },
	}).Parse(pageText)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fewest, most := r.rounds()
	err = t.Execute(&b, struct {
		Machine                                     machineInfo
		Targets, Times, Allocs, Parts, Wrong, Notes string
		Fewest, Most                                int
		Missed                                      []string
	}{
		r.machine, r.targetTable(), r.costTable(tableImpls, r.timeCell), r.costTable(allocImpls, r.allocsCell), r.partsTable(), r.wrongList(),
		strings.TrimSpace(notesText), fewest, most, r.missed(),
	})
	return b.String(), err
}
