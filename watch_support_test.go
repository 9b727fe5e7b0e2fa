// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package reconcile_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reconkernel/reconcile"
)

// A waitResult is what a WaitIdle or WaitItem in a goroutine of its own
// returned, and when.
type waitResult struct {
	err error
	at  time.Time
}

func startWait(wait func() error) <-chan waitResult {
	c := make(chan waitResult, 1)
	go func() {
		err := wait()
		c <- waitResult{err, time.Now()}
	}()
	synctest.Wait()
	return c
}

// mustWaitOn and mustHaveReturned look at startWait's channel.
func mustWaitOn(t *testing.T, c <-chan waitResult) {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-c:
		t.Fatalf("returned %v, want it to wait", r.err)
	default:
	}
}

func mustHaveReturned(t *testing.T, c <-chan waitResult) waitResult {
	t.Helper()
	synctest.Wait()
	select {
	case r := <-c:
		return r
	default:
	}
	t.Fatal("waits, want it to return")
	return waitResult{}
}

func done() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errEnd)
	return ctx
}

// fail takes "x" and has its run fail.
func fail(t *testing.T, q *reconcile.Queue[string], retry time.Duration) {
	q.Enqueue("x")
	mustTake(t, q)
	q.Requeue("x", reconcile.Wait{Delay: retry, Err: errBoom})
}

// wantCause checks that a context has ended, and why; nil means that it has not.
func wantCause(t *testing.T, ctx context.Context, want error) {
	t.Helper()
	if got := context.Cause(ctx); got != want {
		t.Errorf("cause of the end of the context: %v, want %v", got, want)
	}
}

// oneRun runs f as the one run of "x" whose end is looked at, and returns the
// result.
func oneRun(t *testing.T, q *reconcile.Queue[string], r reconcile.Reconciler[string], f func(context.Context) error) reconcile.Result[string] {
	t.Helper()
	first := true
	var results resultBook[string]
	r.OnResult, r.Logger, r.Retry = results.add, unlogged(), minutes
	if r.Queue == nil {
		r.Queue = q
	}
	r.Reconcile = func(ctx context.Context, item string) error {
		if item != "x" || !first {
			return nil
		}
		first = false
		return f(ctx)
	}
	run := launch(t, &r)
	q.Enqueue("x")
	time.Sleep(2 * time.Hour)
	synctest.Wait()
	run.end()
	if n := reconcile.Watchers(q); n != 0 {
		t.Errorf("%d watchers are left", n)
	}
	return results.all()[0]
}

func wantOutcome(t *testing.T, got reconcile.Result[string], want reconcile.Outcome) {
	t.Helper()
	if got.Outcome != want {
		t.Errorf("outcome %q, want %q: %+v", got.Outcome, want, got)
	}
}
