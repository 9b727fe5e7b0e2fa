// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package apitest

import (
	"testing"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

// A Server is the API server of a test.
type Server = kubetest.Server

// Run calls f with the server that the tests of this package share.
func Run(t *testing.T, f func(t *testing.T, s *Server)) {
	t.Helper()
	f(t, kubetest.Shared(t))
}
