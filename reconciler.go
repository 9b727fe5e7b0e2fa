// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// A Reconciler takes items from a queue and calls Reconcile for each. What Reconcile returns
// decides when its item runs again; [Classify] has the whole rule.
//
//	nil              in sync: the queue drops the item until it is enqueued or offered again
//	RecheckWithin    in sync: a recheck after d at the latest, sooner by an event or a poll
//	RequeueAfter     not in sync yet: the next run after d, and not before
//	RequeueWithin    not in sync yet: the next run after d at the latest, sooner by an event
//	Terminal         failed, not retried: the queue drops the item
//	any other error  failed: Retry says when the next run is
//
// One item is never in two runs at once. A panic in Reconcile, or a call of
// [runtime.Goexit], is a failure of that item alone. A panic in a goroutine that Reconcile
// started ends the process.
//
// Queue and Reconcile are required. The zero value of every other field is a good default.
// The fields are read when Run is called.
type Reconciler[T comparable] struct {
	// Queue hands out the items, and takes them back after their runs.
	Queue Dequeuer[T]

	// Reconcile compares the desired state of the item with its actual state, and corrects
	// the difference. It must be idempotent, and read the current state: it does not learn
	// which event caused the run. It is called from as many goroutines as there are Workers.
	// Its ctx ends with Timeout or Grace, or when it has returned.
	Reconcile func(ctx context.Context, item T) error

	Name    string // for logs and metrics
	Workers int    // the number of concurrent runs; 0 means 1

	// Timeout ends the context of a run that takes longer, with [ErrTimeout] as its cause; 0
	// means no timeout. The wait in Admit does not count. Run logs a warning for a run that goes
	// on after its Timeout. Without a Timeout it logs none until ctx is done.
	Timeout time.Duration

	// Grace is the time for which runs in flight may continue once ctx is done, before Run
	// ends their contexts; 0 ends them at once. If ctx ends because a lease is lost, Grace
	// must be shorter than the time until another process may take the lease.
	Grace time.Duration

	// Retry decides whether and when a failed run is retried; nil means [DefaultRetry].
	Retry RetryPolicy

	// HoldRetries keeps events from shortening a back-off; an Offer never does. Without it an
	// event starts a failed item at once, but not within a second of the failure. Set it if
	// Reconcile writes each failure into a record of its own, and gets that write back as an
	// event: otherwise the item runs once a second. It does nothing after [Terminal].
	HoldRetries bool

	// OnResult is called after each run, by its worker, before the item is given back. So the
	// results of an item arrive in the order of its runs. It may be nil.
	OnResult func(Result[T])

	// RecheckJitter is the fraction, 0 to 1, by which each RecheckWithin delay is shortened at
	// random, so that items that were enqueued together drift apart. 0.1 is a good value.
	RecheckJitter float64

	// Admit limits the runs: it is called before each run and blocks until the run may start.
	// It may be nil. One worker at a time calls it, and holds one item, which is in flight;
	// the others stay in the queue.
	//
	// Its ctx has no deadline. It ends with that of Run, and with the lease of the item. The
	// item is then given back as if it had not run, whatever Admit returns. An error or a
	// panic before that gives it back too, and ends Run with that error.
	//
	// Done, if it is not nil, is called once: after the run, with the error of Reconcile, or
	// with OutcomeAborted if there was no run.
	//
	//	Admit: func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
	//		return nil, limiter.Wait(ctx) // of golang.org/x/time/rate
	//	}
	//
	// Package gate has a rate limit, an adaptive limit of concurrent runs, and a pause.
	Admit func(ctx context.Context) (done func(o Outcome, err error, took time.Duration), err error)

	Logger *slog.Logger // nil means Logger(ctx) of the ctx of Run
}

// EndLast does nothing. A supervisor ends a Runner that has this method after the feeders,
// see package supervise.
func (r *Reconciler[T]) EndLast() {}

// check returns an error that names a field that is missing or out of its range.
func (r *Reconciler[T]) check() error {
	if err := checkQueue[T]("Reconciler.Queue", r.Queue); err != nil {
		return err
	}
	switch {
	case r.Reconcile == nil:
		return errors.New("reconcile: Reconciler.Reconcile is required, and nil")
	case r.Workers < 0:
		return fmt.Errorf("reconcile: Reconciler.Workers is %d, want 0 (which means 1) or more", r.Workers)
	case r.Timeout < 0:
		return fmt.Errorf("reconcile: Reconciler.Timeout is %v, want 0 (which means none) or more", r.Timeout)
	case r.Grace < 0:
		return fmt.Errorf("reconcile: Reconciler.Grace is %v, want 0 (which means none) or more", r.Grace)
	case !(r.RecheckJitter >= 0 && r.RecheckJitter <= 1): // true for a NaN as well
		return fmt.Errorf("reconcile: Reconciler.RecheckJitter is %v, want 0 (which means none) to 1", r.RecheckJitter)
	}
	return nil
}

// A Result says how a run ended.
type Result[T comparable] struct {
	Item     T
	Outcome  Outcome
	Err      error         // what Reconcile returned, a *PanicError, or nil
	Failures int           // in a row, this one included; of an aborted run those before it
	Next     time.Duration // until the next run that the outcome schedules; an event during the run is not counted
	Waited   time.Duration // ready in the queue (0 if that is not a *Queue), and then for Admit
	Duration time.Duration
}

// checkQueue returns an error if q, which is an Enqueuer or a Dequeuer, is
// missing or is a Queue that cannot be used as it is.
func checkQueue[T comparable](what string, q any) error {
	queue, ok := q.(*Queue[T])
	switch {
	case q == nil, ok && queue == nil:
		return fmt.Errorf("reconcile: %s is required, and nil", what)
	case ok && !queue.made:
		return fmt.Errorf("reconcile: %s was not created by NewQueue", what)
	case ok && queue.Background < 0:
		return fmt.Errorf("reconcile: %s has a Background of %d, want 0 (which means none) or more", what, queue.Background)
	}
	return nil
}
