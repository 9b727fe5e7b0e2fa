// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/s3/bucket"
	"github.com/reconkernel/reconcile/example/s3/internal/board"
	"github.com/reconkernel/reconcile/example/s3/internal/program"
	"github.com/reconkernel/reconcile/gate"
)

// control puts all parts together and runs them until ctx is done or, unless it
// is to watch, nothing is left to do. It returns the exit code.
func control(ctx context.Context, o options, specs func(context.Context) (changed int, err error), b *bucketBoard, store *bucket.Store, stdout, stderr io.Writer) (int, error) {
	began := time.Now()
	out := &lines{w: stdout, last: map[string]string{}}
	// All parts log there, except what the lines say.
	slog.SetDefault(program.Logger(stderr, o.verbose, &slog.HandlerOptions{Level: o.level}))

	if !o.watch {
		o.Recheck = max(o.Recheck, time.Hour) // looks that are due all the time would put off the end
	}
	c := &bucket.Controller{
		Store: store, Owner: o.Owner, Recheck: o.Recheck, Purge: o.purge, Did: out.bucket,
		Desired: func(_ context.Context, name string) (bucket.Spec, bool, error) {
			spec, wanted := b.Wanted(name)
			return spec, wanted, nil
		},
	}
	if o.plan {
		c.Did = nil
		return plan(ctx, o, c, b, out)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()

	// The loop. When the store says that it has too much to do, nobody asks it.
	calls := &gate.Gate{Pause: bucket.Pause}
	var group reconcile.Group
	group.Add("buckets", &reconcile.Reconciler[string]{
		Name:      "buckets",
		Queue:     b.Queue,
		Reconcile: c.Reconcile,
		OnResult: func(r reconcile.Result[string]) {
			b.Result(r)
			out.result(r)
		},
		Workers:       o.Workers,
		Timeout:       30 * time.Second,
		Grace:         2 * time.Second,
		Retry:         reconcile.Backoff(200*time.Millisecond, 10*time.Second).Limit(o.Retries),
		RecheckJitter: 0.1, // what was made together is not looked at together for ever
		Admit:         calls.Admit,
	})

	// The desired state: the board enqueues the changes of the file. The poll
	// retries rejected buckets and buckets that are no longer retried.
	news := program.News(func(changed int, err error) {
		if err != nil {
			fmt.Fprintf(stderr, "%s is not used, the last good version stays in force:\n%v\n", o.desired, err)
			return
		}
		out.line(fmt.Sprintf("%s is in force, %s changed", o.desired, program.Count(changed, "bucket", "buckets")))
	})
	group.Add("file", &reconcile.Poller[string]{
		Name: "file", Queue: b.Queue, Period: 2 * time.Second, Logger: slog.New(slog.DiscardHandler), // it is said here
		GetItems: func(ctx context.Context) ([]string, error) {
			changed, err := specs(ctx)
			news(changed, err)
			return nil, err
		},
	})
	group.Add("foreign", &reconcile.Poller[string]{
		Name: "foreign", Queue: b.Queue, GetItems: b.AllWanted, Period: o.Poll, Jitter: 0.1,
	})

	// What is there: S3 has no events that could be had everywhere, so this is a
	// poll. It finds buckets that are no longer desired. The poll of the desired ones
	// finds what another client has removed. A change inside a bucket is found by the recheck
	// into it that Reconcile asks for when it is in sync.
	group.Add("existing", &reconcile.Poller[string]{
		Name: "existing", Queue: b.Queue, Period: o.Poll, Jitter: 0.1,
		GetItems: func(ctx context.Context) ([]string, error) {
			names, err := store.List(ctx)
			b.Listed(names, func(int, bucket.Spec) bool { return true }, err)
			return names, err
		},
	})

	if !o.watch {
		group.Add("end", reconcile.RunFunc(func(ctx context.Context) error {
			defer end()
			return b.Wait(ctx)
		}))
	}
	if err := group.Run(ctx); err != nil {
		return 1, err
	}
	return b.Report(stdout, "bucket", "buckets", time.Since(began), o.watch), nil
}

// plan prints what there is to do for each bucket, in the order of their names.
// The same loop serves for it: a queue that is closed ends the loop when it is
// empty.
func plan(ctx context.Context, o options, c *bucket.Controller, b *bucketBoard, out *lines) (int, error) {
	desired, _ := b.AllWanted(ctx)
	there, err := c.Store.List(ctx)
	if err != nil {
		return 1, err
	}
	queue := reconcile.NewQueue[string]()
	for _, name := range slices.Concat(desired, there) {
		queue.Offer(name)
	}
	queue.Close()

	var mu sync.Mutex // guards the fields below
	todo := map[string]string{}
	bad := 0
	r := reconcile.Reconciler[string]{
		Name: "plan", Queue: queue, Workers: o.Workers, Timeout: 30 * time.Second,
		Reconcile: func(ctx context.Context, name string) error {
			steps, err := c.Plan(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case len(steps) > 0:
				todo[name] = strings.Join(steps, ", ")
			case err == nil, errors.Is(err, bucket.NotOurs):
			case errors.Is(err, bucket.Kept):
				todo[name] = "nothing: kept: " + board.Reason(bucket.Kept, err)
			default:
				todo[name] = "cannot be: " + board.Reason(board.Rejected, err)
				bad++
			}
			return nil
		},
	}
	if err := r.Run(ctx); err != nil {
		return 1, err
	}
	if ctx.Err() != nil {
		out.line("interrupted")
		return 1, nil
	}
	for _, name := range slices.Sorted(maps.Keys(todo)) {
		out.bucket(name, todo[name])
	}
	out.line(fmt.Sprintf("%s desired, %d to report; nothing was done", program.Count(len(desired), "bucket", "buckets"), len(todo)))
	return min(bad, 1), nil
}

// Lines writes whole lines from many goroutines.
type lines struct {
	mu   sync.Mutex // guards the fields below
	w    io.Writer
	last map[string]string // of each bucket
}

func (l *lines) line(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.w, text)
}

// bucket tells of a bucket, unless that is what it has told last.
func (l *lines) bucket(name, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last[name] != text {
		fmt.Fprintf(l.w, "%-24s %s\n", name, text)
		l.last[name] = text
	}
}

// result tells how a run ended, except that a bucket is gone, as the step was told,
// or not ours: most of them are nobody's business here.
func (l *lines) result(r reconcile.Result[string]) {
	s := board.StatusOf(r)
	text := string(s)
	if why := board.Reason(s, r.Err); why != "" {
		text += ": " + why
	}
	if r.Outcome != reconcile.Aborted && s != board.Removed && s != bucket.NotOurs {
		l.bucket(r.Item, text)
	}
}
