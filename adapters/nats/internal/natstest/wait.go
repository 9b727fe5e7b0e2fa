// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/reconkernel/reconcile/internal/servers"
)

// Patience bounds what a test waits for, also a server that starts, stops or agrees
// with others: far longer than anything takes, for a machine under load.
const Patience = time.Minute

// Eventually calls f until it succeeds: a server that starts refuses calls, and so
// does a cluster that changes its leader.
func Eventually(t *testing.T, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	err := servers.Retry(ctx, func(ctx context.Context) error {
		try, cancel := context.WithTimeout(ctx, Patience/2)
		defer cancel()
		return f(try)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// CreateKeyValue creates a KeyValue bucket.
func CreateKeyValue(t *testing.T, js jetstream.JetStream, config jetstream.KeyValueConfig) jetstream.KeyValue {
	t.Helper()
	var kv jetstream.KeyValue
	Eventually(t, func(ctx context.Context) (err error) {
		kv, err = js.CreateKeyValue(ctx, config)
		return err
	})
	return kv
}

// Next returns what comes next.
func Next(t *testing.T, ch <-chan string) string {
	t.Helper()
	select {
	case s := <-ch:
		return s
	case <-time.After(Patience):
		t.Fatal("nothing happens")
		return ""
	}
}
