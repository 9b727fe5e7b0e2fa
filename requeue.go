// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
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
// only [Queue.EnqueueNow] brings the item back sooner. It is a plan, not a failure; the count
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
func RecheckWithin(d time.Duration) error { return RequeueError{Delay: d, Recheck: true} }

// A RequeueError is what [RequeueAfter], [RequeueWithin] and [RecheckWithin]
// return. A result of a run with a RequeueError anywhere in its tree, as
// [errors.As] finds it, is no failure, unless that is in one of several errors that
// were joined; see [Classify]. The zero RequeueError asks for another run now.
type RequeueError struct {
	Delay   time.Duration
	Hold    bool // not before Delay; otherwise no later than Delay
	Recheck bool // all is well: the next run is a look; counts only without Hold
}

func (e RequeueError) settled() bool { return e.Recheck && !e.Hold }

func (e RequeueError) Error() string {
	switch {
	case e.Hold:
		return fmt.Sprintf("requeue after %v", e.Delay)
	case e.Recheck:
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

// Classify returns what a [Reconciler] makes of err, which a run returned: the outcome,
// and the [RequeueOptions] that its item is given back with, by Requeue, or if it is Done
// without an Err, by Done. It is for loops of one's own, and for what explains
// errors. Failures counts the failures in a row, this one included; a nil retry
// means [DefaultRetry].
//
//	nil                     Succeeded, Done
//	a RequeueError          Requeued, or Succeeded if it is settled
//	an error that matches   TerminalError, Done, with the error
//	ErrTerminal
//	any other error, or a   Retrying, with the error, or GaveUp, Done, with the
//	*PanicError             error, as retry says
//
// The first two lines that apply to an error, as [errors.As] and [errors.Is] find
// them, decide: so an error that wraps a plan is a reason and its plan, and becomes
// the Reason of the options.
//
// The members of what [errors.Join] returned, alone or wrapped by errors that wrap
// one each, are answers of several steps, and judged one by one. A Terminal around
// them is one around each that failed.
//
//   - If one failed, retry decides, with the whole error. A floor among the others
//     that is longer than the back-off holds the retry.
//   - If all that failed did so for good, the plan of the others is followed, with
//     the whole error as its reason. Without a plan (a recheck is none) the outcome
//     is TerminalError.
//   - If none failed, the longest floor holds, and otherwise the soonest ceiling.
//     It is settled only if all are.
//
// Classify calls retry and the methods of err, and what panics there panics here. An
// err that is [ErrAborted] comes back wrapped. What the Reconciler adds is not in
// the options: HoldRetries, RecheckJitter, and what [UntilChanged] and the end of a run's
// context make of an error.
func Classify(err error, failures int, retry RetryPolicy) (Outcome, RequeueOptions) {
	if err == nil {
		return Succeeded, RequeueOptions{Done: true}
	}
	return answerOf(err).classify(err, failures, retry)
}

// An answer is what an error says, before a RetryPolicy is asked: of one step, or of
// several that were joined.
type answer struct {
	failed   bool         // one did, and not for good
	terminal bool         // one failed for good
	planned  bool         // one planned, or was in order
	plan     RequeueError // of those that planned
}

// plans reports whether the plan is followed.
func (a answer) plans() bool {
	return a.planned && !a.failed && !(a.terminal && a.plan.settled())
}

func (a answer) classify(err error, failures int, retry RetryPolicy) (Outcome, RequeueOptions) {
	p := a.plan
	switch {
	case a.plans() && p.settled():
		return Succeeded, RequeueOptions{Delay: p.Delay, Recheck: true}
	case a.plans():
		w := RequeueOptions{Delay: p.Delay, Hold: p.Hold}
		if _, bare := err.(RequeueError); !bare {
			w.Reason = err
		}
		return Requeued, w
	case !a.failed:
		return TerminalError, RequeueOptions{Done: true, Err: err}
	}
	if err == ErrAborted {
		err = fmt.Errorf("%w", err)
	}
	delay, again := retry.orDefault()(err, failures)
	if !again {
		return GaveUp, RequeueOptions{Done: true, Err: err}
	}
	w := RequeueOptions{Delay: delay, Err: err}
	if p.Hold && p.Delay > delay { // of a step beside the one that failed
		w.Delay, w.Hold = p.Delay, true
	}
	return Retrying, w
}

// answerOf returns what err says. It goes down to the join, through errors that wrap
// one each; if there is none, err is one answer as a whole.
func answerOf(err error) answer {
	if p, ok := err.(RequeueError); ok { // as most are
		return answer{planned: true, plan: p}
	}
	terminal := false // something around the join says so
	for e := err; e != nil; {
		if _, panicked := e.(*PanicError); panicked { // whatever its value unwraps to
			return answer{failed: !terminal, terminal: terminal}
		}
		if reflect.TypeOf(e) == joinType {
			var a answer
			for _, member := range e.(interface{ Unwrap() []error }).Unwrap() {
				a = a.join(answerOf(member))
			}
			if terminal && a.failed {
				a.failed, a.terminal = false, true
			}
			return a
		}
		if _, ok := e.(terminalError); ok {
			terminal = true
		}
		w, ok := e.(interface{ Unwrap() error })
		if !ok {
			break
		}
		e = w.Unwrap()
	}
	var plan RequeueError
	switch {
	case errors.As(err, &plan):
		return answer{planned: true, plan: plan}
	case errors.Is(err, ErrTerminal):
		return answer{terminal: true}
	}
	return answer{failed: true}
}

var joinType = reflect.TypeOf(errors.Join(ErrTerminal))

// join returns what two steps say together.
func (a answer) join(b answer) answer {
	p := b.plan
	switch {
	case !b.planned:
		p = a.plan
	case !a.planned:
	case a.plan.Hold && p.Hold:
		p.Delay = max(p.Delay, a.plan.Delay)
	case a.plan.Hold:
		p = a.plan
	case !p.Hold:
		p.Delay = min(p.Delay, a.plan.Delay)
		p.Recheck = p.Recheck && a.plan.Recheck
	}
	return answer{a.failed || b.failed, a.terminal || b.terminal, a.planned || b.planned, p}
}

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
