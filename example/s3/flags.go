// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"io"
	"log/slog"

	"github.com/reconkernel/reconcile/example/s3/internal/program"
)

// Options are what the flags say.
type options struct {
	storeOptions
	desired string
	plan    bool
	watch   bool
	purge   bool
	level   slog.Level
	verbose bool // log also what the lines say
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

It touches only buckets that bear its tag reconcile-owner, and those that are
desired and are as bare as a new one. Each bucket that it creates bears the
tag from the first moment on; README.md says on which stores it may not.

`

// parseFlags reads the flags. It has printed what is wrong, or the help, when
// it returns an error; that is flag.ErrHelp for the help.
func parseFlags(args []string, stderr io.Writer) (options, error) {
	o := options{storeOptions: defaults()}
	f := flag.NewFlagSet("s3", flag.ContinueOnError)
	o.storeFlags(f)
	f.StringVar(&o.desired, "desired", "desired.yaml", "the `FILE`, in YAML or JSON, with the desired buckets")
	f.BoolVar(&o.plan, "plan", false, "print what there is to do, and do nothing")
	f.BoolVar(&o.watch, "watch", false, "stay when all is in sync, and correct what changes")
	f.BoolVar(&o.purge, "purge", false, "remove buckets that left the file also if they are not empty, with all that is in them")
	f.TextVar(&o.level, "log", slog.LevelWarn, "how much is logged: debug, info, warn or error; if given, also the outcome of each run")
	err := program.Parse(f, usage, args, o.check, stderr)
	return o, err
}

func (o *options) check(given map[string]bool) error {
	o.verbose = given["log"]
	switch {
	case o.desired == "":
		return errors.New("-desired is empty, want a file")
	case o.plan && o.watch:
		return errors.New("-plan ends by itself, -watch does not; want one of them")
	}
	return o.checkStore(given)
}
