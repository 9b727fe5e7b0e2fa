// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// This file is the inside of [Reconciler.Run].
//
// Each worker is a goroutine that goes through the stages of a run again and
// again. Code of the user is called in most of them, and may panic or call
// runtime.Goexit in any. There is one place that catches both, worker.steps:
// it notes what happened, and the worker goes on with the stage that comes
// after; if its goroutine is lost, in a new one.

// A loop is one call of Run. The embedded fields have their defaults filled in.
type loop[T comparable] struct {
	Reconciler[T]
	source  source[T]
	leaser  Leaser[T] // nil if the queue is none
	workers []*worker[T]
	running sync.WaitGroup // workers, and calls of run.overdue
	alarm   chan struct{}  // told when the context of a run ended before the run
}

// A source is what a loop needs of a queue. [Queue] has it all in one lock hold.
type source[T comparable] interface {
	first(ctx context.Context) (grant[T], error)
	exchange(ctx context.Context, item T, v verdict, w *Wait, now int64) (grant[T], error)
	now() int64
}

func (l *loop[T]) run(ctx context.Context) error {
	taking, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	runs, endRuns := ctx, func(error) {}
	if l.Grace > 0 {
		c, end := context.WithCancelCause(context.WithoutCancel(ctx))
		runs, endRuns = c, end
		defer end(nil)
	}
	for range l.Workers {
		l.workers = append(l.workers, &worker[T]{loop: l, stop: stop})
	}
	for _, w := range l.workers {
		l.running.Go(func() { w.work(contexts{ctx, taking, runs}) })
	}
	l.watch(ctx, endRuns)
	if ctx.Err() == nil {
		return context.Cause(taking) // nil unless the queue failed
	}
	return nil
}

// contexts are those of a loop: the one that Run was called with; the one to
// wait for items under, which ends as well when the queue fails; and the one of
// the runs, which may end later, see Grace.
type contexts struct{ all, taking, runs context.Context }

// watch waits for the workers. Meanwhile it ends the contexts of the runs when
// their time is over, and warns of runs that do not heed it.
func (l *loop[T]) watch(ctx context.Context, endRuns func(error)) {
	ended := make(chan struct{})
	go func() {
		l.running.Wait()
		close(ended)
	}()
	var (
		done  = ctx.Done()
		grace = idleTimer()
		look  = idleTimer() // when to look at the runs again
		over  bool          // the contexts of all runs are ended
	)
	defer grace.Stop()
	defer look.Stop()
	for {
		select {
		case <-ended:
			return
		case <-done:
			done = nil
			if l.Grace > 0 {
				grace.Reset(l.Grace)
			} else {
				over = true
			}
		case <-grace.C:
			endRuns(context.Cause(ctx))
			over = true
		case <-l.alarm:
		case <-look.C:
		}
		if d := l.warn(over); d > 0 {
			look.Reset(d)
		}
	}
}

// idleTimer returns a timer that does not fire before it is reset.
func idleTimer() *time.Timer {
	t := time.NewTimer(math.MaxInt64)
	t.Stop()
	return t
}

// warn names the runs that are overdue, and returns the time to the next call,
// or 0 if there is nothing to wait for.
func (l *loop[T]) warn(over bool) time.Duration {
	now := l.source.now()
	next := int64(math.MaxInt64)
	for _, w := range l.workers {
		r := w.current.Load()
		if r == nil || !over && !r.ended.Load() {
			continue
		}
		age := now - r.start
		switch {
		case r.warnAt == 0:
			// It is given a moment to return.
			r.warnAt = now + int64(time.Second)
			if l.Timeout > 0 && !over {
				r.warnAt = now + min(int64(time.Second), int64(l.Timeout))
			}
		case r.warnAt <= now:
			r.warnAt = now + age
			logGuarded(l.Logger, slog.LevelWarn, "run has not returned, though its context ended",
				"item", r.item, "age", time.Duration(age), "cause", context.Cause(r), "reconciler", l.Name)
		}
		next = min(next, r.warnAt)
	}
	if next == math.MaxInt64 {
		return 0
	}
	return time.Duration(next - now)
}

// log writes a line. Workers call it in a stage of their own, so that a handler
// that panics costs no more than the line.
func (l *loop[T]) log(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	l.Logger.LogAttrs(ctx, level, msg, append(attrs, slog.String("reconciler", l.Name))...)
}

// logGuarded writes a line. A handler that panics, or calls Goexit, costs no
// more than the line.
func logGuarded(logger *slog.Logger, level slog.Level, msg string, args ...any) {
	_ = guard(func() error {
		logger.Log(context.Background(), level, msg, args...)
		return nil
	})
}

// A run is the context of one call of Reconcile.
type run[T comparable] struct {
	context.Context
	loop     *loop[T]
	item     T
	failures int
	start    int64
	ended    atomic.Bool // its context ended while it went on
	warnAt   int64       // belongs to watch
}

func (r *run[T]) Value(key any) any {
	if key == (loggerKey{}) {
		return r
	}
	return r.Context.Value(key)
}

func (r *run[T]) logger() *slog.Logger {
	return r.loop.Logger.With("reconciler", r.loop.Name, "item", r.item, "failures", r.failures)
}

// A stage is how far a worker is with an item.
type stage uint8

const (
	taking    stage = iota // gives back the last item and waits for one
	starting               // logs the start
	running                // calls Reconcile
	judging                // decides what becomes of the item
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
	stage   stage
	now     int64 // the latest reading of the clock
	stale   bool  // time has passed since that reading

	some bool // an item was taken before; the fields below are about the last one
	task[T]
}

// A task is what a worker knows of one item.
type task[T comparable] struct {
	grant   grant[T]
	start   int64
	release func() // ends the context of the run; may be nil
	err     error  // what Reconcile returned
	judged  bool
	broken  bool // the code that was to judge panicked
	aborted bool
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
			w.take(ctx.taking)
		case starting:
			w.begin(ctx.runs)
		case running:
			w.reconcile(ctx.runs)
		case judging:
			w.judge(ctx.all)
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
	w.stop(fmt.Errorf("reconcile: dequeue: %w", err))
	w.stage = finished
}

// take gives back the last item, if there is one, and takes the next.
func (w *worker[T]) take(ctx context.Context) {
	source := w.loop.source
	var g grant[T]
	var err error
	if w.some {
		if w.stale {
			w.now = source.now()
		}
		g, err = source.exchange(ctx, w.grant.item, w.verdict, &w.wait, w.now)
	} else {
		g, err = source.first(ctx)
	}
	w.some = true
	w.task = task[T]{grant: g}
	w.now, w.stale = g.taken, g.woken
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
		ctx = l.leaser.Lease(ctx, w.grant.item)
	}
	if l.Timeout > 0 {
		ctx, w.release = context.WithTimeoutCause(ctx, l.Timeout, ErrTimeout)
	}
	r := &run[T]{Context: ctx, loop: l, item: w.grant.item, failures: w.grant.failures, start: w.start}
	if l.Timeout > 0 || l.leaser != nil {
		w.release = l.alert(r, w.release)
	}
	w.current.Store(r)
	w.err = l.Reconcile(r, r.item)
	w.stage = judging
}

// alert has watch look after the run if its context ends before it. It returns
// what is to be called when the run has returned.
func (l *loop[T]) alert(r *run[T], release func()) func() {
	l.running.Add(1)
	stop := context.AfterFunc(r.Context, func() {
		defer l.running.Done()
		r.ended.Store(true)
		select {
		case l.alarm <- struct{}{}:
		default: // it will look anyway
		}
	})
	return func() {
		if stop() {
			l.running.Done()
		}
		if release != nil {
			release()
		}
	}
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
		if r := w.current.Swap(nil); r != nil && w.err != nil {
			w.aborted = ctx.Err() != nil || errors.Is(context.Cause(r), ErrLeaseLost)
		}
		if w.release != nil {
			w.release()
		}
	}
	if w.err == nil {
		result.Outcome, w.verdict = Succeeded, verdictDone
		w.stage = reporting
		return
	}

	var planned RequeueError
	_, panicked := w.err.(*PanicError)
	retry := l.Retry
	switch {
	case w.broken:
		retry = DefaultRetry
	case panicked: // whatever the value unwraps to
	case errors.As(w.err, &planned):
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

// foreign makes a source of a queue that is not a [Queue].
type foreign[T comparable] struct {
	Dequeuer[T]
	base time.Time
}

func (f *foreign[T]) now() int64 { return int64(time.Since(f.base)) }

func (f *foreign[T]) first(ctx context.Context) (grant[T], error) {
	item, err := f.Dequeue(ctx)
	if err != nil {
		return grant[T]{}, err
	}
	now := f.now()
	return grant[T]{item: item, ready: now, taken: now, failures: f.State(item).Failures}, nil
}

func (f *foreign[T]) exchange(ctx context.Context, item T, v verdict, w *Wait, _ int64) (grant[T], error) {
	if v == verdictDone {
		f.Done(item)
	} else {
		f.Requeue(item, *w)
	}
	return f.first(ctx)
}
