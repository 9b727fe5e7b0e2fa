// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package kubetest lets the other modules of this repository test against a real
// kube-apiserver and etcd, which testserver/build.sh builds. A test finds it from
// the folder that it runs in: it has to be one of the module adapters/kube.
//
//	func TestMain(m *testing.M) {
//		if err := os.Chdir("../adapters/kube"); err != nil {
//			log.Fatal(err)
//		}
//		os.Exit(kubetest.Main(m))
//	}
//
// It serves tests alone, and is no part of what the adapter promises.
package kubetest

import (
	"testing"

	"github.com/reconkernel/reconcile/adapters/kube/internal/kubetest"
)

// A Server is a kube-apiserver with its etcd. Either can be killed and started
// again. Its methods may be called from any goroutine.
type Server = kubetest.Server

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
