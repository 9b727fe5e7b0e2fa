// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/adapters/nats/queue"
)

// A fenced value says which run has written it.
type fenced struct {
	Fence uint64
	Value string
}

var errLate = errors.New("a later run has written")

// putFenced writes a value in a run of a shared queue. It writes nothing and returns
// errLate if a later run of the item has written: this one was frozen for longer than
// its lease. Do not delete the key, because its fence is then lost: write an empty value.
// The write expects the revision that was read, so no other write comes between.
func putFenced(ctx context.Context, kv jetstream.KeyValue, key, value string) error {
	data, err := json.Marshal(fenced{queue.Fence(ctx), value})
	if err != nil {
		return err
	}
	for {
		have, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			_, err = kv.Create(ctx, key, data)
		} else if err == nil {
			var written fenced
			if err := json.Unmarshal(have.Value(), &written); err != nil {
				return fmt.Errorf("key %s has no fenced value: %w", key, err)
			}
			if written.Fence > queue.Fence(ctx) {
				return errLate
			}
			_, err = kv.Update(ctx, key, data, have.Revision())
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return err
		}
	}
}

// A write that the server refuses from a run that was frozen: see putFenced.
func ExampleFence() {
	var routes jetstream.KeyValue
	_ = func(ctx context.Context, host string) error { // Reconciler.Reconcile
		return putFenced(ctx, routes, host, "10.0.0.1")
	}
}
