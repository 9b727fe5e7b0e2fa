// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import "context"

type fenceKey struct{}

// Fence returns a number that grows with every run of an item, on whatever
// machine; or 0 if ctx is not of a run over a [Queue]. Hand it on with writes to
// what can refuse those with a smaller number than it has seen: a process that
// was stopped for longer than its lease does not know, at the moment it goes on,
// that another runs its item.
func Fence(ctx context.Context) uint64 {
	n, _ := ctx.Value(fenceKey{}).(uint64)
	return n
}

func withFence(ctx context.Context, n uint64) context.Context {
	return context.WithValue(ctx, fenceKey{}, n)
}
