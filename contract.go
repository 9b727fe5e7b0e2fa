// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"time"
)

// An Enqueuer takes items that need a run. [Queue] is one; [Filter] and
// [Map] put themselves before one. None of its methods blocks, and all of
// them may be called from any goroutine.
type Enqueuer[T comparable] interface {
	Enqueue(item T)
	EnqueueAfter(item T, d time.Duration)
	Offer(item T)
}

// A Dequeuer hands out items to workers. [Queue] is one, and documents the methods.
// An error of Dequeue that comes before ctx is done, and does not wrap [ErrClosed], ends
// [Reconciler.Run], which returns it. A Reconciler reads only the field Failures of a
// State. It calls Done after a run that returned nil, and Requeue after all other runs;
// see RequeueOptions.Done.
type Dequeuer[T comparable] interface {
	Dequeue(ctx context.Context) (item T, err error)
	Done(item T)
	Requeue(item T, o RequeueOptions)
	State(item T) State
}

// A Dequeuer may also be a Leaser, if an item that it has handed out can be lost during
// a run, as in a queue that machines share. [Reconciler] then runs the item
// under the context that Lease returns. It calls Lease when the run begins, and,
// with a [Reconciler.Admit], once before that for the wait. The context is derived
// from ctx, and ends with [ErrLeaseLost] as its cause when the lease is lost. It is not
// nil. Lease does not block.
type Leaser[T comparable] interface {
	Lease(ctx context.Context, item T) context.Context
}

// RequeueOptions say when an item that is given back runs next, and how its run
// ended. The zero RequeueOptions mean now.
type RequeueOptions struct {
	// Delay is when the next run starts at the latest. Zero or less means now.
	Delay time.Duration

	// MinDelay is when an event starts the next run at the earliest. It holds for
	// a next run that was asked for during the run as well, and with Done; only
	// EnqueueNow overrides it. MinDelay == Delay is [RequeueAfter]. A Delay that is
	// less than MinDelay counts as MinDelay. Zero or less means that an event
	// starts the next run at once.
	MinDelay time.Duration

	Err     error // the failure, if the run failed: counts one failure; nil resets the count
	Recheck bool  // the item is in sync: the next run is only a recheck; ignored if MinDelay or Err is set
	Reason  error // why a run is scheduled: no failure, kept for State; ignored if Err is set or the next run is a recheck
	Done    bool  // schedule no next run, as Queue.Done does: Delay, Recheck and Reason are ignored; Err is the failure that is not retried; MinDelay applies to a next run that was asked for during the run

	// Aborted gives the item back as if it had not run: it is ready, and keeps the count
	// of its failures. The other fields are ignored.
	Aborted bool
}

// isRecheck reports whether the run succeeded, and the next one is only a recheck.
func (o *RequeueOptions) isRecheck() bool { return o.Recheck && o.MinDelay <= 0 && o.Err == nil }

// A Phase says where an item is.
type Phase uint8

// The phases of an item. PhaseIdle is the zero Phase: the queue does not know it.
const (
	PhaseIdle     Phase = iota
	PhaseReady          // can be taken
	PhaseWaiting        // becomes ready later
	PhaseInFlight       // taken and not yet given back
)

// String returns "idle", "ready", "waiting" or "in flight".
func (p Phase) String() string {
	if p > PhaseInFlight {
		p = PhaseIdle
	}
	return [...]string{"idle", "ready", "waiting", "in flight"}[p]
}

// A State describes an item of a queue. An item that is unknown to the queue has the zero
// State.
type State struct {
	Phase     Phase
	Since     time.Time // when it entered this phase
	Due       time.Time // PhaseWaiting: when it becomes ready
	NotBefore time.Time // PhaseWaiting: the earliest time at which an event starts it; zero if at once
	Again     bool      // PhaseInFlight: it has a next run already
	Recheck   bool      // PhaseWaiting: the last run succeeded, and the next is only a recheck

	// Pending is the time since which there has been work: the time of the first event,
	// Offer or due time after the item was last in sync or unknown. A successful run
	// completes the work that came before its start. If an event came during that run,
	// Pending is the start of the run. Pending is zero while the item waits for a recheck.
	// So while an item repeatedly schedules its next run, Pending stays the same; if it
	// gets an event during each successful run, Pending moves on with each run.
	Pending time.Time

	Failures int // in a row

	// Err is the last failure. Without failures, it is the reason of the last
	// scheduled run, if one was given, until the next run has ended.
	Err error
}

// Stats are the counts of a queue: its items now, and its operations since [NewQueue].
type Stats struct {
	Ready, Waiting, InFlight int
	Rechecks                 int // of those that wait: the next run is only a recheck
	Again                    int // of those in flight: the next run is ready

	Enqueued  uint64 // accepted as new work: the item had no next run
	Coalesced uint64 // merged into known work; ignored Offers too
	Taken     uint64 // dequeued
	Requeued  uint64 // given back by Requeue without Done: retries, scheduled runs, rechecks, aborted runs
}

// An Outcome is the result of a run and says whether the item runs again.
type Outcome string

// The outcomes of a run.
const (
	OutcomeSucceeded Outcome = "succeeded"      // nil or RecheckWithin
	OutcomeRequeued  Outcome = "requeued"       // RequeueAfter or RequeueWithin, also beside a failure that is not retried
	OutcomeRetrying  Outcome = "retrying"       // failed, and is retried
	OutcomeGaveUp    Outcome = "gave_up"        // failed, and Retry does not retry it
	OutcomeTerminal  Outcome = "terminal_error" // Terminal: failed, and is not retried
	OutcomeAborted   Outcome = "aborted"        // cut short by a shutdown or a lost lease: no failure
)

// Failed reports whether the run failed: OutcomeRetrying, OutcomeGaveUp or
// OutcomeTerminal.
func (o Outcome) Failed() bool {
	return o == OutcomeRetrying || o == OutcomeGaveUp || o == OutcomeTerminal
}

var (
	// ErrClosed is the error of [Queue.Dequeue] once the queue is closed and empty.
	ErrClosed = errors.New("reconcile: queue closed")

	// ErrLeaseLost is the [context.Cause] of the context of a [Leaser] once the lease
	// of the item is lost.
	ErrLeaseLost = errors.New("reconcile: lease lost")
)
