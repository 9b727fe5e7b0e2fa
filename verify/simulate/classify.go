// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/model"
)

// A verdict is what becomes of an item after a run.
type verdict struct {
	outcome reconcile.Outcome
	wait    model.RequeueOptions
}

// An answer is what one step says.
type answer struct {
	plan     *reconcile.RequeueError // nil if it failed
	terminal bool                    // it failed for good
}

// classify is [reconcile.Classify], written from its description to be read, not to be
// fast: it lists the answers of the steps and goes through the rules.
func classify(err error, failures int, retry reconcile.RetryPolicy) verdict {
	if err == nil {
		return verdict{reconcile.OutcomeSucceeded, model.RequeueOptions{Done: true}}
	}
	failed, terminal := false, false
	var runs, rechecks []reconcile.RequeueError
	for _, a := range answers(err) {
		switch {
		case a.plan == nil && a.terminal:
			terminal = true
		case a.plan == nil:
			failed = true
		case a.plan.Recheck && a.plan.MinDelay <= 0:
			if a.plan.Delay > 0 { // else in sync, as nil
				rechecks = append(rechecks, *a.plan)
			}
		default:
			p := *a.plan
			if max(p.Delay, p.MinDelay) <= 0 && min(p.Delay, p.MinDelay) < 0 { // in the past
				p.Delay = time.Second
			}
			runs = append(runs, p)
		}
	}
	minimum := time.Duration(0)
	for _, p := range runs {
		minimum = max(minimum, p.MinDelay)
	}
	shortest := func(all []reconcile.RequeueError) time.Duration {
		d := time.Duration(1<<63 - 1)
		for _, p := range all {
			if p.MinDelay > 0 {
				p.Delay = max(p.Delay, p.MinDelay)
			}
			d = min(d, p.Delay)
		}
		return d
	}
	if failed {
		if delay, again := retry(err, failures); again {
			if delay == 0 && failures > 1 {
				delay = time.Second
			}
			minimum = max(minimum, min(delay, time.Second))
			return verdict{reconcile.OutcomeRetrying, model.RequeueOptions{Delay: max(delay, minimum), MinDelay: minimum, Err: err}}
		}
	}
	switch {
	case (failed || terminal) && len(runs) > 0:
		d := max(minimum, shortest(runs))
		return verdict{reconcile.OutcomeRequeued, model.RequeueOptions{Delay: d, MinDelay: max(minimum, min(d, time.Second)), Err: err}}
	case failed:
		return verdict{reconcile.OutcomeGaveUp, model.RequeueOptions{MinDelay: time.Second, Err: err, Done: true}}
	case terminal:
		return verdict{reconcile.OutcomeTerminal, model.RequeueOptions{MinDelay: time.Second, Err: err, Done: true}}
	case len(runs) == 0 && len(rechecks) == 0:
		return verdict{reconcile.OutcomeSucceeded, model.RequeueOptions{Done: true}}
	case len(runs) == 0:
		return verdict{reconcile.OutcomeSucceeded, model.RequeueOptions{Delay: shortest(rechecks), Recheck: true}}
	}
	var reason error
	if _, bare := err.(reconcile.RequeueError); !bare {
		reason = err
	}
	d := max(minimum, shortest(append(rechecks, runs...)))
	return verdict{reconcile.OutcomeRequeued, model.RequeueOptions{Delay: d, MinDelay: minimum, Reason: reason}}
}

var (
	joinType     = reflect.TypeOf(errors.Join(errBoom))
	terminalType = reflect.TypeOf(reconcile.Terminal(errBoom))
	errBoom      = errors.New("boom")
)

// answers lists what the steps say that err is of.
func answers(err error) (all []answer) {
	terminal := false // around a join
	for e := err; e != nil; e = errors.Unwrap(e) {
		switch reflect.TypeOf(e) {
		case reflect.TypeFor[*reconcile.PanicError]():
			return []answer{{terminal: terminal}}
		case terminalType:
			terminal = true
		case joinType:
			for _, member := range e.(interface{ Unwrap() []error }).Unwrap() {
				all = append(all, answers(member)...)
			}
			for i := range all {
				all[i].terminal = all[i].terminal || terminal
			}
			return all
		}
	}
	var plan reconcile.RequeueError
	if errors.As(err, &plan) {
		return []answer{{plan: &plan}}
	}
	return []answer{{terminal: errors.Is(err, reconcile.ErrTerminal)}}
}

// randomError returns what a run of a few steps may return.
func randomError(r *rand.Rand, depth int, delay func() time.Duration) error {
	n := r.IntN(16)
	if depth > 3 {
		n = r.IntN(9)
	}
	inner := func() error { return randomError(r, depth+1, delay) }
	switch n {
	case 0, 1:
		if depth == 0 {
			return nil
		}
		return errBoom
	case 2:
		return errBoom
	case 3:
		return reconcile.RequeueAfter(delay())
	case 4:
		return reconcile.RequeueWithin(delay())
	case 5, 6, 7:
		return reconcile.RecheckWithin(delay())
	case 8:
		return reconcile.RequeueError{Delay: delay(), MinDelay: delay(), Recheck: true}
	case 9:
		return fmt.Errorf("because: %w", inner())
	case 10:
		return reconcile.Terminal(inner())
	case 11:
		return fmt.Errorf("%w, then %w", inner(), inner())
	case 12:
		return &reconcile.PanicError{Value: inner()}
	}
	members := make([]error, 1+r.IntN(3))
	for i := range members {
		members[i] = inner()
	}
	return errors.Join(members...)
}
