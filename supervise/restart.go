// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reconkernel/reconcile"
	"github.com/reconkernel/reconcile/internal/guard"
)

// After returns a Runner that runs r once ready has returned nil: when caches are synced,
// a list is primed, this process is the leader. If ready fails or panics, so does the
// Runner. If ctx is done first, r does not run. A warning says that ready has not returned
// although ctx is done, again each time its age has doubled.
func After(ready func(ctx context.Context) error, r reconcile.Runner) reconcile.Runner {
	return after{ready, r}
}

type after struct {
	ready func(ctx context.Context) error
	reconcile.Runner
}

func (a after) Run(ctx context.Context) error {
	if a.ready == nil || a.Runner == nil {
		return reconcile.Terminal(errors.New("supervise: After needs a function and a Runner, got nil"))
	}
	late := func(age time.Duration) {
		guard.Log(reconcile.Logger(ctx), slog.LevelWarn, "ready has not returned, though its context ended", "age", age, "cause", context.Cause(ctx))
	}
	err := guard.Watched(ctx, late, func() error { return a.ready(ctx) })
	switch {
	case ctx.Err() != nil && (err == nil || isOwn(ctx, err)):
		return nil
	case err != nil:
		return fmt.Errorf("not ready: %w", err)
	}
	return a.Runner.Run(ctx)
}

func (a after) Unwrap() reconcile.Runner { return a.Runner }

// Ready returns the function that Run waits for. With it, the status page distinguishes a
// member that waits from one that runs.
func (a after) Ready() func(ctx context.Context) error { return a.ready }

// Restart returns a Runner that runs r again, as p says, when it fails or panics; a nil p
// means [reconcile.DefaultRetry]. It returns
//
//   - nil when r does, or when ctx ends a pause;
//   - the error of r when p says no, when the error is [reconcile.Terminal], as that of a
//     wrong field is, or when ctx is done and r failed for another reason.
//
// The error is classified by [reconcile.Classify], which also replaces a delay below zero
// and, from the second failure on, a delay of zero. An error that wraps a RequeueError is a
// failure as any other.
//
// The count of failures, by which p decides, begins anew after a run that lasted a minute,
// or ten times as long as the pause before it; a pause of zero counts as a second. So a
// healthy stream that a proxy cuts each minute is up most of the time.
//
// Restart logs to the [reconcile.Logger] of ctx: the 1st, 2nd, 4th, 8th … failure by that
// count, and at Info that r ended without an error, unless ctx is done.
func Restart(p reconcile.RetryPolicy, r reconcile.Runner) reconcile.Runner { return restart{p, r} }

type restart struct {
	policy reconcile.RetryPolicy
	reconcile.Runner
}

func (s restart) Run(ctx context.Context) error {
	var pause time.Duration
	for failures := 1; ; failures++ {
		begin := time.Now()
		err := runGuarded(s.Runner, ctx, ctx)
		if err == nil {
			if ctx.Err() == nil {
				guard.Log(reconcile.Logger(ctx), slog.LevelInfo, "ended")
			}
			return nil
		}
		if time.Since(begin) >= min(time.Minute, 10*cmp.Or(pause, time.Second)) {
			failures = 1
		}
		var again bool
		pause, again = s.decide(ctx, err, failures)
		if ctx.Err() != nil || !again {
			return err
		}
		if failures&(failures-1) == 0 {
			args := []any{"next", pause, "failures", failures, "err", err}
			if p := (*reconcile.PanicError)(nil); guard.Call(func() error { errors.As(err, &p); return nil }) == nil && p != nil {
				args = append(args, "stack", string(p.Stack))
			}
			guard.Log(reconcile.Logger(ctx), slog.LevelWarn, "runner failed, restarting", args...)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// decide classifies a failure. A policy, or a method of the error, that panics is replaced,
// as with a Reconciler.
func (s restart) decide(ctx context.Context, failure error, failures int) (pause time.Duration, again bool) {
	err := guard.Call(func() error {
		outcome, o := reconcile.Classify(failure, failures, s.policy)
		if !outcome.Failed() && o.Err == nil { // It wraps a RequeueError. A Runner schedules nothing: that is a failure as any other.
			outcome, o = reconcile.Classify(struct{ error }{failure}, failures, s.policy)
		}
		pause, again = o.Delay, outcome == reconcile.OutcomeRetrying
		return nil
	})
	if err != nil {
		guard.Log(reconcile.Logger(ctx), slog.LevelError, "the retry policy, or a method of the error, panicked; the runner is restarted with the default back-off", "err", err)
		return reconcile.DefaultRetry(nil, failures)
	}
	return pause, again
}

func (s restart) Unwrap() reconcile.Runner { return s.Runner }
