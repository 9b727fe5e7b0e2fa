// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Kube runs the same controller, written with this library and with
// controller-runtime, against a real API server: the same load, the same faults.
// Both run at the same time where delays of milliseconds are measured, and
// otherwise one after the other, in turns.
// It prints a table, or writes it into a document.
//
//	bash ../../adapters/kube/testserver/build.sh
//	go run . -write ../../docs/kube.md
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

var sides = []string{"ours", "theirs"}

func main() {
	rounds := flag.Int("rounds", 4, "how often each is run, in turns; the table has the medians")
	small := flag.Bool("short", false, "a load of seconds, to see that it works")
	objects := flag.Int("objects", full.objects, "how many there are when the program starts")
	write := flag.String("write", "", "a document with the two lines that the table stands between")
	flag.Parse()
	l := full
	if l.objects = *objects; *small {
		l = short
	}
	if *rounds < 1 {
		log.Fatalf("compare: -rounds is %d, want at least 1", *rounds)
	}
	if least := max(l.updates, l.faulty, 20); l.objects < least {
		log.Fatalf("compare: -objects is %d, want at least %d", l.objects, least)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	table, err := compare(ctx, l, *rounds)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(table)
	if *write != "" {
		if err := replace(*write, table); err != nil {
			log.Fatal(err)
		}
	}
}

// compare builds both programs, runs them in turns, and returns the table.
func compare(ctx context.Context, l load, rounds int) (string, error) {
	dir, err := os.MkdirTemp("", "compare-bin-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	lines, size := make(map[string]int), make(map[string]int64)
	for _, side := range sides {
		if lines[side], err = linesOf(filepath.Join(side, "main.go")); err != nil {
			return "", err
		}
		if size[side], err = build(ctx, side, dir); err != nil {
			return "", err
		}
	}
	s, err := kubetest.Start(ctx)
	if err != nil {
		return "", err
	}
	defer s.Close()
	var programs []string
	for _, side := range sides {
		programs = append(programs, filepath.Join(dir, side))
	}
	delays, err := beside(ctx, s, programs, l)
	if err != nil {
		return "", err
	}
	late := make(map[string][]delay)
	for i, side := range sides {
		late[side] = delays[i]
	}
	results := make(map[string][]result)
	for round := range rounds {
		for i := range sides {
			side := sides[(i+round)%len(sides)]
			r, err := run(ctx, s, filepath.Join(dir, side), l)
			if err != nil {
				return "", fmt.Errorf("%s: %w", side, err)
			}
			log.Printf("round %d, %s: %d runs; there after %v, again after %v, clean after %v; %s", round+1, side, r.runs,
				r.sync.Round(time.Millisecond), r.recover.Round(time.Millisecond), r.clean.Round(time.Millisecond), r.verbs())
			results[side] = append(results[side], r)
		}
	}

	var b strings.Builder
	fmt.Fprintf(&b, "| | this library | controller-runtime | ratio |\n|---|---|---|---|\n")
	row := func(what, unit string, value func(side string) float64) {
		ours, theirs := value("ours"), value("theirs")
		ratio := "–"
		if theirs != 0 {
			ratio = fmt.Sprintf("%.2f", ours/theirs)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", what, number(ours)+unit, number(theirs)+unit, ratio)
	}
	of := func(value func(result) float64) func(string) float64 {
		return func(side string) float64 {
			var all []float64
			for _, r := range results[side] {
				all = append(all, value(r))
			}
			slices.Sort(all)
			return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
		}
	}
	seconds := func(value func(result) time.Duration) func(string) float64 {
		return of(func(r result) float64 { return value(r).Seconds() })
	}
	row("lines of code", "", func(side string) float64 { return float64(lines[side]) })
	row("binary, stripped", " MB", func(side string) float64 { return float64(size[side]) / 1e6 })
	row(fmt.Sprintf("memory with %d objects known", l.objects), " MiB", of(func(r result) float64 { return r.rss }))
	row("memory at most", " MiB", of(func(r result) float64 { return r.peak }))
	row("processor time", " s", seconds(func(r result) time.Duration { return r.cpu }))
	row(fmt.Sprintf("runs for %d events", l.events()), "", of(func(r result) float64 { return float64(r.runs) }))
	row("requests to the API server", "", of(func(r result) float64 { return float64(r.requests) }))
	since := func(part float64, begin func(delay) time.Duration) func(string) float64 {
		return func(side string) float64 { return quantile(late[side], part, begin) }
	}
	sent := func(d delay) time.Duration { return d.sent }
	answered := func(d delay) time.Duration { return d.answered }
	row("from update to file, p50", " ms", since(0.5, sent))
	row("from update to file, p99", " ms", since(0.99, sent))
	row("from the server's answer to the file, p50", " ms", since(0.5, answered))
	row("from the server's answer to the file, p99", " ms", since(0.99, answered))
	row(fmt.Sprintf("from start until %d files are there", l.objects), " s", seconds(func(r result) time.Duration { return r.sync }))
	row(fmt.Sprintf("until %d updates after a kill -9 are files", l.faulty), " s", seconds(func(r result) time.Duration { return r.recover }))
	row(fmt.Sprintf("until %d deleted objects are cleaned up", l.objects), " s", seconds(func(r result) time.Duration { return r.clean }))
	row("processor time of all, the server too, for that", " s", seconds(func(r result) time.Duration { return r.cleanCPU }))
	return b.String(), nil
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

// build builds a program without its debug information, and returns its size.
func build(ctx context.Context, side, dir string) (int64, error) {
	path := filepath.Join(dir, side)
	out, err := exec.CommandContext(ctx, "go", "build", "-p", "2", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", path, "./"+side).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("build %s: %w\n%s", side, err, out)
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// linesOf counts the lines of a Go file that are neither empty nor a comment.
func linesOf(path string) (int, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n, nil
}

const begin, end = "<!-- compare: begin -->\n", "<!-- compare: end -->\n"

// replace puts the table where a document wants it.
func replace(path, table string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q", path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(path, []byte(before+begin+table+end+after), 0o644)
}
