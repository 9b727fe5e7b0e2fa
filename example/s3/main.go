// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command s3 keeps the buckets of an S3 store as a file says they shall be.
//
//	go run .                       # make it so on a gateway of its own, then end
//	go run . -state state -watch   # stay, and correct what another client breaks
//	go run . -state state -plan    # say what there is to do, and do nothing
//	go run . -endpoint URL         # on any other S3 store
//	go run . -h                    # all flags
//
// The gateway is versitygw, a real S3 gateway over a folder. The first run builds
// it, which usually takes about two minutes, and says how far that is.
//
// The parts to copy from are bucket/controller.go, which is the reconcile
// function with what it needs, and control.go, which puts all together.
package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/s3/bucket"
	"github.com/reconkernel/reconcile/example/s3/internal/board"
	"github.com/reconkernel/reconcile/example/s3/internal/program"
	"github.com/reconkernel/reconcile/tracker"
)

func main() { program.Main(run) }

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stderr)
	return program.Start(err, stderr, func() (int, error) { return start(ctx, o, stdout, stderr) })
}

// A bucketBoard has the desired state of each bucket, and its progress.
type bucketBoard = board.Board[string, bucket.Spec]

// start reads the file, opens the store, and starts it before if there is none.
func start(ctx context.Context, o options, stdout, stderr io.Writer) (code int, err error) {
	b := board.New(reconcile.NewQueue[string](), bucket.Spec.Equal, strings.Compare)
	b.Lists = 3 // a store that has not answered by then may forbid to list its buckets
	read := tracker.FromFile(o.desired, func(text []byte) (map[string]bucket.Spec, error) { return bucket.Parse(o.desired, text) })
	specs := func(ctx context.Context) (changed int, err error) {
		specs, err := read(ctx)
		if specs == nil {
			return 0, err // there was no good version yet
		}
		return b.Want(slices.Sorted(maps.Keys(specs)), specs), err
	}
	if _, err := specs(ctx); err != nil {
		return 1, err
	}
	store, end, err := o.open(ctx, stdout, stderr)
	if err != nil {
		return 1, err
	}
	defer end()
	return control(ctx, o, specs, b, store, stdout, stderr)
}
