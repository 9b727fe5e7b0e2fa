// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build nightly

package kubetest_test

import (
	"os"
	"testing"

	"github.com/reconkernel/reconcile/adapters/kube/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }
