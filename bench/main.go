// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the kernel beside its peers.
//
//	go run . run [-quick] [-only REGEXP] [-rounds N] [-cpuprofile FILE -impl NAME] > raw.jsonl
//	go run . report < raw.jsonl
//	go run . check [-allocs] [-update]
//
// Run writes one line of JSON for each measurement. Report prints them as tables, from
// which docs/performance.md and the targets of README.md are taken. Check compares with
// figures.json and fails if something allocates more than that.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/pprof"
	"time"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	ctrllog.SetLogger(logr.Discard()) // or it complains after a while
	if err := command(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command(args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want run, report or check")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	switch args[0] {
	case "run":
		short := flags.Bool("quick", false, "measure less, in less than a minute")
		only := flags.String("only", "", "measure only the workloads whose names match this `regexp`")
		name := flags.String("impl", "", "measure only this implementation")
		rounds := flags.Int("rounds", 0, "measure so many rounds instead of as many as each workload needs")
		profile := flags.String("cpuprofile", "", "write a processor profile to this `file`")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		match, err := regexp.Compile(*only)
		if err != nil {
			return err
		}
		if *profile != "" {
			f, err := os.Create(*profile)
			if err != nil {
				return err
			}
			defer f.Close()
			if err := pprof.StartCPUProfile(f); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
		}
		m := full
		if *short {
			m = quick
		}
		return measureAll(out, m, *rounds, match.MatchString, func(im impl) bool {
			return *name == "" || im.name == *name
		})
	case "report":
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		r, err := readResults(in)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(out, r.text()); err != nil {
			return err
		}
		if r.machine.Mode == quick.String() {
			_, err = io.WriteString(out, "\nA quick run: fewer items than the labels say, and fewer rounds.\n")
		}
		return err
	case "check":
		allocs := flags.Bool("allocs", false, "compare the allocations alone")
		update := flags.Bool("update", false, "keep what is measured now")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return check(out, *allocs, *update)
	}
	return fmt.Errorf("%q is no command: want run, report or check", args[0])
}

// measureAll measures the workloads that match, in rounds that visit one
// implementation after the other, so that all of them see the same machine.
func measureAll(out io.Writer, m mode, rounds int, match func(string) bool, take func(impl) bool) error {
	enc := json.NewEncoder(out)
	machine := thisMachine()
	began, others := time.Now(), watchLoad()
	for _, w := range workloads {
		if !match(w.name) {
			continue
		}
		n := w.rounds[m]
		if rounds > 0 && n > 0 {
			n = rounds
		}
		if n == 0 {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s\n", w.name)
		for round := range n {
			for _, im := range w.impls {
				if !take(im) {
					continue
				}
				s := w.measure(im, m, round)
				if s.Wrong != "" {
					fmt.Fprintf(os.Stderr, "  %s is wrong: %s\n", im.name, s.Wrong)
				}
				if err := enc.Encode(s); err != nil {
					return err
				}
			}
		}
	}
	machine.Mode = m.String()
	machine.Others, machine.Seconds = others(), time.Since(began).Seconds()
	return enc.Encode(machineLine{machine})
}
