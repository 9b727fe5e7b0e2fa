// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// A Poller lists items again and again, and offers them to a queue: the source
// for everything that has no watch, and the resync for everything that has one. Each poll
// runs every item that it lists and that is in sync, also an item whose run returned
// RecheckWithin(time.Hour) or a [Terminal] error: such an item runs each Period.
//
// Queue, GetItems and Period are required; the zero value of every other field
// is a good default. They must not be changed while Run goes on.
type Poller[T comparable] struct {
	// Queue is offered each item that GetItems returns.
	Queue Enqueuer[T]

	// GetItems lists the items. Its ctx ends one Period after the poll began.
	// If it returns an error besides items, they are offered all the same. It
	// is not called again before it has returned.
	GetItems func(ctx context.Context) ([]T, error)

	// Period is the time from the start of one poll to the start of the next, at least a
	// millisecond. A poll that takes longer is followed by a pause of one Period.
	Period time.Duration

	// Jitter makes each period, and each back-off, longer or shorter at random, by up
	// to this part of it, from 0 to 1; so pollers that were started together drift
	// apart.
	Jitter float64

	// Vanished makes the poller also Enqueue what the last complete poll had
	// and this one lacks. A poll with an error is not complete.
	Vanished bool

	// MaxVanished is the part, 0 to 1, of the items of the last complete poll that
	// may vanish at once; 0 means that all may. It is rounded up to whole items, so
	// one always may. A poll that lacks more is not complete: its items are
	// offered, and it counts as failed, with [ErrVanished], until [Poller.Believe]
	// is called. So a listing that is empty by mistake takes nothing away. It needs
	// Vanished.
	MaxVanished float64

	Name   string       // for logs
	Logger *slog.Logger // nil means Logger(ctx) of Run: that of the Group, and outside of one slog.Default()

	wake     atomic.Pointer[chan struct{}] // notified by Trigger; nil while Run does not go on
	last     map[T]struct{}                // of the last complete poll, if Vanished; belongs to Run
	refusal  atomic.Pointer[refusal]       // of the last complete poll; nil if it was accepted
	believed atomic.Int64                  // how many the next complete poll may lack, whatever MaxVanished says
}

// ErrVanished is wrapped by the error of a poll that lacks more items than
// [Poller.MaxVanished] allows. That error is logged, as of any poll that fails.
var ErrVanished = errors.New("reconcile: too many items missing from the listing")

// Run polls at once and then every Period, until ctx is done; it then waits for
// the poll in flight and returns nil. It returns an error at once if a field is
// missing or out of its range, or if it is running already.
//
// A poll that fails or panics is retried after a second, then after two, four, and so
// on, no later than a Period after it began. Run logs the first of several failures in a
// row, and then the failure by which their number has doubled; and the first poll that
// succeeds again.
func (p *Poller[T]) Run(ctx context.Context) error {
	if err := p.check(); err != nil {
		return err
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
		err := p.poll(ctx)
		if ctx.Err() != nil {
			return nil
		}
		took := time.Since(start)
		pause := p.pause(took)
		name := nameAttr("poller", p.Name)
		logger := cmp.Or(p.Logger, Logger(ctx))
		triggered := wake
		if err != nil {
			if !errors.Is(err, ErrVanished) { // Believe answers that one.
				triggered = nil // A poll that fails keeps its back-off.
			}
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
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
		return true
	}
	return false
}

// poll lists the items and feeds them.
func (p *Poller[T]) poll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.Period)
	defer cancel()
	return guard(func() error {
		items, err := p.GetItems(ctx)
		for next := 0; next < len(items); {
			// One item that the queue panics on does not hide those after it.
			panicked := guard(func() error {
				for next < len(items) {
					next++
					p.Queue.Offer(items[next-1])
				}
				return nil
			})
			if panicked != nil {
				panicked = fmt.Errorf("offering %v: %w", items[next-1], panicked)
			}
			err = cmp.Or(err, panicked)
		}
		if err != nil || !p.Vanished {
			return err
		}
		seen := make(map[T]struct{}, len(items))
		for _, item := range items {
			seen[item] = struct{}{}
		}
		var vanished []T
		for item := range p.last {
			if _, ok := seen[item]; !ok {
				vanished = append(vanished, item)
			}
		}
		if err := p.checkVanished(len(vanished)); err != nil {
			return err
		}
		for _, item := range vanished {
			p.Queue.Enqueue(item)
		}
		p.last = seen
		return nil
	})
}

// checkVanished returns an error if a poll must not lack that many items. It uses up
// what was believed.
func (p *Poller[T]) checkVanished(n int) error {
	believed := p.believed.Swap(0)
	limit := max(1, math.Ceil(p.MaxVanished*float64(len(p.last))-1e-6)) // 0.28 of 25 is 7, and a little more in binary
	if p.MaxVanished > 0 && float64(n) > limit && int64(n) > believed {
		r := refusal{
			since: time.Now(), lacks: int64(n),
			err: fmt.Errorf("%w: %d of %d items, and MaxVanished is %v", ErrVanished, n, len(p.last), p.MaxVanished),
		}
		if before := p.refusal.Load(); before != nil {
			r.since = before.since
		}
		p.refusal.Store(&r)
		return r.err
	}
	p.refusal.Store(nil)
	return nil
}

// A refusal says why a poll was refused.
type refusal struct {
	since time.Time // when the first of those in a row was
	lacks int64
	err   error
}

// pause returns the time from the end of a poll, which took so long, to the next.
func (p *Poller[T]) pause(took time.Duration) time.Duration {
	return p.left(p.jittered(p.Period), took)
}

// jittered returns d, longer or shorter by chance as Jitter says.
func (p *Poller[T]) jittered(d time.Duration) time.Duration {
	if f := float64(d) * (1 + p.Jitter*(2*rand.Float64()-1)); p.Jitter > 0 && f < math.MaxInt64 {
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

// Trigger makes the poller poll soon: when the poll in flight has returned, and at least
// one second after that poll began. It never puts off the next poll. After a poll that
// failed, the back-off stays. All calls before the next poll begins count as one, also
// those before Run. Trigger never blocks, and may be called from any goroutine.
func (p *Poller[T]) Trigger() {
	if wake := p.wake.Load(); wake != nil { // else Run begins with a poll
		select {
		case *wake <- struct{}{}:
		default:
		}
	}
}

// Believe says that the last poll that was refused because of MaxVanished was right.
// The next one without an error may lack as many items as that, once, and comes
// soon. If none was refused since the last complete poll, Believe does nothing. It
// never blocks, and may be called from any goroutine.
func (p *Poller[T]) Believe() {
	if r := p.refusal.Load(); r != nil {
		p.believed.Store(r.lacks)
		p.Trigger()
	}
}

// Refused returns why the last complete poll was refused, which matches
// [ErrVanished], and since when such polls are; a nil error if it was not. It never
// blocks, and may be called from any goroutine.
func (p *Poller[T]) Refused() (since time.Time, err error) {
	if r := p.refusal.Load(); r != nil {
		return r.since, r.err
	}
	return time.Time{}, nil
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
	case !(p.MaxVanished >= 0 && p.MaxVanished <= 1):
		return fmt.Errorf("reconcile: Poller.MaxVanished is %v, want 0 (which means no limit) to 1", p.MaxVanished)
	case p.MaxVanished > 0 && !p.Vanished:
		return fmt.Errorf("reconcile: Poller.MaxVanished is %v, and needs Vanished, which is false", p.MaxVanished)
	}
	return nil
}
