// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/program"
	"github.com/reconkernel/reconcile/example/s3/bucket"
)

// control puts all parts together and runs them until ctx is done or, unless it
// is to watch, nothing is left to do. It returns the exit code.
func control(ctx context.Context, o options, file *bucket.File, store *bucket.Store, stdout, stderr io.Writer) (int, error) {
	began := time.Now()
	out := &lines{w: stdout}
	// All parts log there, except what the lines say.
	slog.SetDefault(program.Logger(stderr, o.verbose, &slog.HandlerOptions{Level: o.level}))

	wishes := file.Wishes
	if err := greet(ctx, o, store); err != nil {
		return 1, err
	}
	if !o.watch {
		o.Recheck = max(o.Recheck, time.Hour) // looks that are due all the time would put off the end
	}
	c := &bucket.Controller{
		Store: store, Wish: wishes.Get, Owner: o.owner, Recheck: o.Recheck, Purge: o.purge,
	}
	if o.plan {
		return plan(ctx, o, c, wishes, out)
	}

	queue := reconcile.NewQueue[string]()
	p := newProgress(queue, wishes)
	c.Did = func(name, what string) {
		out.bucket(name, what)
		p.did(name)
	}
	p.news = func(name string, s bucket.Status, err error) {
		switch s {
		case bucket.InSync:
			out.bucket(name, string(s))
		case removed: // the step was told
		case bucket.NotOurs: // most of them are nobody's business here
		case bucket.Kept, bucket.Busy:
			out.bucket(name, reason(err))
		default:
			out.bucket(name, string(s)+": "+reason(err))
		}
	}
	file.Told = func(changed int, err error) {
		if err != nil {
			fmt.Fprintf(stderr, "%s is not used, the last good version stays in force:\n%v\n", o.wishes, err)
			return
		}
		out.line(fmt.Sprintf("%s is in force, %s changed", o.wishes, program.Count(changed, "bucket", "buckets")))
	}
	wished, _ := wishes.Names(ctx)
	for _, name := range wished {
		queue.Enqueue(name)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()

	// The loop.
	var group reconcile.Group
	group.Add("buckets", &reconcile.Reconciler[string]{
		Name:      "buckets",
		Queue:     queue,
		Reconcile: c.Reconcile,
		OnResult:  p.result,
		Workers:   o.Workers,
		Timeout:   30 * time.Second,
		Grace:     2 * time.Second,
		Retry:     reconcile.Backoff(200*time.Millisecond, 10*time.Second).Limit(o.Retries),
	})

	// What is wished for: what changes in the file comes as an event. The poll
	// gives what was refused or given up another try.
	group.Add("file", reconcile.Feed(queue, file.Feed))
	group.Add("wished", &reconcile.Poller[string]{
		Name: "wished", Queue: queue, GetItems: wishes.Names, Period: o.Poll, Jitter: 0.1,
	})

	// What is there: S3 has no events that could be had everywhere, so this is a
	// poll. It finds what nobody wishes for any more, and, by Vanished, what
	// another hand has removed. What changes inside a bucket is found by the look
	// into it that Reconcile asks for when it is in sync.
	group.Add("existing", &reconcile.Poller[string]{
		Name: "existing", Queue: queue, Period: o.Poll, Jitter: 0.1, Vanished: true,
		GetItems: func(ctx context.Context) ([]string, error) {
			names, err := store.List(ctx)
			p.list(names, err)
			return names, err
		},
	})

	done := false
	if !o.watch {
		group.Add("end", reconcile.RunFunc(func(ctx context.Context) error {
			done = p.wait(ctx) == nil
			end()
			return nil
		}))
	}
	if err := group.Run(ctx); err != nil {
		return 1, err
	}
	return report(out, p.total(), time.Since(began), o.watch, done), nil
}

// greet asks the store for its buckets once. Wrong keys end the program at once:
// each bucket would be refused. All else may pass.
func greet(ctx context.Context, o options, store *bucket.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := store.List(ctx); bucket.BadCredentials(err) {
		return fmt.Errorf("%s refuses the keys, which are from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or ~/.aws/credentials: %w", o.endpoint, err)
	}
	return nil
}

// plan prints what there is to do for each bucket, in the order of their names.
// The same queue and the same loop serve for it: a queue that is closed ends the
// loop when it is empty.
func plan(ctx context.Context, o options, c *bucket.Controller, wishes *bucket.Wishes, out *lines) (int, error) {
	wished, _ := wishes.Names(ctx)
	there, err := c.Store.List(ctx)
	if err != nil {
		return 1, err
	}
	queue := reconcile.NewQueue[string]()
	for _, name := range slices.Concat(wished, there) {
		queue.Offer(name)
	}
	queue.Close()

	var mu sync.Mutex // guards the fields below
	todo := map[string]string{}
	bad := 0
	r := reconcile.Reconciler[string]{
		Name: "plan", Queue: queue, Workers: o.Workers, Timeout: 30 * time.Second, Retry: reconcile.NoRetry,
		Reconcile: func(ctx context.Context, name string) error {
			steps, err := c.Plan(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			if len(steps) > 0 {
				todo[name] = strings.Join(steps, ", ")
			}
			return err
		},
		OnResult: func(r reconcile.Result[string]) {
			mu.Lock()
			defer mu.Unlock()
			switch s := statusOf(r); s {
			case removed, bucket.InSync, bucket.NotOurs:
			case bucket.Kept:
				todo[r.Item] = "nothing: " + reason(r.Err)
			default:
				todo[r.Item] = "cannot be: " + reason(r.Err)
				bad++
			}
		},
	}
	if err := r.Run(ctx); err != nil {
		return 1, err
	}
	if ctx.Err() != nil {
		out.line("interrupted")
		return 1, nil
	}
	names := make([]string, 0, len(todo))
	for name := range todo {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out.bucket(name, todo[name])
	}
	out.line(fmt.Sprintf("%s wished for, %d with something to say; nothing was done", program.Count(len(wished), "bucket", "buckets"), len(todo)))
	return min(bad, 1), nil
}

// report prints how it ended, and returns the exit code.
func report(out *lines, t total, took time.Duration, watch, done bool) int {
	if !watch && !done {
		out.line("interrupted")
	}
	out.line(fmt.Sprintf("%d of %s in sync after %.1fs, %s", t.inSync, program.Count(t.wanted, "bucket", "buckets"), took.Seconds(), program.Count(t.runs, "run", "runs")))
	if len(t.kept) > 0 {
		out.line(fmt.Sprintf("kept, as they are not empty: %s", strings.Join(t.kept, ", ")))
	}
	if len(t.bad) > 0 {
		out.line("cannot be:")
		for _, text := range t.bad {
			out.line("  " + strings.ReplaceAll(text, "\n", " "))
		}
	}
	if t.unlisted != nil {
		out.line(fmt.Sprintf("what is there besides is not known: %v", t.unlisted))
	}
	if watch || done && len(t.bad) == 0 && t.unlisted == nil {
		return 0
	}
	return 1
}

// reason gives an error without what the loop makes of it.
func reason(err error) string {
	text := err.Error()
	var plan reconcile.RequeueError
	if errors.As(err, &plan) {
		text = strings.TrimSuffix(text, ": "+plan.Error())
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// Lines writes whole lines from many goroutines.
type lines struct {
	mu sync.Mutex // guards w
	w  io.Writer
}

func (l *lines) line(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.w, text)
}

func (l *lines) bucket(name, text string) { l.line(fmt.Sprintf("%-24s %s", name, text)) }
