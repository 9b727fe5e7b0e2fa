// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// A run is the context of one call of Reconcile. It ends with the context that it is made
// from, and when the run has ended. It also stands for a call of Admit.
type run[T comparable] struct { // 64 bytes if items are strings
	context.Context
	logger   *slog.Logger // of the loop
	item     T
	start    int64                  // in nanoseconds of loopQueue.now
	end      atomic.Pointer[runEnd] // nil while nothing has asked for it
	failures int32
	admit    bool // it stands for a call of Admit
}

// A runEnd is a context that is cancelled when a run has ended. A run makes it when it is
// asked for Done, so that most runs do without.
type runEnd struct {
	context.Context
	cancel context.CancelFunc
}

// endedUnasked is the end of a run that has ended, and was not asked for Done before.
var endedUnasked runEnd

// ending returns the context that ends with the run.
func (r *run[T]) ending() context.Context {
	for {
		end := r.end.Load()
		if end != nil && end != &endedUnasked {
			return end
		}
		ctx, cancel := context.WithCancel(r.Context)
		if end == &endedUnasked {
			cancel()
		}
		if r.end.CompareAndSwap(end, &runEnd{ctx, cancel}) {
			return ctx
		}
		cancel()
	}
}

// finish ends the context of the run.
func (r *run[T]) finish() {
	if !r.end.CompareAndSwap(nil, &endedUnasked) {
		r.end.Load().cancel()
	}
}

func (r *run[T]) Done() <-chan struct{} { return r.ending().Done() }

func (r *run[T]) Err() error {
	if r.end.Load() == nil {
		return r.Context.Err()
	}
	return cmp.Or(r.ending().Err(), r.Context.Err()) // that of a Leaser may know of its end first
}

func (r *run[T]) Value(key any) any {
	if key == (loggerKey{}) {
		return r.logger.With("item", r.item, "failures", r.failures)
	}
	if _, ok := key.(interface{ OutsideOfRuns() }); ok { // package supervise has such a key
		return nil
	}
	if r.end.Load() == nil {
		return r.Context.Value(key)
	}
	return r.ending().Value(key) // Package context finds its own there.
}

// A stuckWatch warns of calls that have not returned although their contexts have ended:
// runs, and calls of Admit. Nobody looks while a loop has no Timeout, no lease and no end
// that could end a context.
type stuckWatch[T comparable] struct {
	logger *slog.Logger
	now    func() int64
	calls  []*watchedCall[T] // one for each worker

	// While ticking is false, a worker tells in begun that there is something to watch.
	on      atomic.Bool
	ticking atomic.Bool
	begun   chan struct{} // room for one
}

// A watchedCall is what a worker is calling.
type watchedCall[T comparable] struct {
	current atomic.Pointer[run[T]] // until it is decided what becomes of its item

	// The fields below belong to the goroutine that calls check.
	warned *run[T] // that warnAt is about
	warnAt int64   // when the next warning is due; 0 at first
}

// noteBegun is called when something begins that may have to be watched.
func (s *stuckWatch[T]) noteBegun() {
	if s.on.Load() && !s.ticking.Load() {
		select {
		case s.begun <- struct{}{}:
		default:
		}
	}
}

// check warns of each call whose context ended a while ago. It reports whether there is
// anything to check again.
func (s *stuckWatch[T]) check() (again bool) {
	if !s.on.Load() {
		return false
	}
	for _, c := range s.calls {
		if r := c.current.Load(); r != nil {
			again = true
			_ = guard(func() error { s.warn(c, r); return nil }) // The Logger, and the context of a Leaser, are code of the user.
		}
	}
	return again
}

// warn warns if the context of r ended a while ago, and again each time the age of r has
// doubled.
func (s *stuckWatch[T]) warn(c *watchedCall[T], r *run[T]) {
	if c.warned != r {
		c.warned, c.warnAt = r, 0
	}
	now, cause := s.now(), context.Cause(r.Context)
	switch {
	case cause == nil:
		return
	case c.warnAt == 0:
		c.warnAt = now + int64(stuckTick)
	}
	if now < c.warnAt {
		return
	}
	age := now - r.start
	c.warnAt = now + age
	msg := "run has not returned, though its context ended"
	if r.admit {
		msg = "Admit has not returned, though its context ended"
	}
	s.logger.Warn(msg, "item", r.item, "age", time.Duration(age), "cause", cause)
}
