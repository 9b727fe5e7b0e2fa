// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/reconkernel/reconcile/example/s3/bucket"
	"github.com/reconkernel/reconcile/example/s3/internal/program"
	"github.com/reconkernel/reconcile/example/s3/local"
)

// storeOptions are the flags of the store and of the loop.
type storeOptions struct {
	program.Loop
	Endpoint string // "" means to start a gateway
	Region   string
	Owner    string
	State    string // the folder of that gateway; "" means one that is gone at the end
}

// defaults returns the options without any flags.
func defaults() storeOptions {
	return storeOptions{
		Loop:   program.Loop{Workers: 16, Retries: 8, Poll: 30 * time.Second, Recheck: 5 * time.Minute},
		Region: "us-east-1", Owner: "example",
	}
}

// storeFlags adds the flags for them.
func (o *storeOptions) storeFlags(f *flag.FlagSet) {
	f.StringVar(&o.Endpoint, "endpoint", "", "use the S3 store at `URL`; without it, a gateway is started")
	f.StringVar(&o.Region, "region", o.Region, "the `NAME` of the store's region")
	f.StringVar(&o.Owner, "owner", o.Owner, "the `NAME` that marks the buckets of this controller")
	f.StringVar(&o.State, "state", "", "the `FOLDER` of the gateway that it starts; without it, one that is gone at the end")
	o.Loop.Flags(f, "bucket")
}

var validOwner = regexp.MustCompile(`^[A-Za-z0-9 +=._:/@-]{1,100}$`)

// checkStore returns an error if an option is out of its range.
func (o *storeOptions) checkStore(given map[string]bool) error {
	switch {
	case given["endpoint"] && given["state"]:
		return errors.New("-state is for the gateway that is started without -endpoint; want one of them")
	case given["endpoint"] && o.Endpoint == "":
		return errors.New("-endpoint is empty, want a URL as https://s3.eu-central-1.amazonaws.com")
	case o.Region == "":
		return errors.New("-region is empty, want a name as us-east-1")
	case !validOwner.MatchString(o.Owner):
		return fmt.Errorf("-owner is %q, want 1 to 100 letters, digits, spaces and + - = . _ : / @", o.Owner)
	}
	return o.Loop.Check()
}

// open opens the store, and starts a gateway before if there is none. Wrong keys
// are an error at once: each bucket would be rejected. End is to be called after
// the runs in flight, which need the store.
func (o *storeOptions) open(ctx context.Context, stdout, stderr io.Writer) (store *bucket.Store, end func(), err error) {
	keys, stop := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}), func() {}
	if o.Endpoint == "" {
		gateway, stopGateway, err := local.Start(ctx, o.State, stderr)
		if err != nil {
			return nil, nil, err
		}
		fmt.Fprintf(stdout, "versitygw at %s (process %d) over %s\n", gateway.URL, gateway.PID(), gateway.Buckets)
		o.Endpoint, stop = gateway.URL, stopGateway
		keys = credentials.NewStaticV4(gateway.AccessKey, gateway.SecretKey, "")
	} else if value, err := keys.GetWithContext(nil); err != nil || value.AccessKeyID == "" || value.SecretAccessKey == "" {
		return nil, nil, errors.New("there are no keys for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or write ~/.aws/credentials")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = o.Workers + 8 // the default of 2 would open a connection for most requests
	end = func() {
		transport.CloseIdleConnections()
		stop()
	}
	store, err = bucket.Open(o.Endpoint, o.Region, keys, transport)
	if err == nil {
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		// All else may pass.
		if _, errList := store.List(short); bucket.BadCredentials(errList) {
			err = fmt.Errorf("%s refuses the keys, which are from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or ~/.aws/credentials: %w", o.Endpoint, errList)
		}
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return store, end, nil
}
