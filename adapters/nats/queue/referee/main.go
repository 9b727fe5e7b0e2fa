// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command referee breaks the shared queue on purpose, and counts what that
// does to its two guarantees: no item runs in two processes at once, and each event
// that was accepted is followed by a run that started after it.
//
// Servers, workers and feeders are processes of their own. They are killed,
// stopped and cut off while events come in. All tell a monitor what they do; it
// sees both guarantees from outside. The controls have a stream's limits alone in
// place of the queue: there the monitor must find overlaps and losses, or it is
// blind.
//
//	go run ./queue/referee              # all scenarios, 20 s each
//	go run ./queue/referee -short       # some, about a minute in all
//	go run ./queue/referee -time 5m -run 'kill|stop' -seed 7
//
// It ends with status 1 if a guarantee was broken, or a control was not caught.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"
)

const environment = "RECONCILE_REFEREE"

func main() {
	if text, ok := os.LookupEnv(environment); ok {
		var j job
		err := json.Unmarshal([]byte(text), &j)
		if err == nil {
			err = child(j)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "process %d: %v\n", j.Process, err)
			os.Exit(1)
		}
		return
	}
	var (
		short   = flag.Bool("short", false, "run the few scenarios of CI, for a few seconds each")
		length  = flag.Duration("time", 20*time.Second, "how long to feed and break in each scenario")
		only    = flag.String("run", "", "run the scenarios whose name matches")
		rounds  = flag.Int("rounds", 1, "how often to run them all")
		seed    = flag.Uint64("seed", uint64(time.Now().Unix()), "of the choices in the first round; the next one has the next")
		verbose = flag.Bool("v", false, "show the logs of the workers")
	)
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "referee: usage: referee [-short] [-time d] [-run regexp] [-rounds n] [-seed n] [-v]", err)
		os.Exit(2)
	}
	fmt.Printf("seed %d\n%-34s %8s %9s %9s %8s %8s %6s %6s %6s %5s %9s %9s %9s %6s\n", *seed, "scenario", "seconds",
		"events", "runs", "overlaps", "stopped", "late", "lost", "fences", "left", "p50", "p99", "max", "gap")
	var sum outcome
	broken := false
	for round := range *rounds {
		for i, s := range scenarios {
			d := *length
			if *short {
				if s.Short == 0 {
					continue
				}
				d = s.Short
			}
			if !match.MatchString(s.Name) {
				continue
			}
			o, err := s.play(d, *seed+uint64(round), uint64(i), *verbose)
			if err != nil {
				fmt.Printf("%-34s %v\n", s.Name, err)
				broken = true
				continue
			}
			fmt.Printf("%s %9s %9s %9s %6.1f\n", o.counts(s.Name), o.quantile(0.5), o.quantile(0.99), o.quantile(1), o.Gap.Seconds())
			if s.Naive == "" {
				sum.add(o)
			}
			switch caught := o.Overlaps + o.Lost; {
			case s.Naive != "" && caught == 0:
				fmt.Println("  the monitor did not catch the control")
				broken = true
			case s.Naive == "" && caught+o.Fences+o.left > 0:
				fmt.Println("  BROKEN:", o.Example)
				broken = true
			}
		}
	}
	fmt.Println(sum.counts("all but the controls"))
	if broken {
		os.Exit(1)
	}
}
