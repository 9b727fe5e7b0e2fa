// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build peers

// Package peers has no code: its test runs those of the peers. This file, which is
// never built, is why go.mod requires the peers, and what their tests import.
package peers

import (
	_ "github.com/onsi/gomega"
	_ "k8s.io/apimachinery/pkg/util/wait"
	_ "k8s.io/client-go/util/workqueue"
	_ "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)
