// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command referee breaks the queue on purpose and counts what that does to its guarantees.
// Four workers are processes of their own, one of them behind PgBouncer. They and the server
// are killed, stopped, cut off and filled up while events come in.
//
// A monitor in this process is notified of each run, so it sees from outside whether two
// runs of an item overlap. Each event is a new version of a row, and each run writes the
// version that it has read, in a transaction that [postgres.Guard] guards. When all is quiet,
// a row whose versions differ has lost an event, or the run of a killed process was not
// followed by another.
//
//	go run ./referee -for 1h
//
// It ends with status 1 if a guarantee was broken. It needs PostgreSQL, PgBouncer and
// libfaketime as Debian has them.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"
)

const environment = "RECONCILE_REFEREE"

func main() {
	if text, ok := os.LookupEnv(environment); ok {
		var j job
		must(json.Unmarshal([]byte(text), &j))
		slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)).With("process", j.Process))
		must(work(j))
		return
	}
	length := flag.Duration("for", 3*time.Minute, "how long to break things")
	rate := flag.Int("rate", 200, "events a second")
	seed := flag.Uint64("seed", uint64(time.Now().Unix()), "of the choices of the faults")
	verbose := flag.Bool("v", false, "print each fault, and what the feeders log")
	flag.Parse()
	if flag.NArg() > 0 || *rate < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if !*verbose {
		slog.SetDefault(slog.New(slog.DiscardHandler))
	}
	if !referee(*length, *rate, *seed, *verbose) {
		os.Exit(1)
	}
}

// referee reports whether all guarantees were kept.
func referee(length time.Duration, rate int, seed uint64, verbose bool) bool {
	ctx := context.Background()
	dir := get(os.MkdirTemp("", "referee"))
	defer os.RemoveAll(dir)
	must(os.Chmod(dir, 0o777)) // The servers run as another user.
	st := newStage(ctx, dir)
	defer st.close()
	go dial(job{Monitor: st.monitor.listener.Addr().String()}).watch()
	fmt.Printf("seed %d\n%8s %8s %8s | %5s %6s %6s | %6s %7s %6s %8s | %5s %7s | %7s\n", seed, "seconds", "events", "runs",
		"live", "order", "lost", frozen, stalled, clock, lossy, "late", "refused", "quiet")
	for range 8 {
		go st.feed(8 * time.Second / time.Duration(rate))
	}
	lists := [][]fault{clientFaults, serverFaults}
	lanes := []*lane{{st, rand.New(rand.NewPCG(seed, 1))}, {st, rand.New(rand.NewPCG(seed, 2))}}
	began := time.Now()
	for time.Since(began) < length {
		var all sync.WaitGroup
		for i, l := range lanes {
			all.Go(func() {
				for _, n := range l.rand.Perm(len(lists[i])) {
					l.wait(lease)
					if time.Since(began) > length {
						return
					}
					if verbose {
						fmt.Println(time.Now().Format(time.TimeOnly), lists[i][n].name)
					}
					lists[i][n].play(l)
				}
			})
		}
		all.Wait()
		quiet, lost, disorder, left := st.settle(ctx)
		s := st.monitor.result()
		s.order += disorder
		fmt.Printf("%8.0f %8d %8d | %5d %6d %6d | %6d %7d %6d %8d | %5d %7d | %7.1f\n", time.Since(began).Seconds(), st.events.Load(), s.runs,
			s.live, s.order, lost, s.excused[frozen], s.excused[stalled], s.excused[clock], s.excused[lossy], s.late, s.refused, quiet.Seconds())
		if s.live+s.order+lost+left > 0 {
			fmt.Println("BROKEN:", disorder, "results out of order;", left, "items left;", s.example)
			for _, w := range st.workers {
				fmt.Printf("process %d printed:\n%s\n", w.job.Process, w.Output())
			}
			return false
		}
	}
	return true
}
