// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"time"
)

// An Enqueuer takes items that need a run. [Queue] is one, and [Filter] and [Map] return
// one. No method blocks. All may be called from any goroutine.
type Enqueuer[T comparable] interface {
	Enqueue(item T)
	EnqueueAfter(item T, d time.Duration)
	Offer(item T)
}

// A Dequeuer hands out items to workers. [Queue] is one, and documents the methods.
// [Reconciler] reads only the field Failures of a State. It calls Done after a run that
// returned nil, and Requeue after all others. An error of Dequeue ends [Reconciler.Run],
// unless ctx is done or the error wraps [ErrClosed].
type Dequeuer[T comparable] interface {
	Dequeue(ctx context.Context) (item T, err error)
	Done(item T)
	Requeue(item T, o RequeueOptions)
	State(item T) State
}

// A Leaser is a [Dequeuer] that several processes share. Lease returns a context derived
// from ctx, which ends with [ErrLeaseLost] as its cause when the item passes to another
// process. [Reconciler] runs the item under it. Lease is called once for a run, and once
// for a wait in [Reconciler.Admit]. It does not block, and does not return nil.
type Leaser[T comparable] interface {
	Lease(ctx context.Context, item T) context.Context
}

// RequeueOptions say how a run ended and when its item runs next. The zero RequeueOptions
// mean now.
type RequeueOptions struct {
	Delay time.Duration // the next run starts after Delay at the latest; zero or less means now

	// MinDelay is the time before which no event starts the next run, also one that was
	// asked for during the run; only EnqueueNow does. Zero or less means at once. MinDelay
	// == Delay is [RequeueAfter]. A Delay that is less counts as MinDelay.
	MinDelay time.Duration

	Err     error // the failure, which counts one; nil resets the count
	Recheck bool  // in sync: the next run is only a recheck; ignored if MinDelay or Err is set
	Reason  error // why a run is scheduled; kept for State if Err and Recheck are not set
	Done    bool  // schedules no run, and resets the count; Err is then the failure that is not retried; MinDelay delays a run that was asked for
	Aborted bool  // as if it had not run: the item is ready, its count of failures kept, and all other fields are ignored
}

// isRecheck reports whether the run succeeded, and the next one is only a recheck.
func (o *RequeueOptions) isRecheck() bool {
	return o.Recheck && o.MinDelay <= 0 && o.Err == nil && !o.Aborted
}

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

// A State describes an item of a queue. Zero means that the queue does not know it.
type State struct {
	Phase     Phase
	Since     time.Time // when it entered this phase
	Due       time.Time // PhaseWaiting: when it becomes ready
	NotBefore time.Time // PhaseWaiting: the earliest time at which an event starts it; zero if at once
	Again     bool      // PhaseInFlight: it has a next run already
	Recheck   bool      // PhaseWaiting: the last run succeeded, and the next is only a recheck

	// Pending is since when the item has had unfinished work: the first event, Offer or due
	// run after its last success. A success covers what came before its run began; what came
	// during the run counts from that beginning. Zero while the item waits for a recheck.
	Pending time.Time

	Failures int   // in a row
	Err      error // the last failure; without failures, the reason of the last scheduled run
}

// Stats are the counts of a queue: its items now, and its operations since [NewQueue].
type Stats struct {
	Ready, Waiting, InFlight int
	Rechecks                 int // of those that wait: the next run is only a recheck
	Again                    int // of those in flight: the next run is ready

	Enqueued  uint64 // accepted as new work: the item had no next run
	Coalesced uint64 // merged into known work; ignored Offers too
	Taken     uint64 // dequeued
	Requeued  uint64 // given back by Requeue without Done
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
	// ErrClosed is the error of [Queue.Dequeue] when the queue is closed and empty.
	ErrClosed = errors.New("reconcile: queue closed")

	// ErrLeaseLost is the [context.Cause] of the context of a [Leaser] once the lease
	// of the item is lost.
	ErrLeaseLost = errors.New("reconcile: lease lost")
)
