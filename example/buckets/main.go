// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command buckets keeps the buckets of an S3 store as the rows of a PostgreSQL table say. Run
// it twice: one replica leads, and the other takes over.
//
//	go run . -local                # all on this machine: PostgreSQL, S3, two replicas
//	go run . -endpoint URL         # a replica, on other servers
//	go run . -h                    # all flags
//
// The database is that of DATABASE_URL. The keys of the store come from AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY, or from ~/.aws/credentials.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Options are the values of the flags.
type options struct {
	database, http, endpoint, region, owner string
	period, deleteAfter, lease              time.Duration
	local                                   bool
}

func main() {
	o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)).With("pid", os.Getpid()))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	run := runReplica
	if o.local {
		run = runLocal
	}
	if err := run(ctx, o); err != nil {
		slog.Error("ended", "err", err)
		os.Exit(1)
	}
}

// runReplica runs the service on the servers of the options.
func runReplica(ctx context.Context, o options) error {
	pool, err := pgxpool.New(ctx, o.database)
	if err != nil {
		return fmt.Errorf("DATABASE_URL: %w", err)
	}
	defer pool.Close()
	if most := pool.Config().MaxConns; most < 16 {
		return fmt.Errorf("DATABASE_URL allows %d connections, want pool_max_conns=16 or more: 8 for the runs, 5 for the lease, and listings", most)
	}
	s := &service{options: o, table: table{pool}}
	if s.store, err = openStore(o.endpoint, o.region, o.owner); err != nil {
		return err
	}
	if err := s.table.create(ctx); err != nil {
		return err
	}
	return s.run(ctx)
}

// parse reads the flags. If they ask for help, it ends the process.
func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("buckets", flag.ExitOnError)
	f.BoolVar(&o.local, "local", false, "start PostgreSQL, an S3 gateway and two replicas on this machine")
	f.StringVar(&o.http, "http", "127.0.0.1:8080", "serve the page and /metrics at `ADDRESS`")
	f.StringVar(&o.endpoint, "endpoint", "", "the `URL` of the S3 store; not with -local")
	f.StringVar(&o.region, "region", "us-east-1", "the `NAME` of the store's region")
	f.StringVar(&o.owner, "owner", "example", "the `NAME` that marks the buckets of this service")
	f.DurationVar(&o.period, "period", 30*time.Second, "time between two listings")
	f.DurationVar(&o.deleteAfter, "delete-after", 5*time.Minute, "how long all listings must lack a row before its bucket may be deleted")
	f.DurationVar(&o.lease, "lease", 15*time.Second, "how long the other replica waits for a leader that died")
	_ = f.Parse(args) // it ends the process
	o.database = os.Getenv("DATABASE_URL")
	switch {
	case f.NArg() > 0:
		err = fmt.Errorf("argument %q: there are only flags, see -h", f.Arg(0))
	case o.local == (o.endpoint != ""):
		err = errors.New("want -local, or the -endpoint of an S3 store")
	case !o.local && o.database == "":
		err = errors.New("DATABASE_URL is not set, want a URL as postgres://user@host/db?pool_max_conns=16")
	case o.owner == "":
		err = errors.New("-owner is empty: all buckets without an owner would be ours")
	case o.period < 10*time.Millisecond || o.deleteAfter < 10*time.Millisecond:
		err = fmt.Errorf("-period is %v and -delete-after %v, want 10ms or more", o.period, o.deleteAfter)
	}
	return o, err
}
