// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Kube runs the same controller, written with this library and with
// controller-runtime, against a real API server: the same load, the same faults, in
// turns within each round. It prints the rows of the table in adapters/kube/README.md.
//
//	bash ../../adapters/kube/testserver/build.sh
//	go run .
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

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

var sides = []string{"ours", "theirs"}

func main() {
	rounds := flag.Int("rounds", 10, "how often each is run, in turns")
	small := flag.Bool("short", false, "a load of seconds, to see that it works")
	flag.Parse()
	if *rounds < 1 || flag.NArg() > 0 {
		log.Fatalf("compare: want -rounds of 1 or more and no arguments, got %d and %q", *rounds, flag.Args())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l := full
	if *small {
		l = short
	}
	table, err := compare(ctx, l, *rounds)
	if err != nil {
		log.Fatalf("compare: %v", err)
	}
	fmt.Print(table)
}

// metrics are the rows of the table, each with its unit.
var metrics = [][2]string{
	{"lines", "lines of code"},
	{"binary", "MB, binary, stripped"},
	{"memory", "MiB of memory with all objects known"},
	{"peak", "MiB of memory at most"},
	{"processor", "s of processor time"},
	{"allocations", "million allocations"},
	{"runs", "runs"},
	{"requests", "requests to the API server"},
	{"start", "s from start until all files exist"},
	{"recovery", "s until all updates after a kill -9 are files"},
	{"clean-up", "s until all deleted objects are cleaned up"},
}

// compare builds both programs, runs them in turns, and returns a table for each number
// of objects.
func compare(ctx context.Context, l load, rounds int) (string, error) {
	dir, err := os.MkdirTemp("", "compare-bin-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	s, err := kubetest.Start(ctx)
	if err != nil {
		return "", err
	}
	defer s.Close()
	var text strings.Builder
	for _, l := range []load{l, l.many()} {
		all := map[string][2][]float64{} // of each metric, the values of both sides by round
		add := func(side int, v values) {
			for metric, value := range v {
				both := all[metric]
				both[side] = append(both[side], value)
				all[metric] = both
			}
		}
		programs := make([]string, len(sides))
		for i, side := range sides {
			lines, err := linesOf(filepath.Join(side, "main.go"))
			if err != nil {
				return "", err
			}
			program, size, err := build(ctx, side, dir)
			if err != nil {
				return "", err
			}
			programs[i] = program
			add(i, values{"lines": float64(lines), "binary": float64(size) / 1e6})
		}
		for r := range rounds {
			for i := range sides {
				i = (i + r) % len(sides) // the side that begins changes
				v, _, err := run(ctx, s, programs[i], l)
				if err != nil {
					return "", fmt.Errorf("round %d, %s, %d objects: %w", r+1, sides[i], l.Objects, err)
				}
				log.Printf("round %d, %s, %d objects: %v", r+1, sides[i], l.Objects, v)
				add(i, v)
			}
		}
		fmt.Fprintf(&text, "%d objects, medians of %d rounds, with least and most:\n\n| | this library | controller-runtime |\n|---|---|---|\n", l.Objects, rounds)
		for _, m := range metrics {
			if both := all[m[0]]; len(both[0]) > 0 {
				fmt.Fprintf(&text, "| %s | %s | %s |\n", m[1], spread(both[0]), spread(both[1]))
			}
		}
		text.WriteByte('\n')
	}
	return text.String(), nil
}

// spread gives the median, and the least and the greatest value.
func spread(list []float64) string {
	list = slices.Sorted(slices.Values(list))
	n := len(list)
	return fmt.Sprintf("%.4g (%.4g–%.4g)", (list[(n-1)/2]+list[n/2])/2, list[0], list[n-1])
}

// build builds a program without its debug information, and returns its size.
func build(ctx context.Context, side, dir string) (program string, size int64, err error) {
	program = filepath.Join(dir, side)
	out, err := exec.CommandContext(ctx, "go", "build", "-p", "2", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", program, "./"+side).CombinedOutput()
	if err != nil {
		return "", 0, fmt.Errorf("build %s: %w\n%s", side, err, out)
	}
	info, err := os.Stat(program)
	if err != nil {
		return "", 0, err
	}
	return program, info.Size(), nil
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
