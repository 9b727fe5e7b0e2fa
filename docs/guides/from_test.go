// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package guides_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// The programs of from-workqueue.md and from-controller-runtime.md.

var errInvalid = errors.New("invalid")

// sync is what a controller with a work queue calls for each key.
func syncKey(_ context.Context, key string) error {
	switch key {
	case "bad":
		return fmt.Errorf("%s: %w", key, errInvalid)
	case "soon":
		return fmt.Errorf("%s is being made: %w", key, reconcile.RequeueWithin(time.Minute))
	case "fails":
		return errors.New("no answer")
	}
	return nil
}

func TestFromWorkqueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		happened := newDiary()
		queue := reconcile.NewQueue[string]()
		for _, key := range []string{"good", "bad", "soon", "fails"} {
			queue.Enqueue(key)
		}
		ctx, stop := context.WithTimeout(t.Context(), 90*time.Second)
		defer stop()

		r := &reconcile.Reconciler[string]{
			Queue:   queue,
			Workers: 1, // "threadiness"
			Reconcile: func(ctx context.Context, key string) error {
				err := syncKey(ctx, key)
				if errors.Is(err, errInvalid) {
					return reconcile.Terminal(err) // was: Forget, and no AddRateLimited
				}
				return err // was: AddRateLimited
			},
			Retry: reconcile.Backoff(time.Second, time.Minute).Limit(5), // was: NumRequeues(key) < 5
		}
		r.Retry = reconcile.RetryPolicy(each(50 * time.Second)).Limit(1) // at an exact instant
		r.OnResult = func(r reconcile.Result[string]) { happened.note("%s %s", r.Item, r.Outcome) }
		r.Logger = quiet
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
		happened.check(t, `
0s      good succeeded
0s      bad terminal_error
0s      soon requeued
0s      fails retrying
50s     fails gave_up
1m0s    soon requeued
`)
	})
}

// A Result is what Reconcile of controller-runtime returns besides an error.
type Result struct{ RequeueAfter time.Duration }

// verdict makes one error of the two values.
func verdict(r Result, err error) error {
	if err != nil || r.RequeueAfter <= 0 {
		return err
	}
	return reconcile.RequeueWithin(r.RequeueAfter)
}

func TestFromControllerRuntime(t *testing.T) {
	failed := errors.New("failed")
	for _, c := range []struct {
		result Result
		err    error
		want   reconcile.Outcome
		next   time.Duration
	}{
		{Result{}, nil, reconcile.OutcomeSucceeded, 0},
		{Result{RequeueAfter: time.Minute}, nil, reconcile.OutcomeRequeued, time.Minute},
		{Result{}, failed, reconcile.OutcomeRetrying, time.Hour},
		{Result{RequeueAfter: time.Minute}, failed, reconcile.OutcomeRetrying, time.Hour},
		{Result{}, reconcile.Terminal(failed), reconcile.OutcomeTerminal, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := reconcile.NewQueue[string]()
			q.Enqueue("vm")
			run(t, &reconcile.Reconciler[string]{
				Queue:     q,
				Reconcile: func(context.Context, string) error { return verdict(c.result, c.err) },
				Retry:     each(time.Hour),
				OnResult: func(r reconcile.Result[string]) {
					if r.Outcome != c.want || r.Next != c.next {
						t.Errorf("%v, %v: %s, next in %v, want %s, %v", c.result, c.err, r.Outcome, r.Next, c.want, c.next)
					}
				},
				Logger: quiet,
			}, time.Second)
		})
	}
}
