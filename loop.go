// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// This file is the inside of [Reconciler.Run].
//
// A call of Run is a loop. It starts the workers, waits until all have returned,
// and meanwhile ends the contexts of their runs in time (after Grace), and warns of
// what does not return although its context has ended.
//
// A worker is a goroutine that goes through the stages of a run again and again:
//
//	taking      gives back the last item, and waits for the next   Queue
//	admitting   waits until the item may run                       Lease, Admit
//	starting    logs the start                                     Logger
//	running     calls Reconcile                                    Lease, Reconcile
//	deciding    decides what becomes of the item                   Retry, methods of the error
//	releasing   says how the run went to what Admit returned       done
//	reporting   logs the outcome                                   Logger
//	notifying   calls OnResult                                     OnResult
//
// On the right is the code of the user that a stage calls. Any of it may panic or
// call runtime.Goexit. A deferred function for each call would catch that, and slow
// down every run. So one place catches it for all of them, worker.runStages. The
// worker's stage says what was going on, and resumeAfterPanic decides with which
// stage the worker goes on: in a new goroutine, if a Goexit has taken its own.
//
// An item that is in flight and has no run yet is given back as if it had not been
// taken, by giveBackUnrun. Once it has a run, verdict says how it is given back, by
// the next takeNext, whatever happens in between.

// Run takes and runs items until ctx is done, or the queue is closed and empty. It then
// waits for the runs in flight and returns nil. It returns a [Terminal] error at once if a
// field is missing or out of its range, and an error after its runs if the queue or Admit
// cannot go on. It may be called again, and several times at once.
//
// After ctx is done, a run that returns a failure is aborted, also by Terminal: its item is
// ready again, with its failures as they were. Any other run counts as usual. A warning names the item of a run that has
// not returned although its context has ended, again each time its age has doubled.
//
// A panic in OnResult, Retry, the done function of Admit, or a handler of the Logger is
// logged, and the item is given back as decided before it. The lines and the OnResult that
// were still to come in that run are skipped. If Retry panics, DefaultRetry decides.
func (r *Reconciler[T]) Run(ctx context.Context) error {
	l, err := newLoop(ctx, r)
	if err != nil {
		return err
	}
	return l.run(ctx)
}

// newLoop checks the fields and sets the defaults.
func newLoop[T comparable](ctx context.Context, r *Reconciler[T]) (*loop[T], error) {
	l := &loop[T]{Reconciler: *r, admitting: make(chan struct{}, 1)}
	if err := r.check(); err != nil {
		return nil, Terminal(err)
	}
	if q, ok := r.Queue.(*Queue[T]); ok {
		l.queue = q
	} else {
		l.queue = &otherQueue[T]{Dequeuer: r.Queue, base: time.Now()}
	}
	l.leaser, _ = r.Queue.(Leaser[T])
	l.Workers = max(1, l.Workers)
	if l.Logger == nil {
		l.Logger = Logger(ctx)
	}
	if l.Name != "" {
		l.Logger = l.Logger.With("reconciler", l.Name)
	}
	l.stuck = stuckWatch[T]{logger: l.Logger, now: l.queue.now, begun: make(chan struct{}, 1)}
	l.stuck.on.Store(l.Timeout > 0 || l.leaser != nil)
	return l, nil
}

// A loop is one call of Run. The embedded fields have their defaults filled in.
type loop[T comparable] struct {
	Reconciler[T]
	queue  loopQueue[T]
	leaser Leaser[T] // nil if the queue is none

	working sync.WaitGroup // the goroutines of the workers
	failed  sync.Once
	err     error // what ended the loop, once failed

	// The contexts, and what ends them. Code of the user sees only those made from them.
	//
	//	caller  of Run                  its caller: the shutdown begins
	//	taking  of Dequeue and Admit    caller; a failure of the queue or of Admit
	//	runs    of what runs are under  caller; with a Grace, so much later
	//	a run   of Reconcile            runs; Timeout; the lease; its own end, see run.end
	caller     context.Context
	taking     context.Context
	stopTaking context.CancelFunc
	runs       context.Context

	// With an Admit, one worker at a time has a place in admitting. It takes an
	// item and waits until that item may run. So at most one item is taken and does not
	// run, and the others stay in the queue, where events still change their next runs.
	admitting chan struct{}

	stuck stuckWatch[T]
}

func (l *loop[T]) run(ctx context.Context) error {
	l.caller, l.runs = ctx, ctx
	l.taking, l.stopTaking = context.WithCancel(ctx)
	defer l.stopTaking()
	endRuns := func(error) {}
	if l.Grace > 0 {
		l.runs, endRuns = context.WithCancelCause(context.WithoutCancel(ctx))
		defer endRuns(nil)
	}
	for range l.Workers {
		w := &worker[T]{loop: l}
		l.stuck.calls = append(l.stuck.calls, &w.watchedCall)
		l.working.Go(w.work)
	}
	l.awaitWorkers(endRuns)
	return l.err
}

// awaitWorkers waits for the workers. Meanwhile it ends the contexts of the runs
// when their time is over, and warns of those that ignore that.
func (l *loop[T]) awaitWorkers(endRuns context.CancelCauseFunc) {
	ended := make(chan struct{})
	go func() {
		l.working.Wait()
		close(ended)
	}()
	done := l.caller.Done()
	grace, tick := idleTimer(), idleTimer()
	defer grace.Stop()
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-done:
			done = nil
			if l.Grace > 0 {
				grace.Reset(l.Grace)
			}
			if l.Grace <= 0 || l.Admit != nil {
				l.stuck.on.Store(true) // without a timer: in a bubble, two that fire at once break the race detector (go.dev/issue/78156)
			}
		case <-grace.C:
			endRuns(context.Cause(l.caller))
			l.stuck.on.Store(true)
		case <-l.stuck.begun:
		case <-tick.C:
			l.stuck.ticking.Store(false)
		}
		if !l.stuck.ticking.Load() && l.stuck.check() {
			l.stuck.ticking.Store(true)
			tick.Reset(stuckTick)
		}
	}
}

// A stage is how far a worker is with an item; see the top of this file.
type stage uint8

const (
	stageTaking stage = iota
	stageAdmitting
	stageStarting
	stageRunning
	stageDeciding
	stageReleasing
	stageReporting
	stageNotifying
	stageFinished // it takes no further item
)

type worker[T comparable] struct {
	loop *loop[T]
	watchedCall[T]
	stage      stage
	now        int64 // the latest reading of the clock
	clockStale bool  // time has passed since that reading

	hasItem      bool                                           // the fields below are about it
	takenItem[T]                                                // has the item, and what the queue knows of it
	admitDone    func(o Outcome, err error, took time.Duration) // of Admit; nil if there is none
	waited       time.Duration
	start        int64
	release      context.CancelFunc // of the Timeout; nil if there is none
	err          error              // what Reconcile returned
	aborted      bool               // by a shutdown or a lost lease
	skipHooks    bool               // one of them panicked, so the others are not called
	result       Result[T]
	verdict      RequeueOptions // how the item is given back
}

// work goes on until the worker has finished: in another goroutine if this one
// is lost to runtime.Goexit.
func (w *worker[T]) work() {
	defer func() {
		if w.stage != stageFinished {
			w.loop.working.Go(w.work)
		}
	}()
	for w.stage != stageFinished {
		w.runStages()
	}
}

// runStages goes through the stages until the worker has finished, or is thrown
// out of one by a panic or Goexit.
func (w *worker[T]) runStages() {
	defer func() {
		if w.stage == stageFinished {
			return
		}
		p := &PanicError{Value: recover(), Stack: debug.Stack()}
		if p.Value == nil {
			p.Value = errGoexit
		}
		w.resumeAfterPanic(p)
	}()
	for w.stage != stageFinished {
		switch w.stage {
		case stageTaking:
			w.takeNext()
		case stageAdmitting:
			w.awaitAdmission()
		case stageStarting:
			w.logStart()
		case stageRunning:
			w.reconcile()
		case stageDeciding:
			w.measure()
			w.decide(true)
			w.endRun()
			w.stage = stageReleasing
		case stageReleasing:
			if done := w.admitDone; done != nil {
				w.admitDone, w.clockStale = nil, true
				done(w.result.Outcome, w.err, w.result.Duration)
			}
			w.stage = stageReporting
		case stageReporting:
			if !w.skipHooks {
				w.report()
			}
			w.stage = stageNotifying
		case stageNotifying:
			if w.loop.OnResult != nil && !w.skipHooks {
				w.clockStale = true
				w.loop.OnResult(w.result)
			}
			w.stage = stageTaking
		}
	}
}

// resumeAfterPanic decides where to go on after a panic. One in a hook ends the
// hooks that were still to come in that run: their stages do nothing, except that
// done is always called. The item is given back as was decided by then.
func (w *worker[T]) resumeAfterPanic(p *PanicError) {
	what := ""
	switch w.stage {
	case stageTaking:
		w.fail(fmt.Errorf("reconcile: dequeue: %w", p))
		return
	case stageAdmitting:
		w.failAdmit(p)
		return
	case stageStarting:
		what = "the Logger panicked"
		w.stage = stageRunning
	case stageRunning:
		w.err = p
		w.stage = stageDeciding
		return
	case stageDeciding:
		what = "Retry, or a method of the error, panicked; a back-off of the kernel is used instead"
		w.decide(false)
		w.endRun()
		w.stage = stageReleasing
	case stageReleasing:
		what = "done of Admit panicked" // it is not called again
	case stageReporting:
		what = "the Logger panicked"
	case stageNotifying:
		what = "OnResult panicked"
	}
	w.skipHooks, w.clockStale = true, true
	logGuarded(w.loop.Logger, slog.LevelError, what, "item", w.item, "err", p, "stack", p.line())
}

// fail ends the worker, and with it the loop: it cannot go on.
func (w *worker[T]) fail(err error) {
	l := w.loop
	l.failed.Do(func() { l.err = err })
	l.stopTaking()
	w.stage = stageFinished
}

// takeNext gives back the last item, if there is one, and takes the next.
func (w *worker[T]) takeNext() {
	l := w.loop
	var last *RequeueOptions
	if w.hasItem {
		last = &w.verdict
		if w.clockStale {
			w.now = l.queue.now()
		}
	}
	// What was aborted by the end of the caller's context must not be taken again,
	// and taking may end a moment later than that.
	ending := w.aborted && l.caller.Err() != nil
	if last != nil && (ending || l.Admit != nil) {
		l.queue.giveBackTaken(&w.takenItem, last, w.now)
		last = nil
	}
	if ending {
		w.stage = stageFinished
		return
	}
	next := stageStarting
	if l.Admit != nil {
		next = stageAdmitting
		select {
		case l.admitting <- struct{}{}:
		case <-l.taking.Done():
			w.stage = stageFinished
			return
		}
	}
	err := l.queue.giveBackAndTake(l.taking, &w.takenItem, last, w.now) // If it panics, the loop ends, and no worker needs the place in admitting.
	switch {
	case err == nil:
		w.hasItem = true
		w.now, w.clockStale = w.takenItem.takenAt, false
		w.aborted, w.skipHooks = false, false
		w.stage = next
		return
	case l.taking.Err() != nil, l.caller.Err() != nil, errors.Is(err, ErrClosed):
		w.stage = stageFinished
	default:
		w.fail(fmt.Errorf("reconcile: dequeue: %w", err))
	}
	if l.Admit != nil {
		<-l.admitting
	}
}

// awaitAdmission waits until Admit lets the item run. Its context ends with the lease of the
// item, too; then the item is given back, and others may be taken.
func (w *worker[T]) awaitAdmission() {
	l := w.loop
	w.clockStale = true
	ctx, end := context.WithCancel(l.taking)
	defer end()
	done := ctx.Done()
	if l.leaser != nil {
		bad := guard(func() error {
			ctx = l.lease(ctx, w.item)
			done = ctx.Done()
			return nil
		})
		if bad != nil { // The item fails as if its run had called Lease.
			<-l.admitting
			w.err, w.start, w.waited = bad, w.now, time.Duration(w.now-w.readySince)
			w.stage = stageDeciding
			return
		}
	}
	runDone, err := w.callAdmit(noDeadline{ctx})
	ended := isDone(done) || l.caller.Err() != nil
	if runDone != nil && (ended || err != nil) {
		cause := cmp.Or(context.Cause(l.caller), err)
		_ = guard(func() error { cause = cmp.Or(context.Cause(ctx), cause); return nil })
		if p := guard(func() error { runDone(OutcomeAborted, cause, 0); return nil }); p != nil {
			logGuarded(l.Logger, slog.LevelError, "done of Admit panicked", "item", w.item, "err", p)
		}
	}
	switch {
	case ended:
		<-l.admitting
		w.giveBackUnrun()
	case err != nil:
		w.failAdmit(err)
	default:
		<-l.admitting
		w.admitDone = runDone
		w.stage = stageStarting
	}
}

// lease returns the context of the lease of an item.
func (l *loop[T]) lease(ctx context.Context, item T) context.Context {
	leased := l.leaser.Lease(ctx, item)
	if leased == nil {
		panic("reconcile: Lease returned nil, want a context")
	}
	return leased
}

// callAdmit calls Admit, which is watched as a run is.
func (w *worker[T]) callAdmit(ctx context.Context) (done func(Outcome, error, time.Duration), err error) {
	w.current.Store(&run[T]{Context: ctx, item: w.item, start: w.now, admit: true})
	defer w.current.Store(nil)
	w.loop.stuck.noteBegun()
	return w.loop.Admit(ctx)
}

// A noDeadline is a context that does not say when it ends. From a deadline, a limiter such
// as that of golang.org/x/time/rate concludes that it cannot wait that long, and returns an
// error at once, which would end Run.
type noDeadline struct{ context.Context }

func (noDeadline) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// failAdmit gives back the item that Admit failed for, and ends the worker. It keeps
// the place in admitting, so that no other worker calls Admit.
func (w *worker[T]) failAdmit(err error) {
	err = fmt.Errorf("reconcile: admit: %w", err)
	if p := guard(func() error { w.giveBackUnrun(); return nil }); p != nil {
		err = errors.Join(err, fmt.Errorf("reconcile: requeue: %w", p))
	}
	w.fail(err)
}

// giveBackUnrun gives back an item that had no run. The worker is to take another
// one, so a panic in it is one of the queue.
func (w *worker[T]) giveBackUnrun() {
	w.stage = stageTaking
	w.hasItem, w.aborted = false, true
	w.loop.queue.giveBackTaken(&w.takenItem, &RequeueOptions{Aborted: true}, w.loop.queue.now())
}

// logStart logs the start of a run.
func (w *worker[T]) logStart() {
	if w.clockStale { // because of Admit
		w.now, w.clockStale = w.loop.queue.now(), false
	}
	w.waited = time.Duration(w.now - w.readySince)
	if w.loop.Logger.Enabled(w.loop.runs, slog.LevelDebug) {
		w.clockStale = true
		w.loop.Logger.LogAttrs(w.loop.runs, slog.LevelDebug, "run starts",
			slog.Any("item", w.item), slog.Int("failures", w.failures))
	}
	w.stage = stageRunning
}

// reconcile does one run.
func (w *worker[T]) reconcile() {
	l := w.loop
	if w.clockStale {
		w.now = l.queue.now()
	}
	w.start = w.now
	ctx := l.runs
	if l.Timeout > 0 {
		ctx, w.release = context.WithTimeoutCause(ctx, l.Timeout, ErrTimeout)
	}
	if l.leaser != nil { // last: its Err may know of the end before a context made from it does
		ctx = l.lease(ctx, w.item)
	}
	r := &run[T]{Context: ctx, logger: l.Logger, item: w.item, failures: int32(w.failures), start: w.start}
	w.current.Store(r)
	l.stuck.noteBegun()
	w.err = l.Reconcile(r, r.item)
	w.stage = stageDeciding
}

// measure notes how the run ended.
func (w *worker[T]) measure() {
	w.now, w.clockStale = w.loop.queue.now(), false
	w.result = Result[T]{
		Item:     w.item,
		Err:      w.err,
		Waited:   w.waited,
		Duration: time.Duration(w.now - w.start),
	}
	if _, panicked := w.err.(*PanicError); w.err != nil && !panicked {
		r := w.current.Load()
		w.aborted = w.loop.caller.Err() != nil || w.loop.leaser != nil && errors.Is(context.Cause(r), ErrLeaseLost)
		w.clockStale = true // what follows is code of the user
	}
}

// decide decides what becomes of the item. It calls code of the user, the methods
// of the error and Retry, only if it may.
func (w *worker[T]) decide(mayCall bool) {
	r := &w.result
	if w.err == nil {
		r.Outcome, w.verdict = OutcomeSucceeded, RequeueOptions{Done: true}
		return
	}
	a, retry := answer{failed: true}, RetryPolicy(DefaultRetry)
	if mayCall {
		a, retry = answerOf(w.err), w.loop.Retry
	}
	if w.aborted && !a.succeeded() {
		r.Outcome, r.Failures, w.verdict = OutcomeAborted, w.failures, RequeueOptions{Aborted: true}
		return
	}
	r.Outcome, w.verdict = a.classify(w.err, w.failures+1, retry)
	switch {
	case r.Outcome == OutcomeRetrying && w.loop.HoldRetries:
		w.verdict.MinDelay = w.verdict.Delay
	case w.verdict.Recheck && w.loop.RecheckJitter > 0:
		w.verdict.Delay -= time.Duration(w.loop.RecheckJitter * chance(uint64(w.index)) * float64(max(0, w.verdict.Delay)))
	}
	if w.verdict.Err != nil {
		r.Failures = w.failures + 1
	}
	if !w.verdict.Done {
		r.Next = max(0, w.verdict.Delay)
	}
}

// endRun is called once it is decided what becomes of the item: until then, the
// run is one that has not returned.
func (w *worker[T]) endRun() {
	if r := w.current.Swap(nil); r != nil { // nil if Lease panicked
		r.finish()
	}
	if w.release != nil {
		w.release()
	}
}

// report writes the one line that each outcome has, except for OutcomeAborted.
func (w *worker[T]) report() {
	panicked, _ := w.err.(*PanicError)
	level, msg := slog.LevelDebug, "run succeeded"
	switch w.result.Outcome {
	case OutcomeAborted:
		return
	case OutcomeRequeued:
		msg = "run requeued"
		if w.result.Failures > 0 {
			level, msg = slog.LevelWarn, "run requeued, although a step failed"
		}
	case OutcomeRetrying:
		level, msg = slog.LevelWarn, "run failed, retrying"
	case OutcomeGaveUp:
		level, msg = slog.LevelError, "run failed, not retried"
	case OutcomeTerminal:
		level, msg = slog.LevelError, "run failed, terminal error"
	}
	if panicked != nil {
		level, msg = slog.LevelError, "run panicked"
	}
	logger := w.loop.Logger
	ctx := w.loop.runs
	if !logger.Enabled(ctx, level) {
		return
	}
	w.clockStale = true
	attrs := []slog.Attr{
		slog.Any("item", w.item),
		slog.String("outcome", string(w.result.Outcome)),
		slog.Duration("duration", w.result.Duration),
	}
	if w.err != nil && !w.verdict.Done {
		attrs = append(attrs, slog.Duration("next", w.result.Next))
	}
	if w.err != nil {
		attrs = append(attrs, slog.Int("failures", w.result.Failures), slog.Any("err", w.err))
	}
	if panicked != nil {
		attrs = append(attrs, slog.String("stack", panicked.line()))
	}
	logger.LogAttrs(ctx, level, msg, attrs...)
}

// A loopQueue is what a loop needs of a queue. [Queue] does each in one lock hold.
type loopQueue[T comparable] interface {
	giveBackAndTake(ctx context.Context, t *takenItem[T], last *RequeueOptions, now int64) error
	giveBackTaken(t *takenItem[T], w *RequeueOptions, now int64)
	now() int64
}

// An otherQueue makes a loopQueue of a Dequeuer that is no [Queue].
type otherQueue[T comparable] struct {
	Dequeuer[T]
	base time.Time
}

func (f *otherQueue[T]) now() int64 { return int64(time.Since(f.base)) }

func (f *otherQueue[T]) giveBackAndTake(ctx context.Context, t *takenItem[T], last *RequeueOptions, now int64) error {
	if last != nil {
		f.giveBackTaken(t, last, now)
	}
	item, err := f.Dequeue(ctx)
	if err != nil {
		return err
	}
	now = f.now()
	*t = takenItem[T]{item: item, readySince: now, takenAt: now}
	known := false
	defer func() {
		if !known { // State panicked, which ends the loop: no worker would give the item back.
			f.Requeue(item, RequeueOptions{Aborted: true})
		}
	}()
	t.failures, known = f.State(item).Failures, true
	return nil
}

func (f *otherQueue[T]) giveBackTaken(t *takenItem[T], w *RequeueOptions, _ int64) {
	if w.Done && w.Err == nil {
		f.Done(t.item)
	} else {
		f.Requeue(t.item, *w)
	}
}
