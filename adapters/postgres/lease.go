// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/held"
)

// A lease is that of a process, which measures its deadline from before the request that got or
// renewed it.
type lease struct {
	member int64 // whose it is
	*held.Term
}

// A run is the value in the context of a run.
type run struct {
	queue, item  string
	owner, fence int64
	guard        string // the statement
}

type runKey struct{}

// Fence returns the number of the run, or of the term of a leader, that ctx belongs to, or 0
// if it belongs to none. The number grows with each run of an item and each term. Hand it on
// with writes to a system that can refuse a smaller number than it has seen. That stops a
// process that was frozen for longer than its lease and continues in the middle of a run.
// After a failover that lost commits, and a restore, numbers are used again: see the Limits.
//
// In a run of a [Queue] inside a term, it is that of the run.
func Fence(ctx context.Context) int64 {
	r, _ := ctx.Value(runKey{}).(run)
	return r.fence
}

// Guard ties a transaction to the run, or to the term of a leader, that ctx belongs to: once
// it has returned nil, no other process can have the item until the transaction ends. It
// returns [reconcile.ErrLeaseLost] if the item is not this run's any more. Then the
// transaction must be rolled back.
//
// Guard does not block events of the item. Call it first in a transaction that is REPEATABLE
// READ or SERIALIZABLE: an event that is stored between its first statement and Guard makes
// it fail with a serialization failure. A guarded transaction that is left open, as by a
// process that was stopped, keeps the item from other processes until the server ends it:
// see idle_in_transaction_session_timeout.
func Guard(ctx context.Context, tx pgx.Tx) error {
	r, ok := ctx.Value(runKey{}).(run)
	if !ok || tx == nil {
		return reconcile.Terminal(fmt.Errorf("postgres: Guard needs the context of a run and a transaction, got a run: %t, a transaction: %t", ok, tx != nil))
	}
	found, err := tx.Exec(ctx, r.guard, r.queue, r.item, r.owner, r.fence)
	if err == nil && found.RowsAffected() == 0 {
		err = reconcile.ErrLeaseLost
	}
	return err
}
