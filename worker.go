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

// This file is the inside of [Reconciler.Run]: a loop, which starts the workers,
// ends their runs in time and warns of those that do not end; and the workers.
//
// A worker is a goroutine that goes through the stages of a run again and again.
// Code of the user is called in most of them, and may panic or call
// runtime.Goexit in any. One place catches both, worker.runStages: it notes what
// happened, and the worker goes on with the stage that comes after; in a new
// goroutine, if its own is lost.

// A loop is one call of Run. The embedded fields have their defaults filled in.
type loop[T comparable] struct {
	Reconciler[T]
	source  source[T]
	leaser  Leaser[T] // nil if the queue is none
	workers []*worker[T]
	running sync.WaitGroup // workers
	failed  sync.Once
	err     error // of the queue, once failed

	parent  context.Context // that Run was called with
	dequeue context.Context // to wait for items under: ends also when the queue fails
	stop    context.CancelFunc
	runs    context.Context // of the runs: may end later than parent, see Grace

	// At a Gate, one worker at a time is between the queue and the gate: atGate
	// has room for that one, and place is what it waits with. So each loop has
	// one item in hand at most, and the others wait in the queue.
	atGate chan struct{}
	place  gatePlace
	ahead  int64 // of the source's clock is that of the gate

	// Runs are watched if they have a Timeout or a lease, or are to end. While
	// ticking is false, a worker tells in begun that there is a run to watch.
	watched atomic.Bool
	ticking atomic.Bool
	begun   chan struct{} // room for one

	// Runs are allocated in batches, since code of the user may keep the context
	// of one; who keeps one keeps its batch, and so does an idle worker.
	runBatch int
}

// A source is what a loop needs of a queue. [Queue] has it all in one lock hold.
type source[T comparable] interface {
	exchange(ctx context.Context, t *taken[T], v *verdict, now int64) error
	giveBack(t *taken[T], v *verdict, now int64)
	now() int64
}

func (l *loop[T]) run(ctx context.Context) error {
	l.parent, l.runs = ctx, ctx
	l.dequeue, l.stop = context.WithCancel(ctx)
	defer l.stop()
	endRuns := func(error) {}
	if l.Grace > 0 {
		l.runs, endRuns = context.WithCancelCause(context.WithoutCancel(ctx))
		defer endRuns(nil)
	}
	for range l.Workers {
		l.workers = append(l.workers, &worker[T]{loop: l})
	}
	for _, w := range l.workers {
		l.running.Go(w.work)
	}
	l.supervise(endRuns)
	return l.err
}

// supervise waits for the workers. Meanwhile it ends the contexts of the runs
// when their time is over, and warns of runs that ignore that.
func (l *loop[T]) supervise(endRuns context.CancelCauseFunc) {
	ended := make(chan struct{})
	go func() {
		l.running.Wait()
		close(ended)
	}()
	done := l.parent.Done()
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
			} else { // without a timer: in a bubble, two that fire at once break the race detector (go.dev/issue/78156)
				l.watched.Store(true)
			}
		case <-grace.C:
			endRuns(context.Cause(l.parent))
			l.watched.Store(true)
		case <-l.begun:
		case <-tick.C:
			l.ticking.Store(false)
		}
		if !l.ticking.Load() && l.warnOfStuckRuns() {
			l.ticking.Store(true)
			tick.Reset(stuckTick)
		}
	}
}

// stuckTick is how often the runs are looked at, and how long one has to return
// after the end of its context.
const stuckTick = 500 * time.Millisecond

// idleTimer returns a timer that does not fire before it is reset.
func idleTimer() *time.Timer {
	t := time.NewTimer(math.MaxInt64)
	t.Stop()
	return t
}

// warnOfStuckRuns names the runs whose contexts ended a while ago. It reports
// whether there are runs to look at again.
func (l *loop[T]) warnOfStuckRuns() (again bool) {
	if !l.watched.Load() {
		return false
	}
	_ = guard(func() error { // the Logger and the context of a Leaser are code of the user
		now := l.source.now()
		for _, w := range l.workers {
			r := w.current.Load()
			if r == nil {
				continue
			}
			again = true
			cause := context.Cause(r)
			if cause != nil && r.warnAt == 0 {
				r.warnAt = now + int64(stuckTick)
			}
			if cause != nil && r.warnAt <= now {
				age := now - r.start
				r.warnAt = now + age
				l.Logger.Warn("run has not returned, though its context ended",
					"item", r.item, "age", time.Duration(age), "cause", cause)
			}
		}
		return nil
	})
	return again
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
	worker   *worker[T]
	item     T
	start    int64
	warnAt   int64       // belongs to supervise
	changed  atomic.Bool // a context of UntilChanged ended with ErrChanged
	failures int32       // 64 bytes in all if items are strings
}

func (r *run[T]) Value(key any) any {
	if key == (runKey{}) {
		return r
	}
	return r.Context.Value(key)
}

func (r *run[T]) logger() *slog.Logger {
	return r.worker.loop.Logger.With("item", r.item, "failures", r.failures)
}

// A stage is how far a worker is with an item.
type stage uint8

const (
	stageTaking    stage = iota // gives back the last item and waits for one
	stageStarting               // logs the start
	stageRunning                // calls Reconcile
	stageDeciding               // decides what becomes of the item
	stageLeaving                // tells the Gate how the run went
	stageReporting              // logs the outcome
	stageNotifying              // calls OnResult
	stageFinished               // for good
)

type worker[T comparable] struct {
	loop       *loop[T]
	current    atomic.Pointer[run[T]] // while Reconcile runs
	runPool    []run[T]               // for the next runs
	stage      stage
	now        int64 // the latest reading of the clock
	clockStale bool  // time has passed since that reading

	hasItem bool // it has taken one; the fields below are about the latest
	taken[T]
	pass      gatePass // of the Gate, if there is one
	waited    time.Duration
	start     int64
	release   context.CancelFunc // of the Timeout; nil if there is none
	err       error              // what Reconcile returned
	aborted   bool
	changed   bool // the run ended early, because its item was enqueued again
	hooksOver bool // one of them panicked, so the others are not called
	result    Result[T]
	verdict   verdict
}

// work goes on until the worker has finished: in another goroutine if this one
// is lost to runtime.Goexit.
func (w *worker[T]) work() {
	defer func() {
		if w.stage != stageFinished {
			w.loop.running.Go(w.work)
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
		case stageStarting:
			w.logStart()
		case stageRunning:
			w.reconcile()
		case stageDeciding:
			w.measure()
			w.decide(true)
			w.stage = stageLeaving
		case stageLeaving:
			if w.loop.Gate != nil {
				w.leaveGate()
			}
			w.stage = stageReporting
		case stageReporting:
			if !w.hooksOver {
				w.report()
			}
			w.stage = stageNotifying
		case stageNotifying:
			if w.loop.OnResult != nil && !w.hooksOver {
				w.clockStale = true
				w.loop.OnResult(w.result)
			}
			w.stage = stageTaking
		}
	}
}

// resumeAfterPanic decides where to go on after a panic. One in a hook ends the
// hooks that were still to come in that run, their stages do nothing; the item is
// given back as was decided by then.
func (w *worker[T]) resumeAfterPanic(p *PanicError) {
	what := ""
	switch w.stage {
	case stageTaking:
		w.failQueue(p)
		return
	case stageStarting:
		what = "the Logger panicked"
		w.stage = stageRunning
	case stageRunning:
		w.err = p
		w.stage = stageDeciding
		return
	case stageDeciding:
		what = "Retry, or a method of the error, panicked; DefaultRetry is used instead"
		w.decide(false)
		w.stage = stageLeaving
	case stageLeaving:
		what = "Gate.Slow panicked"
		w.loop.Gate.leave(w.pass, foundNothing)
		w.stage = stageTaking
	case stageReporting:
		what = "the Logger panicked"
	case stageNotifying:
		what = "OnResult panicked"
	}
	w.hooksOver, w.clockStale = true, true
	logGuarded(w.loop.Logger, slog.LevelError, what, "item", w.item, "err", p, "stack", p.line())
}

// failQueue ends the worker, and with it the loop: the queue cannot go on.
func (w *worker[T]) failQueue(err error) {
	l := w.loop
	l.failed.Do(func() { l.err = fmt.Errorf("reconcile: dequeue: %w", err) })
	l.stop()
	w.stage = stageFinished
}

// takeNext gives back the last item, if there is one, and takes the next.
func (w *worker[T]) takeNext() {
	l := w.loop
	ctx := l.dequeue
	if w.aborted && l.parent.Err() != nil {
		ctx = l.parent // ends a moment before its child: the aborted item must not be taken again
	}
	var last *verdict
	if w.hasItem {
		last = &w.verdict
		if w.clockStale {
			w.now = l.source.now()
		}
	}
	var err error
	if l.Gate == nil {
		err = l.source.exchange(ctx, &w.taken, last, w.now)
	} else {
		if last != nil {
			l.source.giveBack(&w.taken, last, w.now)
		}
		err = w.takeThroughGate(ctx)
	}
	if err == nil {
		w.hasItem = true
		w.now, w.clockStale = w.taken.at, l.Gate != nil
		w.aborted, w.changed, w.hooksOver = false, false, false
		w.stage = stageStarting
	} else if ctx.Err() != nil || l.parent.Err() != nil || errors.Is(err, ErrClosed) { // ctx may end a moment after its parent
		w.stage = stageFinished
	} else {
		w.failQueue(err)
	}
}

// takeThroughGate takes an item and waits until the Gate lets it in.
func (w *worker[T]) takeThroughGate(ctx context.Context) error {
	l := w.loop
	free := l.Gate.now()
	for {
		select {
		case l.atGate <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		in, err := w.takeAtGate(ctx, free)
		if in || err != nil {
			return err
		}
		if l.parent.Err() != nil {
			ctx = l.parent // as in takeNext
		}
	}
}

// takeAtGate is called by one worker at a time. It returns false and no error if
// the item had to be given back before it was let in.
func (w *worker[T]) takeAtGate(ctx context.Context, free int64) (in bool, err error) {
	l := w.loop
	defer func() { <-l.atGate }() // also if the queue panics
	if err := l.source.exchange(ctx, &w.taken, nil, 0); err != nil {
		return false, err
	}
	p := &l.place
	p.since = max(free, w.taken.ready+l.ahead)
	if in = l.Gate.tryEnter(p); !in {
		var lost <-chan struct{}
		if l.leaser != nil {
			var end context.CancelFunc
			lost, end = w.leaseEarly()
			defer end()
		}
		in = l.Gate.enter(p, ctx.Done(), lost, l.parent.Done())
	}
	if !in {
		w.verdict = verdict{Wait: Wait{Err: ErrAborted}}
		l.source.giveBack(&w.taken, &w.verdict, l.source.now())
		return false, nil
	}
	w.pass = p.pass
	return true, nil
}

// leaseEarly leases an item that has to wait at the gate, until end is called. What
// panics here does so in the run too, and is a failure of that.
func (w *worker[T]) leaseEarly() (lost <-chan struct{}, end context.CancelFunc) {
	ctx, end := context.WithCancel(w.loop.runs)
	_ = guard(func() error {
		lost = w.loop.leaser.Lease(ctx, w.item).Done()
		return nil
	})
	return lost, end
}

// logStart logs the start of a run.
func (w *worker[T]) logStart() {
	if w.clockStale { // because of the Gate
		w.now, w.clockStale = w.loop.source.now(), false
	}
	w.waited = time.Duration(w.now - w.ready)
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
		w.now = l.source.now()
	}
	w.start = w.now
	ctx := l.runs
	if l.Timeout > 0 {
		ctx, w.release = context.WithTimeoutCause(ctx, l.Timeout, ErrTimeout)
	}
	if l.leaser != nil { // last: its Err may know of the end before a context made from it does
		if ctx = l.leaser.Lease(ctx, w.item); ctx == nil {
			panic("reconcile: Lease returned nil, want a context")
		}
	}
	if len(w.runPool) == 0 {
		w.runPool = make([]run[T], l.runBatch)
	}
	r := &w.runPool[0]
	w.runPool = w.runPool[1:]
	r.Context, r.worker, r.item, r.failures, r.start = ctx, w, w.item, int32(w.failures), w.start
	w.current.Store(r)
	if l.watched.Load() && !l.ticking.Load() {
		select {
		case l.begun <- struct{}{}:
		default:
		}
	}
	w.err = l.Reconcile(r, r.item)
	w.stage = stageDeciding
}

// measure notes how the run ended.
func (w *worker[T]) measure() {
	w.now, w.clockStale = w.loop.source.now(), false
	w.result = Result[T]{
		Item:     w.item,
		Err:      w.err,
		Waited:   w.waited,
		Duration: time.Duration(w.now - w.start),
	}
	r := w.current.Load()
	defer w.current.Store(nil) // also if its context panics
	if w.release != nil {
		defer w.release()
	}
	if _, panicked := w.err.(*PanicError); w.err != nil && !panicked {
		w.aborted = w.loop.parent.Err() != nil || w.loop.leaser != nil && errors.Is(context.Cause(r), ErrLeaseLost)
		w.changed = w.outdated(r)
		w.clockStale = true // what follows is code of the user
	}
}

// decide decides what becomes of the item. It calls code of the user, the methods
// of the error and Retry, only if it may.
func (w *worker[T]) decide(mayCall bool) {
	if w.err == nil {
		w.result.Outcome, w.verdict = Succeeded, verdict{done: true}
		return // before planned, which is allocated
	}
	retry := w.loop.Retry
	if !mayCall {
		retry = DefaultRetry
	}
	_, panicked := w.err.(*PanicError)
	readable := mayCall && !panicked // whatever the value of a panic unwraps to
	var planned RequeueError
	switch {
	case readable && errors.As(w.err, &planned):
		w.changed = false // it says itself what follows
		w.result.Outcome = Requeued
		if planned.settled() {
			w.result.Outcome = Succeeded
		}
		w.result.Next = max(0, planned.Delay)
		w.verdict = verdict{Wait: Wait{Delay: planned.Delay, Hold: planned.Hold, Settled: planned.Settled}}
	case w.aborted:
		w.result.Outcome, w.verdict = Aborted, verdict{Wait: Wait{Err: ErrAborted}}
		w.result.Failures = w.failures
	case w.changed:
		w.result.Outcome, w.verdict = Requeued, verdict{}
	case readable && errors.Is(w.err, ErrTerminal):
		w.giveUp(Terminated)
	default:
		w.decideByRetry(retry)
	}
}

func (w *worker[T]) decideByRetry(p RetryPolicy) {
	delay, again := p(w.err, w.failures+1)
	if !again {
		w.giveUp(GaveUp)
		return
	}
	err := w.err
	if err == ErrAborted { // returned by Reconcile
		err = fmt.Errorf("%w", err)
	}
	w.result.Outcome, w.result.Failures = Retrying, w.failures+1
	w.result.Next = max(0, delay)
	w.verdict = verdict{Wait: Wait{Delay: delay, Hold: w.loop.HoldRetries, Err: err}}
}

func (w *worker[T]) giveUp(o Outcome) {
	w.result.Outcome, w.result.Failures = o, w.failures+1
	w.verdict = verdict{done: true, Wait: Wait{Err: w.err}}
}

// leaveGate tells the gate how the run went. It calls code of the user: Slow.
func (w *worker[T]) leaveGate() {
	g, found := w.loop.Gate, foundNothing
	if g.Slow != nil && w.result.Outcome != Aborted && !w.hooksOver {
		w.clockStale = true
		switch {
		case g.Slow(w.err, w.result.Duration):
			found = foundSlow
		case w.result.Outcome == Succeeded, w.result.Outcome == Requeued && !w.changed: // not cut short
			found = foundWell
		}
	}
	g.leave(w.pass, found)
}

// report writes the one line that each outcome has, except for Aborted.
func (w *worker[T]) report() {
	panicked, _ := w.err.(*PanicError)
	level, msg := slog.LevelDebug, "run succeeded"
	switch w.result.Outcome {
	case Aborted:
		return
	case Requeued:
		msg = "run planned the next"
	case Retrying:
		level, msg = slog.LevelWarn, "run failed, to be retried"
	case GaveUp:
		level, msg = slog.LevelError, "run failed, gave up"
	case Terminated:
		level, msg = slog.LevelError, "run failed for good"
	}
	if w.changed {
		msg = "run ended early, its item was enqueued again"
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
	if w.err != nil && !w.verdict.done {
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

// foreign makes a source of a queue that is not a [Queue].
type foreign[T comparable] struct {
	Dequeuer[T]
	base time.Time
}

func (f *foreign[T]) now() int64 { return int64(time.Since(f.base)) }

func (f *foreign[T]) exchange(ctx context.Context, t *taken[T], v *verdict, now int64) error {
	if v != nil {
		f.giveBack(t, v, now)
	}
	item, err := f.Dequeue(ctx)
	if err != nil {
		return err
	}
	now = f.now()
	*t = taken[T]{item: item, ready: now, at: now, failures: f.State(item).Failures}
	return nil
}

func (f *foreign[T]) giveBack(t *taken[T], v *verdict, _ int64) {
	if v.done {
		f.Done(t.item)
	} else {
		f.Requeue(t.item, v.Wait)
	}
}
