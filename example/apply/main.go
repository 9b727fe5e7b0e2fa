// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command apply creates the buckets of a cloud once, as a file says, and ends: with
// exit code 0 when all of them are ready, or with 1 and the reasons why some are not.
// The cloud is a simulation in memory.
//
//	go run ./example/apply -timeout 30s example/apply/buckets.json
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/cloud"
)

func main() {
	timeout := flag.Duration("timeout", time.Minute, "how long to try")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	fake := &cloud.Fake{Latency: 10 * time.Millisecond, Build: time.Second, Faults: 0.05}
	if err := apply(ctx, fake, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// apply returns nil once all buckets of the file are ready.
func apply(ctx context.Context, c *cloud.Fake, file string) error {
	var want map[string]cloud.Spec
	if text, err := os.ReadFile(file); err != nil {
		return err
	} else if err := json.Unmarshal(text, &want); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	loop := &reconcile.Reconciler[string]{Reconcile: newBuckets(c, want, joined).reconcile, Workers: joined}
	return loop.Apply(ctx, slices.Collect(maps.Keys(want))...)
}
