// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// A Reconciler takes items from a queue and calls Reconcile for each: nil means
// that all is well, and an error what the package says of it.
//
//	nil              done; the item is forgotten until it is fed again
//	RecheckWithin    done; a look in a time, sooner if there is an event
//	RequeueAfter     planned: again in a time and not before
//	RequeueWithin    planned: again in a time, sooner if there is an event
//	Terminal         failed for good; forgotten until it is fed again
//	any other error  failed; Retry says when to try again
//
// What it makes of errors that are joined is said at [Classify].
//
// One item is never in two runs at once. A panic in Reconcile, or a call of
// [runtime.Goexit], is a failure of that item alone.
//
// Queue and Reconcile are required; the zero value of every other field is a
// good default. The fields are read when Run is called.
type Reconciler[T comparable] struct {
	// Queue is where the items come from, and go back to.
	Queue Dequeuer[T]

	// Reconcile compares what is wanted of the item with what is there, and
	// mends the difference. It looks at the world, not at the event that woke
	// it, and it is idempotent: it may be called at any time. It is called from
	// as many goroutines as there are Workers. Its ctx ends when the run is to
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

	// HoldRetries makes the back-off of a failed item a floor: an event does
	// not cut it short. An Offer never does.
	HoldRetries bool

	// OnResult is called after each run, by its worker, before the item is
	// given back: so results of one item come in order. It may be nil.
	OnResult func(Result[T])

	// RecheckJitter is the part, 0 to 1, of a RecheckWithin by which the look may come
	// sooner, at random; 0 means none. Without it, items that were fed together
	// are looked at together, again and again; 0.1 is a good value for a service.
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

// A Result tells how a run ended.
type Result[T comparable] struct {
	Item     T
	Outcome  Outcome
	Err      error         // what Reconcile returned, so also a plan or a recheck; or a *PanicError
	Failures int           // in a row, this one included; unchanged if it was aborted; 0 otherwise
	Next     time.Duration // to the next run, if one is planned
	Waited   time.Duration // ready in the queue (0 if that is not a *Queue), and then for Admit
	Duration time.Duration
}

// checkQueue returns an error if q, which is an Enqueuer or a Dequeuer, is
// missing or is a Queue that cannot be used as it is.
func checkQueue[T comparable](what string, q any) error {
	switch q := q.(type) {
	case nil:
		return fmt.Errorf("reconcile: %s is required, and nil", what)
	case *Queue[T]:
		if q == nil || !q.made {
			return fmt.Errorf("reconcile: %s is required, and a Queue that was not made by NewQueue", what)
		}
		if q.Background < 0 {
			return fmt.Errorf("reconcile: %s has a Background of %d, want 0 (which means none) or more", what, q.Background)
		}
	}
	return nil
}
