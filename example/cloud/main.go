// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command cloud starts the simulated cloud of the example alone, so that one or
// more controllers in other terminals can use it:
//
//	go run ./example/cloud -chaos
//	go run ./example -watch -cloud http://127.0.0.1:8900
package main

import (
	"context"
	"flag"
	"fmt"
	"io"

	"github.com/reconkernel/reconcile/example/internal/fakecloud"
	"github.com/reconkernel/reconcile/example/internal/program"
)

const usage = `Usage: go run ./example/cloud [flags]

Serves a simulated cloud until Ctrl-C, and prints its URL.

`

func main() { program.Main(run) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var config fakecloud.Config
	f := flag.NewFlagSet("cloud", flag.ContinueOnError)
	address := f.String("addr", "127.0.0.1:8900", "the `ADDRESS` to serve at; port 0 means any that is free")
	fakecloud.Flags(f, &config)
	err := program.Parse(f, usage, args, func(map[string]bool) error { return config.Check() }, stderr)
	return program.Start(err, stderr, func() (int, error) {
		url, dir, stop, err := fakecloud.Start(config, *address)
		if err != nil {
			return 1, err
		}
		fmt.Fprintf(stdout, "%s\nIts state is in %s; Ctrl-C ends it. In another terminal:\n  go run ./example -watch -cloud %s\n", url, dir, url)
		<-ctx.Done()
		return 0, stop()
	})
}
