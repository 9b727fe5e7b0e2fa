// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
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
	Workers int    // how many runs go on at once, if the Gate lets them; 0 means 1

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

	// Gate holds back the runs: to a budget, and to a limit of runs at once that
	// may adapt. Reconcilers may share one; nil means none.
	Gate *Gate

	Logger *slog.Logger // nil means slog.Default()
}

// A Result tells how a run ended.
type Result[T comparable] struct {
	Item     T
	Outcome  Outcome
	Err      error         // what Reconcile returned, a *PanicError, or nil
	Failures int           // in a row, this one included; unchanged if it was aborted; 0 otherwise
	Next     time.Duration // to the next run, if one is planned
	Waited   time.Duration // ready in the queue (0 if that is not a *Queue), and then at the Gate
	Duration time.Duration
}

// An Outcome says what became of an item after a run.
type Outcome string

// The outcomes of a run.
const (
	Succeeded  Outcome = "succeeded"  // nil or RecheckWithin
	Requeued   Outcome = "requeued"   // RequeueAfter or RequeueWithin: planned; or outdated, see UntilChanged
	Retrying   Outcome = "retrying"   // failed, to be tried again
	GaveUp     Outcome = "gave_up"    // failed, and Retry said that it is enough
	Terminated Outcome = "terminated" // Terminal: failed for good
	Aborted    Outcome = "aborted"    // cut short by a shutdown or a lost lease: no failure
)

// Run takes and runs items until ctx is done, or the queue is closed and empty.
// It then waits for the runs in flight and returns nil. It returns an error at
// once if a field is missing or negative, and, after its runs, if the queue
// cannot go on.
//
// After ctx is done, a run that ends with an error is [Aborted], and its item is
// ready again in the queue. A run that ends well or with a plan counts as usual,
// and so does a panic. A run that ignores the end of its context is waited for,
// and a warning names the item, again each time its age has doubled.
//
// A panic in OnResult, Retry, Gate.Slow or a handler of the Logger is logged. It
// ends the calls of OnResult, Slow and the Logger that were still to come in that
// run, and the item is given back as was decided by then; by [DefaultRetry], if
// Retry panicked.
//
// Run may be called again, and several times at once.
func (r *Reconciler[T]) Run(ctx context.Context) error {
	l, err := newLoop(r)
	if err != nil {
		return err
	}
	return l.run(ctx)
}

// reconciles marks the members of a [Group] that are ended last.
func (r *Reconciler[T]) reconciles() bool { return true }

// newLoop checks the fields and sets the defaults.
func newLoop[T comparable](r *Reconciler[T]) (*loop[T], error) {
	l := &loop[T]{
		Reconciler: *r,
		atGate:     make(chan struct{}, 1),
		begun:      make(chan struct{}, 1),
	}
	if err := checkQueue[T]("Reconciler.Queue", r.Queue); err != nil {
		return nil, err
	}
	base := time.Now()
	if q, ok := r.Queue.(*Queue[T]); ok {
		l.source, base = q, q.base
	} else {
		l.source = &foreign[T]{Dequeuer: r.Queue, base: base}
	}
	l.leaser, _ = r.Queue.(Leaser[T])
	switch {
	case r.Reconcile == nil:
		return nil, errors.New("reconcile: Reconciler.Reconcile is required, and nil")
	case r.Workers < 0:
		return nil, fmt.Errorf("reconcile: Reconciler.Workers is %d, want 0 (which means 1) or more", r.Workers)
	case r.Timeout < 0:
		return nil, fmt.Errorf("reconcile: Reconciler.Timeout is %v, want 0 (which means none) or more", r.Timeout)
	case r.Grace < 0:
		return nil, fmt.Errorf("reconcile: Reconciler.Grace is %v, want 0 (which means none) or more", r.Grace)
	}
	if r.Gate != nil {
		if err := r.Gate.begin(); err != nil {
			return nil, err
		}
		l.place.wake = make(chan struct{}, 1)
		l.ahead = int64(base.Sub(r.Gate.base))
	}
	l.Workers = max(1, l.Workers)
	l.Retry = l.Retry.orDefault()
	if l.Logger == nil {
		l.Logger = slog.Default()
	}
	if l.Name != "" {
		l.Logger = l.Logger.With("reconciler", l.Name)
	}
	l.watched.Store(l.Timeout > 0 || l.leaser != nil)
	l.runBatch = 1
	if !l.watched.Load() && reflect.TypeFor[run[T]]().Size() <= 128 {
		l.runBatch = 16 // which keep little: their contexts are one
	}
	return l, nil
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

// A runContext is what the context of a run has for runKey.
type runContext interface {
	logger() *slog.Logger
	untilChanged(ctx context.Context) (context.Context, context.CancelFunc)
}

type runKey struct{}

// Logger returns the logger of the run that ctx belongs to: the logger of its
// Reconciler, with the reconciler's name, the item, and its failures in a row
// before this run. In the context of a member of a [Group], outside of a run, it
// returns the logger of the Group with the member's name. Elsewhere it returns
// [slog.Default].
func Logger(ctx context.Context) *slog.Logger {
	if r, ok := ctx.Value(runKey{}).(runContext); ok {
		return r.logger()
	}
	if m, ok := ctx.Value(memberKey{}).(memberLog); ok {
		return m.logger.With(nameAttr("member", m.path)...)
	}
	return slog.Default()
}
