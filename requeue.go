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

// This file has the errors that a reconcile function returns, and which [Outcome] each
// of them gives its run.

var (
	// ErrTerminal is matched by every error that [Terminal] returns.
	ErrTerminal = errors.New("reconcile: not retried")

	// ErrTimeout is the [context.Cause] of an item's context that ended
	// because the run took longer than [Reconciler.Timeout].
	ErrTimeout = errors.New("reconcile: run took longer than its timeout")
)

// RequeueAfter returns an error that schedules the next run after d. No event starts it
// sooner, only [Queue.EnqueueNow]. The run has not failed. Use it when an API asks you to
// wait. Zero means at once. A d below zero, such as the time until a date in the past,
// means one second.
//
// In client-go and controller-runtime, RequeueAfter has the meaning of [RequeueWithin].
//
// Give the reason by wrapping:
//
//	return fmt.Errorf("rate limited: %w", reconcile.RequeueAfter(retryAfter))
func RequeueAfter(d time.Duration) error {
	d = notPast(d)
	return RequeueError{Delay: d, MinDelay: d}
}

// RequeueWithin returns an error that schedules the next run after d at the latest; an
// event starts it sooner. The run has not failed. Use it while the work is in progress.
// Zero means at once: the next step of the work. A d below zero means one second.
func RequeueWithin(d time.Duration) error { return RequeueError{Delay: notPast(d)} }

// notPast replaces a time in the past, with which an item would run again and again.
func notPast(d time.Duration) time.Duration {
	if d < 0 {
		return minRetryDelay
	}
	return d
}

// RecheckWithin returns an error that says that the item is in sync, and asks for a recheck
// after d at the latest; an event or a poll starts it sooner. The outcome of the run is
// [OutcomeSucceeded]. If d is zero or less, RecheckWithin returns nil: no recheck.
func RecheckWithin(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	return RequeueError{Delay: d, Recheck: true}
}

// A RequeueError is the error of [RequeueAfter], [RequeueWithin] and [RecheckWithin].
type RequeueError struct {
	Delay    time.Duration // the next run starts after Delay at the latest; below zero means one second
	MinDelay time.Duration // no event starts it sooner; a Delay that is less counts as MinDelay; below zero as Delay
	Recheck  bool          // in sync: the next run is only a recheck, and none if Delay is zero or less; ignored if MinDelay is more than 0
}

// isRecheck reports whether the run succeeded, and the next one is only a recheck.
func (e RequeueError) isRecheck() bool { return e.Recheck && e.MinDelay <= 0 }

// Error returns the delays as text, such as "requeue within 15s".
func (e RequeueError) Error() string {
	switch {
	case e.isRecheck():
		return fmt.Sprintf("recheck within %v", e.Delay)
	case e.MinDelay <= 0:
		return fmt.Sprintf("requeue within %v", e.Delay)
	case e.MinDelay < e.Delay:
		return fmt.Sprintf("requeue within %v, after %v at the earliest", e.Delay, e.MinDelay)
	}
	return fmt.Sprintf("requeue after %v", e.MinDelay)
}

// Terminal marks err as permanent: the queue drops the item without a retry. A later
// Enqueue or Offer runs it at once. So a function that writes the failure into a record of
// its own, and gets that write back as an event, must compare before it writes. An event
// that came during the run runs the item a second after it. All of this also holds for a
// failure that a [RetryPolicy] does not retry. Terminal(nil) is nil. The message is err's,
// and the result unwraps to err.
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

// Classify returns the outcome of a run that returned err, and the options with which its
// item is given back. [Reconciler] does the same. Failures are those in a row, this one
// included. A nil retry means [DefaultRetry]. The first line that applies decides:
//
//	nil                   OutcomeSucceeded, Done
//	wraps a RequeueError  OutcomeRequeued; for a recheck OutcomeSucceeded
//	matches ErrTerminal   OutcomeTerminal, Done
//	any other             OutcomeRetrying, or OutcomeGaveUp and Done: retry decides
//
// What the Value of a *PanicError wraps does not count.
//
// A failure that is retried has a MinDelay of one second, or of its delay if that is less.
// A failure that is not retried has a MinDelay of one second. A delay of retry below zero
// is an overflow and counts as five minutes. A delay of zero counts as one second from the
// second failure on.
//
// A function with several steps joins their errors by [errors.Join]. The members are
// classified one by one. Terminal(errors.Join(…)) marks each failure among them.
//
//   - With a failure, retry decides about the whole error. MinDelay is at least the longest
//     RequeueAfter beside the failure.
//   - If no failure is retried, the scheduled runs of other steps still take place. The
//     outcome is OutcomeRequeued, and the whole error is Err and counts as one failure.
//     MinDelay is at least one second, or Delay if that is less.
//   - Without a failure, MinDelay is the longest of the members. Delay is their shortest,
//     and at least MinDelay. It is a recheck only if all members are rechecks.
//
// Classify calls retry and the methods of err, which must not block. It does not recover
// their panics.
func Classify(err error, failures int, retry RetryPolicy) (Outcome, RequeueOptions) {
	if err == nil {
		return OutcomeSucceeded, RequeueOptions{Done: true}
	}
	return answerOf(err).classify(err, failures, retry)
}

// An answer is what an error says, before a RetryPolicy is asked: of one step, or of
// several that were joined.
type answer struct {
	failed    bool         // One step failed, and may be retried.
	terminal  bool         // One step failed, and is not retried.
	scheduled bool         // One step scheduled a run: then run is set.
	rechecked bool         // One step is in sync: then recheck is set.
	run       RequeueError // the scheduled runs
	recheck   time.Duration
}

// succeeded reports whether no step failed.
func (a answer) succeeded() bool { return !a.failed && !a.terminal }

// isTerminal reports whether a step failed, and none that failed may be retried.
func (a answer) isTerminal() bool { return a.terminal && !a.failed }

func (a answer) classify(err error, failures int, retry RetryPolicy) (Outcome, RequeueOptions) {
	if a.succeeded() {
		return a.classifySuccess(err)
	}
	if a.failed {
		if delay, again := retry.orDefault()(err, failures); again {
			delay = sanitized(delay, failures)
			minimum := max(a.run.MinDelay, min(delay, minRetryDelay))
			return OutcomeRetrying, RequeueOptions{Delay: max(delay, minimum), MinDelay: minimum, Err: err}
		}
	}
	if a.scheduled {
		delay := max(0, a.run.Delay, a.run.MinDelay)
		return OutcomeRequeued, RequeueOptions{Delay: delay, MinDelay: max(a.run.MinDelay, min(delay, minRetryDelay)), Err: err}
	}
	outcome := OutcomeGaveUp
	if !a.failed {
		outcome = OutcomeTerminal
	}
	return outcome, RequeueOptions{MinDelay: minRetryDelay, Err: err, Done: true}
}

func (a answer) classifySuccess(err error) (Outcome, RequeueOptions) {
	switch {
	case a.scheduled:
	case a.rechecked:
		return OutcomeSucceeded, RequeueOptions{Delay: a.recheck, Recheck: true}
	default:
		return OutcomeSucceeded, RequeueOptions{Done: true}
	}
	o := RequeueOptions{Delay: a.run.Delay, MinDelay: a.run.MinDelay}
	if a.rechecked {
		o.Delay = min(o.Delay, a.recheck)
	}
	o.Delay = max(o.Delay, o.MinDelay)
	if _, bare := err.(RequeueError); !bare {
		o.Reason = err
	}
	return OutcomeRequeued, o
}

const (
	minRetryDelay = time.Second     // No event starts a failed item sooner.
	overflowDelay = 5 * time.Minute // replaces a delay below zero
)

// sanitized returns the delay of a policy, corrected if the policy has overflowed:
// time.Second<<n is negative for some n, and zero for all that are greater.
func sanitized(delay time.Duration, failures int) time.Duration {
	switch {
	case delay < 0:
		return overflowDelay
	case delay == 0 && failures > 1:
		return minRetryDelay
	}
	return delay
}

// answerOf returns what err says.
func answerOf(err error) (a answer) {
	a.add(err, false)
	return a
}

// add adds what the error of a step says; terminal says whether an error around it is
// terminal. It goes down to a join, through errors that wrap one each, and adds each of its
// members; if there is no join, err is one step as a whole.
func (a *answer) add(err error, terminal bool) {
	r, requeue := err.(RequeueError) // Most are.
	panicked := false
	for e := err; !requeue && !panicked && e != nil; e = errors.Unwrap(e) {
		if reflect.TypeOf(e) == joinType {
			for _, member := range e.(interface{ Unwrap() []error }).Unwrap() {
				a.add(member, terminal)
			}
			return
		}
		_, panicked = e.(*PanicError) // It failed, whatever its value unwraps to.
		if _, ok := e.(terminalError); ok {
			terminal = true
		}
	}
	switch {
	case !requeue && (panicked || !errors.As(err, &r)):
		if terminal || !panicked && errors.Is(err, ErrTerminal) {
			a.terminal = true
		} else {
			a.failed = true
		}
	case r.isRecheck():
		if r.Delay > 0 && (!a.rechecked || r.Delay < a.recheck) {
			a.rechecked, a.recheck = true, r.Delay
		}
	default:
		delay := max(r.Delay, r.MinDelay)
		if delay <= 0 && min(r.Delay, r.MinDelay) < 0 {
			delay = minRetryDelay // a time in the past
		}
		if !a.scheduled || delay < a.run.Delay {
			a.run.Delay = delay
		}
		a.run.MinDelay = max(a.run.MinDelay, r.MinDelay)
		a.scheduled = true
	}
}

var joinType = reflect.TypeOf(errors.Join(ErrTerminal))

// A RetryPolicy decides whether a failed run is retried, and after which delay; see
// [Classify]. Failures are those in a row, this one included. A policy is called from many
// goroutines at once.
type RetryPolicy func(err error, failures int) (delay time.Duration, retry bool)

// DefaultRetry is the policy of a nil RetryPolicy: Backoff(time.Second, 5*time.Minute).
//
// For polled items use Backoff(time.Second, period), because a poll does not shorten a
// back-off. Return nil for "not found": otherwise an item that is no longer listed is
// retried for ever.
func DefaultRetry(_ error, failures int) (delay time.Duration, retry bool) {
	return backoff(time.Second, 5*time.Minute, failures), true
}

// Backoff returns a policy that always retries. The delay doubles with each failure, from
// first up to max. Each delay is then shortened at random by up to half, so that items that
// failed together drift apart. A first of zero or less means one second. A max of zero or
// less means that the delay does not grow.
//
// In a bubble of testing/synctest the random part follows from the time, so that a test
// has the same delays each time.
func Backoff(first, max time.Duration) RetryPolicy {
	if first <= 0 {
		first = time.Second
	}
	if max <= 0 {
		max = first
	}
	return func(_ error, failures int) (time.Duration, bool) { return backoff(first, max, failures), true }
}

func backoff(first, max time.Duration, failures int) time.Duration {
	d := min(first, max)
	for ; failures > 1 && d < max; failures-- {
		d += min(d, max-d)
	}
	return d - time.Duration(chance(uint64(failures))*float64(d/2+d%2))
}

// chance returns a random number from 0 up to 1. In a bubble of testing/synctest, whose times
// have no monotonic reading, it follows from the time and of, which tells the choices of one
// instant apart: so package explore can play a plan again. Elsewhere it does not follow from
// the time, because clocks of some systems stand still for milliseconds.
func chance(of uint64) float64 {
	now := time.Now()
	if now != now.Round(0) {
		return rand.Float64()
	}
	return rand.New(rand.NewPCG(uint64(now.UnixNano()), of)).Float64()
}

// Limit returns a policy that decides as p does, and stops after that many retries. Zero or
// less means none. A nil p means [DefaultRetry].
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

// NoRetry is a [RetryPolicy] that never retries.
func NoRetry(error, int) (time.Duration, bool) { return 0, false }
