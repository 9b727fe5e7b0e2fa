// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Command nats keeps the buckets of an S3 store as the entries of a NATS
// KeyValue bucket say:
//
//	go run .                    # starts a NATS server and an S3 gateway of its own
//	nats kv put wishes invoices '{"versioning": true, "tags": {"team": "finance"}}'
//	nats kv del wishes invoices # and it is removed, if it is empty
//
// It is the controller of example/s3, fed by another source: control.go is all
// that is new.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/example/internal/program"
	"github.com/reconkernel/reconcile/example/s3/internal/fed"
)

type options struct {
	fed.Options
	nats string
}

func main() { program.Main(start) }

// start reads the flags and runs the program. It returns the exit code.
func start(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o := options{Options: fed.New()}
	f := flag.NewFlagSet("nats", flag.ContinueOnError)
	f.StringVar(&o.nats, "nats", "", "use the NATS server with JetStream at `URL`; without it, one is started")
	o.Flags(f)
	err := program.Parse(f, "Usage: go run . [flags]\n\n", args, o.Check, stderr)
	return program.Start(err, stderr, func() (int, error) { return 0, run(ctx, o, stdout, stderr) })
}

// run starts what there is not yet, and works until ctx is done.
func run(ctx context.Context, o options, stdout, stderr io.Writer) error {
	store, end, err := o.Open(ctx, stdout, stderr)
	if err != nil {
		return err
	}
	defer end()
	if o.nats == "" {
		dir, err := os.MkdirTemp("", "reconcile-s3-nats-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s, err := startNATS(dir)
		if err != nil {
			return err
		}
		defer func() {
			s.Shutdown()
			s.WaitForShutdown()
		}()
		o.nats = s.ClientURL()
	}
	nc, err := nats.Connect(o.nats, nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond))
	if err != nil {
		return fmt.Errorf("%s: %w", o.nats, err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	// One that is there stays as it is, and needs no right to create one.
	if _, err := js.KeyValue(ctx, wishBucket); errors.Is(err, jetstream.ErrBucketNotFound) {
		if _, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: wishBucket}); err != nil && !errors.Is(err, jetstream.ErrBucketExists) {
			return err
		}
	} else if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "S3 at %s, NATS at %s; try\n  nats -s %s kv put wishes invoices '{\"versioning\": true}'\n", o.Endpoint, o.nats, o.nats)
	return control(ctx, js, store, o, nil)
}

// startNATS starts a server with JetStream on loopback over a folder.
func startNATS(dir string) (*server.Server, error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		s.Shutdown()
		return nil, errors.New("the NATS server does not begin to answer")
	}
	return s, nil
}
