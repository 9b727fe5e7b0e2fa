// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command example keeps the assets of a cloud, buckets and the keys that encrypt them,
// as a file says. The cloud is a simulation in memory.
//
//	go run ./example                       # until all are in sync, then end
//	go run ./example -watch -chaos         # stay, and correct what another client changes
//	go run ./example -http 127.0.0.1:8080  # stay, and show it in a browser
//	go run ./example -assets FILE -watch   # edit the file and see what happens
//
// The reconcile function is in controller/controller.go; this file puts all parts
// together.
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/cloud"
	"github.com/reconkernel/reconcile/example/controller"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/statuspage"
	"github.com/reconkernel/reconcile/supervise"
	"github.com/reconkernel/reconcile/tracker"
)

func main() {
	var o options
	flag.StringVar(&o.assets, "assets", "", "the `FILE` with the desired assets, read again when it changes; without it example/assets.json as of the build")
	flag.BoolVar(&o.watch, "watch", false, "stay when all is in sync, until Ctrl-C")
	flag.BoolVar(&o.chaos, "chaos", false, "let another client delete and change assets, about three in two seconds")
	flag.StringVar(&o.http, "http", "", "serve a live page at `ADDRESS`, such as 127.0.0.1:8080, and stay as with -watch")
	faults := flag.Float64("faults", 0.05, "the fraction of calls and creations that fail, 0 to 0.9")
	flag.Parse()
	switch {
	case flag.NArg() > 0:
		fail(2, fmt.Errorf("argument %q: there are only flags, see -h", flag.Arg(0)))
	case !(*faults >= 0 && *faults <= 0.9): // also a NaN
		fail(2, fmt.Errorf("-faults is %v, want 0 to 0.9", *faults))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	fake := &cloud.Fake{Latency: 10 * time.Millisecond, Build: 700 * time.Millisecond, Faults: *faults, Seed: uint64(time.Now().UnixNano())}
	if err := run(ctx, o, fake, os.Stdout); err != nil {
		fail(1, err)
	}
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(code)
}

type options struct {
	assets, http string
	watch, chaos bool
}

// run keeps the assets until ctx is done or, without -watch, until nothing is left to
// do. It returns an error if an asset cannot be brought in sync.
func run(ctx context.Context, o options, fake *cloud.Fake, stdout io.Writer) error {
	read := func(context.Context) (specs, error) { return parse("assets.json", shipped) }
	if o.assets != "" {
		read = tracker.FromFile(o.assets, func(text []byte) (specs, error) { return parse(o.assets, text) })
	}
	first, err := read(ctx)
	if err != nil {
		return err
	}

	// Both sides are listed and compared. While the file is not valid, the last valid
	// version counts.
	queue := reconcile.NewQueue[cloud.ID]()
	c := &controller.Controller{Cloud: fake, Patience: time.Second}
	assets := c.Set(queue)
	assets.Name, assets.Period, assets.Jitter, assets.Resync = "assets", 5*time.Second, 0.1, time.Minute
	assets.DeleteAfter = -1 // a valid file is complete
	if !o.watch && o.http == "" {
		assets.Resync = -1 // it ends when all is in sync
	}
	assets.Desired = func(ctx context.Context) (map[cloud.ID]cloud.Spec, error) { return read(ctx) }
	assets.Lookup = func(ctx context.Context, id cloud.ID, _ cloud.Spec) (cloud.Spec, bool, error) {
		now, err := read(ctx) // the file, and not what was listed
		spec, ok := now[id]
		if ok { // the last valid file counts, but deletes nothing
			err = nil
		}
		return spec, ok, err
	}

	// The loop, with a gate that pauses all runs while the cloud is down, and the page
	// that shows both.
	desired := func(id cloud.ID) bool { _, ok, _, _ := assets.Listed(id); return ok }
	l := &lines{out: stdout, began: time.Now(), last: map[cloud.ID]string{}, desired: desired}
	remove := assets.Delete
	assets.Delete = func(ctx context.Context, id cloud.ID, actual cloud.Asset) error {
		err := remove(ctx, id, actual)
		if err == nil {
			l.print(id, "deleted", "")
		}
		return err
	}
	calls := &gate.Gate{Pause: c.Pause}
	page := &statuspage.Loop[cloud.ID]{Name: "assets", Queue: queue, Desired: desired}
	group := &statuspage.Group{Name: "Runners"}
	group.Add("assets", &reconcile.Reconciler[cloud.ID]{
		Name: "assets", Queue: queue, Reconcile: assets.Reconcile,
		OnResult: page.OnResult(func(r reconcile.Result[cloud.ID]) { c.OnResult(r); l.result(r) }),
		Workers:  100,
		Timeout:  15 * time.Second,
		Grace:    2 * time.Second,
		Retry:    reconcile.Backoff(200*time.Millisecond, 10*time.Second).Limit(12),
		Admit:    calls.Admit,
		Logger:   slog.New(slog.DiscardHandler), // l prints the results
	})
	if o.http != "" {
		p := statuspage.New(page, &statuspage.Listing{Name: "assets", Of: assets}, &statuspage.Gate{Name: "cloud", Gate: calls}, group)
		p.Title, p.AllowActions = "Assets", true // whoever reaches the page may press its buttons
		group.Add("page", statuspage.Serve(o.http, p))
	}

	// Events, so that most changes are corrected before the next listing.
	group.Add("listings", assets)
	events := reconcile.Feed(assets.Queue, c.Events(assets.Trigger))
	group.Add("events", supervise.Restart(reconcile.Backoff(100*time.Millisecond, 5*time.Second), events))

	if o.chaos {
		group.Add("another client", reconcile.RunFunc(fake.Interfere))
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	var left error
	if !o.watch && o.http == "" {
		group.Add("end", reconcile.RunFunc(func(ctx context.Context) error {
			defer end()
			left = converge(ctx, assets, queue, first)
			return nil
		}))
	}
	err = group.Run(ctx)
	last, _ := read(ctx) // the last valid version
	l.report(last)
	return cmp.Or(err, left)
}

// converge waits until all assets that are desired or exist are in sync or gone. It
// returns the errors of those that are not retried, and what is rejected.
func converge(ctx context.Context, assets *controller.Set, queue *reconcile.Queue[cloud.ID], desired specs) error {
	plan, err := assets.Plan(ctx)
	for err != nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
			plan, err = assets.Plan(ctx)
		}
	}
	ids := slices.AppendSeq(plan.Delete, maps.Keys(desired))
	return errors.Join(queue.EnqueueAndWait(ctx, ids...), plan.Rejected)
}

// specs are the desired assets.
type specs map[cloud.ID]cloud.Spec

//go:embed assets.json
var shipped []byte

// parse reads a file of assets. The error lists all that is wrong with it.
func parse(file string, text []byte) (specs, error) {
	var byName map[string]cloud.Spec
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&byName); err != nil {
		return nil, fmt.Errorf("%s: %w; want an object such as {\"bucket/NAME\": {\"region\": \"eu-west\"}}", file, err)
	}
	if _, err := d.Token(); byName == nil || err != io.EOF {
		return nil, fmt.Errorf("%s: want one object, and nothing after it", file)
	}
	all := make(specs, len(byName))
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		spec := byName[name]
		kind, rest, _ := strings.Cut(name, "/")
		if kind != cloud.Bucket && kind != cloud.Key || rest == "" {
			problems = append(problems, fmt.Errorf("%s: asset %q: want bucket/NAME or key/NAME", file, name))
		}
		if _, ok := byName[cloud.Key+"/"+spec.Key]; spec.Key != "" && !ok {
			problems = append(problems, fmt.Errorf("%s: asset %q: key %q is not in the file", file, name, spec.Key))
		}
		all[cloud.ID{Kind: kind, Name: rest}] = spec
	}
	if problems != nil {
		return nil, errors.Join(problems...)
	}
	return all, nil
}

// lines prints a line for each asset whose state has changed.
type lines struct {
	began   time.Time
	desired func(cloud.ID) bool

	mu            sync.Mutex // guards the fields below
	out           io.Writer
	last          map[cloud.ID]string // the last line of each asset
	runs, retries int
}

// printLocked prints a line with the time since the start.
func (l *lines) printLocked(format string, args ...any) {
	text := fmt.Sprintf("%7.1fs  ", time.Since(l.began).Seconds()) + fmt.Sprintf(format, args...)
	fmt.Fprintln(l.out, strings.TrimRight(text, " "))
}

// result is called after each run.
func (l *lines) result(r reconcile.Result[cloud.ID]) {
	if r.Outcome == reconcile.OutcomeAborted {
		return
	}
	state := string(r.Outcome)
	detail := fmt.Sprint(r.Err)
	switch r.Outcome {
	case reconcile.OutcomeSucceeded:
		state, detail = "in sync", ""
	case reconcile.OutcomeRetrying:
		detail = fmt.Sprintf("failure %d, next run in %v: %s", r.Failures, r.Next.Round(time.Millisecond), detail)
	case reconcile.OutcomeRequeued: // "creating by op-1: ", and what the RequeueError says
		var scheduled reconcile.RequeueError
		errors.As(r.Err, &scheduled)
		state, detail, _ = strings.Cut(strings.TrimSuffix(detail, ": "+scheduled.Error()), " ")
		if state == "keep:" {
			state = "waiting"
		}
	}
	l.mu.Lock()
	l.runs++
	if r.Outcome == reconcile.OutcomeRetrying {
		l.retries++
	}
	l.mu.Unlock()
	if r.Outcome != reconcile.OutcomeSucceeded || l.desired(r.Item) {
		l.print(r.Item, state, detail)
	}
}

// print prints a line for an asset, if it is not the last one.
func (l *lines) print(id cloud.ID, state, detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := fmt.Sprintf("%-22s %-10s %s", id, state, detail)
	if l.last[id] != line {
		l.last[id] = line
		l.printLocked("%s", line)
	}
}

// report prints how many of the desired assets are in sync.
func (l *lines) report(all specs) {
	l.mu.Lock()
	defer l.mu.Unlock()
	inSync := 0
	for id := range all {
		if strings.HasPrefix(l.last[id], fmt.Sprintf("%-22s in sync", id)) {
			inSync++
		}
	}
	l.printLocked("%d of %d assets in sync; runs %d, retries %d", inSync, len(all), l.runs, l.retries)
}
