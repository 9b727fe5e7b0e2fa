// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command s3 keeps the buckets of an S3 store in the state that a file desires.
//
//	go run .                       # until all are in sync, on a gateway of its own, then end
//	go run . -state state -watch   # stay, and correct what another client changes
//	go run . -state state -plan    # print what there is to do, and do nothing
//	go run . -http 127.0.0.1:8080  # stay, and show it in a browser
//	go run . -endpoint URL         # on any other S3 store
//	go run . -h                    # all flags
//
// The gateway is versitygw, a real S3 gateway over a folder. The first run builds it,
// which usually takes about two minutes, and logs the progress.
//
// The functions of the desired-state set are in bucket/controller.go; this file puts all
// parts together.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/s3/bucket"
	"github.com/reconkernel/reconcile/example/s3/local"
	"github.com/reconkernel/reconcile/gate"
	"github.com/reconkernel/reconcile/statuspage"
	"github.com/reconkernel/reconcile/tracker"
)

func main() {
	o := parseFlags(os.Args[1:])
	slog.SetLogLoggerLevel(o.level)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	if err := run(ctx, o, os.Stdout); err != nil {
		fail(1, err)
	}
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(code)
}

// specs are the desired buckets by name.
type specs = map[string]bucket.Spec

// run keeps the buckets until ctx is done or, without -watch, until nothing is left to do.
// It returns an error if a bucket cannot be in sync.
func run(ctx context.Context, o options, stdout io.Writer) error {
	read := tracker.FromFile(o.desired, func(text []byte) (specs, error) { return bucket.Parse(o.desired, text) })
	first, err := read(ctx)
	if err != nil {
		return err
	}
	store, end, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer end()

	// Both sides are listed and compared. While the file is not valid, its last valid
	// version counts, and the poll of the file below logs the reason.
	queue := reconcile.NewQueue[string]()
	c := &bucket.Controller{Store: store, Owner: o.owner, Purge: o.purge}
	set := c.Set(queue)
	set.Name, set.Period, set.Jitter, set.Resync, set.MaxDeleted = "buckets", o.poll, 0.1, o.recheck, o.maxDeleted
	set.DeleteAfter = -1 // a valid file is complete
	set.Desired = func(ctx context.Context) (specs, error) {
		all, _ := read(ctx)
		return all, nil
	}
	set.Lookup = func(ctx context.Context, name string, _ bucket.Spec) (bucket.Spec, bool, error) {
		now, err := read(ctx) // the file as it is now, and not as it was listed
		spec, ok := now[name]
		if ok { // the last valid file counts, but deletes nothing
			err = nil
		}
		return spec, ok, err
	}

	// The loop, with a gate that pauses all runs while the store is down.
	calls := &gate.Gate{Pause: store.Pause}
	loop := &reconcile.Reconciler[string]{
		Queue: queue, Reconcile: set.Reconcile,
		Workers: o.workers,
		Timeout: 30 * time.Second,
		Grace:   2 * time.Second,
		Retry:   reconcile.Backoff(200*time.Millisecond, 10*time.Second).Limit(o.retries),
		Admit:   calls.Admit,
	}
	if !o.watch {
		// Once. A listing shows the tags alone, so each desired bucket is checked.
		set.InSync = func(bucket.Spec, map[string]string) bool { return false }
		if o.plan {
			return plan(ctx, c, set, first, stdout)
		}
		if err := set.Apply(ctx, loop); err != nil {
			return err
		}
		slog.Info("all desired buckets are in sync", "buckets", len(first))
		return nil
	}

	group := &statuspage.Group{Name: "Runners"}
	if o.http != "" {
		desired := func(name string) bool { _, ok, _, _ := set.Listed(name); return ok }
		buckets := &statuspage.Loop[string]{Name: "buckets", Queue: queue, Desired: desired}
		loop.OnResult = buckets.OnResult(nil)
		page := statuspage.New(buckets, &statuspage.Listing{Name: "buckets", Of: set}, &statuspage.Gate{Name: "store", Gate: calls}, group)
		page.Title, page.AllowActions = "Buckets", true // whoever reaches the page may press its buttons
		group.Add("page", statuspage.Serve(o.http, page))
	}
	group.Add("buckets", loop)
	group.Add("listings", set)

	// S3 has no events that all stores offer. The file has: its change is listed at once.
	last := first
	group.Add("file", &reconcile.Poller[string]{
		Queue: queue, Period: 2 * time.Second,
		GetItems: func(ctx context.Context) ([]string, error) {
			now, err := read(ctx)
			if !maps.EqualFunc(now, last, bucket.Spec.Equal) {
				last = now
				reconcile.Logger(ctx).Info("a new version is in force", "file", o.desired)
				set.Trigger()
			}
			return nil, err // which is logged
		},
	})
	return group.Run(ctx)
}

// plan prints what there is to do for each bucket, in the order of their names.
func plan(ctx context.Context, c *bucket.Controller, set *bucket.Set, desired specs, stdout io.Writer) error {
	p, err := set.Plan(ctx)
	if err != nil {
		return err
	}
	n, problems := 0, []error{p.Rejected}
	for _, name := range slices.Sorted(slices.Values(slices.Concat(p.Create, p.Update, p.Delete))) {
		spec, wanted := desired[name]
		changes, err := c.Plan(ctx, name, spec, wanted)
		switch {
		case err != nil && wanted:
			problems = append(problems, fmt.Errorf("bucket %s: %w", name, err))
			continue
		case err != nil:
			changes = err.Error()
		case changes == "":
			continue
		}
		n++
		fmt.Fprintf(stdout, "%-24s %s\n", name, changes)
	}
	fmt.Fprintf(stdout, "%d buckets desired, %d to report; nothing was done\n", len(desired), n)
	return errors.Join(problems...)
}

// open opens the store, and starts a gateway before if there is none. Wrong keys are an
// error at once, because all buckets would be rejected. End must be called after the last
// run has ended.
func open(ctx context.Context, o options) (store *bucket.Store, end func(), err error) {
	keys, stop := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}), func() {}
	if o.endpoint == "" {
		gateway, stopGateway, err := local.Start(ctx, o.state, os.Stderr)
		if err != nil {
			return nil, nil, err
		}
		slog.Info("versitygw runs", "url", gateway.URL, "process", gateway.PID(), "buckets", gateway.Buckets)
		o.endpoint, stop = gateway.URL, stopGateway
		keys = credentials.NewStaticV4(gateway.AccessKey, gateway.SecretKey, "")
	} else if value, err := keys.GetWithContext(nil); err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "" {
		return nil, nil, errors.New("there are no keys for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = o.workers + 8 // the default of 2 would open a connection for most requests
	end = func() {
		transport.CloseIdleConnections()
		stop()
	}
	store, err = bucket.Open(o.endpoint, o.region, keys, transport)
	if err == nil {
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if _, errList := store.List(short); bucket.BadCredentials(errList) { // all else may pass
			err = fmt.Errorf("%s refuses the keys, which are from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or ~/.aws/credentials: %w", o.endpoint, errList)
		}
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return store, end, nil
}
