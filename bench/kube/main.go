// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Kube runs the same controllers, written with this library and with
// controller-runtime, against a real API server: the same load, the same faults.
// Both run at the same time where delays of milliseconds are measured, and
// otherwise one after the other, in turns within each round.
// It prints a section of docs/kube.md; figures.json keeps what it is made of.
//
//	bash ../../adapters/kube/testserver/build.sh
//	go run . -write
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

var sides = []string{"ours", "theirs"}

func main() {
	rounds := flag.Int("rounds", 10, "how often each is run, in turns")
	objects := flag.Int("objects", full.Objects, "how many there are when a program starts")
	small := flag.Bool("short", false, "a load of seconds, to see that it works")
	write := flag.Bool("write", false, "keep the figures in "+figuresFile+", and write the section into docs/kube.md")
	page := flag.Bool("page", false, "measure nothing, and write the section again, from "+figuresFile)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command(ctx, *rounds, *objects, *small, *write, *page); err != nil {
		log.Fatalf("compare: %v", err)
	}
}

func command(ctx context.Context, rounds, objects int, small, write, page bool) error {
	l := full
	l.Objects = objects
	switch {
	case rounds < 1:
		return fmt.Errorf("-rounds is %d, want at least 1", rounds)
	case objects < l.Hot:
		return fmt.Errorf("-objects is %d, want at least %d", objects, l.Hot)
	case flag.NArg() > 0:
		return fmt.Errorf("got %q, want flags alone: see -help", flag.Args())
	case small && (write || page), write && page:
		return errors.New("want at most one of -short, -write and -page")
	case small:
		l = short
	}
	var f figures
	var err error
	if page {
		f, err = readFigures()
	} else {
		f, err = compare(ctx, l, rounds, func(f figures) error {
			if write {
				return f.write()
			}
			return nil
		})
	}
	if err != nil {
		return err
	}
	section, err := f.section()
	switch {
	case err != nil:
		return err
	case write || page:
		return replace(docFile, section)
	}
	fmt.Print(section)
	return nil
}

// compare builds both programs, and runs all in turns. It calls keep with the
// figures so far after each round, and returns the last.
func compare(ctx context.Context, l load, rounds int, keep func(figures) error) (f figures, err error) {
	ctrl.SetLogger(logr.FromSlogHandler(quiet.Handler()))
	dir, err := os.MkdirTemp("", "compare-bin-")
	if err != nil {
		return figures{}, err
	}
	defer os.RemoveAll(dir)
	all := make(samples)
	var programs []string
	for _, side := range sides {
		lines, err := linesOf(filepath.Join(side, "main.go"))
		if err != nil {
			return figures{}, err
		}
		program, size, err := build(ctx, side, dir)
		if err != nil {
			return figures{}, err
		}
		programs = append(programs, program)
		all.add(side, values{"lines": float64(lines), "binary": float64(size) / 1e6})
	}
	s, err := kubetest.Start(ctx)
	if err != nil {
		return figures{}, err
	}
	defer s.Close()
	for r := range rounds {
		begin := time.Now()
		if err := round(ctx, s, programs, l, r, all); err != nil {
			return figures{}, fmt.Errorf("round %d: %w", r+1, err)
		}
		log.Printf("round %d took %v", r+1, time.Since(begin).Round(time.Second))
		f = all.figures(r+1, l)
		if err := keep(f); err != nil {
			return figures{}, err
		}
	}
	return f, nil
}

// round has each program do everything once. Who begins changes.
func round(ctx context.Context, s *kubetest.Server, programs []string, l load, r int, all samples) error {
	add := func(program string, v values) {
		log.Printf("round %d, %s: %v", r+1, program, v)
		all.add(program, v)
	}
	for i := range sides {
		i = (i + r) % len(sides)
		v, _, err := run(ctx, s, programs[i], l)
		if err != nil {
			return fmt.Errorf("%s: %w", sides[i], err)
		}
		add(sides[i], v)
		many, _, err := run(ctx, s, programs[i], l.many())
		if err != nil {
			return fmt.Errorf("%s, %d objects: %w", sides[i], l.Many, err)
		}
		for metric, value := range many {
			add(sides[i], values{"many, " + metric: value})
		}
	}
	delays, err := beside(ctx, s, programs, l)
	if err != nil {
		return err
	}
	for i, side := range sides {
		add(side, values{"p50": quantile(delays[i], 0.5), "p99": quantile(delays[i], 0.99)})
	}
	stood, err := standby(ctx, s, l, r)
	if err != nil {
		return fmt.Errorf("standby: %w", err)
	}
	for program, v := range stood {
		add(program, v)
	}
	for i := range nurseries {
		n := nurseries[(i+r)%len(nurseries)]
		v, err := stale(ctx, s, n.prepare, l)
		if err != nil {
			return fmt.Errorf("stale cache, %s: %w", n.name, err)
		}
		add(n.name, v)
	}
	return nil
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
