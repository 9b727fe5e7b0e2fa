// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package elect

import (
	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/held"
)

// Held returns q as a queue whose runs end at once when the lease is lost, also
// those of a Reconciler with a Grace: what they return then is not a failure.
// Nothing is taken from it after that. It is for the Queue of a Reconciler inside
// of [Elect]; elsewhere it changes nothing. Held panics if q is nil.
func Held[T comparable](q reconcile.Dequeuer[T]) reconcile.Dequeuer[T] {
	if q == nil {
		panic("natsadapter: Held needs a queue, got nil")
	}
	return held.Queue(q)
}
