// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Apply enqueues the items, runs r until each is in sync or not retried, as
// [Queue.EnqueueAndWait] says, and returns the errors of that and of Run. It is for programs
// that apply a desired state once. It does not wait for items that runs enqueue.
//
// Queue must be a [*Queue]. If it is nil, Apply makes one, and closes it at the end. If a
// field is wrong, Apply returns a [Terminal] error and enqueues nothing. It blocks.
func (r *Reconciler[T]) Apply(ctx context.Context, items ...T) error {
	c := *r
	if c.Queue == nil {
		own := NewQueue[T]()
		defer own.Close() // A recheck would keep its timer, and all of this.
		c.Queue = own
	}
	q, ok := c.Queue.(*Queue[T])
	if !ok {
		return Terminal(fmt.Errorf("reconcile: Reconciler.Queue is a %T, and Apply wants a *Queue, or nil", c.Queue))
	}
	l, err := newLoop(ctx, &c)
	if err != nil {
		return err
	}
	ctx, stopRun := context.WithCancel(ctx)
	waitCtx, stopWaiting := context.WithCancelCause(ctx)
	var runErr error
	var run sync.WaitGroup
	run.Go(func() {
		runErr = l.run(ctx)
		if ctx.Err() == nil { // else the wait ends by itself, and with the cause
			stopWaiting(errRunEnded)
		}
	})
	func() {
		defer run.Wait() // also if an item makes EnqueueAndWait panic
		defer stopRun()
		err = q.EnqueueAndWait(waitCtx, items...)
	}()
	return errors.Join(err, runErr)
}

// errRunEnded is why a wait of Apply ends although its ctx has not.
var errRunEnded = errors.New("reconcile: Run ended")
