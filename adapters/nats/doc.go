// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package natsadapter connects the kernel with NATS.
package natsadapter
