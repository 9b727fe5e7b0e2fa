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
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/reconkernel/reconcile/example/internal/fakecloud"
	"github.com/reconkernel/reconcile/example/internal/flags"
)

const usage = `Usage: go run ./example/cloud [flags]

Serves a simulated cloud until Ctrl-C, and prints its URL.

`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var config fakecloud.Config
	f := flag.NewFlagSet("cloud", flag.ContinueOnError)
	address := f.String("addr", "127.0.0.1:8900", "the `ADDRESS` to serve at; port 0 means any that is free")
	fakecloud.Flags(f, &config)
	switch err := flags.Parse(f, usage, args, func() error { return config.Check() }, stderr); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	url, dir, stop, err := fakecloud.Start(config, *address)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	fmt.Fprintf(stdout, "%s\nIts state is in %s; Ctrl-C ends it. In another terminal:\n  go run ./example -watch -cloud %s\n", url, dir, url)
	<-ctx.Done()
	if err := stop(); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}
