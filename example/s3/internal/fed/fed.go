// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package fed is what the programs that are fed by something else than a file
// have in common: their flags and their store.
package fed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/reconkernel/reconcile/example/internal/program"
	"github.com/reconkernel/reconcile/example/s3/bucket"
	"github.com/reconkernel/reconcile/example/s3/local"
)

// Options are what the flags say.
type Options struct {
	Endpoint string // "" means to start a gateway
	Region   string
	Owner    string
	Poll     time.Duration
	Recheck  time.Duration
}

// Flags adds the flags for them.
func (o *Options) Flags(f *flag.FlagSet) {
	f.StringVar(&o.Endpoint, "endpoint", "", "use the S3 store at `URL`, with the keys from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; without it, a gateway is started")
	f.StringVar(&o.Region, "region", "us-east-1", "the `NAME` of the store's region")
	f.StringVar(&o.Owner, "owner", "example", "the `NAME` that marks the buckets of this controller")
	f.DurationVar(&o.Poll, "poll", 30*time.Second, "how often to list what is there and what is wished for")
	f.DurationVar(&o.Recheck, "recheck", 5*time.Minute, "how often to look into a bucket that is in sync")
}

func (o *Options) check(map[string]bool) error {
	switch {
	case o.Owner == "":
		return errors.New("-owner is empty, want a name")
	case o.Poll <= 0:
		return fmt.Errorf("-poll is %v, want more than 0", o.Poll)
	case o.Recheck <= 0:
		return fmt.Errorf("-recheck is %v, want more than 0", o.Recheck)
	}
	return nil
}

// Run reads the flags, those of o and others, and runs a program with them. It
// returns the exit code, as [program.Start] does.
func (o *Options) Run(f *flag.FlagSet, args []string, stderr io.Writer, run func() error) int {
	err := program.Parse(f, "Usage: go run . [flags]\n\n", args, o.check, stderr)
	return program.Start(err, stderr, func() (int, error) { return 0, run() })
}

// Open opens the store, and starts a gateway before if there is none. End is to
// be called after the runs in flight, which need it.
func (o *Options) Open(ctx context.Context, stderr io.Writer) (store *bucket.Store, end func(), err error) {
	keys, end := credentials.NewEnvAWS(), func() {}
	if o.Endpoint == "" {
		gateway, stop, err := local.Start(ctx, "", stderr)
		if err != nil {
			return nil, nil, err
		}
		o.Endpoint, end = gateway.URL, stop
		keys = credentials.NewStaticV4(gateway.AccessKey, gateway.SecretKey, "")
	}
	if store, err = bucket.Open(o.Endpoint, o.Region, keys, nil); err != nil {
		end()
		return nil, nil, err
	}
	return store, end, nil
}
