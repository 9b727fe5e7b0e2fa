// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command example keeps the assets of a cloud, buckets and the keys that encrypt
// them, as a file says they shall be.
//
//	go run ./example                       # make it so, then end
//	go run ./example -watch -chaos         # stay, and mend what another hand breaks
//	go run ./example -assets FILE -watch   # edit the file and look what happens
//	go run ./example -n 20000              # as fast as it can
//	go run ./example -h                    # all flags
//
// The cloud is a simulation that it starts itself, or one that runs already:
//
//	go run ./example/cloud -chaos
//	go run ./example -cloud http://127.0.0.1:8900 -watch
//
// controller.go is the part to copy from, and control below puts it together.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	code, err := start(ctx, o, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return code
}

// start serves the cloud, if there is none yet, for as long as control works.
func start(ctx context.Context, o options, stdout, stderr io.Writer) (code int, err error) {
	if o.cloudURL == "" {
		url, _, stop, errStart := fakecloud.Start(o.cloud, "127.0.0.1:0")
		if errStart != nil {
			return 1, errStart
		}
		defer func() { err = errors.Join(err, stop()) }()
		o.cloudURL = url
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: o.workers + 8, // the default of 2 would open a connection for most requests
		IdleConnTimeout:     time.Minute,
	}
	defer transport.CloseIdleConnections()
	client := &cloud.Client{URL: o.cloudURL, Tenant: o.tenant, HTTP: &http.Client{Transport: transport}}
	return control(ctx, o, client, stdout, stderr)
}

// control puts all parts together and runs them until ctx is done or, unless it
// is to watch, nothing is left to do.
func control(ctx context.Context, o options, client *cloud.Client, stdout, stderr io.Writer) (code int, err error) {
	queue := reconcile.NewQueue[cloud.ID]()
	board := newBoard(queue)
	c := &controller{cloud: client, board: board, recheck: o.recheck, patience: time.Second}
	v := newView(o, client.URL, queue, board, stdout, stderr)
	board.moved = v.moved
	slog.SetDefault(newLogger(o, v.logs)) // all parts log there

	wishes := &wishFile{path: o.assets, board: board}
	if o.n > 0 {
		board.Want(generate(o.n))
	} else if _, err := wishes.load(); err != nil {
		return 1, err
	}

	// What happens to an asset concerns those that depend on it, too.
	changes := reconcile.Map(queue, c.withDependants)
	existing := &reconcile.Poller[cloud.ID]{
		Name: "existing", Queue: changes, GetItems: c.list,
		Period: o.poll, Jitter: 0.1, Vanished: true,
	}
	events := reconcile.Feed(changes, c.feed(existing.Trigger))

	var group reconcile.Group
	group.Add("assets", &reconcile.Reconciler[cloud.ID]{
		Name: "assets", Queue: queue, Reconcile: c.Reconcile, OnResult: c.result,
		Workers: o.workers, Timeout: 15 * time.Second, Grace: 2 * time.Second,
		Retry: reconcile.Backoff(200*time.Millisecond, 10*time.Second).Limit(o.retries),
	})
	group.Add("wanted", &reconcile.Poller[cloud.ID]{
		Name: "wanted", Queue: queue, GetItems: board.AllWanted,
		Period: o.poll, Jitter: 0.1,
	})
	group.Add("existing", existing)
	group.Add("events", reconcile.Restart(reconcile.Backoff(100*time.Millisecond, 5*time.Second), events))
	if o.n == 0 {
		group.Add("file", reconcile.RunFunc(func(ctx context.Context) error { return wishes.watch(ctx, v) }))
	}

	ctx, end := context.WithCancel(ctx)
	defer end()
	if !o.watch {
		group.Add("end", reconcile.RunFunc(func(ctx context.Context) error {
			select {
			case <-board.Done():
				end()
			case <-ctx.Done():
			}
			return nil
		}))
	}
	stopView := v.start(ctx)
	err = group.Run(ctx)
	stopView()
	if err != nil {
		return 1, err
	}
	return report(stdout, board, time.Since(v.began), o.watch), nil
}
