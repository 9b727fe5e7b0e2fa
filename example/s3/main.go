// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command s3 keeps the buckets of an S3 store as a file says they shall be.
//
//	go run .                       # make it so on a gateway of its own, then end
//	go run . -state state -watch   # stay, and mend what another hand breaks
//	go run . -state state -plan    # say what there is to do, and do nothing
//	go run . -endpoint URL         # on any other S3 store
//	go run . -h                    # all flags
//
// The gateway is versitygw, a real S3 gateway over a folder. The first run builds
// it, which usually takes about two minutes, and says how far that is.
//
// The parts to copy from are bucket/controller.go, which is the reconcile
// function with what it needs, and control.go, which puts all together.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/reconkernel/reconcile/example/internal/program"
	"github.com/reconkernel/reconcile/example/s3/bucket"
	"github.com/reconkernel/reconcile/example/s3/local"
)

func main() { program.Main(run) }

// run is the whole program. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stderr)
	return program.Start(err, stderr, func() (int, error) { return start(ctx, o, stdout, stderr) })
}

// start reads the file, opens the store, and starts it before if there is none.
func start(ctx context.Context, o options, stdout, stderr io.Writer) (code int, err error) {
	file := &bucket.File{Path: o.wishes, Wishes: &bucket.Wishes{}}
	if _, err := file.Load(ctx); err != nil {
		return 1, err
	}
	keys := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}})
	if o.endpoint == "" {
		gateway, stop, err := local.Start(ctx, o.state, stderr)
		if err != nil {
			return 1, err
		}
		defer stop()
		fmt.Fprintf(stdout, "versitygw at %s (process %d) over %s\n", gateway.URL, gateway.PID(), gateway.Buckets)
		o.endpoint = gateway.URL
		keys = credentials.NewStaticV4(gateway.AccessKey, gateway.SecretKey, "")
	} else if value, err := keys.GetWithContext(nil); err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "" {
		return 1, errors.New("there are no keys for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = o.Workers + 8 // the default of 2 would open a connection for most requests
	defer transport.CloseIdleConnections()
	store, err := bucket.Open(o.endpoint, o.region, keys, transport)
	if err != nil {
		return 1, err
	}
	return control(ctx, o, file, store, stdout, stderr)
}
