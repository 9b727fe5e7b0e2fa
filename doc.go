// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconcile is the kernel of a controller: a queue of items that need
// attention, and a loop that reconciles them one by one until what is there is
// what is wanted.
package reconcile
