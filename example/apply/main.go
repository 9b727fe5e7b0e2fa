// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command apply brings the buckets of a cloud into the state of a file once, and ends. The
// cloud is a simulation in memory, which is empty at the start.
//
//	go run ./example/apply -timeout 30s example/apply/buckets.json
//	go run ./example/apply -dry-run example/apply/buckets.json
//
// The exit code is 0 if there was nothing to do or all of it is done, 1 if something
// failed, with the reasons, and with -dry-run 2 if there is something to do.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/cloud"
	"github.com/reconkernel/reconcile/keep"
)

func main() {
	timeout := flag.Duration("timeout", time.Minute, "how long to try")
	dryRun := flag.Bool("dry-run", false, "print what there is to do, and do nothing")
	maxDeleted := flag.Float64("max-deleted", 0.1, "the fraction of the existing buckets that may be deleted, and never all of them; 1 means no limit")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	fake := &cloud.Fake{Latency: 10 * time.Millisecond, Build: time.Second, Faults: 0.05}
	set, err := newSet(fake, flag.Arg(0), joined)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	set.MaxDeleted = *maxDeleted
	os.Exit(apply(ctx, set, *dryRun, os.Stdout, os.Stderr))
}

// apply returns the exit code.
func apply(ctx context.Context, set *buckets, dryRun bool, stdout, stderr io.Writer) int {
	if dryRun {
		plan, err := set.Plan(ctx)
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
		fmt.Fprint(stdout, plan)
		if plan.String() != "" {
			return 2
		}
		return 0
	}
	if err := set.Apply(ctx, &reconcile.Reconciler[string]{Workers: joined}); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

// newSet returns the Set of all buckets of a cloud. The desired ones are those of a file.
func newSet(c *cloud.Fake, file string, joined int) (*buckets, error) {
	var desired map[string]cloud.Spec
	if text, err := os.ReadFile(file); err != nil {
		return nil, err
	} else if err := json.Unmarshal(text, &desired); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	b := newBucketClient(c, joined)
	return &buckets{
		Desired:     func(context.Context) (map[string]cloud.Spec, error) { return desired, nil },
		Actual:      b.list,
		InSync:      func(_ cloud.Spec, actual *cloud.Asset) bool { return actual.State == cloud.Ready },
		Ensure:      b.ensure,
		Delete:      b.delete,
		DeleteAfter: -1, // the file is read once: to list it again shows the same
	}, nil
}

// buckets are all buckets of a cloud, by name.
type buckets = keep.Set[string, cloud.Spec, *cloud.Asset]
