// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Soak runs the chaos of package chaos on one queue, by the real clock, for a
// long time, and looks at the heap and at the goroutines meanwhile. It fails if
// the referee does, if goroutines are left at the end, or if the heap has grown.
//
//	go run ./soak -for 30m -csv soak.csv -svg soak.svg
package main

import (
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/verify/chaos"
	"go.uber.org/goleak"
)

// A sample is what was seen at one moment. The heap is what is left of it after
// a garbage collection.
type sample struct {
	at         time.Duration
	heap       uint64
	goroutines int
	events     uint64 // that the queue has accepted so far
	taken      uint64 // items that were handed out so far
}

func main() {
	log.SetFlags(0)
	slog.SetDefault(slog.New(slog.DiscardHandler))
	long := flag.Duration("for", 30*time.Minute, "how long")
	every := flag.Duration("every", 2*time.Second, "how often to look")
	seed := flag.Uint64("seed", 1, "of what is done at random")
	csvFile := flag.String("csv", "", "where the samples go")
	svgFile := flag.String("svg", "", "where the chart goes")
	draw := flag.String("draw", "", "only draw what this file of samples says")
	flag.Parse()
	if err := run(*long, *every, *seed, *csvFile, *svgFile, *draw); err != nil {
		log.Fatal("soak: ", err)
	}
}

func run(long, every time.Duration, seed uint64, csvFile, svgFile, drawOnly string) error {
	if drawOnly != "" {
		f, err := os.Open(drawOnly)
		if err != nil {
			return err
		}
		defer f.Close()
		samples, err := read(f)
		if err != nil {
			return err
		}
		return plotTo(svgFile, samples)
	}
	before := look(0, nil)
	samples, report := soak(long, every, seed)
	err := judge(report)
	if leak := goleak.Find(); leak != nil {
		err = errors.Join(err, leak)
	}
	after := look(long, nil)
	fmt.Println(report)
	fmt.Printf("goroutines: %d before, %d after\nheap: %s before, %s after\n", before.goroutines, after.goroutines, kib(before.heap), kib(after.heap))
	err = errors.Join(err, grown(os.Stdout, samples))
	if csvFile != "" {
		f, createErr := os.Create(csvFile)
		if createErr != nil {
			return errors.Join(err, createErr)
		}
		err = errors.Join(err, write(f, samples), f.Close())
	}
	if svgFile != "" {
		err = errors.Join(err, plotTo(svgFile, samples))
	}
	return err
}

// soak does a round that takes so long.
func soak(long, every time.Duration, seed uint64) (samples []sample, report chaos.Report) {
	begin := time.Now()
	made := make(chan *reconcile.Queue[int], 1)
	ended := make(chan chaos.Report)
	go func() {
		ended <- chaos.Run(chaos.Config{
			Seed: seed, Items: 10_000, Changes: math.MaxInt,
			Enough: func() bool { return time.Since(begin) >= long },
			Unit:   50 * time.Millisecond,
			Settle: chaos.Settle,
			Wrap: func(q *reconcile.Queue[int]) chaos.Queue {
				made <- q
				return q
			},
		})
	}()
	q := <-made
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if at := time.Since(begin); at < long {
				samples = append(samples, look(at, q))
			}
		case report = <-ended:
			return samples, report
		}
	}
}

func look(at time.Duration, q *reconcile.Queue[int]) sample {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	s := sample{at: at, heap: m.HeapAlloc, goroutines: runtime.NumGoroutine()}
	if q != nil {
		stats := q.Stats()
		s.events, s.taken = stats.Enqueued+stats.Coalesced, stats.Taken
	}
	return s
}

func judge(r chaos.Report) error {
	if len(r.Found) == 0 {
		return nil
	}
	return fmt.Errorf("%v\n%s", r.Found, strings.Join(r.First, "\n"))
}

// grown compares the heap early and late: the medians of two quarters, because
// it goes up and down with the members that there are.
func grown(out io.Writer, samples []sample) error {
	if len(samples) < 20 {
		fmt.Fprintf(out, "%d samples: too few to tell whether the heap grows\n", len(samples))
		return nil
	}
	n := len(samples) / 4
	early, late := median(samples[n:2*n]), median(samples[3*n:])
	fmt.Fprintf(out, "heap in the second quarter: %s, in the last: %s (medians)\n", kib(early), kib(late))
	if late > early+early/4 {
		return fmt.Errorf("the heap has grown from %s to %s", kib(early), kib(late))
	}
	return nil
}

func median(samples []sample) uint64 {
	heaps := make([]uint64, 0, len(samples))
	for _, s := range samples {
		heaps = append(heaps, s.heap)
	}
	slices.Sort(heaps)
	return heaps[len(heaps)/2]
}

func kib(n uint64) string { return strconv.FormatUint(n>>10, 10) + " KiB" }

var columns = []string{"milliseconds", "heap bytes", "goroutines", "events", "taken"}

func write(out io.Writer, samples []sample) error {
	w := csv.NewWriter(out)
	_ = w.Write(columns) // an error stays with w
	for _, s := range samples {
		_ = w.Write([]string{
			strconv.FormatInt(s.at.Milliseconds(), 10), strconv.FormatUint(s.heap, 10), strconv.Itoa(s.goroutines),
			strconv.FormatUint(s.events, 10), strconv.FormatUint(s.taken, 10),
		})
	}
	w.Flush()
	return w.Error()
}

func read(in io.Reader) (samples []sample, err error) {
	rows, err := csv.NewReader(in).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || !slices.Equal(rows[0], columns) {
		return nil, fmt.Errorf("the first line is not %q", columns)
	}
	for _, row := range rows[1:] {
		var n [5]uint64
		for i, text := range row {
			if n[i], err = strconv.ParseUint(text, 10, 63); err != nil {
				return nil, err
			}
		}
		samples = append(samples, sample{time.Duration(n[0]) * time.Millisecond, n[1], int(n[2]), n[3], n[4]})
	}
	return samples, nil
}
