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

// RequeueAfter returns an error that schedules the next run after d, and not
// before: an event does not start it sooner. Only [Queue.EnqueueNow] does. Use it
// when a remote API asks you to wait. The run has not failed, and the count of
// failures starts again. A d of zero or less means now.
//
// In client-go and controller-runtime, RequeueAfter has the meaning of [RequeueWithin].
//
// Give the reason by wrapping:
//
//	return fmt.Errorf("rate limited: %w", reconcile.RequeueAfter(retryAfter))
func RequeueAfter(d time.Duration) error { return RequeueError{Delay: d, MinDelay: d} }

// RequeueWithin returns an error that schedules the next run after d at the latest:
// an event starts it sooner. Use it while the work is in progress. The run has not
// failed, and the count of failures starts again. A d of zero or less means now.
func RequeueWithin(d time.Duration) error { return RequeueError{Delay: d} }

// RecheckWithin returns an error that says that the item is in sync, and asks for a
// recheck after d at the latest. An event starts it sooner. A poll starts it sooner too:
// each poll of a [Poller] runs the listed items that are in sync. The outcome of the run
// is [OutcomeSucceeded], and the count of failures is reset. Return it when the work is done,
// and [RequeueWithin] while the work is in progress. A d of zero or less means now.
func RecheckWithin(d time.Duration) error { return RequeueError{Delay: d, Recheck: true} }

// A RequeueError is the error of [RequeueAfter], [RequeueWithin] and [RecheckWithin]. If
// an error wraps a RequeueError, as [errors.As] finds it, the run has not failed. An
// [errors.Join] is different: its members are classified one by one; see [Classify]. The
// zero RequeueError asks for another run now.
type RequeueError struct {
	Delay    time.Duration // the next run starts after Delay at the latest; zero or less means now
	MinDelay time.Duration // no event starts it sooner; a Delay that is less counts as MinDelay
	Recheck  bool          // in sync: the next run is only a recheck; ignored if MinDelay is more than 0
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

// Terminal marks err as permanent: the item is not retried, and the queue drops it. An
// Enqueue or Offer that comes later runs it again, at once, because a dropped item has no
// next run and no minimum delay. So a function that writes the failure into a record of
// its own, and gets that write back as an event, must compare before it writes. Otherwise
// it runs again and again. An event that came during the run is kept, and runs the item a
// second later. The same holds for a failure that a [RetryPolicy] does not retry. The
// message stays err's own, and the result unwraps to err. Terminal(nil) is nil.
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
// item is given back: by [Queue.Requeue], or by [Queue.Done] if the field Done is set and
// Err is nil. A [Reconciler] does the same. It is for loops of your own, and for code
// that explains errors. Failures is the number of failures in a row, this one included. A
// nil retry means [DefaultRetry]. The first line that applies decides:
//
//	nil                     OutcomeSucceeded, Done
//	a RequeueError          OutcomeRequeued, or OutcomeSucceeded if it is a recheck
//	an error that matches   OutcomeTerminal, Done, with the error
//	ErrTerminal
//	any other error, or a   as retry decides: OutcomeRetrying, with the error and its delay,
//	*PanicError             or OutcomeGaveUp, Done, with the error
//
// An error that wraps a RequeueError, as [errors.As] finds it, is that RequeueError with
// a reason, and becomes the Reason of the options.
//
// After a failure that is retried, MinDelay is one second, or the delay of the retry if
// that is shorter: no event starts the item sooner. Otherwise a function that writes the
// failure into a record of its own, and gets that write back as an event, would be a hot
// loop. After a failure that is not retried, MinDelay is one second. It applies only to a
// next run that was asked for during the run; see [Terminal].
//
// A negative delay of retry is an overflow, and counts as five minutes. A delay of zero
// means one second from the second failure on.
//
// If a function has several steps, it joins their errors by [errors.Join]. Classify then
// classifies the members of the join one by one, also if the join is wrapped by errors
// that wrap one error each. Terminal(errors.Join(a, b)) marks each failure among a and b
// as terminal.
//
//   - If one of them is a failure, retry decides, with the whole error. MinDelay is
//     raised to the longest delay of a RequeueAfter beside the failure, and Delay to
//     MinDelay.
//   - If all failures are terminal, or retry says no, the scheduled runs of the other
//     steps still take place. The outcome is then OutcomeRequeued, with the whole error as Err,
//     which counts one failure, and a MinDelay of at least one second, or of Delay if
//     that is shorter. A recheck is not a scheduled run. Without scheduled runs the
//     outcome is OutcomeTerminal or OutcomeGaveUp.
//   - Without a failure, MinDelay is the longest MinDelay of the members, and Delay is
//     their shortest Delay, but not less than MinDelay. The next run is a recheck only if
//     all members are rechecks.
//
// Classify calls retry and methods of err. It does not recover their panics. It does not
// apply HoldRetries, RecheckJitter and the end of a run's context: the Reconciler does.
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
	if !a.scheduled {
		return OutcomeSucceeded, RequeueOptions{Delay: a.recheck, Recheck: true}
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

// answerOf returns what err says. It goes down to the join, through errors that wrap
// one each; if there is none, err is one answer as a whole.
func answerOf(err error) answer {
	if e, ok := err.(RequeueError); ok { // Most are.
		return answerOfRequeue(e)
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
	var requeue RequeueError
	switch {
	case errors.As(err, &requeue):
		return answerOfRequeue(requeue)
	case errors.Is(err, ErrTerminal):
		return answer{terminal: true}
	}
	return answer{failed: true}
}

var joinType = reflect.TypeOf(errors.Join(ErrTerminal))

func answerOfRequeue(e RequeueError) answer {
	if e.isRecheck() {
		return answer{rechecked: true, recheck: e.Delay}
	}
	return answer{scheduled: true, run: RequeueError{Delay: max(e.Delay, e.MinDelay), MinDelay: max(0, e.MinDelay)}}
}

// join returns what two steps say together.
func (a answer) join(b answer) answer {
	switch {
	case !a.scheduled:
		a.run = b.run
	case b.scheduled:
		a.run = RequeueError{Delay: min(a.run.Delay, b.run.Delay), MinDelay: max(a.run.MinDelay, b.run.MinDelay)}
	}
	switch {
	case !a.rechecked:
		a.recheck = b.recheck
	case b.rechecked:
		a.recheck = min(a.recheck, b.recheck)
	}
	a.failed, a.terminal = a.failed || b.failed, a.terminal || b.terminal
	a.scheduled, a.rechecked = a.scheduled || b.scheduled, a.rechecked || b.rechecked
	return a
}

// A RetryPolicy decides whether a failed run is retried, and after which delay. Failures
// counts the failures in a row, this one included, so it starts at 1. A delay of zero
// means now after the first failure, and one second from the second failure on. A negative
// delay is an overflow and counts as five minutes. A policy is called from many goroutines at once.
type RetryPolicy func(err error, failures int) (delay time.Duration, retry bool)

// DefaultRetry is the policy of a nil RetryPolicy: a back-off from one second to
// five minutes that always retries.
//
// A service whose items are polled needs another policy, because polls do not shorten a
// back-off. Suppose calls for single items failed for a while, and listings did not. The
// next run then starts up to five minutes later, although a poll comes sooner.
// Backoff(time.Second, period).Limit(3) stops after a few retries, and then the next poll
// runs the item. Return nil for "not found": an item that is no longer listed is
// otherwise retried for ever.
func DefaultRetry(_ error, failures int) (delay time.Duration, retry bool) {
	return backoff(time.Second, 5*time.Minute, failures), true
}

// Backoff returns a policy that always retries. The delay doubles with each
// failure, from first up to max, and is then shortened at random by up to half,
// so that items that failed together do not come back together. In a bubble of
// testing/synctest the random part follows from the time: each run of a test has the same
// delays, and failures of one instant are retried together.
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

// Limit returns a policy that decides as p does, and stops after that many retries.
// Zero or less means none at all. A nil p means [DefaultRetry].
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
// queue drops the item until it is enqueued or offered again.
func NoRetry(error, int) (time.Duration, bool) { return 0, false }

// An unscheduled error hides each RequeueError in an error. It scheduled the item, and
// not the caller, which may be a run of another queue and return the error.
type unscheduled struct{ err error }

func (e unscheduled) Error() string        { return e.err.Error() }
func (e unscheduled) Is(target error) bool { return errors.Is(e.err, target) }

func (e unscheduled) As(target any) bool {
	_, requeue := target.(*RequeueError)
	return !requeue && errors.As(e.err, target)
}

// hideRequeue returns err as an unscheduled error, or nil if err is nil.
func hideRequeue(err error) error {
	if err == nil {
		return nil
	}
	return unscheduled{err}
}
