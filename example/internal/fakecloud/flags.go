// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package fakecloud

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/reconkernel/reconcile/example/internal/program"
)

const usage = `Usage: go run ./example/cloud [flags]

Serves a simulated cloud until Ctrl-C, and prints its URL.

`

// Main is the program that serves a cloud until ctx is done.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var config Config
	f := flag.NewFlagSet("cloud", flag.ContinueOnError)
	address := f.String("addr", "127.0.0.1:8900", "the `ADDRESS` to serve at; port 0 means any that is free")
	Flags(f, &config)
	err := program.Parse(f, usage, args, func(map[string]bool) error { return config.Check() }, stderr)
	return program.Start(err, stderr, func() (int, error) {
		url, stop, err := New(config).Start(*address)
		if err != nil {
			return 1, err
		}
		fmt.Fprintf(stdout, "%s\nCtrl-C ends it, with all that is in it. In another terminal:\n  go run ./example -watch -cloud %s\n", url, url)
		<-ctx.Done()
		return 0, stop()
	})
}

// Flags defines the flags that fill a Config, with defaults for a cloud that is
// worth looking at.
func Flags(f *flag.FlagSet, c *Config) {
	f.DurationVar(&c.Latency, "latency", 10*time.Millisecond, "how long an answer of the cloud takes, on average")
	f.DurationVar(&c.Build, "build", 700*time.Millisecond, "how long a creation in the background takes, on average")
	f.Float64Var(&c.Faults, "faults", 0.05, "the part of all requests and creations that fail, 0 to 0.9")
	f.Float64Var(&c.Rate, "rate", 0, "how many requests a second the cloud takes, 1 or more; 0 means any number")
	f.Uint64Var(&c.Seed, "seed", 0, "the `NUMBER` that all that is random comes from; 0 means another one each time")
	f.BoolFunc("chaos", "let another hand delete and alter assets, about three in two seconds", func(s string) error {
		on, err := strconv.ParseBool(s)
		if c.Chaos = 0; on {
			c.Chaos = 700 * time.Millisecond
		}
		return err
	})
}

// Check says which setting is out of its range.
func (c Config) Check() error {
	switch {
	case c.Latency < 0 || c.Latency > time.Hour:
		return fmt.Errorf("-latency is %v, want 0 to 1h", c.Latency)
	case c.Build < 0 || c.Build > time.Hour:
		return fmt.Errorf("-build is %v, want 0 to 1h", c.Build)
	case !(c.Faults >= 0 && c.Faults <= 0.9): // also a NaN
		return fmt.Errorf("-faults is %v, want 0 to 0.9", c.Faults)
	case c.Rate != 0 && !(c.Rate >= 1 && c.Rate <= 1e9): // also a NaN
		return fmt.Errorf("-rate is %v, want 0, or 1 to 1e9", c.Rate)
	}
	return nil
}
