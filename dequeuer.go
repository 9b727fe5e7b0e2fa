// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"time"
)

// ErrLeaseLost is the [context.Cause] of the context of a [Leaser] once the
// item is no longer ours.
var ErrLeaseLost = errors.New("reconcile: lease lost")

// A Dequeuer hands out items to workers. [Queue] is one; its methods say what
// the methods of any Dequeuer do. An error of Dequeue that wraps neither the
// cause of ctx nor [ErrClosed] says that it cannot go on, and ends
// [Reconciler.Run]. Of State, a Reconciler reads Failures. It gives back an item
// whose run was aborted, or that its [Gate] did not let in before the end, by
// Requeue with the zero Wait, which for a Dequeuer other than Queue resets that
// count.
type Dequeuer[T comparable] interface {
	Dequeue(ctx context.Context) (item T, err error)
	Done(item T)
	Requeue(item T, w Wait)
	State(item T) State
}

// A Dequeuer may also be a Leaser, when what it hands out can be lost while a
// run goes on: a queue that machines share. [Reconciler] then runs the item
// under the context that Lease returns. It calls Lease when the run begins, or
// before, if the item has to wait at a [Gate] in hand. The context is derived from
// ctx, and ends with [ErrLeaseLost] as its cause when the item is no longer ours;
// it is not nil. Lease does not block.
type Leaser[T comparable] interface {
	Lease(ctx context.Context, item T) context.Context
}

// A Wait says when an item that is given back runs next. The zero Wait means
// now.
type Wait struct {
	Delay time.Duration // zero or less means now
	Hold  bool          // not before Delay; otherwise no later than Delay
	Err   error         // why, if the run failed: counts one failure; nil resets the count
}
