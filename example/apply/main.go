// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command apply makes the buckets of a cloud once, as a file says, and ends: with
// exit code 0 when all of them are there, or with 1 and what cannot be, or is not
// there yet.
//
//	go run ./example/cloud
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
	"github.com/reconkernel/reconcile/example/internal/cloud"
)

func main() {
	url := flag.String("cloud", "http://127.0.0.1:8900", "the `URL` of the cloud")
	timeout := flag.Duration("timeout", time.Minute, "how long to try")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	if err := apply(ctx, &cloud.Client{URL: *url, Tenant: "apply"}, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// apply returns nil once all that the file wants is there.
func apply(ctx context.Context, c *cloud.Client, file string) error {
	var want map[string]cloud.Spec
	if text, err := os.ReadFile(file); err != nil {
		return err
	} else if err := json.Unmarshal(text, &want); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	loop := &reconcile.Reconciler[string]{Reconcile: newBuckets(c, want, joined).reconcile, Workers: joined}
	return loop.Apply(ctx, slices.Collect(maps.Keys(want))...)
}
