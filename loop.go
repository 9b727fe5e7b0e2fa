// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// This file is the inside of [Reconciler.Run]: it starts the workers, ends their
// runs in time, and warns of those that do not end.

// A loop is one call of Run. The embedded fields have their defaults filled in.
type loop[T comparable] struct {
	Reconciler[T]
	source  source[T]
	leaser  Leaser[T] // nil if the queue is none
	door    *door     // nil if there is no Gate
	workers []*worker[T]
	running sync.WaitGroup // workers, and what alert starts
	alarm   chan struct{}  // told when the context of a run ended before the run

	// runsAtOnce is how many runs a worker allocates together. Each has memory of
	// its own, as code of the user may keep its context; but who keeps one keeps
	// all of them, and so does an idle worker.
	runsAtOnce int
}

// A source is what a loop needs of a queue. [Queue] has it all in one lock hold.
type source[T comparable] interface {
	first(ctx context.Context, g *grant[T]) error
	exchange(ctx context.Context, g *grant[T], v verdict, w *Wait, now int64) error
	giveBack(g *grant[T], v verdict, w *Wait, now int64)
	over() <-chan struct{} // closed when the queue is closed and empty; nil if it does not tell
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
	if e, ok := context.Cause(taking).(*queueError); ok {
		return e.error
	}
	return nil
}

// A queueError is the cause of the end of a loop whose queue cannot go on.
type queueError struct{ error }

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
		if r == nil || !over && r.marks.Load()&markEnded == 0 {
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
	worker   *worker[T]
	item     T
	start    int64
	warnAt   int64 // belongs to watch
	marks    atomic.Uint32
	failures int32 // 64 bytes in all if items are strings
}

// The marks of a run.
const (
	markEnded   = 1 << iota // its context ended while it went on
	markChanged             // a context of UntilChanged ended with ErrChanged
)

func (r *run[T]) Value(key any) any {
	if key == (runKey{}) {
		return r
	}
	return r.Context.Value(key)
}

func (r *run[T]) logger() *slog.Logger {
	l := r.worker.loop
	return l.Logger.With("reconciler", l.Name, "item", r.item, "failures", r.failures)
}

// alert has watch look after the run if its context ends before it. It returns
// what is to be called when the run has returned.
func (l *loop[T]) alert(r *run[T], release func()) func() {
	set := false
	l.running.Add(1)
	defer func() {
		if !set { // the context is user code, and panicked
			l.running.Done()
		}
	}()
	stop := context.AfterFunc(r.Context, func() {
		defer l.running.Done()
		l.sound(r)
	})
	set = true
	return func() {
		if stop() {
			l.running.Done()
		}
		if release != nil {
			release()
		}
	}
}

// sound has watch look after a run whose context has ended.
func (l *loop[T]) sound(r *run[T]) {
	r.marks.Or(markEnded)
	select {
	case l.alarm <- struct{}{}:
	default: // it will look anyway
	}
}

// foreign makes a source of a queue that is not a [Queue].
type foreign[T comparable] struct {
	Dequeuer[T]
	base time.Time
}

func (f *foreign[T]) now() int64 { return int64(time.Since(f.base)) }

func (f *foreign[T]) first(ctx context.Context, g *grant[T]) error {
	item, err := f.Dequeue(ctx)
	if err != nil {
		return err
	}
	now := f.now()
	*g = grant[T]{item: item, ready: now, taken: now, failures: f.State(item).Failures}
	return nil
}

func (f *foreign[T]) exchange(ctx context.Context, g *grant[T], v verdict, w *Wait, now int64) error {
	f.giveBack(g, v, w, now)
	return f.first(ctx, g)
}

func (f *foreign[T]) giveBack(g *grant[T], v verdict, w *Wait, _ int64) {
	if v == verdictDone {
		f.Done(g.item)
	} else {
		f.Requeue(g.item, *w)
	}
}

func (f *foreign[T]) over() <-chan struct{} { return nil }
