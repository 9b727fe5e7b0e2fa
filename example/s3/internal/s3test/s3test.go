// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package s3test is a world for tests: a gateway, another client that reaches it, and
// what the controller tells of its runs, if it is in the test.
package s3test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/s3/bucket"
	"github.com/reconkernel/reconcile/example/s3/internal/programtest"
	"github.com/reconkernel/reconcile/example/s3/local"
)

// Patience bounds the wait for anything that is to happen.
const Patience = 3 * time.Minute

// A World is a gateway and those around it. Its methods are for the goroutine of
// the test, except Told.
type World struct {
	Ctx     context.Context // ends with the test, or after Patience
	Dir     string          // of the gateway
	Gateway *local.Gateway  // when it dies, it is back soon, unless it is Away
	Hand    *minio.Client   // another client of it
	Store   *bucket.Store   // for the controller

	t       *testing.T
	away    chan struct{} // has room for one token, which is in it while the gateway is not to start
	results chan reconcile.Result[string]
}

// New starts a gateway.
func New(t *testing.T) *World {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	w := &World{Ctx: ctx, Dir: t.TempDir(), t: t, away: make(chan struct{}, 1), results: make(chan reconcile.Result[string], 100_000)}
	gateway, err := local.New(w.Dir, programtest.Address(t))
	w.Must(err)
	w.Gateway = gateway
	again := func(error, int) (time.Duration, bool) { return 100 * time.Millisecond, true }
	w.Background(reconcile.Restart(again, reconcile.RunFunc(func(ctx context.Context) error {
		select {
		case w.away <- struct{}{}:
			<-w.away
		case <-ctx.Done():
		}
		return gateway.Run(ctx)
	})).Run)
	w.Must(gateway.Ready(ctx))
	keys := credentials.NewStaticV4(gateway.AccessKey, gateway.SecretKey, "")
	w.Hand, err = minio.New(strings.TrimPrefix(gateway.URL, "http://"), &minio.Options{Creds: keys, Region: "us-east-1"})
	w.Must(err)
	w.Store, err = bucket.Open(gateway.URL, "us-east-1", keys, nil)
	w.Must(err)
	return w
}

// Away keeps a gateway that dies from coming back until back is called, or the test
// ends.
func (w *World) Away() (back func()) {
	w.away <- struct{}{}
	back = sync.OnceFunc(func() { <-w.away })
	w.t.Cleanup(back)
	return back
}

// Background runs something until the end of the test.
func (w *World) Background(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
}

// Must ends the test if there is an error.
func (w *World) Must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// Told is told of each run of the controller.
func (w *World) Told(r reconcile.Result[string]) { w.results <- r }

// Until waits until it is so, asking after each run of the controller.
func (w *World) Until(what string, so func(reconcile.Result[string]) bool) {
	w.t.Helper()
	for {
		select {
		case r := <-w.results:
			if so(r) {
				return
			}
		case <-w.Ctx.Done():
			w.t.Fatalf("it does not come to pass that %s; there are the buckets %q", what, w.Buckets())
		}
	}
}

// Buckets lists them, sorted.
func (w *World) Buckets() []string {
	w.t.Helper()
	all, err := w.Hand.ListBuckets(context.Background())
	w.Must(err)
	var names []string
	for _, b := range all {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return names
}

// UntilBuckets waits until there are these buckets and no other.
func (w *World) UntilBuckets(want ...string) {
	w.t.Helper()
	w.Until("there are the buckets "+strings.Join(want, ", "), func(reconcile.Result[string]) bool {
		return slices.Equal(w.Buckets(), want)
	})
}

// Marker returns the ETag of a marker, "" if there is none.
func (w *World) Marker(name, marker string) string {
	w.t.Helper()
	o, err := w.Hand.StatObject(w.Ctx, name, bucket.MarkerPrefix+marker, minio.StatObjectOptions{})
	if err != nil {
		return ""
	}
	return o.ETag
}
