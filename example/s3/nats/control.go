// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile"
	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/example/s3/bucket"
	"github.com/reconkernel/reconcile/gate"
)

// wishBucket is the KeyValue bucket with the wishes: a key for each S3 bucket,
// with its wish in YAML or JSON.
const wishBucket = "wishes"

// Control keeps the S3 buckets as the entries of the KeyValue bucket say, until
// ctx is done. Told hears of each run.
//
// The controller is the one that the file feeds. What is another is where its
// events come from, and where it looks up a wish: in the bucket itself, when it
// runs. So there is no copy here that could be out of date.
func control(ctx context.Context, js jetstream.JetStream, store *bucket.Store, o options, told func(reconcile.Result[string])) error {
	kv, err := js.KeyValue(ctx, wishBucket)
	if err != nil {
		return fmt.Errorf("the KeyValue bucket %s: %w", wishBucket, err)
	}
	c := &bucket.Controller{Store: store, Owner: o.Owner, Recheck: o.Recheck, Wish: wishFrom(kv)}
	queue := reconcile.NewQueue[string]()
	var group reconcile.Group
	group.Add("buckets", &reconcile.Reconciler[string]{
		Name:          "buckets",
		Queue:         queue,
		Reconcile:     c.Reconcile,
		OnResult:      told,
		Workers:       o.Workers,
		Timeout:       30 * time.Second,
		Grace:         2 * time.Second,
		Retry:         reconcile.Backoff(200*time.Millisecond, 10*time.Second).Limit(o.Retries),
		RecheckJitter: 0.1,
		Admit:         (&gate.Gate{Pause: bucket.Pause}).Admit, // nobody asks a store that has too much to do
	})
	group.Add("wishes", reconcile.Feed(queue, natsadapter.KeyValue(js, wishBucket, natsadapter.EntryKey)))
	group.Add("wished", &reconcile.Poller[string]{
		Name: "wished", Queue: queue, Period: o.Poll, Jitter: 0.1, Vanished: true,
		GetItems: natsadapter.KeyValueItems(js, wishBucket, natsadapter.EntryKey),
	})
	group.Add("existing", &reconcile.Poller[string]{
		Name: "existing", Queue: queue, Period: o.Poll, Jitter: 0.1, Vanished: true, GetItems: store.List,
	})
	return group.Run(ctx)
}

// wishFrom looks up wishes. A wish that cannot be read is refused until there is
// a better one, and its bucket stays as it is.
func wishFrom(kv jetstream.KeyValue) func(context.Context, string) (bucket.Wish, bool, error) {
	return func(ctx context.Context, name string) (bucket.Wish, bool, error) {
		// A request that was sent as the server went away is never answered.
		ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Second, errors.New("NATS has not answered for two seconds"))
		defer cancel()
		entry, err := kv.Get(ctx, name)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound), errors.Is(err, jetstream.ErrInvalidKey):
			return bucket.Wish{}, false, nil // deleted, or a bucket that is not for us
		case err != nil:
			return bucket.Wish{}, false, err
		}
		wish, err := bucket.ParseOne("the entry "+name, name, entry.Value())
		return wish, true, reconcile.Terminal(err)
	}
}
