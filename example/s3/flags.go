// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"regexp"
	"time"
)

// Options are the values of the flags.
type options struct {
	desired, endpoint, region, owner, state, http string
	plan, watch, purge                            bool
	workers, retries                              int
	poll, recheck                                 time.Duration
	maxDeleted                                    float64
	level                                         slog.Level
}

const usage = `Usage: go run . [flags]

Brings the buckets of an S3 store into the state that a file desires. It ends with
exit code 0 once all desired buckets are in sync. If a bucket cannot be, it prints
the bucket and the reason, and the exit code is 1. With -watch it stays, reads the
file again when it changes and corrects changes by other clients, until Ctrl-C; the
exit code is then 0.

Without -endpoint the store is versitygw, a real S3 gateway, started on loopback
over a folder; the first run builds it, in about two minutes. With -endpoint,
the keys come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or from
~/.aws/credentials.

It changes only buckets that have its tag reconcile-owner, and desired buckets
without tags, objects and settings. If too many buckets have left the file at once,
it deletes none of them: see -max-deleted.

`

// parseFlags reads the flags. If they are wrong, or ask for help, it ends the process.
func parseFlags(args []string) options {
	var o options
	f := flag.NewFlagSet("s3", flag.ExitOnError)
	f.Usage = func() {
		fmt.Fprint(f.Output(), usage)
		f.PrintDefaults()
	}
	f.StringVar(&o.desired, "desired", "desired.yaml", "the `FILE`, in YAML or JSON, with the desired buckets")
	f.BoolVar(&o.plan, "plan", false, "print what there is to do, and do nothing")
	f.BoolVar(&o.watch, "watch", false, "stay when all is in sync, and correct what changes")
	f.StringVar(&o.http, "http", "", "serve a live page at `ADDRESS`, such as 127.0.0.1:8080, and stay as with -watch")
	f.BoolVar(&o.purge, "purge", false, "remove buckets that left the file also if they are not empty, with all that is in them")
	f.Float64Var(&o.maxDeleted, "max-deleted", 0.1, "the fraction of the existing buckets that may leave the file at once and be deleted, and never all of them; 1 means no limit")
	f.StringVar(&o.endpoint, "endpoint", "", "use the S3 store at `URL`; without it, a gateway is started")
	f.StringVar(&o.region, "region", "us-east-1", "the `NAME` of the store's region")
	f.StringVar(&o.owner, "owner", "example", "the `NAME` that marks the buckets of this controller")
	f.StringVar(&o.state, "state", "", "the `FOLDER` of the gateway that it starts; without it, one that is gone at the end")
	f.IntVar(&o.workers, "workers", 16, "how many buckets are reconciled at once")
	f.IntVar(&o.retries, "retries", 8, "how often in a row a failed bucket is retried")
	f.DurationVar(&o.poll, "poll", 30*time.Second, "time between two listings")
	f.DurationVar(&o.recheck, "recheck", 5*time.Minute, "time within which each bucket in sync is checked, besides its tags, which a listing shows")
	f.TextVar(&o.level, "log", slog.LevelInfo, "the least `LEVEL` that is logged: debug, which has each run, info, warn or error")
	_ = f.Parse(args) // it ends the process
	if f.NArg() > 0 {
		fail(2, fmt.Errorf("argument %q: there are only flags, see -h", f.Arg(0)))
	}
	given := map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if err := o.check(given); err != nil {
		fail(2, err)
	}
	o.watch = o.watch || o.http != ""
	return o
}

var validOwner = regexp.MustCompile(`^[A-Za-z0-9 +=._:/@-]{1,100}$`)

// check returns an error if a flag is out of its range.
func (o *options) check(given map[string]bool) error {
	switch {
	case o.desired == "":
		return errors.New("-desired is empty, want a file")
	case o.plan && (o.watch || o.http != ""):
		return errors.New("-plan ends by itself, -watch and -http do not; want one of them")
	case given["endpoint"] && given["state"]:
		return errors.New("-state is for the gateway that is started without -endpoint; want one of them")
	case given["endpoint"] && o.endpoint == "":
		return errors.New("-endpoint is empty, want a URL as https://s3.eu-central-1.amazonaws.com")
	case o.region == "":
		return errors.New("-region is empty, want a name as us-east-1")
	case !validOwner.MatchString(o.owner):
		return fmt.Errorf("-owner is %q, want 1 to 100 letters, digits, spaces and + - = . _ : / @", o.owner)
	case !(o.maxDeleted > 0 && o.maxDeleted <= 1): // also a NaN
		return fmt.Errorf("-max-deleted is %v, want more than 0, and 1 at most", o.maxDeleted)
	case o.workers < 1:
		return fmt.Errorf("-workers is %d, want 1 or more", o.workers)
	case o.retries < 0:
		return fmt.Errorf("-retries is %d, want 0 or more", o.retries)
	case o.poll < time.Millisecond:
		return fmt.Errorf("-poll is %v, want 1ms or more", o.poll)
	case o.recheck < time.Millisecond:
		return fmt.Errorf("-recheck is %v, want 1ms or more", o.recheck)
	}
	return nil
}
