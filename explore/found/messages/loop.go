// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package messages

import (
	"context"
	"time"

	"github.com/reconkernel/reconcile"
)

// loop does what is open, and needs no message that lasts: who has something new
// enqueues it, and what was forgotten is found.
func loop(queue *reconcile.Queue[string], open func(context.Context) ([]string, error), do func(context.Context, string) error) reconcile.Runner {
	group := &reconcile.Group{}
	group.Add("open", &reconcile.Poller[string]{Queue: queue, GetItems: open, Period: 10 * time.Minute})
	group.Add("do", &reconcile.Reconciler[string]{Queue: queue, Reconcile: do, Timeout: time.Minute})
	return group
}
