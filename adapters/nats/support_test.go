// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
	"github.com/reconkernel/reconcile/supervise"
)

// A feed is a Feeder at work, and what it has enqueued.
type feed struct {
	t      *testing.T
	items  chan string
	cancel context.CancelFunc
	ended  chan error
}

func run(t *testing.T, f reconcile.Feeder[string]) *feed {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &feed{t: t, items: make(chan string, 10000), cancel: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- f(ctx, recorder{r.items}) }()
	t.Cleanup(func() { cancel(); <-r.ended })
	return r
}

// inGroup runs a Feeder as the member "feeder" of a Group that logs to log.
func inGroup(log *bytes.Buffer, f reconcile.Feeder[string]) reconcile.Feeder[string] {
	return func(ctx context.Context, q reconcile.Enqueuer[string]) error {
		group := supervise.Group{Logger: slog.New(slog.NewTextHandler(log, nil))}
		group.Add("feeder", reconcile.Feed(q, f))
		return group.Run(ctx)
	}
}

// stop ends the Feeder in order.
func (f *feed) stop() {
	f.t.Helper()
	f.cancel()
	err := <-f.ended
	f.ended <- err
	if err != nil {
		f.t.Errorf("a Feeder whose ctx is done returns %v, want nil", err)
	}
}

// want waits for exactly these items, in this order.
func (f *feed) want(items ...string) {
	f.t.Helper()
	deadline := time.After(natstest.Patience)
	for i, want := range items {
		select {
		case got := <-f.items:
			if got != want {
				f.t.Fatalf("item %d is %q, want %q (of %q)", i, got, want, items)
			}
		case err := <-f.ended:
			f.ended <- err
			f.t.Fatalf("the Feeder ended with %v, without %q", err, items[i:])
		case <-deadline:
			f.t.Fatalf("still without %q", items[i:])
		}
	}
}

// wantAll waits for these items in any order, each perhaps several times, and
// for none else.
func (f *feed) wantAll(items ...string) {
	f.t.Helper()
	deadline := time.After(natstest.Patience)
	missing := slices.Clone(items)
	for len(missing) > 0 {
		select {
		case got := <-f.items:
			if !slices.Contains(items, got) {
				f.t.Fatalf("item %q, want one of %q", got, items)
			}
			missing = slices.DeleteFunc(missing, func(s string) bool { return s == got })
		case err := <-f.ended:
			f.ended <- err
			f.t.Fatalf("the Feeder ended with %v, without %q", err, missing)
		case <-deadline:
			f.t.Fatalf("still without %q", missing)
		}
	}
}

// wantAmong waits for these items in this order, whatever comes between: a
// Feeder that cannot be sure begins anew.
func (f *feed) wantAmong(items ...string) {
	f.t.Helper()
	deadline := time.After(natstest.Patience)
	for len(items) > 0 {
		select {
		case got := <-f.items:
			if got == items[0] {
				items = items[1:]
			}
		case err := <-f.ended:
			f.ended <- err
			f.t.Fatalf("the Feeder ended with %v, without %q", err, items)
		case <-deadline:
			f.t.Fatalf("still without %q", items)
		}
	}
}

// none checks that nothing is left that was enqueued.
func (f *feed) none() {
	f.t.Helper()
	select {
	case got := <-f.items:
		f.t.Errorf("item %q, want none", got)
	default:
	}
}

// A recorder notes what is enqueued; an Offer or an EnqueueAfter is noted as
// such, as no Feeder here is to use them.
type recorder struct{ items chan string }

func (r recorder) Enqueue(item string)                       { r.items <- item }
func (r recorder) Offer(item string)                         { r.items <- "offered " + item }
func (r recorder) EnqueueAfter(item string, d time.Duration) { r.items <- "after " + item }
func name(e jetstream.KeyValueEntry) string                  { return e.Key() + " " + op(e) + string(e.Value()) }
func named(e jetstream.KeyValueEntry) (string, bool)         { return name(e), true }
func entries(js jetstream.JetStream, bucket string, filters ...string) reconcile.Feeder[string] {
	return natsadapter.KeyValue(js, bucket, named, filters...)
}

// as returns a JetStream context over another connection to the same server, which may do
// what the page says that a role may.
func as(t *testing.T, js jetstream.JetStream, role, name string) jetstream.JetStream {
	t.Helper()
	return natstest.JetStream(t, natstest.Connect(t, js.Conn().ConnectedUrl(), natstest.In(t, role, name)))
}

func op(e jetstream.KeyValueEntry) string {
	switch e.Operation() {
	case jetstream.KeyValuePut:
		return "="
	case jetstream.KeyValueDelete:
		return "deleted"
	case jetstream.KeyValuePurge:
		return "purged"
	}
	return "?"
}

func put(t *testing.T, kv jetstream.KeyValue, key, value string) {
	t.Helper()
	natstest.Eventually(t, func(ctx context.Context) error {
		_, err := kv.PutString(ctx, key, value)
		return err
	})
}

func chanSeq[T any](ch <-chan T) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		for v := range ch {
			if !yield(v) {
				return
			}
		}
	}
}
