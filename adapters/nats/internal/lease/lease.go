// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// Package lease has a context that ends with a lease, and how the entry of a leader on
// the server is renewed.
package lease

import (
	"context"
	"sync"
	"time"

	"github.com/reconkernel/reconcile"
)

// A Lease is the context of what runs under it. It ends when the time is up,
// with [reconcile.ErrLeaseLost] as its cause, unless it is extended before. If it ends
// first for another reason, as for an orderly stop, the lease lasts on until the time is
// up, and may be extended: what runs under it may take its time to end. Its
// methods may be called from any goroutine.
type Lease struct {
	context.Context
	cancel context.CancelCauseFunc
	lost   context.Context // done once the lease is lost
	lose   context.CancelCauseFunc
	timer  *time.Timer

	mu       sync.Mutex // guards deadline
	deadline time.Time
}

// New returns a lease until a deadline, whose context ends with ctx as well.
func New(ctx context.Context, deadline time.Time) *Lease {
	l := &Lease{deadline: deadline}
	l.Context, l.cancel = context.WithCancelCause(ctx)
	l.lost, l.lose = context.WithCancelCause(context.Background())
	l.mu.Lock() // the timer may fire at once
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(time.Until(deadline), func() { l.Over() })
	return l
}

// Err returns an error as soon as the time is up. It does not wait for a timer,
// which is late in a process that was stopped.
func (l *Lease) Err() error {
	l.Over()
	return l.Context.Err()
}

// Over ends the lease if its time is up, and reports whether it is lost. The
// time is up by either clock, as one of them stands still while a machine sleeps.
func (l *Lease) Over() bool {
	now := time.Now()
	l.mu.Lock()
	up := !now.Before(l.deadline) || !now.Round(0).Before(l.deadline.Round(0))
	l.mu.Unlock()
	if up {
		l.End(reconcile.ErrLeaseLost)
	}
	return l.lost.Err() != nil
}

// Lost returns a context that is done once the lease is lost, with ErrLeaseLost as its cause.
func (l *Lease) Lost() context.Context { return l.lost }

// Extend sets another deadline. It reports whether the lease was not lost before.
func (l *Lease) Extend(deadline time.Time) bool {
	if l.Over() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = deadline
	l.timer.Reset(time.Until(deadline))
	return true
}

// End ends the lease with a cause, of which [reconcile.ErrLeaseLost] says that it is lost.
func (l *Lease) End(cause error) {
	l.cancel(cause)
	if cause == reconcile.ErrLeaseLost {
		l.lose(cause)
	}
	l.timer.Stop()
}

// Rewrite writes the entry of a lease anew, over the one of ours with the number
// last, 0 for none, and returns its number. If there is another than last, which
// conflict says of the error, own is asked whether it is ours as well, by an
// attempt that was not answered. If not, the error is [reconcile.ErrLeaseLost].
func Rewrite(last uint64, write func(last uint64) (uint64, error), conflict func(error) bool, own func() (uint64, error)) (uint64, error) {
	for again := false; ; again = true {
		now, err := write(last)
		switch {
		case err == nil:
			return now, nil
		case again, !conflict(err):
			return last, err
		}
		if now, err = own(); err != nil {
			return last, err
		}
		if last = now; last == 0 {
			return 0, reconcile.ErrLeaseLost
		}
	}
}

// Epoch returns what to add to the sequences of a stream that was created then. No
// stream stores a message each nanosecond, so that of a later one is higher than
// all fences of those before.
func Epoch(created time.Time) uint64 { return uint64(created.UnixNano()) }
