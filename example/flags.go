// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/reconkernel/reconcile/example/internal/fakecloud"
	"github.com/reconkernel/reconcile/example/internal/program"
)

// Options are what the flags say.
type options struct {
	program.Loop
	assets   string // the file; "" means the shipped assets
	n        int
	watch    bool
	cloudURL string           // "" means to start one
	cloud    fakecloud.Config // that one
	tenant   string
	budget   int    // runs a second; 0 means any number
	http     string // where to serve the live page; "" means not at all
	lines    bool
	level    slog.Level
	verbose  bool // log also what the view shows
}

// String says what is to happen.
func (o options) String() string {
	what, where := cmp.Or(o.assets, "assets.json, as it was shipped"), "a cloud that is simulated here"
	if o.n > 0 {
		what = program.Count(o.n, "made-up asset", "made-up assets")
	}
	if o.cloudURL != "" {
		where = "the cloud at " + o.cloudURL
	}
	return fmt.Sprintf("example: %s, in %s", what, where)
}

const usage = `Usage: go run ./example [flags]

Makes the buckets and keys of a cloud what a file says they shall be. The cloud
is a simulation on this machine. The program ends with exit code 0 once all that
is wanted is in sync. If something cannot be, it says what and why, and the exit
code is 1. With -watch it stays and mends what changes, until Ctrl-C; the exit
code is then 0.

`

// defaultAssets is the shipped file, for someone who is at the root of the
// module. Elsewhere the copy in the program serves.
const defaultAssets = "example/assets.json"

// parseFlags reads the flags. It has printed what is wrong, or the help, when
// it returns an error; that is flag.ErrHelp for the help.
func parseFlags(args []string, stderr io.Writer) (o options, err error) {
	f := flag.NewFlagSet("example", flag.ContinueOnError)
	f.StringVar(&o.assets, "assets", defaultAssets, "the `FILE` that says what is wanted; it is read again when it changes")
	f.IntVar(&o.n, "n", 0, "want `N` made-up assets instead of those of a file")
	f.BoolVar(&o.watch, "watch", false, "stay when all is in sync, and mend what changes")
	f.StringVar(&o.cloudURL, "cloud", "", "use the cloud at `URL`, started with go run ./example/cloud")
	fakecloud.Flags(f, &o.cloud)
	f.StringVar(&o.tenant, "tenant", "example", "the `NAME` of the tenant that owns the assets")
	o.Loop = program.Loop{Workers: 100, Retries: 12, Poll: 30 * time.Second, Recheck: time.Minute}
	o.Loop.Flags(f, "asset")
	f.IntVar(&o.budget, "budget", 0, "start at most `N` runs a second, where the cloud takes so many; 0 means any number")
	f.StringVar(&o.http, "http", "", "serve a live page of what happens at `ADDRESS`, as 127.0.0.1:8080, and stay as with -watch")
	f.BoolVar(&o.lines, "lines", false, "print lines on a terminal too, not a table")
	f.TextVar(&o.level, "log", slog.LevelWarn, "the `LEVEL` from which on the loop logs each run: debug, info, warn or error;\nwithout it only what is not seen otherwise is logged")
	err = program.Parse(f, usage, args, o.check, stderr)
	return o, err
}

// check completes the options, or says what is wrong with them.
func (o *options) check(given map[string]bool) error {
	if given["assets"] && given["n"] {
		return fmt.Errorf("-assets and -n exclude each other")
	}
	if given["cloud"] {
		for _, name := range []string{"build", "chaos", "faults", "latency", "rate", "seed"} {
			if given[name] {
				return fmt.Errorf("-%s is for a cloud that is started here; give it to go run ./example/cloud", name)
			}
		}
	}
	if u, err := url.Parse(o.cloudURL); given["cloud"] && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("-cloud is %q, want a URL as http://127.0.0.1:8900", o.cloudURL)
	}
	o.cloudURL = strings.TrimRight(o.cloudURL, "/")
	if _, port, err := net.SplitHostPort(o.http); given["http"] && (err != nil || port == "" || port == "0") {
		return fmt.Errorf("-http is %q, want an address with a port as 127.0.0.1:8080", o.http)
	}
	o.watch = o.watch || given["http"]
	switch {
	case given["n"] && o.n < 1:
		return fmt.Errorf("-n is %d, want 1 or more", o.n)
	case o.budget < 0:
		return fmt.Errorf("-budget is %d, want 0 (which means any number) or more", o.budget)
	case o.tenant == "":
		return fmt.Errorf("-tenant is empty, want a name")
	}
	if err := cmp.Or(o.Check(), o.cloud.Check()); err != nil {
		return err
	}
	if _, err := os.Stat(o.assets); err != nil && !given["assets"] {
		o.assets = ""
	}
	o.verbose = given["log"]
	return nil
}
