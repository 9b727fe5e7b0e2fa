// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package main

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/s3/internal/fed"
	"github.com/reconkernel/reconcile/example/s3/internal/s3test"
)

// A world is that of s3test with a NATS server, and a controller between the two.
type world struct {
	*s3test.World
	kv jetstream.KeyValue
}

// latest is the server that runs, or the one that ran last. It is reached
// without a port: one that is given up cannot be had again for sure.
type latest struct{ atomic.Pointer[server.Server] }

func (l *latest) InProcessConn() (net.Conn, error) { return l.Load().InProcessConn() }

// newWorld starts a world that lists and looks so often. The function that it
// returns restarts NATS.
func newWorld(t *testing.T, poll, recheck time.Duration) (w *world, restart func()) {
	t.Helper()
	w = &world{World: s3test.New(t)}
	dir := t.TempDir()
	var s latest
	start := func() {
		t.Helper()
		started, err := startNATS(dir)
		w.Must(err)
		s.Store(started)
	}
	stop := func() { s.Load().Shutdown(); s.Load().WaitForShutdown() }
	start()
	t.Cleanup(stop)
	nc, err := nats.Connect("", nats.InProcessServer(&s), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	w.Must(err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
	w.Must(err)
	w.kv, err = js.CreateKeyValue(w.Ctx, jetstream.KeyValueConfig{Bucket: wishBucket, History: 5})
	w.Must(err)
	w.Background(func(ctx context.Context) error {
		o := options{Options: fed.New()}
		o.Poll, o.Recheck = poll, recheck
		return control(ctx, js, w.Store, o, w.Told)
	})
	return w, func() {
		t.Helper()
		stop()
		w.Until("the controller notices that NATS is away", func(r reconcile.Result[string]) bool {
			return r.Outcome == reconcile.Retrying && strings.Contains(r.Err.Error(), "asking what is wished")
		})
		start()
	}
}

func (w *world) put(name, wish string) {
	_, err := w.kv.Put(w.Ctx, name, []byte(wish))
	w.Must(err)
}

func TestWishesInNATS(t *testing.T) {
	w, restart := newWorld(t, 500*time.Millisecond, 100*time.Millisecond)
	w.put("first", "{}")
	w.put("second", "versioning: true\nmarkers: {README: hello}\n")
	w.UntilBuckets("first", "second")
	marker := func() string { return w.Marker("second", "README") }
	w.Until("the marker is written", func(reconcile.Result[string]) bool { return marker() != "" })

	// Another wish, then one that cannot be read: the last good state stays.
	before := marker()
	w.put("second", "versioning: true\nmarkers: {README: bye}\n")
	w.Until("the marker is another", func(reconcile.Result[string]) bool { return marker() != before && marker() != "" })
	before = marker()
	w.put("second", "versioning: perhaps\n")
	w.Until("the bad wish is refused", func(r reconcile.Result[string]) bool {
		return r.Item == "second" && r.Outcome == reconcile.TerminalError &&
			strings.Contains(r.Err.Error(), `the entry second:1: want true or false, not "perhaps"`)
	})
	if marker() != before {
		t.Error("a bad wish has changed the bucket")
	}

	// Drift.
	w.Must(w.Hand.RemoveBucket(w.Ctx, "first"))
	w.UntilBuckets("first", "second")

	// While NATS is away nothing is taken for not wished; what is deleted is.
	restart()
	if got := w.Buckets(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("while NATS was away the buckets became %q", got)
	}
	w.put("third", "{}")
	w.UntilBuckets("first", "second", "third")
	w.Must(w.kv.Delete(w.Ctx, "second"))
	w.UntilBuckets("first", "third")
	w.Must(w.kv.Purge(w.Ctx, "first"))
	w.UntilBuckets("third")
}

// Entries are events: none of them waits for a poll or for the next look.
func TestEventsAlone(t *testing.T) {
	w, _ := newWorld(t, time.Hour, time.Hour)
	w.put("first", "{}")
	w.UntilBuckets("first")
	w.put("first", "versioning: true")
	w.Until("versioning is on", func(reconcile.Result[string]) bool {
		v, err := w.Hand.GetBucketVersioning(w.Ctx, "first")
		w.Must(err)
		return v.Enabled()
	})
	w.Must(w.kv.Delete(w.Ctx, "first"))
	w.UntilBuckets()

	// The KeyValue bucket has the settings that it had.
	status, err := w.kv.Status(w.Ctx)
	w.Must(err)
	if got := status.History(); got != 5 {
		t.Errorf("the history of the KeyValue bucket is %d, want 5 as before", got)
	}
}
