// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench measures what the promises of a queue of natsadapter cost: how
// many items a second go in, and through the whole loop from Enqueue to Done,
// with 1, 2 and 4 worker processes, beside a plain work queue of JetStream that
// promises none of it; and how long an item takes from Enqueue to the start of
// its run.
//
//	go run ./bench
//	go run ./bench -items 50000 -rounds 5
//
// The server and the workers share the processors of one machine. The runs do
// nothing. Of several rounds the median is told.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

const environment = "RECONCILE_NATS_BENCH"

// A job is what a child process is told through its environment.
type job struct {
	What    string // a key of work
	URL     string
	Stream  string
	Process int
	Items   int
	Slots   int
	Rate    int // items a second, for latency
}

// A report is what a child process answers: after "ready" it is told to go on,
// and does its part.
type report struct {
	Latencies []time.Duration
}

func main() {
	if text, ok := os.LookupEnv(environment); ok {
		var j job
		if err := json.Unmarshal([]byte(text), &j); err != nil {
			fail(err)
		}
		if err := child(j); err != nil {
			fail(fmt.Errorf("%s, process %d: %w", j.What, j.Process, err))
		}
		return
	}
	items := flag.Int("items", 20000, "items of each measurement")
	rounds := flag.Int("rounds", 3, "how often to measure each")
	slots := flag.Int("slots", 64, "runs at once in each process")
	flag.Parse()
	fmt.Printf("%s, %d processors, %d items, %d runs at once in each process, median of %d\n\n",
		runtime.Version(), runtime.NumCPU(), *items, *slots, *rounds)
	fmt.Printf("%-34s %12s %12s %12s\n", "items a second", "1 process", "2 processes", "4 processes")
	for _, row := range []struct{ name, what string }{
		{"queue: Enqueue until stored", "fill"},
		{"queue: drain what is stored", "drain"},
		{"queue: Enqueue to Done", "loop"},
		{"plain: publish until stored", "plain fill"},
		{"plain: consume what is stored", "plain drain"},
		{"plain: publish to ack", "plain loop"},
	} {
		fmt.Printf("%-34s", row.name)
		for _, processes := range []int{1, 2, 4} {
			var rates []float64
			for range *rounds {
				took, _, err := measure(row.what, processes, *items, *slots, 0)
				if err != nil {
					fail(err)
				}
				rates = append(rates, float64(*items)/took.Seconds())
			}
			slices.Sort(rates)
			fmt.Printf(" %12.0f", rates[len(rates)/2])
		}
		fmt.Println()
	}
	fmt.Printf("\n%-34s %12s %12s %12s\n", "from Enqueue to the start", "p50", "p99", "p99.9")
	for _, row := range []struct {
		name, what string
		rate       int
	}{
		{"queue, 100 items/s", "latency", 100},
		{"queue, 1000 items/s", "latency", 1000},
		{"plain, 100 items/s", "plain latency", 100},
		{"plain, 1000 items/s", "plain latency", 1000},
	} {
		_, all, err := measure(row.what, 2, 5*row.rate, *slots, row.rate)
		if err != nil {
			fail(err)
		}
		slices.Sort(all)
		at := func(p float64) time.Duration {
			return all[int(p*float64(len(all)-1))].Round(10 * time.Microsecond)
		}
		fmt.Printf("%-34s %12v %12v %12v\n", row.name, at(0.5), at(0.99), at(0.999))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// measure has so many processes do something with so many items on a new
// server, and returns how long that took them.
func measure(what string, processes, items, slots, rate int) (took time.Duration, all []time.Duration, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return 0, nil, err
	}
	defer os.RemoveAll(dir)
	s, err := natstest.Open(dir)
	if err != nil {
		return 0, nil, err
	}
	defer s.Close()
	j := job{What: what, URL: s.DirectURL(), Stream: "bench", Items: items / processes, Slots: slots, Rate: rate / processes}
	if before, ok := work[what].before, work[what].before != ""; ok {
		j.What = before
		if _, _, err := run(j, processes); err != nil {
			return 0, nil, err
		}
		j.What = what
	}
	return run(j, processes)
}

// run has children do a job at the same time.
func run(j job, processes int) (took time.Duration, all []time.Duration, err error) {
	type running struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *json.Decoder
	}
	var children []running
	defer func() {
		for _, c := range children {
			c.in.Close()
			c.cmd.Wait()
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return 0, nil, err
	}
	for i := range processes {
		j.Process = i
		text, err := json.Marshal(j)
		if err != nil {
			return 0, nil, err
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), environment+"="+string(text))
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		in, err := cmd.StdinPipe()
		if err != nil {
			return 0, nil, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, nil, err
		}
		if err := cmd.Start(); err != nil {
			return 0, nil, err
		}
		children = append(children, running{cmd, in, json.NewDecoder(out)})
	}
	var r report
	for _, c := range children {
		if err := c.out.Decode(&r); err != nil { // ready
			return 0, nil, err
		}
	}
	began := time.Now()
	for _, c := range children {
		io.WriteString(c.in, "go\n")
	}
	for _, c := range children {
		var r report
		if err := c.out.Decode(&r); err != nil { // done
			return 0, nil, err
		}
		all = append(all, r.Latencies...)
	}
	return time.Since(began), all, nil
}
