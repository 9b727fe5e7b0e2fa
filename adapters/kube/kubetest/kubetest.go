// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubetest lets tests have a real kube-apiserver and etcd, which
// testserver/build.sh builds, and stop, kill and start them.
//
//	func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }
//
// In another repository the variable KUBETEST_BIN names the folder with the
// binaries, which build.sh prints. The package serves tests alone.
package kubetest

import (
	"context"
	"testing"

	"github.com/reconkernel/reconcile/adapters/kube/internal/kubetest"
)

// A Server is a kube-apiserver with its etcd. Either can be killed and started
// again. Its methods may be called from any goroutine.
type Server = kubetest.Server

// A Link is what the requests of a client go through. It counts them, and can be
// slow, broken, throttled or cut. The zero Link is a good one.
type Link = kubetest.Link

// A Fault is asked before each request of a Link, and may answer it in the
// server's place.
type Fault = kubetest.Fault

// TooManyRequests answers with 429, and how many seconds to wait.
func TooManyRequests(seconds int) Fault { return kubetest.TooManyRequests(seconds) }

// Start starts a server, which the caller closes.
func Start(ctx context.Context) (*Server, error) { return kubetest.Start(ctx) }

// Main runs the tests and then ends the shared server, if a test wanted it. It
// returns the exit code.
func Main(m *testing.M) int { return kubetest.Main(m) }

// Shared returns the server of this package's tests, and starts it first if none
// wanted it before. The test fails if there is none.
func Shared(t testing.TB) *Server { return kubetest.Shared(t) }

// Eventually calls check until it returns nil. It is for what the API server
// knows a moment later than it says, such as a role.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	kubetest.Eventually(t, check)
}
