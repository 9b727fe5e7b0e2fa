// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"reflect"
	"strings"
	"time"
)

// What a reconcile function returns is here; the [Outcome] that a run has by that
// is in reconciler.go.

var (
	// ErrTerminal is matched by every error that [Terminal] returns.
	ErrTerminal = errors.New("reconcile: not worth a retry")

	// ErrTimeout is the [context.Cause] of an item's context that ended
	// because the run took longer than [Reconciler.Timeout].
	ErrTimeout = errors.New("reconcile: run took longer than its timeout")
)

// RequeueAfter returns an error that asks for the next run in d and not before:
// no event brings the item back sooner. It is a plan, not a failure; the count
// of failures starts anew. A d of zero or less means now.
//
// Give the reason by wrapping:
//
//	return fmt.Errorf("rate limited: %w", reconcile.RequeueAfter(retryAfter))
func RequeueAfter(d time.Duration) error { return RequeueError{Delay: d, Hold: true} }

// RequeueWithin returns an error that asks for the next run in d at the latest:
// an event brings the item back sooner. It is a plan, not a failure; the count
// of failures starts anew. A d of zero or less means now.
func RequeueWithin(d time.Duration) error { return RequeueError{Delay: d} }

// RecheckWithin returns an error that says that all is well, and asks for a look
// in d at the latest: an event brings the item back sooner. The outcome of the run
// is [Succeeded], and the item is settled until then. Return it when the work is
// done, and [RequeueWithin] when it goes on. A d of zero or less means now.
func RecheckWithin(d time.Duration) error { return RequeueError{Delay: d, Settled: true} }

// A RequeueError is what [RequeueAfter], [RequeueWithin] and [RecheckWithin]
// return. A result of a run with a RequeueError anywhere in its tree, as
// [errors.As] finds it, is no failure. The zero RequeueError asks for another run
// now.
type RequeueError struct {
	Delay   time.Duration
	Hold    bool // not before Delay; otherwise no later than Delay
	Settled bool // all is well: the next run is a look; counts only without Hold
}

func (e RequeueError) settled() bool { return e.Settled && !e.Hold }

func (e RequeueError) Error() string {
	switch {
	case e.Hold:
		return fmt.Sprintf("requeue after %v", e.Delay)
	case e.Settled:
		return fmt.Sprintf("recheck within %v", e.Delay)
	}
	return fmt.Sprintf("requeue within %v", e.Delay)
}

// Terminal marks err as not worth a retry: the item is given up until it is fed
// again. The message stays err's own, and the result unwraps to err.
// Terminal(nil) is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return terminalError{err}
}

type terminalError struct{ err error }

func (e terminalError) Error() string        { return e.err.Error() }
func (e terminalError) Unwrap() error        { return e.err }
func (e terminalError) Is(target error) bool { return target == ErrTerminal }

// A PanicError, always as *PanicError, is the error of a call into user code
// that panicked or called [runtime.Goexit].
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the goroutine, as [debug.Stack] formats it; what is logged of it is one line
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error, and nil otherwise.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// line returns Stack as a log line has room for it: the calls that led to the
// panic, the last first, as "main.size disk.go:7 < main.attach disk.go:31".
func (e *PanicError) line() string {
	_, stack, _ := strings.Cut(strings.Replace(string(e.Stack), "\nruntime.Goexit(", "\npanic(", 1), "\npanic(")
	kernel := reflect.TypeFor[Wait]().PkgPath() + "."
	var calls []string
	call, users := "", 0 // users is how many of calls there are down to the first one of the user's code
	for line := range strings.Lines(stack) {
		place, ok := strings.CutPrefix(line, "\t")
		if !ok {
			call = line[:max(0, strings.LastIndexByte(line, '('))]
		} else if call != "" && call != "panic" && !strings.HasPrefix(call, "runtime.") {
			place, _, _ = strings.Cut(strings.TrimSpace(path.Base(place)), " ")
			calls = append(calls, path.Base(call)+" "+place)
			if !strings.HasPrefix(call, kernel) && !strings.HasPrefix(call, "sync.") && !strings.HasPrefix(call, "created by ") {
				users = len(calls)
			}
		}
	}
	return strings.Join(calls[:users], " < ")
}

// errGoexit is the Value of a PanicError that stands for a call of runtime.Goexit.
var errGoexit = errors.New("runtime.Goexit called")

// A RetryPolicy decides what follows a failed run: the delay before the next
// try, or that there is none. Failures counts the failures in a row, this one
// included, so it starts at 1. A delay of zero or less means now.
// It is called from many goroutines at once.
type RetryPolicy func(err error, failures int) (delay time.Duration, retry bool)

// DefaultRetry is what a nil RetryPolicy means: a back-off from one second to
// five minutes that never gives up.
var DefaultRetry = Backoff(time.Second, 5*time.Minute)

// Backoff returns a policy that always retries. The delay doubles with each
// failure, from first up to max, and is then shortened at random by up to half,
// so that items that failed together do not come back together.
//
// A first of zero or less means one second. A max of zero or less means that
// the delay does not grow; a max below first is the limit from the beginning.
func Backoff(first, max time.Duration) RetryPolicy {
	if first <= 0 {
		first = time.Second
	}
	if max <= 0 {
		max = first
	}
	return func(_ error, failures int) (time.Duration, bool) {
		d := min(first, max)
		for ; failures > 1 && d < max; failures-- {
			if d > max/2 {
				d = max
			} else {
				d *= 2
			}
		}
		return d - rand.N(d/2+d%2), true
	}
}

// Limit returns a policy that decides as p does, and gives up after that many
// retries. Zero or less means none at all. A nil p means [DefaultRetry].
func (p RetryPolicy) Limit(retries int) RetryPolicy {
	return func(err error, failures int) (time.Duration, bool) {
		if failures > retries {
			return 0, false
		}
		return p.orDefault()(err, failures)
	}
}

func (p RetryPolicy) orDefault() RetryPolicy {
	if p == nil {
		return DefaultRetry
	}
	return p
}

// NoRetry is a [RetryPolicy] that never retries: the failure is logged, and the
// item forgotten until it is fed again.
func NoRetry(error, int) (time.Duration, bool) { return 0, false }
