// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package elect_test

import (
	"testing"
	"time"

	"github.com/reconkernel/reconcile/adapters/nats/internal/natstest"
)

// TestElectOldServer has a leader live with an old server, through a kill -9 of it.
func TestElectOldServer(t *testing.T) {
	s := natstest.NewOld(t)
	kv := leases(t, s.JetStream(t), 2*time.Second)
	r := newReferee(t)
	stop := stand(t, kv, r.runner("a"))
	natstest.Next(t, r.leads)
	for _, end := range []func(){s.Kill, s.Stop} {
		end()
		s.Start()
		renewed(t, kv)
	}
	stop()
}
