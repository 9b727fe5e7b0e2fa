// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/example/s3/bucket"
	"github.com/reconkernel/reconcile/example/s3/local"
)

// patience bounds the wait for anything that is to happen.
const patience = 3 * time.Minute

// A world is a gateway, a NATS server, and a controller between the two.
type world struct {
	t       *testing.T
	ctx     context.Context
	hand    *minio.Client
	kv      jetstream.KeyValue
	results chan reconcile.Result[string]
}

// newWorld starts a world that lists and looks so often. The function that it
// returns restarts NATS.
func newWorld(t *testing.T, poll, recheck time.Duration) (w *world, restart func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	w = &world{t: t, ctx: ctx, results: make(chan reconcile.Result[string], 100_000)}

	gateway, err := local.New(t.TempDir(), "127.0.0.1:0")
	w.must(err)
	w.background(gateway.Run)
	w.must(gateway.Ready(ctx))
	keys := credentials.NewStaticV4(gateway.AccessKey, gateway.SecretKey, "")
	w.hand, err = minio.New(strings.TrimPrefix(gateway.URL, "http://"), &minio.Options{Creds: keys, Region: "us-east-1"})
	w.must(err)
	store, err := bucket.Open(gateway.URL, "us-east-1", keys, nil)
	w.must(err)

	dir := t.TempDir()
	s, err := startNATS(dir)
	w.must(err)
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	w.must(err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
	w.must(err)
	w.kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: wishBucket, History: 5})
	w.must(err)
	w.background(func(ctx context.Context) error {
		o := options{owner: "example", poll: poll, recheck: recheck}
		return control(ctx, js, store, o, func(r reconcile.Result[string]) { w.results <- r })
	})
	return w, func() {
		t.Helper()
		port := s.Addr().(*net.TCPAddr).Port
		s.Shutdown()
		s.WaitForShutdown()
		w.until("the controller notices that NATS is away", func(r reconcile.Result[string]) bool {
			return r.Outcome == reconcile.Retrying && strings.Contains(r.Err.Error(), "asking what is wished")
		})
		var err error
		s, err = server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true})
		w.must(err)
		s.Start()
		if !s.ReadyForConnections(patience) {
			t.Fatal("NATS is not back on port " + strconv.Itoa(port))
		}
	}
}

// background runs something until the end of the test.
func (w *world) background(run func(context.Context) error) {
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

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// until waits until it is so, asking after each run of the controller.
func (w *world) until(what string, so func(reconcile.Result[string]) bool) {
	w.t.Helper()
	for {
		select {
		case r := <-w.results:
			if so(r) {
				return
			}
		case <-w.ctx.Done():
			w.t.Fatalf("it does not come to pass that %s; there are the buckets %q", what, w.buckets())
		}
	}
}

// buckets lists them.
func (w *world) buckets() []string {
	w.t.Helper()
	all, err := w.hand.ListBuckets(context.Background())
	w.must(err)
	var names []string
	for _, b := range all {
		names = append(names, b.Name)
	}
	slices.Sort(names)
	return names
}

func (w *world) untilBuckets(want ...string) {
	w.t.Helper()
	w.until("there are the buckets "+strings.Join(want, ", "), func(reconcile.Result[string]) bool {
		return slices.Equal(w.buckets(), want)
	})
}

func (w *world) put(name, wish string) {
	w.t.Helper()
	_, err := w.kv.Put(w.ctx, name, []byte(wish))
	w.must(err)
}

func TestWishesInNATS(t *testing.T) {
	w, restart := newWorld(t, 500*time.Millisecond, 100*time.Millisecond)
	w.put("first", "{}")
	w.put("second", "versioning: true\nmarkers: {README: hello}\n")
	w.untilBuckets("first", "second")
	marker := func() string {
		o, err := w.hand.StatObject(w.ctx, "second", bucket.MarkerPrefix+"README", minio.StatObjectOptions{})
		if err != nil {
			return ""
		}
		return o.ETag
	}
	w.until("the marker is written", func(reconcile.Result[string]) bool { return marker() != "" })

	// Another wish, then one that cannot be read: the last good state stays.
	before := marker()
	w.put("second", "versioning: true\nmarkers: {README: bye}\n")
	w.until("the marker is another", func(reconcile.Result[string]) bool { return marker() != before && marker() != "" })
	before = marker()
	w.put("second", "versioning: perhaps\n")
	w.until("the bad wish is refused", func(r reconcile.Result[string]) bool {
		return r.Item == "second" && r.Outcome == reconcile.Terminated &&
			strings.Contains(r.Err.Error(), `the entry second:1: bucket "second": versioning: want true or false, not perhaps`)
	})
	if marker() != before {
		t.Error("a bad wish has changed the bucket")
	}

	// Drift.
	w.must(w.hand.RemoveBucket(w.ctx, "first"))
	w.untilBuckets("first", "second")

	// While NATS is away nothing is taken for not wished; what is deleted is.
	restart()
	if got := w.buckets(); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("while NATS was away the buckets became %q", got)
	}
	w.put("third", "{}")
	w.untilBuckets("first", "second", "third")
	w.must(w.kv.Delete(w.ctx, "second"))
	w.untilBuckets("first", "third")
	w.must(w.kv.Purge(w.ctx, "first"))
	w.untilBuckets("third")
}

// Entries are events: none of them waits for a poll or for the next look.
func TestEventsAlone(t *testing.T) {
	w, _ := newWorld(t, time.Hour, time.Hour)
	w.put("first", "{}")
	w.untilBuckets("first")
	w.put("first", "versioning: true")
	w.until("versioning is on", func(reconcile.Result[string]) bool {
		v, err := w.hand.GetBucketVersioning(w.ctx, "first")
		w.must(err)
		return v.Enabled()
	})
	w.must(w.kv.Delete(w.ctx, "first"))
	w.untilBuckets()

	// The KeyValue bucket has the settings that it had.
	status, err := w.kv.Status(w.ctx)
	w.must(err)
	if got := status.History(); got != 5 {
		t.Errorf("the history of the KeyValue bucket is %d, want 5 as before", got)
	}
}

// The first wish is for a KeyValue bucket that was not there before, and for no
// other.
func TestFirst(t *testing.T) {
	s, err := startNATS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	want := func(history int64, names ...string) jetstream.KeyValue {
		t.Helper()
		if err := first(ctx, js); err != nil {
			t.Fatal(err)
		}
		kv, err := js.KeyValue(ctx, wishBucket)
		if err != nil {
			t.Fatal(err)
		}
		status, err := kv.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		keys, err := kv.Keys(ctx)
		if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
			t.Fatal(err)
		}
		if status.History() != history || !slices.Equal(keys, names) {
			t.Errorf("there is a history of %d and wishes for %q, want %d and %q", status.History(), keys, history, names)
		}
		return kv
	}
	kv := want(1, "payroll")
	if err := kv.Delete(ctx, "payroll"); err != nil {
		t.Fatal(err)
	}
	want(1)
	if _, err := js.UpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: wishBucket, History: 7}); err != nil {
		t.Fatal(err)
	}
	want(7)
}
