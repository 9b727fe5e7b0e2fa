// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"cmp"
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/reconkernel/reconcile"
)

// Close ends this process's part in the queue. At once its verbs are ignored,
// and Dequeue returns [reconcile.ErrClosed]; so a [reconcile.Reconciler] ends
// when its runs have. Close then waits until the items in flight here are given
// back and all is stored, lets the others know that this process is gone, and
// returns nil. When ctx is done before, or the connection is closed for good, it
// stops waiting, ends the contexts of the runs, and returns an error that says
// how many items are not stored, and names some. If runs go on then, the lease
// ends by itself and not at once, so that nobody else starts their items before.
// What other processes do, and what is ready or waiting, goes on. Closing again
// waits again.
func (q *Queue[T]) Close(ctx context.Context) error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.endWaitersLocked()
	}
	q.checkEmptyLocked()
	sub := q.intake.sub
	q.mu.Unlock()
	if sub != nil {
		sub.Unsubscribe()
	}

	var cause error
	select {
	case <-q.empty:
	case <-q.life.Done():
	case <-ctx.Done():
		cause = context.Cause(ctx)
	}
	return q.finish(cause)
}

// finish ends all goroutines and says what was not stored.
func (q *Queue[T]) finish(cause error) error {
	q.mu.Lock()
	var left []string
	for item := range q.outbox.slots {
		left = append(left, brief(item))
	}
	runs := 0
	for _, h := range q.held {
		if !h.giving {
			runs++
		}
		h.lose()
	}
	q.end()
	cause = cmp.Or(cause, q.failed, reconcile.ErrClosed)
	q.mu.Unlock()
	q.running.Wait()
	if runs == 0 {
		q.leave()
	} // else the items are ours until the lease ends by itself
	if len(left) == 0 && runs == 0 {
		return nil
	}
	const some = 10
	return fmt.Errorf("natsadapter: queue %s closed with %d items not stored %v and %d runs in flight: %w",
		q.cfg.Name, len(left), left[:min(some, len(left))], runs, cause)
}

func (q *Queue[T]) checkEmptyLocked() {
	if q.closed && len(q.outbox.slots) == 0 && len(q.held) == 0 && q.intake.claiming == 0 {
		select {
		case <-q.empty:
		default:
			close(q.empty)
		}
	}
}

// fail ends all that waits with an error: the connection is closed for good.
// What the outbox holds stays there, for Close to name.
func (q *Queue[T]) fail(err error) {
	q.mu.Lock()
	first := q.failed == nil
	if first {
		q.failed = err
		q.end()
		q.endWaitersLocked()
	}
	q.mu.Unlock()
	if first {
		q.cfg.Logger.Error("the queue can store nothing any more", "queue", q.cfg.Name, "err", err)
	}
}

// errClosedConn says that the connection will not come back.
func errClosedConn(nc *nats.Conn) error {
	if nc.IsClosed() {
		return fmt.Errorf("natsadapter: %w", nats.ErrConnectionClosed)
	}
	return nil
}
