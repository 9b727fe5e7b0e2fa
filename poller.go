// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math"
	"sync/atomic"
	"time"
)

// A Poller lists items repeatedly and offers them to a queue. It is the source for things
// that cannot be watched, and the resync for things that can.
//
// Each poll offers the items that it lists. An offered item runs, unless it is in flight or
// has a next run that is more than a recheck. So an item whose run returned
// RecheckWithin(time.Hour), or a Terminal error, runs again each Period. A poll does nothing
// for an item that it lacks: package keep lists both sides, and deletes safely.
//
// Queue, GetItems and Period are required. The fields must not be changed while Run goes on.
type Poller[T comparable] struct {
	Queue Enqueuer[T] // is offered each item that GetItems returns

	// GetItems lists the items. Its ctx ends when that of Run does, and ten Periods after the
	// poll began at the latest. If it returns
	// items and an error, the items are offered, and the error is logged. It is not called
	// again before it has returned. Run warns if it has not returned although its ctx has
	// ended, again each time its age has doubled.
	GetItems func(ctx context.Context) ([]T, error)

	// Period is the time from the start of one poll to the start of the next, at least a
	// millisecond. A poll that takes longer is followed by a pause of one Period.
	Period time.Duration

	// Jitter makes each period, and each back-off, longer or shorter at random, by up to this
	// part of it, 0 to 1, so that pollers that were started together drift apart. In a bubble
	// of testing/synctest they do so only if their names differ.
	Jitter float64

	Name   string       // for logs
	Logger *slog.Logger // nil means Logger(ctx) of the ctx of Run

	wake atomic.Pointer[chan struct{}] // notified by Trigger; nil while Run does not go on
}

// Run polls at once and then every Period, until ctx is done. It then waits for the poll in
// flight and returns nil. It returns a [Terminal] error at once if a field is missing or out
// of its range, and an error if it is running already.
//
// A poll that fails or panics is retried after 1 s, 2 s, 4 s and so on, and at the latest
// when the next would begin. Run logs the 1st, 2nd, 4th, 8th … failure in a row, and the
// next success.
func (p *Poller[T]) Run(ctx context.Context) error {
	if err := p.check(); err != nil {
		return Terminal(err)
	}
	wake := make(chan struct{}, 1)
	if !p.wake.CompareAndSwap(nil, &wake) {
		return errors.New("reconcile: Poller.Run is running already")
	}
	defer p.wake.Store(nil)

	var failures failureLog
	for ctx.Err() == nil {
		select {
		case <-wake: // answered by this poll
		default:
		}
		start := time.Now()
		name := nameAttr("poller", p.Name)
		logger := cmp.Or(p.Logger, Logger(ctx))
		err := p.poll(ctx, logger, name)
		if ctx.Err() != nil {
			return nil
		}
		took := time.Since(start)
		pause := p.pause(took)
		triggered := wake
		if err != nil {
			triggered = nil                                             // A poll that fails keeps its back-off.
			delay := p.jittered(time.Second << min(failures.count, 33)) // doubled, for as long as that is a time.Duration
			pause = min(pause, delay, p.left(p.Period, took))
			failures.add(logger, slog.LevelError, "poll failed", err, append(name, "next", pause)...)
		} else if failures.count > 0 {
			logGuarded(logger, slog.LevelInfo, "poll succeeded again", append(name, "failures", failures.count)...)
			failures = failureLog{}
		}
		if sleep(ctx, pause, triggered) {
			sleep(ctx, min(took+pause, triggerGap)-time.Since(start), nil)
		}
	}
	return nil
}

// triggerGap is the least time between the starts of two polls, if Trigger asked for the
// second.
const triggerGap = time.Second

// sleep waits for d, or until ctx is done or wake is notified, and reports whether wake
// was. Each call has a timer of its own, because the channel of a timer that is used
// again may hold an old tick with GODEBUG=asynctimerchan=1.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) (woken bool) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	case <-wake:
		return true
	}
	return false
}

var errSlowPoll = errors.New("took longer than ten Periods")

// poll lists the items and feeds them.
func (p *Poller[T]) poll(ctx context.Context, logger *slog.Logger, name []any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*min(p.Period, math.MaxInt64/10), errSlowPoll)
	defer cancel()
	late := func(age time.Duration) {
		logGuarded(logger, slog.LevelWarn, "poll has not returned, though its context ended", append(name, "age", age, "cause", context.Cause(ctx))...)
	}
	return guardWatched(ctx, late, func() error {
		items, err := p.GetItems(ctx)
		if err != nil && context.Cause(ctx) == errSlowPoll && !errors.Is(err, errSlowPoll) {
			err = fmt.Errorf("%w: %w", errSlowPoll, err)
		}
		var first error // panic of an Offer
		for next := 0; next < len(items); {
			// One item that the queue panics on does not hide those after it.
			panicked := guard(func() error {
				for next < len(items) {
					next++
					p.Queue.Offer(items[next-1])
				}
				return nil
			})
			if panicked != nil && first == nil {
				first = fmt.Errorf("offering %v: %w", items[next-1], panicked)
			}
		}
		if err != nil && first != nil {
			return errors.Join(err, first)
		}
		return cmp.Or(err, first)
	})
}

// pause returns the time from the end of a poll, which took so long, to the next.
func (p *Poller[T]) pause(took time.Duration) time.Duration {
	return p.left(p.jittered(p.Period), took)
}

// jittered returns d, longer or shorter by chance as Jitter says.
func (p *Poller[T]) jittered(d time.Duration) time.Duration {
	name := fnv.New64a()
	name.Write([]byte(p.Name))
	if f := float64(d) * (1 + p.Jitter*(2*chance(name.Sum64())-1)); p.Jitter > 0 && f < math.MaxInt64 {
		return time.Duration(f)
	}
	return d
}

// left returns what is left of a period. If a poll took all of Period, the next
// one starts a Period after it ended.
func (p *Poller[T]) left(period, took time.Duration) time.Duration {
	if took >= p.Period {
		return p.Period
	}
	return max(0, period-took)
}

// Trigger makes the Poller poll soon: when the poll in flight has returned, and at least one
// second after it began. The back-off of a poll that failed stays. All calls before the next
// poll count as one, also those before Run. Trigger does not block, and may be called from
// any goroutine.
func (p *Poller[T]) Trigger() {
	if wake := p.wake.Load(); wake != nil { // else Run begins with a poll
		select {
		case *wake <- struct{}{}:
		default:
		}
	}
}

func (p *Poller[T]) check() error {
	switch {
	case checkQueue[T]("Poller.Queue", p.Queue) != nil:
		return checkQueue[T]("Poller.Queue", p.Queue)
	case p.GetItems == nil:
		return errors.New("reconcile: Poller.GetItems is required, and nil")
	case p.Period <= 0:
		return fmt.Errorf("reconcile: Poller.Period is %v, want more than 0", p.Period)
	case p.Period < time.Millisecond:
		return fmt.Errorf("reconcile: Poller.Period is %v, want at least 1ms: was a unit forgotten?", p.Period)
	case !(p.Jitter >= 0 && p.Jitter <= 1): // true for a NaN as well
		return fmt.Errorf("reconcile: Poller.Jitter is %v, want 0 to 1", p.Jitter)
	}
	return nil
}
