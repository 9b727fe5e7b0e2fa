// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package kinds_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/adapters/kube/kinds"
	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// TestForbiddenKind serves a kind that the client may not watch.
func TestForbiddenKind(t *testing.T) {
	s := kubetest.Shared(t)
	ns := s.Namespace(t)
	k := &kinds.Kinds{Informer: kinds.Dynamic(kubetest.Dynamic(t, s.User("nobody")), ns, 0), SyncTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)}
	kubetest.Run(t, k)
	serve(t, k, secrets, reconcile.NewQueue[item](), of("secrets"))
	unsynced(t, k, secrets, "this client may not list and watch it")
}
