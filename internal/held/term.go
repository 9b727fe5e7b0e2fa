// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package held

import (
	"context"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Term is a Lease that lasts until its deadline, unless it is extended before. Its methods may
// be called from any goroutine.
type Term struct {
	lost context.Context
	lose context.CancelCauseFunc

	mu       sync.Mutex // guards the fields below
	deadline time.Time
	timer    *time.Timer
}

// NewTerm returns a Term. Measure the deadline from before the request that got the lease.
func NewTerm(deadline time.Time) *Term {
	t := &Term{deadline: deadline}
	t.lost, t.lose = context.WithCancelCause(context.Background())
	t.mu.Lock() // The timer may fire at once.
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(time.Until(deadline), func() { t.Over() })
	return t
}

// Over reports whether the lease is lost, by either clock: the monotonic one may stand
// still while a machine sleeps. It does not wait for the timer, which is late in a process
// that was stopped.
func (t *Term) Over() bool {
	now := time.Now()
	t.mu.Lock()
	up := !now.Before(t.deadline) || !now.Round(0).Before(t.deadline.Round(0))
	t.mu.Unlock()
	if up {
		t.End()
	}
	return t.lost.Err() != nil
}

// Lost returns a context that is done once the lease is lost, with [reconcile.ErrLeaseLost] as
// its cause.
func (t *Term) Lost() context.Context { return t.lost }

// Extend sets another deadline, and reports whether the lease was not lost before.
func (t *Term) Extend(deadline time.Time) bool {
	if t.Over() {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deadline = deadline
	t.timer.Reset(time.Until(deadline))
	return true
}

// End makes the lease a lost one.
func (t *Term) End() {
	t.lose(reconcile.ErrLeaseLost)
	t.timer.Stop()
}
