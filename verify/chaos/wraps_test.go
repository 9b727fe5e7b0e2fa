// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/reconkernel/reconcile"
)

// wraps are what rounds run with, in turn: the queue itself, which a Reconciler
// knows and takes short cuts with, and one that it does not know.
var wraps = []func(*reconcile.Queue[int]) Queue{
	nil,
	func(q *reconcile.Queue[int]) Queue { return leases{q} },
}

// leases is a queue whose items are lost now and then while they run.
type leases struct{ *reconcile.Queue[int] }

func (l leases) Lease(ctx context.Context, _ int) context.Context {
	if rand.IntN(100) > 0 {
		return ctx
	}
	lost, cancel := context.WithCancelCause(ctx)
	after := time.AfterFunc(time.Duration(rand.Int64N(int64(2*time.Second))), func() { cancel(reconcile.ErrLeaseLost) })
	context.AfterFunc(ctx, func() { after.Stop() })
	return lost
}

// counter counts calls.
type counter struct{ n atomic.Int64 }

// nth reports whether this is the nth call, or the 2nth, and so on.
func (c *counter) nth(n int64) bool { return c.n.Add(1)%n == 0 }
