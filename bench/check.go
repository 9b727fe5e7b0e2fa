// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
)

// figures is what is kept of an earlier measurement.
type figures struct {
	Allocs map[string]int     `json:"allocs"` // of one operation, exact
	Bytes  map[string]int     `json:"bytes"`  // of an item held
	Ratios map[string]float64 `json:"ratios"` // to client-go, in a quick run
}

func readFigures() (figures, error) {
	var f figures
	data, err := os.ReadFile(figuresFile)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, fmt.Errorf("%s: %w", figuresFile, err)
	}
	return f, nil
}

func (f figures) write() error {
	data, err := json.MarshalIndent(f, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(figuresFile, append(data, '\n'), 0o644)
}

const (
	figuresFile = "figures.json"
	slack       = 1.15 // a ratio may get so much worse before it is mentioned
)

var errAllocs = errors.New("something allocates more than the figures kept in bench/" + figuresFile +
	"; if that is meant, run: bash bench/check.sh -update")

// check compares with the figures kept. It fails if an operation allocates more
// than it did, or an item takes more memory. A ratio that got worse is only
// said: it is noisy.
func check(out io.Writer, allocsOnly, update bool) error {
	kept, err := readFigures()
	if err != nil {
		return err
	}
	now := figures{allocations(), itemBytes(), kept.Ratios}
	worse := compareExact(out, "allocations", kept.Allocs, now.Allocs)
	if compareExact(out, "bytes an item", kept.Bytes, now.Bytes) {
		worse = true
	}
	if !allocsOnly {
		ratios, err := quickRatios()
		if err != nil {
			return err
		}
		now.Ratios = ratios
		compareRatios(out, kept.Ratios, ratios)
	}
	if update {
		return now.write()
	}
	if worse {
		return errAllocs
	}
	return nil
}

// compareExact prints one line for each figure, and reports whether one is more
// than it was, or is not kept at all.
func compareExact(out io.Writer, what string, kept, now map[string]int) (worse bool) {
	for _, name := range slices.Sorted(maps.Keys(now)) {
		was, ok := kept[name]
		note := ""
		switch {
		case !ok:
			note, worse = "not kept yet", true
		case now[name] > was:
			note, worse = fmt.Sprintf("MORE than the %d kept", was), true
		case now[name] < was:
			note = fmt.Sprintf("less than the %d kept", was)
		}
		fmt.Fprintf(out, "%-14s %-40s %4d  %s\n", what, name, now[name], note)
	}
	return worse
}

// compareRatios prints one line for each ratio that got worse by more than the
// slack, and one for all the rest.
func compareRatios(out io.Writer, kept, now map[string]float64) {
	fine := 0
	for _, name := range slices.Sorted(maps.Keys(now)) {
		switch was, ok := kept[name]; {
		case !ok:
			fmt.Fprintf(out, "ratio          %-40s %.2f  not kept yet\n", name, now[name])
		case now[name] > was*slack:
			fmt.Fprintf(out, "ratio          %-40s %.2f  WORSE than the %.2f kept\n", name, now[name], was)
		default:
			fine++
		}
	}
	fmt.Fprintf(out, "ratio          %d of %d no worse than kept, or by less than %.0f %%\n", fine, len(now), (slack-1)*100)
}

// quickRatios measures the ratio to client-go of each row that has one: in
// processor time, or lateness. Less is better in all of them.
func quickRatios() (map[string]float64, error) {
	raw, w := io.Pipe()
	go func() {
		w.CloseWithError(measureAll(w, quick, 0, func(name string) bool {
			for _, row := range rows {
				if row.workload == name && row.peer() == nameClient && !row.absolute {
					return name != "loop late" && name != "wake busy" // too long, too noisy
				}
			}
			return false
		}, func(im impl) bool { return im.name == nameOurs || im.name == nameClient }))
	}()
	r, err := readResults(raw)
	if err != nil {
		return nil, err
	}
	ratios := make(map[string]float64)
	for _, row := range rows {
		if row.peer() != nameClient || row.absolute {
			continue
		}
		metric := row.metric
		switch metric {
		case "rate", "total cpu":
			metric = "cpu" // the quiet side of the same rounds
		case "p99":
			continue // the loud one
		}
		if med := r.ratio(row.workload, metric, nameOurs, nameClient); !math.IsNaN(med) {
			ratios[row.workload+" "+metric] = math.Round(med*100) / 100
		}
	}
	if wrong := r.wrongList(); wrong != "" {
		return nil, fmt.Errorf("wrong:\n%s", strings.TrimSpace(wrong))
	}
	return ratios, nil
}

// allocations counts those of each operation, once the queue has been used. It
// measures the kernel directly, as a program uses it.
func allocations() map[string]int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	const hour = time.Hour
	items := names(manyNames)
	i := 0
	next := func() string {
		if i++; i == len(items) {
			i = 0
		}
		return items[i]
	}
	got := make(map[string]int)
	count := func(name string, op func()) {
		for range 4 * len(items) {
			op()
		}
		got[name] = int(testing.AllocsPerRun(4*len(items), op))
	}
	fresh := func() (*reconcile.Queue[string], func() string) {
		q := reconcile.NewQueue[string]()
		return q, func() string {
			item, err := q.Dequeue(ctx)
			if err != nil {
				panic(err) // the queue is open, and so is ctx
			}
			return item
		}
	}

	q, take := fresh()
	count("Enqueue, Dequeue, Done", func() { q.Enqueue(next()); q.Done(take()) })

	p := reconcile.NewQueue[pair]()
	two := pairs(manyNames)
	count("Enqueue, Dequeue, Done of a pair", func() {
		next()
		p.Enqueue(two[i])
		item, _ := p.Dequeue(ctx)
		p.Done(item)
	})

	q, take = fresh()
	for _, item := range items {
		q.Enqueue(item)
	}
	count("Enqueue of a queued item", func() { q.Enqueue(next()) })
	count("Offer of a queued item", func() { q.Offer(next()) })
	count("Dequeue, Enqueue, Done", func() { item := take(); q.Enqueue(item); q.Done(item) })
	count("Dequeue, Requeue now", func() { q.Requeue(take(), reconcile.RequeueOptions{}) })
	count("State", func() { q.State(next()) })
	count("Stats", func() { q.Stats() })

	q, take = fresh()
	for _, item := range items {
		q.EnqueueAfter(item, hour)
	}
	count("EnqueueNow, Dequeue, RequeueAfter", func() { q.EnqueueNow(next()); q.RequeueAfter(take(), hour) })
	count("Remove, EnqueueAfter", func() { item := next(); q.Remove(item); q.EnqueueAfter(item, hour) })
	count("EnqueueAfter of a held item", func() { q.EnqueueAfter(next(), hour) })

	q, take = fresh()
	for _, item := range items {
		q.EnqueueWithin(item, hour)
	}
	count("Enqueue, Dequeue, Requeue within", func() {
		q.Enqueue(next())
		q.Requeue(take(), reconcile.RequeueOptions{Delay: hour})
	})

	// A worker that waits: handed an item, and waiting again.
	q, _ = fresh()
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			item, err := q.Dequeue(ctx)
			if err != nil {
				return
			}
			q.Done(item)
			done <- struct{}{}
		}
	}()
	count("Enqueue that wakes a worker", func() { q.Enqueue(next()); <-done })
	q.Close()
	<-ended

	// The loop, without a log and with one at Info.
	for name, log := range map[string]loop{"a run of the Reconciler": {log: noLog}, "a run of the Reconciler, slog at Info": {log: infoLog}} {
		ctx, cancel := context.WithCancel(ctx)
		var feed feeder
		fed := make(chan struct{})
		log.ctx, log.workers = ctx, 1
		log.feed = func(q feeder) { feed = q; close(fed) }
		log.reconcile = func(string) { done <- struct{}{} }
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := ourLoop(log); err != nil {
				panic(err) // it ends when ctx does, and not otherwise
			}
		}()
		<-fed
		count(name, func() { feed.Add(next()); <-done })
		cancel()
		<-ended
	}
	return got
}

// itemBytes measures the memory of an item that waits, in a queue of many.
func itemBytes() map[string]int {
	const n = 200_000
	got := make(map[string]int)
	for name, fill := range map[string]func(q *reconcile.Queue[string], item string){
		"queued":  func(q *reconcile.Queue[string], item string) { q.Enqueue(item) },
		"delayed": func(q *reconcile.Queue[string], item string) { q.EnqueueAfter(item, time.Hour) },
	} {
		items := names(n)
		before := liveBytes()
		q := reconcile.NewQueue[string]()
		for _, item := range items {
			fill(q, item)
		}
		got[name] = int(math.Round((liveBytes() - before) / n))
		runtime.KeepAlive(items) // it was there before
		if q.Stats().Ready+q.Stats().Waiting != n {
			panic("bench: an item is lost")
		}
	}
	return got
}
