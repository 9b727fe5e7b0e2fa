// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench measures what the guarantees of the shared queue cost: how
// many items a second go in, and through the whole loop from Enqueue to Done,
// with 1, 2, 4 and 8 worker processes, beside a plain work queue of JetStream
// that guarantees none of it, and beside the bare requests that the queue makes;
// and how long an item takes from Enqueue to the start of its run.
//
//	go run ./queue/bench
//	go run ./queue/bench -items 50000 -rounds 5 -only loop
//	go run ./queue/bench -servers 3
//	go run ./queue/bench -members   # what idle members cost, and how long a hand-over takes
//
// The server and the workers share the processors of one machine. The runs do
// nothing. Of several rounds, in each of which all is measured once, the median
// is told.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

const environment = "RECONCILE_NATS_BENCH"

// A job is what a child process is told through its environment.
type job struct {
	What     string // a key of work
	URL      string
	Stream   string
	Replicas int
	Process  int
	Items    int
	Slots    int
	Rate     int // items a second, for latency
}

// A report is what a child process answers: after "ready" it is told to go on,
// and does its part.
type report struct {
	Latencies []time.Duration
	Processor time.Duration // what this process had of the processors
	Rate      float64       // messages a second, of members that wait
}

// A cost is what some items took.
type cost struct {
	wall, server, workers time.Duration // the latter two of the processors
	latencies             []time.Duration
}

// processes is how many worker processes there are.
var processes = []int{1, 2, 4, 8}

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
	servers := flag.Int("servers", 1, "how many servers keep the items")
	only := flag.String("only", "", "measure only what has this in its name")
	idle := flag.Bool("members", false, "measure idle members, and nothing else")
	flag.Parse()
	if *idle {
		if err := printMembers([]int{8, 32, 128, 512, 1024}); err != nil {
			fail(err)
		}
		return
	}
	fmt.Printf("%s, %d processors, %d items, %d runs at once in each process, median of %d\n\n",
		runtime.Version(), runtime.NumCPU(), *items, *slots, *rounds)
	rows := slices.DeleteFunc([]struct{ name, what string }{
		{"queue: Enqueue until stored", "fill"},
		{"queue: drain what is stored", "drain"},
		{"queue: Enqueue to Done", "loop"},
		{"bare: store, claim, delete", "bare loop"},
		{"plain: publish until stored", "plain fill"},
		{"plain: consume what is stored", "plain drain"},
		{"plain: publish to ack", "plain loop"},
	}, func(row struct{ name, what string }) bool { return !strings.Contains(row.what, *only) })
	costs := make(map[string][]cost)
	for range *rounds {
		for _, row := range rows {
			for _, n := range processes {
				c, err := measure(row.what, *servers, n, *items, *slots, 0)
				if err != nil {
					fail(err)
				}
				cell := fmt.Sprint(row.what, n)
				costs[cell] = append(costs[cell], c)
			}
		}
	}
	for _, table := range []struct {
		name   string
		figure func(cost) float64
	}{
		{"items a second, processes:", func(c cost) float64 { return float64(*items) / c.wall.Seconds() }},
		{"server, us an item", func(c cost) float64 { return float64(c.server.Microseconds()) / float64(*items) }},
		{"workers, us an item", func(c cost) float64 { return float64(c.workers.Microseconds()) / float64(*items) }},
	} {
		fmt.Printf("%-34s", table.name)
		for _, n := range processes {
			fmt.Printf(" %8d", n)
		}
		for _, row := range rows {
			fmt.Printf("\n%-34s", row.name)
			for _, n := range processes {
				var all []float64
				for _, c := range costs[fmt.Sprint(row.what, n)] {
					all = append(all, table.figure(c))
				}
				slices.Sort(all)
				fmt.Printf(" %8.0f", all[len(all)/2])
			}
		}
		fmt.Print("\n\n")
	}
	if !strings.Contains("latency", *only) {
		return
	}
	fmt.Printf("%-34s %12s %12s %12s\n", "from Enqueue to the start", "p50", "p99", "p99.9")
	for _, row := range []struct {
		name, what string
		rate       int
	}{
		{"queue, 100 items/s", "latency", 100},
		{"queue, 1000 items/s", "latency", 1000},
		{"plain, 100 items/s", "plain latency", 100},
		{"plain, 1000 items/s", "plain latency", 1000},
	} {
		c, err := measure(row.what, *servers, 2, 5*row.rate, *slots, row.rate)
		if err != nil {
			fail(err)
		}
		all := c.latencies
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

// measure has so many processes do something with so many items on new servers,
// and returns what that took.
func measure(what string, servers, processes, items, slots, rate int) (cost, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return cost{}, err
	}
	defer os.RemoveAll(dir)
	all, err := open(dir, servers)
	if err != nil {
		return cost{}, err
	}
	var urls []string
	for _, s := range all {
		defer s.Close()
		urls = append(urls, s.DirectURL())
	}
	j := job{
		What: what, URL: strings.Join(urls, ","), Stream: "bench", Replicas: servers,
		Items: items / processes, Slots: slots, Rate: rate / processes,
	}
	if before, ok := work[what].before, work[what].before != ""; ok {
		j.What = before
		if _, err := run(all, j, processes); err != nil {
			return cost{}, err
		}
		j.What = what
	}
	return run(all, j, processes)
}

// open starts servers: more than one are a cluster.
func open(dir string, servers int) ([]*natstest.Server, error) {
	if servers == 1 {
		s, err := natstest.Open(dir)
		return []*natstest.Server{s}, err
	}
	c, err := natstest.OpenCluster(dir, servers)
	if err != nil {
		return nil, err
	}
	return c.Servers, nil
}

// processorTimeOf returns what servers have had of the processors.
func processorTimeOf(servers []*natstest.Server) (sum time.Duration, err error) {
	for _, s := range servers {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		var user, system int64
		if fields := strings.Fields(rest); len(fields) > 12 {
			user, _ = strconv.ParseInt(fields[11], 10, 64)
			system, _ = strconv.ParseInt(fields[12], 10, 64)
		}
		sum += time.Duration(user+system) * time.Second / 100
	}
	return sum, nil
}

// run has children do a job at the same time.
func run(servers []*natstest.Server, j job, processes int) (c cost, err error) {
	var children []*running
	defer func() {
		for _, c := range children {
			c.end()
		}
	}()
	for i := range processes {
		j.Process = i
		child, err := launch(j)
		if err != nil {
			return c, err
		}
		children = append(children, child)
		// One after the other: the first creates what all use, and a cluster does not
		// answer requests about it meanwhile.
		var r report
		if err := child.out.Decode(&r); err != nil { // ready
			return c, err
		}
	}
	before, err := processorTimeOf(servers)
	if err != nil {
		return c, err
	}
	began := time.Now()
	for _, c := range children {
		io.WriteString(c.in, "go\n")
	}
	for _, child := range children {
		var r report
		if err := child.out.Decode(&r); err != nil { // done
			return c, err
		}
		c.latencies = append(c.latencies, r.Latencies...)
		c.workers += r.Processor
	}
	c.wall = time.Since(began)
	after, err := processorTimeOf(servers)
	c.server = after - before
	return c, err
}
