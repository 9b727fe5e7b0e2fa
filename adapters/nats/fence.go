// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"time"
)

type fenceKey struct{}

// Fence returns a number that grows with every run of an item, on whatever
// machine, or with every term of [Elect]; or 0 if ctx is of neither. It is the
// sequence of a message, plus the time at which its stream was created, in
// nanoseconds since 1970: so it grows on when a stream was deleted and is made
// anew, as long as the clock of the servers is not put back. It fits an int64, and
// not the number of a JSON reader that takes 53 bits. Hand it on with writes to
// what can refuse those with a smaller number than it has seen: a process that
// was stopped for longer than its lease does not know, at the moment it goes on,
// that another runs its item.
func Fence(ctx context.Context) uint64 {
	n, _ := ctx.Value(fenceKey{}).(uint64)
	return n
}

// epoch returns what to add to the sequences of a stream. No stream stores a
// message each nanosecond, so that of a later one is higher than all fences of
// those before.
func epoch(created time.Time) uint64 { return uint64(created.UnixNano()) }

func withFence(ctx context.Context, n uint64) context.Context {
	return context.WithValue(ctx, fenceKey{}, n)
}
