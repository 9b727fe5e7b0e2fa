// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// A Reconciler takes items from a queue and calls Reconcile for each. The return value
// of Reconcile decides when the item runs again:
//
//	nil              in sync: the queue drops the item until it is enqueued or offered again
//	RecheckWithin    in sync: a recheck after d at the latest, sooner by an event or a poll
//	RequeueAfter     not in sync yet: the next run after d, and not before
//	RequeueWithin    not in sync yet: the next run after d at the latest, sooner by an event
//	Terminal         failed, not retried: the queue drops the item
//	any other error  failed: Retry says when the next run is
//
// [Classify] describes joined errors. After a failure that is retried, no event starts the
// item within a second, or within the delay of the retry if that is shorter. After one that
// is not retried, that holds only for events that came during the run; see [Terminal].
//
// One item is never in two runs at once. A panic in Reconcile, or a call of
// [runtime.Goexit], is a failure of that item alone. A panic in a goroutine that Reconcile
// started ends the process.
//
// Queue and Reconcile are required; the zero value of every other field is a
// good default. The fields are read when Run is called.
type Reconciler[T comparable] struct {
	// Queue hands out the items, and takes them back after their runs.
	Queue Dequeuer[T]

	// Reconcile compares the desired state of the item with its actual state, and corrects
	// the difference. It must be idempotent and level-triggered: it reads the current state
	// and does not depend on the event that caused the run. It is called from as many
	// goroutines as there are Workers. Its ctx ends when the run has to end, see Timeout
	// and Grace, and when it has returned.
	//
	// The methods of its error must return soon, because the item stays in flight until
	// then. An error must not unwrap to itself: errors.As would never return, or end the
	// process by a stack overflow, which nothing recovers.
	Reconcile func(ctx context.Context, item T) error

	Name    string // for logs and metrics
	Workers int    // the number of concurrent runs, within the limits of Admit; 0 means 1

	// Timeout ends the context of a run that takes longer, with [ErrTimeout] as its
	// cause; 0 means no timeout. If the run does not return, its worker waits for it, and
	// a warning names the item. Without a Timeout, Run does not report a run that hangs.
	// A run hangs, for example, if it waits for a lock that a function held when it
	// panicked. Set an alert on long runs.
	Timeout time.Duration

	// Grace is the time for which runs in flight may continue once ctx is done, before
	// Run ends their contexts; 0 ends them at once. Grace also applies if ctx is done
	// because this process lost a lease, such as that of a leader. It must then be shorter
	// than the time until another process may take the lease.
	Grace time.Duration

	// Retry decides whether and when a failed run is retried; nil means [DefaultRetry].
	Retry RetryPolicy

	// HoldRetries keeps events from shortening the back-off of a failed item: its next
	// run starts after the whole delay. Without it, an event runs the item one second
	// after the failure, or after the delay if that is shorter. So set it if your
	// function writes each failure into a record of its own, and gets that write back as
	// an event: otherwise the item runs once a second. An Offer never shortens a back-off.
	HoldRetries bool

	// OnResult is called after each run, by its worker, before the item is given
	// back, so the results of an item arrive in the order of its runs. It may be nil.
	OnResult func(Result[T])

	// RecheckJitter is the fraction, 0 to 1, by which each RecheckWithin delay is
	// shortened at random, so that items that were enqueued together are not rechecked
	// together; 0 means no jitter. A good value for a service is 0.1.
	RecheckJitter float64

	// Admit limits the runs: it is called before each run and blocks until the run may
	// start. It may be nil. One worker at a time calls it, and holds one item, which is
	// in flight; the other items stay in the queue. While it waits, Remove does not stop
	// the run of that item, and an event for the item causes one more run after it.
	//
	// Its ctx ends with that of Run, and with the lease of the item. Once it has
	// ended, the item is given back as if it had not run, and the result of Admit is
	// ignored. If Admit does not return after the end of its ctx, Run logs warnings, as
	// for a run. If Admit returns an error before the end of its ctx, or panics, the item
	// is given back too, and Run returns that error. Its ctx has no deadline,
	// because a limiter of golang.org/x/time/rate would return such an error in advance.
	//
	// Done, if it is not nil, is called once, by the worker: after the run, with
	// its Outcome, the error of Reconcile, and how long the run took; or with OutcomeAborted
	// if there was no run.
	//
	//	Admit: func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
	//		return nil, limiter.Wait(ctx) // of golang.org/x/time/rate
	//	}
	//
	// Package gate has a rate limit, a limit of concurrent runs that adapts, and a pause.
	Admit func(ctx context.Context) (done func(o Outcome, err error, took time.Duration), err error)

	// Logger is the logger of Run. Nil means [Logger] of the ctx of Run: in a [Group] the
	// logger of the Group, with the name of the member, and elsewhere slog.Default().
	Logger *slog.Logger
}

// A Result says how a run ended.
type Result[T comparable] struct {
	Item     T
	Outcome  Outcome
	Err      error         // the error of Reconcile, also for a scheduled run or a recheck; or a *PanicError
	Failures int           // in a row, this one included; unchanged if it was aborted; 0 otherwise
	Next     time.Duration // until the next run, if one is scheduled
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
