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

// judge is [reconcile.Classify], written from its description to be read, not to be
// fast: it lists the answers of the steps and goes through the rules.
func judge(err error, failures int, retry reconcile.RetryPolicy) verdict {
	if err == nil {
		return verdict{reconcile.Succeeded, model.RequeueOptions{Done: true}}
	}
	failed, terminal, settled := false, false, true
	var floor, ceiling *time.Duration // the longest, the soonest
	for _, a := range answers(err) {
		switch {
		case a.plan == nil && a.terminal:
			terminal = true
		case a.plan == nil:
			failed = true
		case a.plan.Hold:
			settled = false
			if floor == nil || a.plan.Delay > *floor {
				floor = &a.plan.Delay
			}
		default:
			settled = settled && a.plan.Recheck
			if ceiling == nil || a.plan.Delay < *ceiling {
				ceiling = &a.plan.Delay
			}
		}
	}
	plan := model.RequeueOptions{}
	switch {
	case floor != nil:
		plan.Delay, plan.Hold = *floor, true
	case ceiling != nil:
		plan.Delay = *ceiling
	}
	planned := floor != nil || ceiling != nil
	switch {
	case failed:
		delay, again := retry(err, failures)
		switch {
		case !again:
			return verdict{reconcile.GaveUp, model.RequeueOptions{Done: true, Err: err}}
		case floor != nil && *floor > delay:
			return verdict{reconcile.Retrying, model.RequeueOptions{Delay: *floor, Hold: true, Err: err}}
		}
		return verdict{reconcile.Retrying, model.RequeueOptions{Delay: delay, Err: err}}
	case terminal && (!planned || settled):
		return verdict{reconcile.TerminalError, model.RequeueOptions{Done: true, Err: err}}
	case !terminal && settled:
		return verdict{reconcile.Succeeded, model.RequeueOptions{Delay: plan.Delay, Recheck: true}}
	}
	if _, bare := err.(reconcile.RequeueError); !bare {
		plan.Reason = err
	}
	return verdict{reconcile.Requeued, plan}
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
		return reconcile.RequeueError{Delay: delay(), Hold: true, Recheck: true}
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
