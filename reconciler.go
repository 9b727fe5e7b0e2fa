// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// A Reconciler takes items from a queue and calls Reconcile for each. What Reconcile
// returns says what follows:
//
//	nil              in sync: the queue drops the item until it is enqueued or offered again
//	RecheckWithin    in sync: a recheck after d at the latest, sooner by an event or a poll
//	RequeueAfter     not in sync yet: the next run after d, and not before
//	RequeueWithin    not in sync yet: the next run after d at the latest, sooner by an event
//	Terminal         failed, not retried: the queue drops the item
//	any other error  failed: Retry says when the next run is
//
// [Classify] says how errors that are joined are classified. After a failure no event
// starts the item within a second, or within the delay of the retry if that is shorter.
//
// One item is never in two runs at once. A panic in Reconcile, or a call of
// [runtime.Goexit], is a failure of that item alone.
//
// Queue and Reconcile are required; the zero value of every other field is a
// good default. The fields are read when Run is called.
type Reconciler[T comparable] struct {
	// Queue is where the items come from, and go back to.
	Queue Dequeuer[T]

	// Reconcile compares the desired state of the item with its actual state, and
	// corrects the difference. It must be idempotent and level-triggered: it reads the
	// current state and does not depend on the event that caused the run. It is called
	// from as many goroutines as there are Workers. Its ctx ends when the run must
	// end; see Timeout and Grace.
	Reconcile func(ctx context.Context, item T) error

	Name    string // for logs and metrics
	Workers int    // how many runs go on at once, if Admit lets them; 0 means 1

	// Timeout ends the context of a run that takes longer, with [ErrTimeout] as
	// its cause; 0 means none. A run that does not return all the same is
	// waited for, and a warning names its item.
	Timeout time.Duration

	// Grace is how long Run lets the runs in flight go on once ctx is done,
	// before it ends their contexts; 0 ends them at once.
	Grace time.Duration

	// Retry decides what follows a failure; nil means [DefaultRetry].
	Retry RetryPolicy

	// HoldRetries makes the whole delay of a retry its minimum: no event starts the
	// item sooner. Without it, an event does, a second after the failure at the
	// earliest. Offer never shortens the delay.
	HoldRetries bool

	// OnResult is called after each run, by its worker, before the item is given back,
	// so the results of an item arrive in the order of its runs. It may be nil.
	OnResult func(Result[T])

	// RecheckJitter is the fraction, 0 to 1, by which each RecheckWithin delay is
	// shortened at random, so that items enqueued together are not rechecked together.
	// 0 means no jitter; 0.1 is a good value for a service.
	RecheckJitter float64

	// Admit, if it is not nil, holds back the runs: it is called before each, and
	// blocks until the run may start. One worker at a time calls it, with an item
	// in hand that is in flight; the other items wait in the queue. So Remove does
	// not stop the run of that item, and an event makes another run follow it.
	//
	// Its ctx ends with that of Run, and with the lease of the item. Once it has
	// ended, the item is given back as if it had not run, whatever Admit returns;
	// an Admit that goes on all the same is warned of as a run is. An error that it
	// returns before that, or a panic, gives the item back too, and ends Run with
	// that error.
	//
	// Done, if it is not nil, is called once, by the worker: after the run, with
	// its Outcome, what Reconcile returned, and how long that took; or with Aborted
	// if there was no run.
	//
	//	Admit: func(ctx context.Context) (func(reconcile.Outcome, error, time.Duration), error) {
	//		return nil, limiter.Wait(ctx) // of golang.org/x/time/rate
	//	}
	//
	// The package gate has a budget, a limit that adapts, and a pause.
	Admit func(ctx context.Context) (done func(o Outcome, err error, took time.Duration), err error)

	Logger *slog.Logger // nil means slog.Default()
}

// A Result says how a run ended.
type Result[T comparable] struct {
	Item     T
	Outcome  Outcome
	Err      error         // what Reconcile returned, also a scheduled run or a recheck; or a *PanicError
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
