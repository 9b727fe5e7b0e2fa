// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package natsadapter_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	natsadapter "github.com/reconkernel/reconcile/adapters/nats"
	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// TestPutGoesIntoTheDomainOfTheClient writes a secondary into a bucket of the hub's
// domain over a leaf, which has a bucket of the same name or has none.
func TestPutGoesIntoTheDomainOfTheClient(t *testing.T) {
	for name, both := range map[string]bool{"none at the leaf": false, "one at the leaf": true} {
		t.Run(name, func(t *testing.T) {
			hub, leaf := natstest.HubAndLeaf(t)
			config := jetstream.KeyValueConfig{Bucket: "b"}
			natstest.CreateKeyValue(t, natstest.JetStream(t, natstest.Connect(t, hub.ClientURL())), config)
			nc := natstest.Connect(t, leaf.ClientURL())
			if both {
				natstest.CreateKeyValue(t, natstest.JetStream(t, nc), config)
			}
			js, err := jetstream.NewWithDomain(nc, "hub")
			if err != nil {
				t.Fatal(err)
			}
			s := &natsadapter.Secondaries{JS: js, Bucket: "b", Kind: "disk"}
			for _, value := range []string{"1", "2"} {
				if _, err := s.Put(t.Context(), "k", []byte(value), "d1"); err != nil {
					t.Fatal(err)
				}
				of, err := s.Of(t.Context(), "d1")
				if err != nil || len(of) != 1 || string(of[0].Value()) != value {
					t.Errorf("after a Put of %s, Of returns %v, %v", value, of, err)
				}
			}
		})
	}
}
