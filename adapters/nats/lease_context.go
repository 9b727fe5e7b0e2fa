// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package natsadapter

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/reconkernel/reconcile"
)

// A lease is the context of what runs under it. It ends when the time is up,
// unless it is extended before.
type lease struct {
	context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer

	mu       sync.Mutex // guards deadline
	deadline time.Time
}

func newLease(ctx context.Context, deadline time.Time, number uint64) *lease {
	l := &lease{deadline: deadline}
	l.Context, l.cancel = context.WithCancelCause(withFence(ctx, number))
	l.mu.Lock() // the timer may fire at once
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(time.Until(deadline), func() { l.over() })
	return l
}

// Err returns an error as soon as the time is up. It does not wait for a timer,
// which is late in a process that was stopped.
func (l *lease) Err() error {
	l.over()
	return l.Context.Err()
}

// over ends the lease if its time is up, and reports whether it has ended. The
// time is up by either clock, as one of them stands still while a machine sleeps.
func (l *lease) over() bool {
	now := time.Now()
	l.mu.Lock()
	up := !now.Before(l.deadline) || !now.Round(0).Before(l.deadline.Round(0))
	l.mu.Unlock()
	if up {
		l.end(reconcile.ErrLeaseLost)
	}
	return l.Context.Err() != nil && errors.Is(context.Cause(l.Context), reconcile.ErrLeaseLost)
}

// extend reports whether the lease had not ended before.
func (l *lease) extend(deadline time.Time) bool {
	if l.over() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = deadline
	l.timer.Reset(time.Until(deadline))
	return true
}

func (l *lease) end(cause error) {
	l.cancel(cause)
	l.timer.Stop()
}

// rewrite writes the entry of a lease anew, over the one of ours with the number
// last, 0 for none, and returns its number. If there is another than last, own is
// asked whether it is ours as well, by an attempt that was not answered. If not,
// the error is ErrLeaseLost.
func rewrite(last uint64, write func(last uint64) (uint64, error), own func() (uint64, error)) (uint64, error) {
	for again := false; ; again = true {
		now, err := write(last)
		switch {
		case err == nil:
			return now, nil
		case again, !errors.Is(err, errConflict) && !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch):
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

// runGuarded runs r, and makes an error of a panic or a runtime.Goexit in it.
func runGuarded(ctx context.Context, r reconcile.Runner) (err error) {
	var run sync.WaitGroup
	run.Go(func() {
		returned := false
		defer func() {
			if !returned {
				p := &reconcile.PanicError{Value: recover(), Stack: debug.Stack()}
				if p.Value == nil {
					p.Value = errors.New("runtime.Goexit was called")
				}
				err = p
			}
		}()
		err = r.Run(ctx)
		returned = true
	})
	run.Wait()
	return err
}
