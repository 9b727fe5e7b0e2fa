// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// This file holds the workers of a [Reconciler]. A worker is a goroutine that
// goes through the stages of a run again and again. Code of the user is called
// in most of them, and may panic or call runtime.Goexit in any. There is one
// place that catches both, worker.steps: it notes what happened, and the worker
// goes on with the stage that comes after; in a new goroutine, if its own is
// lost.

// A stage is how far a worker is with an item.
type stage uint8

const (
	taking    stage = iota // gives back the last item and waits for one
	starting               // logs the start
	running                // calls Reconcile
	judging                // decides what becomes of the item
	leaving                // tells the gate, if there is one
	reporting              // logs the outcome
	notifying              // calls OnResult
	finished               // for good
)

// A verdict is what becomes of an item after its run.
type verdict uint8

const (
	verdictDone    verdict = iota
	verdictRequeue         // as a Wait says
	verdictAbort           // ready again, as if it had not run: its failures are kept
)

type worker[T comparable] struct {
	loop    *loop[T]
	stop    context.CancelCauseFunc // ends the loop
	current atomic.Pointer[run[T]]  // what watch looks at
	fresh   []run[T]                // for the next runs
	stage   stage
	now     int64 // the latest reading of the clock
	stale   bool  // time has passed since that reading

	some bool // an item was taken before; the fields below are about the last one
	task[T]
}

// A task is what a worker knows of one item.
type task[T comparable] struct {
	grant   grant[T]
	pass    pass            // of the gate, if there is one
	lease   context.Context // of an item that had to wait in hand; may be nil
	start   int64
	release func() // ends the context of the run; may be nil
	err     error  // what Reconcile returned
	judged  bool
	broken  bool // the code that was to judge panicked
	aborted bool
	changed bool // it ended early, because its item was enqueued again
	result  Result[T]
	verdict verdict
	wait    Wait
}

// work goes on until the worker has finished: in another goroutine if this one
// is lost to runtime.Goexit.
func (w *worker[T]) work(ctx contexts) {
	defer func() {
		if w.stage != finished {
			w.loop.running.Go(func() { w.work(ctx) })
		}
	}()
	for w.stage != finished {
		w.steps(ctx)
	}
}

// steps goes through the stages until the worker has finished, or is thrown out
// of one by a panic or Goexit.
func (w *worker[T]) steps(ctx contexts) {
	defer func() {
		if w.stage == finished {
			return
		}
		p := &PanicError{Value: recover(), Stack: debug.Stack()}
		if p.Value == nil {
			p.Value = errGoexit
		}
		w.thrown(p)
	}()
	for w.stage != finished {
		switch w.stage {
		case taking:
			w.take(ctx)
		case starting:
			w.begin(ctx.runs)
		case running:
			w.reconcile(ctx.runs)
		case judging:
			w.judge(ctx.all)
			if w.loop.door != nil && w.stage == reporting {
				w.stage = leaving
			}
		case leaving:
			w.leave()
		case reporting:
			w.report(ctx.runs)
		case notifying:
			w.notify()
		}
	}
}

// thrown decides where to go on after a panic.
func (w *worker[T]) thrown(p *PanicError) {
	switch w.stage {
	case taking:
		w.fail(p)
	case starting:
		w.stage = running
	case running:
		w.err = p
		w.stage = judging
	case judging:
		w.broken = true
		w.complain("Retry, or a method of the error, panicked; DefaultRetry is used instead", p)
	case leaving:
		w.loop.Gate.leave(w.pass, foundNothing)
		w.stage = reporting
		w.complain("Gate.Slow panicked", p)
	case reporting:
		w.stage = notifying
	case notifying:
		w.stage = taking
		w.complain("OnResult panicked", p)
	}
}

func (w *worker[T]) complain(msg string, p *PanicError) {
	logGuarded(w.loop.Logger, slog.LevelError, msg,
		"item", w.grant.item, "err", p, "stack", string(p.Stack), "reconciler", w.loop.Name)
}

// fail ends the worker, and with it the loop: the queue cannot go on.
func (w *worker[T]) fail(err error) {
	w.stop(&queueError{fmt.Errorf("reconcile: dequeue: %w", err)})
	w.stage = finished
}

// take gives back the last item, if there is one, and takes the next.
func (w *worker[T]) take(of contexts) {
	source := w.loop.source
	ctx := of.taking
	if w.aborted && of.all.Err() != nil {
		ctx = of.all // which ends a moment before: enough to take the item again
	}
	var err error
	if w.loop.door != nil {
		ctx, err = w.takeThrough(ctx, of)
	} else if w.some {
		if w.stale {
			w.now = source.now()
		}
		err = source.exchange(ctx, &w.grant, w.verdict, &w.wait, w.now)
	} else {
		w.some = true
		err = source.first(ctx, &w.grant)
	}
	w.now, w.stale = w.grant.taken, w.grant.woken
	w.release, w.err = nil, nil
	w.judged, w.broken, w.aborted = false, false, false
	switch {
	case err == nil:
		w.stage = starting
	case ctx.Err() != nil, errors.Is(err, ErrClosed):
		w.stage = finished
	default:
		w.fail(err)
	}
}

// begin logs the start of a run.
func (w *worker[T]) begin(ctx context.Context) {
	if w.loop.Logger.Enabled(ctx, slog.LevelDebug) {
		w.stale = true
		w.loop.log(ctx, slog.LevelDebug, "run starts",
			slog.Any("item", w.grant.item), slog.Int("failures", w.grant.failures))
	}
	w.stage = running
}

// reconcile does one run.
func (w *worker[T]) reconcile(ctx context.Context) {
	l := w.loop
	if w.stale {
		w.now = l.source.now()
	}
	w.start = w.now
	if l.leaser != nil {
		if w.lease != nil {
			ctx, w.lease = w.lease, nil
		} else if ctx = l.leaser.Lease(ctx, w.grant.item); ctx == nil {
			panic("reconcile: Lease returned nil, want a context")
		}
	}
	if l.Timeout > 0 {
		ctx, w.release = context.WithTimeoutCause(ctx, l.Timeout, ErrTimeout)
	}
	if len(w.fresh) == 0 {
		w.fresh = make([]run[T], l.runsAtOnce)
	}
	r := &w.fresh[0]
	w.fresh = w.fresh[1:]
	r.Context, r.worker, r.item, r.failures, r.start = ctx, w, w.grant.item, int32(w.grant.failures), w.start
	w.current.Store(r)
	if l.Timeout > 0 || l.leaser != nil {
		w.release = l.alert(r, w.release)
	}
	if r.Err() != nil { // before watch could see the run
		l.sound(r)
	}
	w.err = l.Reconcile(r, r.item)
	w.stage = judging
}

// judge decides what becomes of the item. It calls code of the user: the
// methods of the error, and Retry. If that panics it is called again, and
// leaves them out.
func (w *worker[T]) judge(ctx context.Context) {
	l, result := w.loop, &w.result
	if !w.judged {
		w.judged = true
		w.now, w.stale = l.source.now(), false
		*result = Result[T]{
			Item:     w.grant.item,
			Err:      w.err,
			Waited:   time.Duration(w.grant.taken - w.grant.ready),
			Duration: time.Duration(w.now - w.start),
		}
		w.wait = Wait{}
		if w.release != nil {
			defer w.release() // after the look at the cause, even if that panics
		}
		w.changed = false
		if r := w.current.Swap(nil); r != nil && w.err != nil {
			w.aborted = ctx.Err() != nil || errors.Is(context.Cause(r), ErrLeaseLost)
			w.changed = r.outdated()
		}
	}
	if w.err == nil {
		result.Outcome, w.verdict = Succeeded, verdictDone
		w.stage = reporting
		return
	}

	w.stale = true // what follows is code of the user
	var planned RequeueError
	_, panicked := w.err.(*PanicError)
	retry := l.Retry
	switch {
	case panicked: // whatever the value unwraps to
		if w.broken {
			retry = DefaultRetry
		}
	case w.broken && !w.aborted && !w.changed:
		retry = DefaultRetry
	case !w.broken && errors.As(w.err, &planned):
		w.changed = false // it says itself what follows
		result.Outcome, w.verdict = Requeued, verdictRequeue
		result.Next = max(0, planned.Delay)
		w.wait = Wait{Delay: planned.Delay, Hold: planned.Hold}
		w.stage = reporting
		return
	case w.aborted:
		result.Outcome, w.verdict = Aborted, verdictAbort
		result.Failures = w.grant.failures
		w.stage = reporting
		return
	case w.changed:
		result.Outcome, w.verdict = Requeued, verdictRequeue
		w.stage = reporting
		return
	case errors.Is(w.err, ErrTerminal):
		result.Outcome, w.verdict = Terminated, verdictDone
		result.Failures = w.grant.failures + 1
		w.stage = reporting
		return
	}
	result.Failures = w.grant.failures + 1
	if delay, ok := retry(w.err, result.Failures); ok {
		result.Outcome, w.verdict = Retrying, verdictRequeue
		result.Next = max(0, delay)
		w.wait = Wait{Delay: delay, Hold: l.HoldRetries, Err: w.err}
	} else {
		result.Outcome, w.verdict = GaveUp, verdictDone
	}
	w.stage = reporting
}

// report writes the one line that each outcome has.
func (w *worker[T]) report(ctx context.Context) {
	level, msg := slog.LevelDebug, "run succeeded"
	var panicked *PanicError
	if w.err != nil {
		switch w.result.Outcome {
		case Requeued:
			msg = "run planned the next"
			if w.changed {
				msg = "run ended early, its item was enqueued again"
			}
		case Retrying:
			level, msg = slog.LevelWarn, "run failed, to be retried"
		case GaveUp:
			level, msg = slog.LevelError, "run failed, gave up"
		case Terminated:
			level, msg = slog.LevelError, "run failed for good"
		}
		if panicked, _ = w.err.(*PanicError); panicked != nil {
			level, msg = slog.LevelError, "run panicked"
		}
	}
	l := w.loop
	if w.result.Outcome != Aborted && l.Logger.Enabled(ctx, level) {
		w.stale = true
		attrs := []slog.Attr{
			slog.Any("item", w.grant.item),
			slog.String("outcome", string(w.result.Outcome)),
			slog.Duration("duration", w.result.Duration),
		}
		switch w.result.Outcome {
		case Requeued, Retrying:
			attrs = append(attrs, slog.Duration("next", w.result.Next))
		}
		if w.err != nil {
			attrs = append(attrs, slog.Int("failures", w.result.Failures), slog.Any("err", w.err))
		}
		if panicked != nil {
			attrs = append(attrs, slog.String("stack", string(panicked.Stack)))
		}
		l.log(ctx, level, msg, attrs...)
	}
	w.stage = notifying
}

func (w *worker[T]) notify() {
	if w.loop.OnResult != nil {
		w.stale = true
		w.loop.OnResult(w.result)
	}
	w.stage = taking
}
