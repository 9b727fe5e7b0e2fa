// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import "github.com/reconkernel/reconcile"

var _ reconcile.Feeder[string]
