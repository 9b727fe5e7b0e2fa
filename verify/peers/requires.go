// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

//go:build peers

// Package peers runs the tests of the peers on our queue. This file is never
// built: it is why go.mod requires what those tests, and nothing else here, need.
package peers

import (
	_ "k8s.io/apimachinery/pkg/util/wait"
	_ "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)
