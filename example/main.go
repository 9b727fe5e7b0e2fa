// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command example keeps the assets of a cloud, buckets and the keys that encrypt
// them, as a file says they shall be.
//
//	go run ./example                       # make it so, then end
//	go run ./example -watch -chaos         # stay, and mend what another hand breaks
//	go run ./example -http 127.0.0.1:8080  # stay, and show it in a browser
//	go run ./example -assets FILE -watch   # edit the file and look what happens
//	go run ./example -n 20000              # as fast as it can
//	go run ./example -h                    # all flags
//
// The cloud is a simulation that it starts itself, or one that runs already:
//
//	go run ./example/cloud -chaos
//	go run ./example -cloud http://127.0.0.1:8900 -watch
//
// The parts to copy from are controller.go, which is the reconcile function with
// what it needs, and control.go, which puts all together.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/reconkernel/reconcile/example/internal/cloud"
	"github.com/reconkernel/reconcile/example/internal/fakecloud"
	"github.com/reconkernel/reconcile/example/internal/program"
)

func main() { program.Main(run) }

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stderr)
	return program.Start(err, stderr, func() (int, error) { return start(ctx, o, stdout, stderr) })
}

// start serves the cloud, if there is none yet, for as long as control works.
func start(ctx context.Context, o options, stdout, stderr io.Writer) (code int, err error) {
	fmt.Fprintf(stdout, "%7.1fs  %s\n", 0., o) // at once, whatever comes
	if o.cloudURL == "" {
		url, stop, errStart := fakecloud.New(o.cloud).Start("127.0.0.1:0")
		if errStart != nil {
			return 1, errStart
		}
		defer func() { err = errors.Join(err, stop()) }()
		o.cloudURL = url
	}
	transport := &http.Transport{
		MaxIdleConnsPerHost: o.Workers + 8, // the default of 2 would open a connection for most requests
		IdleConnTimeout:     time.Minute,
	}
	defer transport.CloseIdleConnections()
	client := &cloud.Client{URL: o.cloudURL, Tenant: o.tenant, HTTP: &http.Client{Transport: transport}}
	return control(ctx, o, client, stdout, stderr)
}
